"""Panes: rows into the entries of their pane, entries into the windows that hold them.

An *entry* is what one group has in one pane. Rows come in order of time, so only the last pane is open and
entries lie in order of pane. `prev` and `next` link the entries of a group. Entry numbers are positions in
the arrays given, EMPTY where there is none. Numba, because NumPy has no scatter-reduce and no linked scan.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.hashing import EMPTY
from headrace.time.timestamp import MAX_TIME

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
READ_F64 = nb.types.Array(nb.float64, 1, "A", readonly=True)
I64 = nb.int64[::1]
F64 = nb.float64[::1]
_MAX = np.int64(MAX_TIME)


@nb.njit(inline="always")
def _pane_end(time: int, offset: int, slide: int, rest: int) -> int:
    """The first instant after the pane that holds `time`, which is `offset` into its slide."""
    step = slide - rest - offset if offset < slide - rest else slide - offset
    return time + step if time <= _MAX - step else _MAX


@nb.njit(
    nb.types.UniTuple(nb.int64, 2)(
        READ_I64, READ_I64, nb.int64, nb.int64, nb.int64, nb.int64, nb.int64, I64, I64, I64, I64, I64
    ),
    cache=True,
)
def assign_slots(
    times: Ints,
    codes: Ints,
    slide: int,
    rest: int,
    open_end: int,
    open_first: int,
    size: int,
    latest: Ints,
    slots: Ints,
    new_code: Ints,
    new_pane: Ints,
    new_prev: Ints,
) -> tuple[int, int]:
    """The entry of each row, new entries numbered from `size` on; returns how many, and the end of the open pane.

    A slide is one pane, or two where the range is no multiple of it (`rest` = range mod slide): then windows
    begin `rest` before a slide ends. Pane 2j begins with slide j, pane 2j + 1 at its cut. `latest[code]` is
    the newest entry of a group; entries from `open_first` on are in the open pane, which ends at `open_end`.
    """
    added = 0
    pane = np.int64(0)
    known = False
    for i in range(times.size):
        time = times[i]
        if time >= open_end or not known:
            offset = time % slide
            pane = 2 * ((time - offset) // slide) + (1 if offset >= slide - rest else 0)
            if time >= open_end:
                open_end = _pane_end(time, offset, slide, rest)
                open_first = size + added
            known = True
        code = codes[i]
        slot = latest[code]
        if slot < open_first:
            new_code[added] = code
            new_pane[added] = pane
            new_prev[added] = slot
            slot = size + added
            latest[code] = slot
            added += 1
        slots[i] = slot
    return added, open_end


@nb.njit(nb.types.UniTuple(nb.int64, 6)(
    READ_I64, READ_I64, READ_I64, nb.int64[:, ::1], I64, I64, I64, I64, I64, nb.int64[:, ::1],
), cache=True)
def walk_windows(
    code: Ints,
    pane: Ints,
    next: Ints,
    live: Ints,
    place: Ints,
    state: Ints,
    out_code: Ints,
    out_head: Ints,
    out_tail: Ints,
    windows: Ints,
) -> tuple[int, int, int, int, int, int]:
    """Close windows one after the other, writing for each the groups in it with their first and last entry.

    `state` is (window to close, window to stop before, entries entered, entries left, groups live, panes of a
    window); window k holds the panes 2k − panes … 2k − 1. `live` has one line (group, first, last) per group
    in the window, `place[code]` its position. `windows` gets (k, first output row). Stops early when the
    output is full. Stretches without rows are jumped over.
    """
    k, stop, entered, left, alive, panes = state[0], state[1], state[2], state[3], state[4], state[5]
    rows = closed = 0
    while k < stop and closed < windows.shape[0]:
        if alive == 0:
            if entered == code.size:
                break
            k = max(k, pane[entered] // 2 + 1)
            if k >= stop:
                break
        while entered < code.size and pane[entered] < 2 * k:
            c = code[entered]
            at = place[c]
            if at == EMPTY:
                at = alive
                alive += 1
                place[c] = at
                live[at, 0] = c
                live[at, 1] = entered
            live[at, 2] = entered
            entered += 1
        while left < entered and pane[left] < 2 * k - panes:
            at = place[code[left]]
            if live[at, 2] == left:
                alive -= 1
                place[live[at, 0]] = EMPTY
                if at != alive:
                    live[at] = live[alive]
                    place[live[at, 0]] = at
            else:
                live[at, 1] = next[left]
            left += 1
        if rows + alive > out_code.size:
            break
        if alive:
            windows[closed, 0] = k
            windows[closed, 1] = rows
            closed += 1
            for at in range(alive):
                out_code[rows + at] = live[at, 0]
                out_head[rows + at] = live[at, 1]
                out_tail[rows + at] = live[at, 2]
            rows += alive
        k += 1
    return k, entered, left, alive, rows, closed


@nb.njit(nb.void(READ_I64, I64), cache=True)
def count_rows(slots: Ints, counts: Ints) -> None:
    """Add one to the entry of each row."""
    for i in range(slots.size):
        counts[slots[i]] += 1


@nb.njit(nb.void(READ_I64, READ_I64, I64), cache=True)
def add_ints(slots: Ints, values: Ints, sums: Ints) -> None:
    """Add each value to its entry, modulo 2^64."""
    for i in range(slots.size):
        sums[slots[i]] += values[i]


@nb.njit(nb.void(READ_I64, READ_I64, I64), cache=True)
def keep_least(slots: Ints, values: Ints, least: Ints) -> None:
    """Lower each entry to the least of its values."""
    for i in range(slots.size):
        least[slots[i]] = min(least[slots[i]], values[i])


@nb.njit(nb.void(READ_I64, READ_I64, nb.int64, I64), cache=True)
def keep_first(slots: Ints, values: Ints, fresh: int, first: Ints) -> None:
    """Set each entry from `fresh` on to its first value."""
    for i in range(slots.size - 1, -1, -1):
        if slots[i] >= fresh:
            first[slots[i]] = values[i]


@nb.njit(nb.void(READ_I64, READ_I64, I64), cache=True)
def keep_last(slots: Ints, values: Ints, last: Ints) -> None:
    """Set each entry to its last value."""
    for i in range(slots.size):
        last[slots[i]] = values[i]


@nb.njit(nb.void(READ_I64, READ_I64, I64, nb.int64), cache=True)
def chain_ints(prev: Ints, values: Ints, before: Ints, begin: int) -> None:
    """From entry `begin` on: the sum of all earlier entries of the same group that are still held."""
    for e in range(begin, prev.size):
        p = prev[e]
        before[e] = before[p] + values[p] if p >= 0 else 0


@nb.njit(nb.void(READ_I64, READ_I64, READ_I64, READ_I64, I64), cache=True)
def between_ints(values: Ints, before: Ints, heads: Ints, tails: Ints, out: Ints) -> None:
    """The sum of a group's entries from head to tail, both included, by subtraction."""
    for o in range(heads.size):
        t = tails[o]
        out[o] = before[t] + values[t] - before[heads[o]]
