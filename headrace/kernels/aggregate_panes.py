"""Panes: rows into the entries of their pane, entries into the windows that hold them.

An *entry* is what one group has in one pane. Rows come in order of time, so only the last pane is open and
entries lie in order of pane. Entries have ascending ids; arrays hold those from some id on, so an entry is also
a position. `back` and `ahead` say how far away the group's previous and next entry is, 0 where there is none.
Numba, because NumPy has no scatter-reduce and no linked scan.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.hashing import EMPTY

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
READ_F64 = nb.types.Array(nb.float64, 1, "A", readonly=True)
I64 = nb.int64[::1]
F64 = nb.float64[::1]
_MAX = np.iinfo(np.int64).max


@nb.njit(inline="always")
def _pane_end(time: int, offset: int, slide: int, rest: int) -> int:
    """The first instant after the pane that holds `time`, which is `offset` into its slide."""
    step = slide - rest - offset if offset < slide - rest else slide - offset
    return time + step if time <= _MAX - step else _MAX


@nb.njit(nb.types.UniTuple(nb.int64, 3)(READ_I64, READ_I64, READ_I64, I64, I64, I64, I64, I64), cache=True)
def assign_slots(
    times: Ints,
    codes: Ints,
    state: Ints,
    latest: Ints,
    slots: Ints,
    new_code: Ints,
    new_pane: Ints,
    new_back: Ints,
) -> tuple[int, int, int]:
    """The position of each row's entry; returns how many are new, and the end and first id of the open pane.

    `state` is (slide, rest, end and first id of the open pane, id of the first entry held, next id). A slide
    is one pane, or two where the range is no multiple of it (`rest` = range mod slide): then windows begin
    `rest` before a slide ends. Pane 2j begins with slide j, pane 2j + 1 at its cut. `latest[code]` is the id
    of a group's newest entry.
    """
    slide, rest, open_end, open_first, base, size = state[0], state[1], state[2], state[3], state[4], state[5]
    added = 0
    pane = np.int64(0)
    for i in range(times.size):
        time = times[i]
        if time >= open_end or i == 0:
            offset = time % slide
            pane = 2 * ((time - offset) // slide) + (1 if offset >= slide - rest else 0)
            if time >= open_end:
                open_end = _pane_end(time, offset, slide, rest)
                open_first = size + added
        code = codes[i]
        id = latest[code]
        if id < open_first:
            new_code[added] = code
            new_pane[added] = pane
            new_back[added] = size + added - id if id >= base else 0
            id = size + added
            latest[code] = id
            added += 1
        slots[i] = id - base
    return added, open_end, open_first


@nb.njit(nb.void(READ_I64, nb.int64, I64, I64), cache=True)
def link_entries(codes: Ints, base: int, latest: Ints, back: Ints) -> None:
    """Set `back` and `latest` anew, from the groups of all entries held."""
    for e in range(codes.size):
        id = latest[codes[e]]
        back[e] = base + e - id if id >= base else 0
        latest[codes[e]] = base + e


@nb.njit(
    nb.types.UniTuple(nb.int64, 6)(
        READ_I64, READ_I64, READ_I64, nb.int64[:, ::1], I64, READ_I64, I64, I64, I64, nb.int64[:, ::1]
    ),
    cache=True,
)
def walk_windows(
    code: Ints,
    pane: Ints,
    ahead: Ints,
    live: Ints,
    place: Ints,
    state: Ints,
    out_code: Ints,
    out_head: Ints,
    out_tail: Ints,
    windows: Ints,
) -> tuple[int, int, int, int, int, int]:
    """Close windows one after the other, writing for each the groups in it with their first and last entry.

    `state` is (window to close, window to stop before, panes of a window, id of the first entry held, entries
    entered and left as positions, groups live); window k holds the panes 2k − panes … 2k − 1. `live` has one
    line (group, first and last entry id) per group in the window, `place[code]` its position. `windows` gets
    (k, first output row). Stops early when the output is full. Stretches without rows are jumped over.
    Returns the window to close next, entered, left, live, output rows, windows closed with rows.
    """
    k, stop, panes, base = state[0], state[1], state[2], state[3]
    entered, left, alive = state[4], state[5], state[6]
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
                live[at, 1] = base + entered
            live[at, 2] = base + entered
            entered += 1
        while left < entered and pane[left] < 2 * k - panes:
            at = place[code[left]]
            if live[at, 2] == base + left:
                alive -= 1
                place[code[left]] = EMPTY
                if at != alive:
                    for x in range(3):
                        live[at, x] = live[alive, x]
                    place[live[at, 0]] = at
            else:
                live[at, 1] = base + left + ahead[left]
            left += 1
        if rows + alive > out_code.size:
            break
        if alive:
            windows[closed, 0] = k
            windows[closed, 1] = rows
            closed += 1
            for at in range(alive):
                out_code[rows + at] = live[at, 0]
                out_head[rows + at] = live[at, 1] - base
                out_tail[rows + at] = live[at, 2] - base
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
def chain_ints(back: Ints, values: Ints, before: Ints, begin: int) -> None:
    """From entry `begin` on: the sum of all earlier entries of its group, less a constant of the group."""
    for e in range(begin, back.size):
        p = e - back[e]
        before[e] = before[p] + values[p] if 0 <= p < e else 0


@nb.njit(nb.void(READ_I64, READ_I64, READ_I64, READ_I64, I64), cache=True)
def between_ints(values: Ints, before: Ints, heads: Ints, tails: Ints, out: Ints) -> None:
    """The sum of a group's entries from head to tail, both included, by subtraction."""
    for o in range(heads.size):
        t = tails[o]
        out[o] = before[t] + values[t] - before[heads[o]]


@nb.njit(
    nb.types.UniTuple(nb.int64, 2)(
        READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, I64, I64, I64
    ),
    cache=True,
)
def count_pairs(
    pair: Ints,
    pane: Ints,
    group: Ints,
    windows: Ints,
    rows: Ints,
    state: Ints,
    codes: Ints,
    live: Ints,
    counts: Ints,
    out: Ints,
) -> tuple[int, int]:
    """How many different values each output row's group has in its window.

    Entries here are of (group, value) pairs, `group[pair]` the group. `live[pair]` is how many of a pair's
    entries are in the window, `counts[group]` how many of its pairs have one. `state` is (panes of a window,
    positions entered and left); the latter two are returned anew.
    """
    panes, entered, left = state[0], state[1], state[2]
    for w in range(windows.size):
        while entered < pair.size and pane[entered] < 2 * windows[w]:
            p = pair[entered]
            counts[group[p]] += 1 if live[p] == 0 else 0
            live[p] += 1
            entered += 1
        while left < entered and pane[left] < 2 * windows[w] - panes:
            p = pair[left]
            live[p] -= 1
            counts[group[p]] -= 1 if live[p] == 0 else 0
            left += 1
        for o in range(rows[w], rows[w + 1]):
            out[o] = counts[codes[o]]
    return entered, left
