"""Panes: rows into the entries of their pane, entries into the windows that hold them.

An *entry* is the data of one group in one pane. Rows come in order of time, so only the last pane is open and
entries lie in order of pane. Entries have ascending ids and lie in rings: arrays whose size is a power of
two, entry e at e mod size. `back` and `ahead` say how far away the group's previous and next entry is, 0
where there is none. Panes are listed by number and first entry, with one line more for the end of the last.
Numba, because NumPy has no scatter-reduce and no linked scan.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from headrace.arrays import Ints
from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sort_keys import ORDER, Order, less

READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
READ_F64 = nb.types.Array(nb.float64, 1, "A", readonly=True)
I64 = nb.int64[::1]
I32 = nb.int32[::1]
LINES = nb.int64[:, ::1]
_MAX = np.iinfo(np.int64).max


@nb.njit(inline="always")
def _pane_end(time: int, offset: int, slide: int, rest: int) -> int:
    """The first instant after the pane that holds `time`, which is `offset` into its slide."""
    step = rest - offset if offset < rest else slide - offset
    return time + step if time <= _MAX - step else _MAX


@kernel(nb.types.UniTuple(nb.int64, 3)(READ_I64, READ_I64, READ_I64, I64, I64, I64, I64, LINES))
def assign_slots(
    times: Ints,
    codes: Ints,
    state: Ints,
    latest: Ints,
    slots: Ints,
    new_code: Ints,
    new_back: Ints,
    new_panes: Ints,
) -> tuple[int, int, int]:
    """The entry of each row; returns how many entries and panes are new, and the end of the open pane.

    `state` is (slide, rest, offset, end and first entry of the open pane, first entry held, next id). Slide j
    begins at j·slide + offset, where a window starts. It is one pane, or two if the range is not a multiple
    of it (`rest` = range mod slide): then windows end `rest` after a slide begins. Pane 2j − 1 begins with
    slide j, pane 2j where windows end, so that window k is the panes just before 2k. `latest[code]` is a
    group's newest entry.
    """
    slide, rest, shift, open_end = state[0], state[1], state[2], state[3]
    open_first, base, next = state[4], state[5], state[6]
    added = opened = 0
    for i in range(times.size):
        time = times[i]
        if time >= open_end:
            offset = (time - shift) % slide
            open_end = _pane_end(time, offset, slide, rest)
            open_first = next + added
            new_panes[opened, 0] = 2 * ((time - shift - offset) // slide) - (1 if offset < rest else 0)
            new_panes[opened, 1] = open_first
            opened += 1
        code = codes[i]
        id = latest[code]
        if id < open_first:
            new_code[added] = code
            new_back[added] = next + added - id if id >= base else 0
            id = next + added
            latest[code] = id
            added += 1
        slots[i] = id
    return added, opened, open_end


@kernel(nb.void(I32, nb.int64, nb.int64, I64, I32))
def link_back(codes: Ints, base: int, next: int, latest: Ints, back: Ints) -> None:
    """Rebuild `back` and `latest` from the groups of all entries held."""
    mask = codes.size - 1
    for e in range(base, next):
        id = latest[codes[e & mask]]
        back[e & mask] = e - id if id >= base else 0
        latest[codes[e & mask]] = e


@kernel(nb.void(I32, I32, nb.int64, nb.int64))
def link_ahead(back: Ints, ahead: Ints, begin: int, next: int) -> None:
    """Set `ahead` of the entries that those from `begin` on follow."""
    mask = back.size - 1
    for e in range(begin, next):
        step = back[e & mask]
        if step:
            ahead[(e - step) & mask] = step


@kernel(
    nb.types.UniTuple(nb.int64, 6)(I32, I32, READ_I64, READ_I64, LINES, I64, READ_I64, I64, I64, I64, LINES),
)
def walk_windows(
    code: Ints,
    ahead: Ints,
    numbers: Ints,
    firsts: Ints,
    live: Ints,
    place: Ints,
    state: Ints,
    out_code: Ints,
    out_head: Ints,
    out_tail: Ints,
    windows: Ints,
) -> tuple[int, int, int, int, int, int]:
    """Close windows one after the other, writing for each the groups in it with their first and last entry.

    `state` is (window to close, window to stop before, panes of a window, panes entered and left, groups
    live); window k holds the panes 2k − panes … 2k − 1. `live` has one line (group, first and last entry) per
    group in the window, `place[code]` its position. `windows` gets (k, first output row). Stops early when
    the output is full. Skips stretches without rows. Returns the window to close next, entered,
    left, live, output rows, windows closed with rows.
    """
    k, stop, panes, entered, left, alive = state[0], state[1], state[2], state[3], state[4], state[5]
    mask = code.size - 1
    rows = closed = 0
    while k < stop and closed < windows.shape[0]:
        if alive == 0:
            if entered == numbers.size:
                break
            k = max(k, numbers[entered] // 2 + 1)
            if k >= stop:
                break
        while entered < numbers.size and numbers[entered] < 2 * k:
            for e in range(firsts[entered], firsts[entered + 1]):
                c = code[e & mask]
                at = place[c]
                if at == EMPTY:
                    at = alive
                    alive += 1
                    place[c] = at
                    live[at, 0] = c
                    live[at, 1] = e
                live[at, 2] = e
            entered += 1
        while left < entered and numbers[left] < 2 * k - panes:
            for e in range(firsts[left], firsts[left + 1]):
                at = place[code[e & mask]]
                if live[at, 2] == e:
                    alive -= 1
                    place[code[e & mask]] = EMPTY
                    if at != alive:
                        for x in range(3):
                            live[at, x] = live[alive, x]
                        place[live[at, 0]] = at
                else:
                    live[at, 1] = e + ahead[e & mask]
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


@kernel(nb.void(READ_I64, I64))
def count_rows(slots: Ints, counts: Ints) -> None:
    """Add one to the entry of each row."""
    mask = counts.size - 1
    for i in range(slots.size):
        counts[slots[i] & mask] += 1


@kernel(nb.void(READ_I64, READ_I64, I64))
def add_ints(slots: Ints, values: Ints, sums: Ints) -> None:
    """Add each value to its entry, modulo 2^64."""
    mask = sums.size - 1
    for i in range(slots.size):
        sums[slots[i] & mask] += values[i]


@kernel(nb.void(READ_I64, READ_I64, I64))
def keep_least(slots: Ints, values: Ints, least: Ints) -> None:
    """Lower each entry to the least of its values."""
    mask = least.size - 1
    for i in range(slots.size):
        s = slots[i] & mask
        least[s] = min(least[s], values[i])


@kernel(nb.void(READ_I64, READ_I64, nb.int64, I64))
def keep_first(slots: Ints, values: Ints, fresh: int, first: Ints) -> None:
    """Set each entry from `fresh` on to its first value."""
    mask = first.size - 1
    for i in range(slots.size - 1, -1, -1):
        if slots[i] >= fresh:
            first[slots[i] & mask] = values[i]


@kernel(nb.void(READ_I64, READ_I64, I64))
def keep_last(slots: Ints, values: Ints, last: Ints) -> None:
    """Set each entry to its last value."""
    mask = last.size - 1
    for i in range(slots.size):
        last[slots[i] & mask] = values[i]


@kernel(nb.void(I32, READ_I64, I64, nb.int64, nb.int64, nb.int64))
def chain_ints(back: Ints, values: Ints, before: Ints, base: int, begin: int, stop: int) -> None:
    """For entries `begin` … `stop` − 1: the sum of the group's earlier ones, minus a constant per group."""
    mask = values.size - 1
    for e in range(begin, stop):
        p = e - back[e & mask]
        before[e & mask] = before[p & mask] + values[p & mask] if base <= p < e else 0


@kernel(nb.void(READ_I64, READ_I64, READ_I64, READ_I64, I64))
def between_ints(values: Ints, before: Ints, heads: Ints, tails: Ints, out: Ints) -> None:
    """The sum of a group's entries from head to tail, both included, by subtraction."""
    mask = values.size - 1
    for o in range(heads.size):
        t = tails[o] & mask
        out[o] = before[t] + values[t] - before[heads[o] & mask]


@kernel(
    nb.types.UniTuple(nb.int64, 2)(
        I32, READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, I64, I64, I64
    ),
)
def count_pairs(
    pair: Ints,
    numbers: Ints,
    firsts: Ints,
    group: Ints,
    windows: Ints,
    rows: Ints,
    state: Ints,
    codes: Ints,
    live: Ints,
    counts: Ints,
    out: Ints,
) -> tuple[int, int]:
    """How many distinct values each output row's group has in its window.

    Entries here are of (group, value) pairs, `group[pair]` the group. `live[pair]` is how many of a pair's
    entries are in the window, `counts[group]` how many of its pairs have one. `state` is (panes of a window,
    panes entered and left); the new values of the latter two are returned.
    """
    panes, entered, left = state[0], state[1], state[2]
    mask = pair.size - 1
    for w in range(windows.size):
        while entered < numbers.size and numbers[entered] < 2 * windows[w]:
            for e in range(firsts[entered], firsts[entered + 1]):
                p = pair[e & mask]
                counts[group[p]] += 1 if live[p] == 0 else 0
                live[p] += 1
            entered += 1
        while left < entered and numbers[left] < 2 * windows[w] - panes:
            for e in range(firsts[left], firsts[left + 1]):
                p = pair[e & mask]
                live[p] -= 1
                counts[group[p]] -= 1 if live[p] == 0 else 0
            left += 1
        for o in range(rows[w], rows[w + 1]):
            out[o] = counts[codes[o]]
    return entered, left


# The least word of each entry, and of the windows over them (van Herk; Gil & Werman).
#
# Time is cut into blocks as long as a window. A window meets at most one block edge, so its value is that of
# a suffix of the block before the edge merged with that of a prefix of the block after: three merges an entry
# or output row, however many panes a window has. `prefix[e]` merges a group's entries from the start of the
# block up to e, `suffix[e]` those from e to the end of the block. `edges` are the entries at which blocks
# begin, the last the end of what is scanned. Entries lie in rings.


@kernel(nb.void(READ_I64, READ_I64, ORDER, I64))
def lower(slots: Ints, words: Ints, order: Order, least: Ints) -> None:
    """Lower each entry to the least of its words."""
    mask = least.size - 1
    for i in range(slots.size):
        s = slots[i] & mask
        if less(words[i], least[s], order):
            least[s] = words[i]


@kernel(nb.void(I32, READ_I64, nb.int64, ORDER, I64, I64))
def prefix_least(back: Ints, edges: Ints, begin: int, order: Order, least: Ints, out: Ints) -> None:
    """Prefix minima of the entries from `begin` on, in the blocks between `edges`."""
    mask = back.size - 1
    for b in range(edges.size - 1):
        for e in range(max(begin, edges[b]), edges[b + 1]):
            at = e & mask
            p = e - back[at]
            out[at] = least[at]
            if edges[b] <= p < e and less(out[p & mask], least[at], order):
                out[at] = out[p & mask]


@kernel(nb.void(I32, READ_I64, ORDER, I64, I64))
def suffix_least(ahead: Ints, edges: Ints, order: Order, least: Ints, out: Ints) -> None:
    """Suffix minima of the entries in the blocks between `edges`."""
    mask = ahead.size - 1
    for b in range(edges.size - 1):
        for e in range(edges[b + 1] - 1, edges[b] - 1, -1):
            at = e & mask
            n = e + ahead[at]
            out[at] = least[at]
            if e < n < edges[b + 1] and less(out[n & mask], least[at], order):
                out[at] = out[n & mask]


@kernel(nb.void(READ_I64, READ_I64, READ_I64, READ_I64, ORDER, I64, I64, I64))
def join_least(
    rows: Ints, cuts: Ints, heads: Ints, tails: Ints, order: Order, suffix: Ints, prefix: Ints, out: Ints
) -> None:
    """The minimum of each output row; those of window w are rows[w] … rows[w + 1] − 1, its edge cuts[w]."""
    mask = suffix.size - 1
    for w in range(cuts.size):
        for o in range(rows[w], rows[w + 1]):
            h, t = heads[o] & mask, tails[o] & mask
            if heads[o] >= cuts[w]:
                out[o] = prefix[t]
            elif tails[o] < cuts[w]:
                out[o] = suffix[h]
            else:
                out[o] = suffix[h] if less(suffix[h], prefix[t], order) else prefix[t]
