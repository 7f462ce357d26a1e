"""Net changes: events summed per (time, code), and what they do to counts, in one pass each."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

Events = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_READ_I64_2D = nb.types.Array(nb.int64, 2, "A", readonly=True)


@kernel(nb.int64(nb.int64[:, :], nb.int64))
def _without_zeros(out: Events, count: int) -> int:
    kept = 0
    for i in range(count):
        changed = False
        for j in range(2, out.shape[1]):
            changed |= out[i, j] != 0
        if changed:
            if kept != i:
                out[kept] = out[i]
            kept += 1
    return kept


@kernel(nb.int64(_READ_I64_2D, _READ_I64, nb.int64[:], nb.int64[:, :]))
def net_changes(events: Events, order: Ints, places: Ints, out: Events) -> int:
    """Sum the deltas of events (time, code, delta …) of equal time and code; returns how many are not zero.

    `order` goes by time; a code below 0 does not count. `places` says for each code where its last sum is,
    and is believed only if that is so: it may hold anything.
    """
    count = 0
    width = events.shape[1]
    for i in order:
        time, code = events[i, 0], events[i, 1]
        if code < 0:
            continue
        place = places[code]
        if place < 0 or place >= count or out[place, 0] != time or out[place, 1] != code:
            place = count
            places[code] = place
            out[place, 0] = time
            out[place, 1] = code
            out[place, 2:] = 0
            count += 1
        for j in range(2, width):
            out[place, j] += events[i, j]
    return _without_zeros(out, count)


@kernel(nb.void(_READ_I64, _READ_I64, nb.int64[:], nb.int64[:]))
def step_counts(codes: Ints, deltas: Ints, counts: Ints, before: Ints) -> None:
    """Add each delta to its code's count, in order; `before[i]` is the count that it found."""
    for i in range(codes.size):
        before[i] = counts[codes[i]]
        counts[codes[i]] += deltas[i]
