"""Finds the partial matches that a row extends: queues of rows by partition, in order of time.

A waiting match is a line of `queue`: the next line of its partition (NONE: it is the last, GONE: it no longer
waits, CLOSED: it is the last of a run that has been answered), its partition, its time, the time of its
first row, and the time at which a missing step ends it. Lines from `begin` on are new and not yet in their
queues. Entries, ends (of a missing step that ends all matches of its partition) and probes come in order of
time; where times are equal in that order, or, if `strict`, in the opposite one.

Numba, because which row is used depends on the rows before it; each is looked at once.
"""

from __future__ import annotations

import numba as nb

from headrace.arrays import Ids, Lines
from headrace.kernels.compiling import kernel

# Rows that follow each other directly: an automaton per partition, stepped once a row.


_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)
_ROW = nb.int64[::1]
_LINES = nb.int64[:, ::1]
_SIGNATURE = nb.int64(_READ, _READ, _READ, _READ, nb.int64, _LINES, _ROW, _LINES)


@kernel(_SIGNATURE)
def in_total_order(
    steps: Ids, codes: Ids, times: Ids, ids: Ids, count: int, state: Lines, last: Ids, before: Lines
) -> int:
    """Rows one after the other; `state[code]` is how many steps are met, then the row of each.

    `steps` are −1 for rows of no step, which break a match. For each match the id of its last row goes to
    `last`, the ids of the others to `before`; returns how many matches there are.
    """
    found = 0
    for i in range(steps.size):
        code, step = codes[i], steps[i]
        if step == 0:
            state[code, 0], state[code, 1] = 1, ids[i]
        elif step < 0 or state[code, 0] != step:
            state[code, 0] = 0
        elif step == count - 1:
            last[found] = ids[i]
            before[found, :] = state[code, 1:]
            found += 1
            state[code, 0] = 0
        else:
            state[code, 0], state[code, 1 + step] = step + 1, ids[i]
    return found


@kernel(_SIGNATURE)
def by_instants(
    steps: Ids, codes: Ids, times: Ids, ids: Ids, count: int, state: Lines, last: Ids, before: Lines
) -> int:
    """Like `in_total_order`, but simultaneous rows of different steps have no order.

    `state[code]` is the newest instant of the partition, then for that instant and for the one before it a
    block of lines, one for each step but the last: whether a match so far ends there, and the row of each of
    its steps; in the newest also, for each step, whether a row of it came.
    """
    kept = count - 1
    block = kept * (1 + kept)
    now, was, came = 1, 1 + block, 1 + 2 * block
    found = 0
    for i in range(steps.size):
        code, step = codes[i], steps[i]
        line = state[code]
        if times[i] > line[0]:
            line[0] = times[i]
            line[was : was + block] = line[now : now + block]
            line[now : now + block] = 0
            line[came : came + count] = 0
        if step < 0:
            continue
        first = line[came + step] == 0
        line[came + step] = 1
        previous = was + (step - 1) * (1 + kept)
        goes_on = step == 0 or (first and line[previous] == 1)
        if step == kept:
            if goes_on:
                last[found] = ids[i]
                before[found, :] = line[previous + 1 : previous + 1 + kept]
                found += 1
            continue
        own = now + step * (1 + kept)
        line[own] = 1 if goes_on else 0
        if goes_on:
            if step > 0:
                line[own + 1 : own + 1 + step] = line[previous + 1 : previous + 1 + step]
            line[own + 1 + step] = ids[i]
    return found


NONE = -1
GONE = -2
CLOSED = -3
NEXT, CODE, TIME, FIRST, ENDS = 0, 1, 2, 3, 4
RECENT, QUEUE, RUN = 0, 1, 2
"""How an entry waits: it replaces the waiting lines, follows them, or follows them unless they are CLOSED."""


@nb.njit(inline="always")
def _clear(queue: Lines, heads: Ids, code: int, gone: Ids, lost: int) -> int:
    """End all waiting lines of a partition."""
    row = heads[code]
    while row >= 0:
        after = queue[row, NEXT]
        queue[row, NEXT] = GONE
        gone[lost] = row
        lost += 1
        row = after
    heads[code] = NONE
    return lost


@nb.njit(inline="always")
def _enter(queue: Lines, heads: Ids, tails: Ids, row: int, how: int, gone: Ids, lost: int) -> int:
    """Put a new line into its queue."""
    code = queue[row, CODE]
    if heads[code] >= 0 and (how == RECENT or queue[tails[code], NEXT] == CLOSED):
        lost = _clear(queue, heads, code, gone, lost)
    if heads[code] < 0:
        heads[code] = row
    else:
        queue[tails[code], NEXT] = row
    tails[code] = row
    queue[row, NEXT] = NONE
    return lost


@nb.njit(inline="always")
def _lives(queue: Lines, row: int, time: int, within: int, strict: int) -> bool:
    """Whether a line is neither too old at `time` nor ended by then."""
    ends = queue[row, ENDS]
    return time - queue[row, FIRST] < within and (ends > time or (strict == 1 and ends == time))


@nb.njit(inline="always")
def _drop_dead(
    queue: Lines,
    heads: Ids,
    code: int,
    time: int,
    within: int,
    strict: int,
    gone: Ids,
    lost: int,
) -> int:
    """Remove the lines at the head of a queue that are too old or ended."""
    row = heads[code]
    while row >= 0 and not _lives(queue, row, time, within, strict):
        after = queue[row, NEXT]
        queue[row, NEXT] = GONE
        gone[lost] = row
        lost += 1
        row = after
    heads[code] = row if row >= 0 else NONE
    return lost


@nb.njit(inline="always")
def _until(
    queue: Lines,
    heads: Ids,
    tails: Ids,
    end_codes: Ids,
    end_times: Ids,
    time: int,
    last: int,
    how: int,
    strict: int,
    gone: Ids,
    at: Ids,
) -> None:
    """Take the entries and ends that come before `time`, or all of them; `at` is (entry, end, lost)."""
    entry, end, lost = at[0], at[1], at[2]
    entries, ends = queue.shape[0], end_codes.size
    early = time - strict
    while True:
        enters = entry < entries and (last == 1 or queue[entry, TIME] <= early)
        stops = end < ends and (last == 1 or end_times[end] <= early)
        if stops and (not enters or end_times[end] < queue[entry, TIME] + strict):
            lost = _clear(queue, heads, end_codes[end], gone, lost)
            end += 1
            continue
        if not enters:
            break
        lost = _enter(queue, heads, tails, entry, how, gone, lost)
        entry += 1
    at[0], at[1], at[2] = entry, end, lost


_SINGLE = nb.void(
    _LINES, _ROW, _ROW, _READ, _READ, _READ, _READ, nb.int64, nb.int64, nb.int64, _ROW, _ROW, _ROW
)


@kernel(_SINGLE)
def recent(
    queue: Lines,
    heads: Ids,
    tails: Ids,
    end_codes: Ids,
    end_times: Ids,
    codes: Ids,
    times: Ids,
    how: int,
    within: int,
    strict: int,
    gone: Ids,
    at: Ids,
    partner: Ids,
) -> None:
    """For each probe, the line that waits in its partition, or NONE (Figure 12)."""
    for j in range(codes.size):
        _until(queue, heads, tails, end_codes, end_times, times[j], 0, how, strict, gone, at)
        row = heads[codes[j]]
        found = row >= 0 and _lives(queue, row, times[j], within, strict)
        partner[j] = row if found else NONE
    _until(queue, heads, tails, end_codes, end_times, 0, 1, how, strict, gone, at)


@kernel(_SINGLE)
def chronicle(
    queue: Lines,
    heads: Ids,
    tails: Ids,
    end_codes: Ids,
    end_times: Ids,
    codes: Ids,
    times: Ids,
    how: int,
    within: int,
    strict: int,
    gone: Ids,
    at: Ids,
    partner: Ids,
) -> None:
    """For each probe, the earliest unused line of its partition, which is then used (Figure 13)."""
    for j in range(codes.size):
        _until(queue, heads, tails, end_codes, end_times, times[j], 0, how, strict, gone, at)
        code = codes[j]
        lost = _drop_dead(queue, heads, code, times[j], within, strict, gone, at[2])
        row = heads[code]
        if row >= 0:
            after = queue[row, NEXT]
            heads[code] = after if after >= 0 else NONE
            queue[row, NEXT] = GONE
            gone[lost] = row
            lost += 1
        at[2] = lost
        partner[j] = row
    _until(queue, heads, tails, end_codes, end_times, 0, 1, how, strict, gone, at)


_EVERY = nb.types.UniTuple(nb.int64, 2)(
    *(_LINES, _ROW, _ROW, _READ, _READ, _READ, _READ),
    *(nb.int64, nb.int64, nb.int64, nb.int64, _ROW, _ROW, _ROW, _ROW, nb.int64, nb.int64),
)


@kernel(_EVERY)
def every(
    queue: Lines,
    heads: Ids,
    tails: Ids,
    end_codes: Ids,
    end_times: Ids,
    codes: Ids,
    times: Ids,
    how: int,
    uses: int,
    within: int,
    strict: int,
    gone: Ids,
    at: Ids,
    probes: Ids,
    rows: Ids,
    begin: int,
    filled: int,
) -> tuple[int, int]:
    """Every line of each probe's partition, as pairs; then the lines are used (`uses`) or closed (RUN).

    Stops before a probe whose pairs have no room; returns the probe to continue with and how many are filled.
    """
    for j in range(begin, codes.size):
        time, code = times[j], codes[j]
        _until(queue, heads, tails, end_codes, end_times, time, 0, how, strict, gone, at)
        at[2] = _drop_dead(queue, heads, code, time, within, strict, gone, at[2])
        row, first = heads[code], filled
        while row >= 0:
            if _lives(queue, row, time, within, strict):
                if filled == rows.size:
                    return j, first
                probes[filled], rows[filled] = j, row
                filled += 1
            row = queue[row, NEXT]
        if filled > first and uses == 1:
            at[2] = _clear(queue, heads, code, gone, at[2])
        elif filled > first and how == RUN:
            queue[tails[code], NEXT] = CLOSED
    _until(queue, heads, tails, end_codes, end_times, 0, 1, how, strict, gone, at)
    return codes.size, filled


@kernel(nb.void(_LINES, _ROW, _ROW, nb.int64))
def relink(queue: Lines, heads: Ids, tails: Ids, begin: int) -> None:
    """Put the waiting lines from `begin` on into their queues; earlier lines are already linked."""
    for row in range(begin, queue.shape[0]):
        mark = queue[row, NEXT]
        if mark == GONE:
            continue
        code = queue[row, CODE]
        if heads[code] < 0:
            heads[code] = row
        else:
            queue[tails[code], NEXT] = row
        tails[code] = row
        queue[row, NEXT] = CLOSED if mark == CLOSED else NONE


@kernel(nb.int64(_LINES, _ROW, _READ, _ROW))
def close(queue: Lines, heads: Ids, codes: Ids, gone: Ids) -> int:
    """End all waiting lines of some partitions; returns how many there were."""
    lost = 0
    for i in range(codes.size):
        lost = _clear(queue, heads, codes[i], gone, lost)
    return lost


_END = nb.void(_LINES, _READ, _READ, _READ)


@kernel(_END)
def end_rows(queue: Lines, rows: Ids, times: Ids, holds: Ids) -> None:
    """Set when a missing step ends lines: for each line, the earliest time at which it does."""
    for i in range(rows.size):
        if holds[i] and times[i] < queue[rows[i], ENDS]:
            queue[rows[i], ENDS] = times[i]
