"""The first n rows of each group if the end of each row is known: only a skyband is held.

A row never makes the first n if n other rows sort before it and leave no sooner. Such a row is dominated n
times and dropped at once. The rows that are left are the n-skyband of rank and end. They are few, so the rows
of a group lie next to each other, in sort order, in a block of one pool:

    groups  START  SIZE  CAPACITY  ...           pool   KEY  END  SLOT  MARKS
    "x"         0     3         4  ────────►        0    ~9   15     4  shown, dominated by 0
    "y"         4     1         4  ─────┐           1    ~7   30     0  shown, dominated by 0
                                        │           2    ~5   40     2  hidden, dominated by 0
                                        │           3    (free)
                                        └────►      4    ~8   20     1  shown, dominated by 0
                                                    5    (free)

    Group "x", first 2 by price descending: the row with price 5 is not among them yet, but it will be when
    the row with price 9 leaves at 15. A new row with price 6 and end 50 would dominate it once. A new row
    with price 3 and end 25 is dominated by 7 and 5, that is twice, and is dropped.

A slot is the number of a row in the operator's row store; `ends` has the end of each slot, or DROPPED_SLOT.
KEY is the first value of the row's sort key and decides most comparisons; where it is equal, the `KeyTable`
decides (`headrace.kernels.sort_keys`).
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from headrace.arrays import Ints
from headrace.kernels.changes import CODE, DELTA, TIME
from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sort_keys import KEY_TABLE, KeyTable, compare
from headrace.kernels.top_n import RANK

KEY, END, SLOT, MARKS = range(4)
"""The columns of an entry in the pool. MARKS packs three numbers into one word:

    bits 63 … 32                         bit 31                        bits 30 … 0
    the place at which it is shown,      FRESH: its place changed      how many rows
    0 if it is hidden                    at this instant               dominate it

Places are ranks from 1 if the query asks for ranks; otherwise every shown entry has place 1.
"""
ENTRY_WIDTH = 4
PLACE_SHIFT = 32
FRESH = 1 << 31
_DOMINATORS = FRESH - 1

START, SIZE, CAPACITY, SOONEST_END, TOUCHED_AT, FIRST_GONE, SHOWN_COUNT = range(7)
"""The columns of a group: where its block is in the pool, how many entries it has and how many fit; a lower
bound of the ends in it; the last instant at which what is shown of it changed; the first of its `gone` lines;
how many entries are shown."""
GROUP_WIDTH = 8

GONE_SLOT, GONE_PLACE, GONE_NEXT = range(3)
"""The columns of an entry that is no longer shown at its place at this instant: its slot (EMPTY if an equal
row took the place), the place, and the next line of the same group."""
GONE_WIDTH = 3

(
    NEXT_ARRIVAL,
    NEXT_EXPIRY,
    POOL_USED,
    INSTANT,
    OUT_COUNT,
    NOW,
    TOUCHED_COUNT,
    GONE_COUNT,
    DROPPED_COUNT,
    INSIDE,
) = range(10)
"""How far a step has come: the next row and the next expiry; entries of the pool in use; the number of the
instant and its time; lines used of `out`, `touched`, `gone` and `dropped`; and whether it stopped INSIDE an
instant because the pool was full."""
PROGRESS_WIDTH = 10

DONE, POOL_FULL, TOO_MANY = range(3)
"""Why a step returned."""

NEVER = np.iinfo(np.int64).max
_LEAST = np.iinfo(np.int64).min
DROPPED_SLOT = np.iinfo(np.int64).min
"""The end of a slot that is not in the skyband."""


class Band(NamedTuple):
    """The skybands of all groups, and the lists that a step writes."""

    progress: Ints
    """One line, see NEXT_ARRIVAL."""
    groups: Ints
    """One line for each group, see START."""
    pool: Ints
    """The blocks of all groups, see KEY."""
    keys: KeyTable
    """The sort key of each slot."""
    ends: Ints
    """The end of each slot, or DROPPED_SLOT."""
    touched: Ints
    """The groups in which something changed at this instant."""
    gone: Ints
    """The entries that are not shown at their place any more, see GONE_SLOT."""
    dropped: Ints
    """The slots that left the skyband."""
    out: Ints
    """The changes of what is shown: TIME, CODE (the slot), DELTA (+1 or −1), RANK (the place)."""


_I64 = nb.int64[::1]
_TABLE = nb.int64[:, ::1]
_BAND = nb.types.NamedTuple((_I64, _TABLE, _TABLE, KEY_TABLE, _I64, _I64, _TABLE, _I64, _TABLE), Band)
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)


@nb.njit(inline="always")
def _first_value(words: Ints, slot: int, there: int) -> int:
    """The KEY of a row: its first value, or the least or greatest number if that is null.

    A row that sorts before another never has the greater KEY. `there` is the null? word of a value.
    """
    if words.shape[1] == 1:
        return 0
    if words[slot, 0] == there:
        return int(words[slot, 1])
    return _LEAST if there == 1 else NEVER


@nb.njit(inline="always")
def _is_before(pool: Ints, e: int, keys: KeyTable, key: int, end: int, slot: int) -> bool:
    """Whether entry `e` sorts before a new row; of rows with equal sort keys, the one that stays longer
    does."""
    if pool[e, KEY] != key:
        return bool(pool[e, KEY] < key)
    found = compare(keys, pool[e, SLOT], slot)
    return found < 0 or (found == 0 and pool[e, END] >= end)


@nb.njit(inline="always")
def _touch(band: Band, group: int) -> None:
    """Note that what is shown of a group may change at this instant."""
    groups, progress = band.groups, band.progress
    if groups[group, TOUCHED_AT] != progress[INSTANT]:
        groups[group, TOUCHED_AT] = progress[INSTANT]
        groups[group, FIRST_GONE] = EMPTY
        band.touched[progress[TOUCHED_COUNT]] = group
        progress[TOUCHED_COUNT] += 1


@nb.njit(inline="always")
def _hide(band: Band, group: int, e: int) -> None:
    """Note that a shown entry is not shown at its place any more."""
    gone, here = band.gone, band.progress[GONE_COUNT]
    gone[here, GONE_SLOT] = band.pool[e, SLOT]
    gone[here, GONE_PLACE] = band.pool[e, MARKS] >> PLACE_SHIFT
    gone[here, GONE_NEXT] = band.groups[group, FIRST_GONE]
    band.groups[group, FIRST_GONE] = here
    band.progress[GONE_COUNT] += 1


@nb.njit(inline="always")
def _drop(band: Band, group: int, e: int) -> None:
    """Note that an entry leaves the skyband."""
    slot = band.pool[e, SLOT]
    if band.pool[e, MARKS] >> PLACE_SHIFT:
        _touch(band, group)
        _hide(band, group, e)
        band.groups[group, SHOWN_COUNT] -= 1
    band.ends[slot] = DROPPED_SLOT
    band.dropped[band.progress[DROPPED_COUNT]] = slot
    band.progress[DROPPED_COUNT] += 1


@kernel(nb.void(_BAND, nb.int64, nb.int64))
def _expire(band: Band, group: int, time: int) -> None:
    """Drop the entries of a group that end by `time`."""
    groups, pool = band.groups, band.pool
    start, kept, soonest = groups[group, START], 0, NEVER
    for i in range(groups[group, SIZE]):
        e = start + i
        if pool[e, END] <= time:
            _drop(band, group, e)
            continue
        soonest = min(soonest, pool[e, END])
        if kept != i:
            for j in range(ENTRY_WIDTH):
                pool[start + kept, j] = pool[e, j]
        kept += 1
    groups[group, SIZE], groups[group, SOONEST_END] = kept, soonest


@kernel(nb.boolean(_TABLE, _TABLE, nb.int64, _I64))
def _double_capacity(groups: Ints, pool: Ints, group: int, progress: Ints) -> bool:
    """Move a group to a block twice as large; returns False if the pool is full."""
    capacity = max(4, 2 * groups[group, CAPACITY])
    if progress[POOL_USED] + capacity > pool.shape[0]:
        return False
    old, new = groups[group, START], progress[POOL_USED]
    for i in range(groups[group, SIZE]):
        for j in range(ENTRY_WIDTH):
            pool[new + i, j] = pool[old + i, j]
    groups[group, START], groups[group, CAPACITY] = new, capacity
    progress[POOL_USED] += capacity
    return True


@nb.njit(inline="always")
def _write_entry(pool: Ints, e: int, key: int, end: int, slot: int, marks: int) -> None:
    pool[e, KEY], pool[e, END], pool[e, SLOT], pool[e, MARKS] = key, end, slot, marks


@nb.njit(inline="always")
def _enter(band: Band, group: int, slot: int, end: int, limit: int, there: int) -> bool:
    """Put a row into the skyband of its group unless it is dominated `limit` times.

    Drops the entries that the row dominates for the `limit`-th time. Returns False, with nothing changed, if
    the pool is full.
    """
    groups, pool = band.groups, band.pool
    key = _first_value(band.keys.words, slot, there)
    start, size, place, dominators = groups[group, START], groups[group, SIZE], 0, 0
    while place < size and _is_before(pool, start + place, band.keys, key, end, slot):
        if pool[start + place, END] >= end:
            dominators += 1
            if dominators == limit:
                return True
        place += 1
    if size == groups[group, CAPACITY]:
        if not _double_capacity(groups, pool, group, band.progress):
            return False
        start = groups[group, START]
    if place < limit:
        _touch(band, group)
    band.ends[slot] = end
    if end < groups[group, SOONEST_END]:
        groups[group, SOONEST_END] = end
    # Each entry after the new row moves up by one, until an entry that is dropped leaves a gap.
    held_key, held_end, held_slot, held_marks = key, end, slot, dominators
    write = start + place
    for e in range(start + place, start + size):
        marks = pool[e, MARKS]
        if pool[e, END] <= end:
            marks += 1
            if marks & _DOMINATORS >= limit:
                _drop(band, group, e)
                continue
        next_key, next_end, next_slot = pool[e, KEY], pool[e, END], pool[e, SLOT]
        _write_entry(pool, write, held_key, held_end, held_slot, held_marks)
        held_key, held_end, held_slot, held_marks = next_key, next_end, next_slot, marks
        write += 1
    _write_entry(pool, write, held_key, held_end, held_slot, held_marks)
    groups[group, SIZE] = write + 1 - start
    return True


@kernel(nb.boolean(_TABLE, nb.int64, nb.int64, nb.int64, KEY_TABLE))
def _replaces_equal_row(gone: Ints, first: int, slot: int, place: int, keys: KeyTable) -> bool:
    """Whether an equal row left this place at this instant: then neither change is reported."""
    here = first
    while here != EMPTY:
        left = gone[here, GONE_SLOT]
        if left >= 0 and gone[here, GONE_PLACE] == place and compare(keys, left, slot) == 0:
            gone[here, GONE_SLOT] = EMPTY
            return True
        here = gone[here, GONE_NEXT]
    return False


@nb.njit(inline="always")
def _write_change(band: Band, slot: int, delta: int, place: int) -> None:
    """Append a change of what is shown, at the current instant."""
    out, found = band.out, band.progress[OUT_COUNT]
    out[found, TIME], out[found, CODE] = band.progress[NOW], slot
    out[found, DELTA], out[found, RANK] = delta, place
    band.progress[OUT_COUNT] += 1


@kernel(nb.void(_BAND, nb.int64, nb.int64, nb.boolean))
def _report(band: Band, group: int, limit: int, ranked: bool) -> None:
    """Write what enters and leaves the first rows of a group, once all changes of an instant are made."""
    groups, pool, gone = band.groups, band.pool, band.gone
    start, size, shown_left = groups[group, START], groups[group, SIZE], groups[group, SHOWN_COUNT]
    i = 0
    while i < size and (i < limit or shown_left > 0):
        e = start + i
        place = (i + 1 if ranked else 1) if i < limit else 0
        shown = pool[e, MARKS] >> PLACE_SHIFT
        shown_left -= 1 if shown else 0
        if shown != place:
            if shown:
                _hide(band, group, e)
            fresh = FRESH if place else 0
            pool[e, MARKS] = (pool[e, MARKS] & _DOMINATORS) | fresh | (place << PLACE_SHIFT)
        i += 1
    for e in range(start, start + min(size, limit)):
        if pool[e, MARKS] & FRESH:
            pool[e, MARKS] ^= FRESH
            place = pool[e, MARKS] >> PLACE_SHIFT
            if not _replaces_equal_row(gone, groups[group, FIRST_GONE], pool[e, SLOT], place, band.keys):
                _write_change(band, pool[e, SLOT], 1, place)
    here = groups[group, FIRST_GONE]
    while here != EMPTY:
        if gone[here, GONE_SLOT] >= 0:
            _write_change(band, gone[here, GONE_SLOT], -1, gone[here, GONE_PLACE])
        here = gone[here, GONE_NEXT]
    groups[group, SHOWN_COUNT] = min(size, limit)


@kernel(
    nb.int64(
        _BAND,
        _READ_I64,
        _READ_I64,
        _READ_I64,
        _READ_I64,
        _READ_I64,
        _READ_I64,
        nb.int64,
        nb.boolean,
        nb.int64,
        nb.int64,
    ),
)
def step_skyband(
    band: Band,
    starts: Ints,
    ends: Ints,
    groups: Ints,
    slots: Ints,
    leave_times: Ints,
    leave_groups: Ints,
    limit: int,
    ranked: bool,
    there: int,
    most: int,
) -> int:
    """Apply rows that come, and the instants at which rows of a group leave; both are in order of time.

    `starts`, `ends`, `groups` and `slots` describe the rows that come. `there` is the null? word of a first
    value that is not null. Returns DONE; or POOL_FULL, then call it again with a larger pool; or TOO_MANY
    after an instant at which some group has more than `most` entries.
    """
    progress = band.progress
    is_too_large = False
    while True:
        if not progress[INSIDE]:
            if progress[NEXT_ARRIVAL] == starts.size and progress[NEXT_EXPIRY] == leave_times.size:
                return DONE
            time = NEVER
            if progress[NEXT_ARRIVAL] < starts.size:
                time = starts[progress[NEXT_ARRIVAL]]
            if progress[NEXT_EXPIRY] < leave_times.size and leave_times[progress[NEXT_EXPIRY]] < time:
                time = leave_times[progress[NEXT_EXPIRY]]
            progress[NOW], progress[TOUCHED_COUNT], progress[GONE_COUNT], progress[INSIDE] = time, 0, 0, 1
            progress[INSTANT] += 1
            while progress[NEXT_EXPIRY] < leave_times.size and leave_times[progress[NEXT_EXPIRY]] == time:
                group = leave_groups[progress[NEXT_EXPIRY]]
                progress[NEXT_EXPIRY] += 1
                if group >= 0 and band.groups[group, SOONEST_END] <= time:
                    _expire(band, group, time)
        while progress[NEXT_ARRIVAL] < starts.size and starts[progress[NEXT_ARRIVAL]] == progress[NOW]:
            i = progress[NEXT_ARRIVAL]
            if not _enter(band, groups[i], slots[i], ends[i], limit, there):
                return POOL_FULL
            progress[NEXT_ARRIVAL] += 1
            is_too_large |= band.groups[groups[i], SIZE] > most
        progress[INSIDE] = 0
        for i in range(progress[TOUCHED_COUNT]):
            _report(band, band.touched[i], limit, ranked)
        if is_too_large:
            return TOO_MANY
