"""The inner loops of the heartbeat generator (Srivastava & Widom, Figure 2).

Figure 2 writes into every stream's future at each arrival: O(kn). Here an arrival is written once, into the
staircase of its own source (clock, greatest time so far), and a query reads each staircase at the
delays of the bounds: τ_j(now) = max over i and (t, δ) in B_ij of M_i(now − t − L_j) − δ. The two are equal
because both are maxima over the same arrivals; the second costs O(1) per arrival and O(kn²) per query.

A staircase is a ring (row) indexed by ever-growing positions: `head` is the oldest kept, `tail` one past the
newest, `cursor` of a slot (a delay of that row) one past the newest already matured.

If rows wait at their sources to be read, `reads` has the clock up to which each stream has been read, and
a slot is due by the clock of its own stream (`whose`) instead of `now`.
"""

from __future__ import annotations

import numba
import numpy as np

from headrace.kernels.compiling import kernel

MIN = np.iinfo(np.int64).min
MAX = np.iinfo(np.int64).max

LAST, NEWEST = 0, 1
"""Positions in `state`: clock of the latest arrival, greatest time seen."""

_I64, _LINE = numba.int64, numba.int64[::1]
_TIMES = (_LINE, numba.types.Array(_I64, 1, "C", readonly=True))
"""The times of arrivals: arrays of our own, or those of Arrow."""
_RINGS = numba.types.Tuple((numba.int64[:, ::1], numba.int64[:, ::1], _LINE, _LINE, _LINE, _LINE))
_SLOTS, _COUNTED = numba.types.UniTuple(_LINE, 6), numba.types.UniTuple(_LINE, 8)
_GROUPS = (numba.uint8[::1], numba.uint16[::1])


@numba.njit(inline="always")
def minus(a, b):  # type: ignore[no-untyped-def]
    """`a − b` for b ≥ 0, saturated."""
    return MIN if a < MIN + b else a - b


@numba.njit(inline="always")
def clock_of(s, now, reads, slots):  # type: ignore[no-untyped-def]
    """The clock by which a slot is due."""
    whose = slots[5][s]
    return now if whose < 0 else min(now, reads[whose])


@kernel(usual=[(_LINE, times, _LINE, _I64, _I64) for times in _TIMES])
def check(streams, times, clocks, sources, last):  # type: ignore[no-untyped-def]
    """(0, −1), or which rule the first bad arrival breaks: 1 clock, 2 stream, 3 time; and its position."""
    for k in range(len(streams)):
        if clocks[k] < last:
            return 1, k
        if streams[k] < 0 or streams[k] >= sources:
            return 2, k
        if times[k] == MIN or times[k] == MAX:
            return 3, k
        last = clocks[k]
    return 0, -1


@kernel(usual=[(_LINE, group) for group in _GROUPS])
def grouped(streams, group):  # type: ignore[no-untyped-def]
    """The group of each arrival's source. It is a separate pass, so that no branch waits for the table."""
    found = np.empty(len(streams), np.int64)
    for k in range(len(streams)):
        found[k] = group[streams[k]]
    return found


@numba.njit(inline="always")
def find(clock, row, lo, hi, limit):  # type: ignore[no-untyped-def]
    """The first position in `lo:hi` of the row whose clock is past `limit`."""
    mask = clock.shape[1] - 1
    if lo == hi or clock[row, lo & mask] > limit:
        return lo
    if clock[row, (hi - 1) & mask] <= limit:
        return hi
    while lo < hi:
        middle = (lo + hi) >> 1
        if clock[row, middle & mask] <= limit:
            lo = middle + 1
        else:
            hi = middle
    return lo


@numba.njit(inline="always")
def push(row, at, time, rings, slots):  # type: ignore[no-untyped-def]
    """Append (at, time) to a staircase, or raise its last step if that has the same clock.

    Slots that had already matured the step look at it again. A row that no bound reads keeps its last step
    only.
    """
    clock, value, head, tail, top, cursor = rings
    begin, end = slots[0][row], slots[0][row + 1]
    top[row] = time
    mask = clock.shape[1] - 1
    newest = tail[row] - 1
    if tail[row] > head[row] and clock[row, newest & mask] == at:
        value[row, newest & mask] = time
        for s in range(begin, end):
            if cursor[s] > newest:
                cursor[s] = newest
            elif slots[5][s] < 0:
                break
    else:
        if end == begin:
            tail[row] = head[row]
        clock[row, tail[row] & mask] = at
        value[row, tail[row] & mask] = time
        tail[row] += 1


@kernel()
def count(j, now, reads, rings, slots, counted):  # type: ignore[no-untyped-def]
    """Count a tuple of stream `j` in every tuple-based pair on it; returns the best that is now due, or MIN.

    Each pair remembers, for each of the last n tuples of `j`, the greatest time of its source that was surely
    emitted before that tuple: seen before it if nothing can delay `j`, else matured by t + L_j + 1 ticks.
    """
    clock, value, head, tail, top, cursor = rings
    begin, source, slot, n, delta, offset, seen, memory = counted
    mask = clock.shape[1] - 1
    best = MIN
    for p in range(begin[j], begin[j + 1]):
        i, s = source[p], slot[p]
        before = top[i]
        if s >= 0:
            to = find(clock, i, cursor[s], tail[i], minus(clock_of(s, now, reads, slots), slots[1][s]))
            before = value[i, (to - 1) & mask] if to > head[i] else MIN
        memory[offset[p] + seen[p] % n[p]] = before
        seen[p] += 1
        if seen[p] >= n[p]:
            due = memory[offset[p] + seen[p] % n[p]]
            if due != MIN:
                best = max(best, minus(due, delta[p]))
    return best


@kernel()
def mature_row(row, now, reads, promise, rings, slots):  # type: ignore[no-untyped-def]
    """Raise promises by what has come due in one staircase, and forget the steps that no delay needs.

    Of the slots that are due by now, the one with the longest delay matures a step last.
    """
    clock, value, head, tail, _, cursor = rings
    begin, delay, entry, target, delta, whose = slots
    mask = clock.shape[1] - 1
    last = begin[row + 1] - 1
    if last < begin[row] or (whose[last] < 0 and cursor[last] == tail[row]):
        return
    low = tail[row]
    for s in range(begin[row], last + 1):
        to = find(clock, row, cursor[s], tail[row], minus(clock_of(s, now, reads, slots), delay[s]))
        if to > cursor[s]:
            cursor[s] = to
            time = value[row, (to - 1) & mask]
            for e in range(entry[s], entry[s + 1]):
                promise[target[e]] = max(promise[target[e]], minus(time, delta[e]))
        low = min(low, cursor[s])
    head[row] = max(head[row], low - 1)


@kernel(usual=[(_I64, _LINE, _LINE, _RINGS, _SLOTS)])
def mature(now, reads, promise, rings, slots):  # type: ignore[no-untyped-def]
    """Raise every promise by what has come due at `now`."""
    for row in range(len(rings[3])):
        mature_row(row, now, reads, promise, rings, slots)


@kernel()
def full(row, now, reads, promise, rings, slots):  # type: ignore[no-untyped-def]
    """Whether a staircase that has no room for a step is still more than half full after forgetting."""
    mature_row(row, now, reads, promise, rings, slots)
    return 2 * (rings[3][row] - rings[2][row]) > rings[0].shape[1]


@kernel(
    usual=[
        (_I64, _LINE, times, _LINE, _I64, _I64, _LINE, _LINE, _LINE, _LINE, _RINGS, _SLOTS, _COUNTED)
        for times in _TIMES
    ]
)
def arrive(  # type: ignore[no-untyped-def]
    start, streams, times, clocks, tick, timeout, state, spoken, promise, reads, rings, slots, counted
):
    """Take arrivals from `start` on; stops when a staircase is full, and returns where."""
    clock, _, head, tail, top, _ = rings
    room = clock.shape[1]
    streams_n = len(promise)
    virtual = len(top) > streams_n
    for k in range(start, len(streams)):
        j, now, time = streams[k], clocks[k], times[k]
        if tail[j] - head[j] == room and full(j, now, reads, promise, rings, slots):
            return k
        if virtual:
            row = streams_n + j
            if tail[row] - head[row] == room and full(row, now, reads, promise, rings, slots):
                return k
        if state[NEWEST] != MIN and minus(now, timeout) > state[LAST]:
            for s in range(streams_n):
                promise[s] = max(promise[s], state[NEWEST])
        at = now if tick == 1 else -(-now // tick) * tick
        if virtual:
            due = count(j, now, reads, rings, slots, counted)
            if due > top[streams_n + j]:
                push(streams_n + j, at, due, rings, slots)
        if time > top[j]:
            push(j, at, time, rings, slots)
            state[NEWEST] = max(state[NEWEST], time)
        spoken[j] = now
        state[LAST] = now
    return len(streams)


@kernel()
def raises(time, s, promise, slots):  # type: ignore[no-untyped-def]
    """Whether `time`, come due in slot `s`, would raise any promise."""
    _, _, entry, target, delta, _ = slots
    for e in range(entry[s], entry[s + 1]):  # noqa: SIM110 (numba compiles the loop, not the generator)
        if minus(time, delta[e]) > promise[target[e]]:
            return True
    return False


@kernel(usual=[(_LINE, _RINGS, _SLOTS)])
def next_change(promise, rings, slots):  # type: ignore[no-untyped-def]
    """The earliest instant at which a step not yet matured raises a promise, or MAX."""
    clock, value, _, tail, _, cursor = rings
    begin, delay = slots[0], slots[1]
    mask = clock.shape[1] - 1
    best = MAX
    for row in range(len(tail)):
        for s in range(begin[row], begin[row + 1]):
            for position in range(cursor[s], tail[row]):
                at = clock[row, position & mask]
                if at >= minus(best, delay[s]):
                    break
                if raises(value[row, position & mask], s, promise, slots):
                    best = at + delay[s]
                    break
    return best
