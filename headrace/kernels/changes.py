"""Net changes: events are summed for each (time, code), then added to counts; one pass each."""

from __future__ import annotations

import numba as nb

from headrace.arrays import Events, Ints
from headrace.kernels.compiling import kernel

TIME, CODE, DELTA = range(3)
"""The columns of an event: when, which row content, how many copies come (or go, if negative). An event that
concerns several relations has a delta for each, in the columns from DELTA on."""

_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_READ_I64_2D = nb.types.Array(nb.int64, 2, "A", readonly=True)


@kernel(nb.int64(nb.int64[:, :], nb.int64))
def _without_zeros(out: Events, count: int) -> int:
    """Keep the events among the first `count` that have a delta other than 0; returns how many."""
    kept = 0
    for i in range(count):
        changed = False
        for j in range(DELTA, out.shape[1]):
            changed |= out[i, j] != 0
        if changed:
            if kept != i:
                out[kept] = out[i]
            kept += 1
    return kept


@kernel(nb.int64(_READ_I64_2D, _READ_I64, nb.int64[:], nb.int64[:, :]))
def net_changes(events: Events, order: Ints, places: Ints, out: Events) -> int:
    """Write to `out` the sum of the deltas for each time and code; returns how many are not zero.

    `order` lists the events by time. Events with a negative code are skipped. `places` caches, for each code,
    where its last sum is in `out`; it is checked before use and may hold anything at first.
    """
    count = 0
    width = events.shape[1]
    for i in order:
        time, code = events[i, TIME], events[i, CODE]
        if code < 0:
            continue
        place = places[code]
        if place < 0 or place >= count or out[place, TIME] != time or out[place, CODE] != code:
            place = count
            places[code] = place
            out[place, TIME] = time
            out[place, CODE] = code
            out[place, DELTA:] = 0
            count += 1
        for j in range(DELTA, width):
            out[place, j] += events[i, j]
    return _without_zeros(out, count)


@kernel(nb.void(_READ_I64, _READ_I64, nb.int64[:], nb.int64[:]))
def step_counts(codes: Ints, deltas: Ints, counts: Ints, before: Ints) -> None:
    """Add each delta to the count of its code, in order; `before[i]` is the count before delta `i`."""
    for i in range(codes.size):
        before[i] = counts[codes[i]]
        counts[codes[i]] += deltas[i]
