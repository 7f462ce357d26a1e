"""The first n rows of each group where it is known when each row leaves: only contenders are kept.

A row that has n rows before it which leave no sooner than it does is never among the first n. The others of a
group are its contenders (the k-skyband of rank and end): few, so they lie side by side, in order, in a block
of one pool. An entry has a key that mostly settles a comparison, made of the first words of the row's line
(`headrace.kernels.sort_lines`), its end, its slot, how many dominate it, and the place it is shown at.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sort_lines import compare

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

KEY, END, SLOT, MARKS = range(4)
"""The fields of an entry."""
ENTRY = 4
SHOWN = 32
"""How far the place that is known to the outside is shifted in the marks, below which is the number of those
that dominate it. The place is 0 if it is not shown, and without ranks 1 if it is."""
FRESH = 1 << 31
"""A mark: it is shown at another place than before this instant."""

BASE, SIZE, ROOM, SOONEST, STAMP, LEFT, VISIBLE = range(7)
"""The fields of a group: its block, the least end in it at most, when it was touched last, the rows that left
what is shown at this instant, how many entries are shown."""
GROUP = 8

ARRIVED, EXPIRED, USED, INSTANT, FOUND, TIME, TOUCHED, GONE, DROPPED, INSIDE = range(10)
"""Where a step stands; INSIDE an instant when it stopped for want of room."""
PROGRESS = 10

DONE, NO_ROOM, TOO_MANY = range(3)
NEVER = np.iinfo(np.int64).max
_LEAST = np.iinfo(np.int64).min
NOWHERE = np.iinfo(np.int64).min
"""The end of a slot that is no contender."""

_LINES = nb.int64[:, ::1]
_I64 = nb.int64[::1]
_BYTES = nb.uint8[::1]
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)


@nb.njit(inline="always")
def _key(lines: Ints, slot: int, there: int) -> int:
    """Never greater for a line that comes before: the first value, or what is beyond all where it is null."""
    if lines.shape[1] == 1:
        return 0
    if lines[slot, 0] == there:
        return int(lines[slot, 1])
    return _LEAST if there == 1 else NEVER


@nb.njit(inline="always")
def _is_before(
    pool: Ints, e: int, lines: Ints, kinds: Ints, heap: Bytes, key: int, end: int, slot: int
) -> bool:
    """Whether entry `e` comes before a new row; of equal contents the one that stays longer does."""
    if pool[e, KEY] != key:
        return bool(pool[e, KEY] < key)
    found = compare(lines, kinds, heap, pool[e, SLOT], slot)
    return found < 0 or (found == 0 and pool[e, END] >= end)


@kernel(nb.void(_LINES, nb.int64, _I64, _I64))
def _touch(blocks: Ints, group: int, at: Ints, touched: Ints) -> None:
    """Note that what is shown of a group may change at this instant."""
    if blocks[group, STAMP] != at[INSTANT]:
        blocks[group, STAMP] = at[INSTANT]
        blocks[group, LEFT] = EMPTY
        touched[at[TOUCHED]] = group
        at[TOUCHED] += 1


@kernel(nb.void(_LINES, _LINES, nb.int64, nb.int64, _I64, _LINES))
def _hide(blocks: Ints, pool: Ints, group: int, e: int, at: Ints, gone: Ints) -> None:
    """Note that a shown entry is shown at its place no more."""
    here = at[GONE]
    gone[here, 0], gone[here, 1], gone[here, 2] = pool[e, SLOT], pool[e, MARKS] >> SHOWN, blocks[group, LEFT]
    blocks[group, LEFT] = here
    at[GONE] += 1


@nb.njit(inline="always")
def _drop(
    blocks: Ints,
    pool: Ints,
    group: int,
    e: int,
    at: Ints,
    touched: Ints,
    gone: Ints,
    slots: Ints,
    dropped: Ints,
) -> None:
    if pool[e, MARKS] >> SHOWN:
        _touch(blocks, group, at, touched)
        _hide(blocks, pool, group, e, at, gone)
        blocks[group, VISIBLE] -= 1
    slots[pool[e, SLOT]] = NOWHERE
    dropped[at[DROPPED]] = pool[e, SLOT]
    at[DROPPED] += 1


@kernel(nb.void(_LINES, _LINES, nb.int64, nb.int64, _I64, _I64, _LINES, _I64, _I64))
def _expire(
    blocks: Ints,
    pool: Ints,
    group: int,
    time: int,
    at: Ints,
    touched: Ints,
    gone: Ints,
    slots: Ints,
    dropped: Ints,
) -> None:
    """Take out what has left by `time`."""
    base, kept, soonest = blocks[group, BASE], 0, NEVER
    for i in range(blocks[group, SIZE]):
        e = base + i
        if pool[e, END] <= time:
            _drop(blocks, pool, group, e, at, touched, gone, slots, dropped)
            continue
        soonest = min(soonest, pool[e, END])
        if kept != i:
            for j in range(ENTRY):
                pool[base + kept, j] = pool[e, j]
        kept += 1
    blocks[group, SIZE], blocks[group, SOONEST] = kept, soonest


@kernel(nb.boolean(_LINES, _LINES, nb.int64, _I64))
def _make_room(blocks: Ints, pool: Ints, group: int, at: Ints) -> bool:
    """A block twice as large; False if the pool has no place for it."""
    room = max(4, 2 * blocks[group, ROOM])
    if at[USED] + room > pool.shape[0]:
        return False
    old, new = blocks[group, BASE], at[USED]
    for i in range(blocks[group, SIZE]):
        for j in range(ENTRY):
            pool[new + i, j] = pool[old + i, j]
    blocks[group, BASE], blocks[group, ROOM] = new, room
    at[USED] += room
    return True


@nb.njit(inline="always")
def _enter(
    blocks: Ints,
    pool: Ints,
    group: int,
    slot: int,
    end: int,
    limit: int,
    there: int,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    at: Ints,
    touched: Ints,
    gone: Ints,
    slots: Ints,
    dropped: Ints,
) -> bool:
    """Put a row among the contenders, if it is one, and take out those that it makes none.

    What is behind it moves up by one until one that goes makes the place. False if there is no room; nothing
    has happened then.
    """
    key = _key(lines, slot, there)
    base, size, place, above = blocks[group, BASE], blocks[group, SIZE], 0, 0
    while place < size and _is_before(pool, base + place, lines, kinds, heap, key, end, slot):
        if pool[base + place, END] >= end:
            above += 1
            if above == limit:
                return True
        place += 1
    if size == blocks[group, ROOM]:
        if not _make_room(blocks, pool, group, at):
            return False
        base = blocks[group, BASE]
    if place < limit:
        _touch(blocks, group, at, touched)
    slots[slot] = end
    if end < blocks[group, SOONEST]:
        blocks[group, SOONEST] = end
    key_, end_, slot_, marks_ = key, end, slot, above
    write = base + place
    for e in range(base + place, base + size):
        marks = pool[e, MARKS]
        if pool[e, END] <= end:
            marks += 1
            if marks & (FRESH - 1) >= limit:
                _drop(blocks, pool, group, e, at, touched, gone, slots, dropped)
                continue
        key__, end__, slot__ = pool[e, KEY], pool[e, END], pool[e, SLOT]
        pool[write, KEY], pool[write, END], pool[write, SLOT], pool[write, MARKS] = key_, end_, slot_, marks_
        key_, end_, slot_, marks_ = key__, end__, slot__, marks
        write += 1
    pool[write, KEY], pool[write, END], pool[write, SLOT], pool[write, MARKS] = key_, end_, slot_, marks_
    blocks[group, SIZE] = write + 1 - base
    return True


@kernel(nb.boolean(_LINES, nb.int64, nb.int64, nb.int64, _LINES, _I64, _BYTES))
def _takes_the_place(
    gone: Ints, here: int, slot: int, place: int, lines: Ints, kinds: Ints, heap: Bytes
) -> bool:
    """Whether a row of the same content left this place: then nothing is seen of either."""
    while here != EMPTY:
        seen = gone[here, 0]
        if seen >= 0 and gone[here, 1] == place and compare(lines, kinds, heap, seen, slot) == 0:
            gone[here, 0] = EMPTY
            return True
        here = gone[here, 2]
    return False


@kernel(
    nb.void(_LINES, _LINES, nb.int64, nb.int64, nb.boolean, _LINES, _I64, _BYTES, _I64, _LINES, _LINES),
)
def _report(
    blocks: Ints,
    pool: Ints,
    group: int,
    limit: int,
    ranked: bool,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    at: Ints,
    gone: Ints,
    out: Ints,
) -> None:
    """What enters and leaves the first rows of a group at an instant whose changes are all made."""
    base, size, left = blocks[group, BASE], blocks[group, SIZE], blocks[group, VISIBLE]
    i = 0
    while i < size and (i < limit or left > 0):
        e = base + i
        place = (i + 1 if ranked else 1) if i < limit else 0
        shown = pool[e, MARKS] >> SHOWN
        left -= 1 if shown else 0
        if shown != place:
            if shown:
                _hide(blocks, pool, group, e, at, gone)
            fresh = FRESH if place else 0
            pool[e, MARKS] = (pool[e, MARKS] & (FRESH - 1)) | fresh | (place << SHOWN)
        i += 1
    for e in range(base, base + min(size, limit)):
        if pool[e, MARKS] & FRESH:
            pool[e, MARKS] ^= FRESH
            place = pool[e, MARKS] >> SHOWN
            if not _takes_the_place(gone, blocks[group, LEFT], pool[e, SLOT], place, lines, kinds, heap):
                found = at[FOUND]
                out[found, 0], out[found, 1], out[found, 2], out[found, 3] = at[TIME], pool[e, SLOT], 1, place
                at[FOUND] += 1
    here = blocks[group, LEFT]
    while here != EMPTY:
        if gone[here, 0] >= 0:
            found = at[FOUND]
            out[found, 0], out[found, 1], out[found, 2] = at[TIME], gone[here, 0], -1
            out[found, 3] = gone[here, 1]
            at[FOUND] += 1
        here = gone[here, 2]
    blocks[group, VISIBLE] = min(size, limit)


@kernel(
    nb.int64(
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
        _I64,
        _LINES,
        _LINES,
        _LINES,
        _I64,
        _BYTES,
        _I64,
        _I64,
        _LINES,
        _I64,
        _LINES,
    ),
)
def step_contenders(
    starts: Ints,
    ends: Ints,
    groups: Ints,
    places: Ints,
    leave: Ints,
    leave_groups: Ints,
    limit: int,
    ranked: bool,
    there: int,
    most: int,
    at: Ints,
    blocks: Ints,
    pool: Ints,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    slots: Ints,
    touched: Ints,
    gone: Ints,
    dropped: Ints,
    out: Ints,
) -> int:
    """Apply rows that come and instants at which rows of a group leave, both in order of time.

    `out` gets (time, slot, sign, place). `places` are the slots of the rows that come, `slots` has the ends
    of contenders. Stops where the pool is full, to be called again, and after an instant at which some group
    has more than `most` contenders. `there` is the first word of a line whose first value is not null.
    """
    full = False
    while True:
        if not at[INSIDE]:
            if at[ARRIVED] == starts.size and at[EXPIRED] == leave.size:
                return DONE
            time = NEVER
            if at[ARRIVED] < starts.size:
                time = starts[at[ARRIVED]]
            if at[EXPIRED] < leave.size and leave[at[EXPIRED]] < time:
                time = leave[at[EXPIRED]]
            at[TIME], at[TOUCHED], at[GONE], at[INSIDE] = time, 0, 0, 1
            at[INSTANT] += 1
            while at[EXPIRED] < leave.size and leave[at[EXPIRED]] == time:
                group = leave_groups[at[EXPIRED]]
                at[EXPIRED] += 1
                if group >= 0 and blocks[group, SOONEST] <= time:
                    _expire(blocks, pool, group, time, at, touched, gone, slots, dropped)
        while at[ARRIVED] < starts.size and starts[at[ARRIVED]] == at[TIME]:
            i = at[ARRIVED]
            if not _enter(
                blocks,
                pool,
                groups[i],
                places[i],
                ends[i],
                limit,
                there,
                lines,
                kinds,
                heap,
                at,
                touched,
                gone,
                slots,
                dropped,
            ):
                return NO_ROOM
            at[ARRIVED] += 1
            full |= blocks[groups[i], SIZE] > most
        at[INSIDE] = 0
        for i in range(at[TOUCHED]):
            _report(blocks, pool, touched[i], limit, ranked, lines, kinds, heap, at, gone, out)
        if full:
            return TOO_MANY
