"""Running values of groups over their steps: what changes at each instant, one group after the other.

Events come in order of (group, time). Results have one line per *position*: for each group first the value
before its first step (`first[g]`), then the value after each step; `at[e]` is the position of the step that
event e belongs to. Numba, because NumPy has no segmented scan and none at all for pairs of reals.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY

_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_I64 = nb.int64[::1]


@kernel(nb.int64(_READ_I64, _READ_I64, _I64, _I64, _I64))
def order_by_group(codes: Ints, by_time: Ints, local: Ints, order: Ints, ranks: Ints) -> int:
    """The events in order of group, then time; groups are in order of first appearance.

    `by_time` is the order of events by time, `ranks` becomes the place in it of each event in `order`.
    `local[code]` is EMPTY before and after. Returns the number of groups. The cost depends on the number of
    events, not on the number of groups.
    """
    counts = np.zeros(codes.size + 1, np.int64)
    groups = 0
    for i in range(codes.size):
        code = codes[by_time[i]]
        if local[code] == EMPTY:
            local[code] = groups
            groups += 1
        counts[local[code] + 1] += 1
    for g in range(groups):
        counts[g + 1] += counts[g]
    for i in range(codes.size):
        g = local[codes[by_time[i]]]
        order[counts[g]] = by_time[i]
        ranks[counts[g]] = i
        counts[g] += 1
    for i in range(codes.size):
        local[codes[i]] = EMPTY
    return groups


@kernel(nb.int64(_READ_I64, _READ_I64, _READ_I64, _I64, nb.int64[:, ::1], _I64))
def number_steps(times: Ints, codes: Ints, ranks: Ints, at: Ints, steps: Ints, first: Ints) -> int:
    """Positions for events in order of group and time; returns how many.

    `steps` gets a line (time, group, rank of its first event) per position, `first` the position before each
    group's steps.
    """
    p = -1
    groups = 0
    for e in range(times.size):
        starts = e == 0 or codes[e] != codes[e - 1]
        if starts:
            p += 1
            first[groups] = p
            groups += 1
            steps[p, 0], steps[p, 1], steps[p, 2] = times[e], codes[e], EMPTY
        if starts or times[e] != times[e - 1]:
            p += 1
            steps[p, 0], steps[p, 1], steps[p, 2] = times[e], codes[e], ranks[e]
        at[e] = p
    return p + 1


@kernel(nb.int64(_READ_I64, nb.boolean[::1], nb.boolean[::1], _I64, _I64, nb.int8[::1]))
def list_changes(
    ranks: Ints,
    alive: npt.NDArray[np.bool_],
    same: npt.NDArray[np.bool_],
    steps: Ints,
    shown: Ints,
    sign: npt.NDArray[np.int8],
) -> int:
    """The changes of each step, in order of time: the old row is withdrawn, then the new one inserted.

    `alive` is true at positions with a row, `same` where that row equals the one of the position before.
    `steps` gets the positions at which something changes, `shown` those whose row goes or comes.
    """
    by_rank = np.full(ranks.max() + 1, EMPTY, np.int64)
    for p in range(ranks.size):
        if ranks[p] != EMPTY:
            by_rank[ranks[p]] = p
    count = 0
    for rank in range(by_rank.size):
        p = by_rank[rank]
        if p == EMPTY or (alive[p] and alive[p - 1] and same[p]):
            continue
        for side in range(2):
            if alive[p - 1 + side]:
                steps[count], shown[count] = p, p - 1 + side
                sign[count] = 2 * side - 1
                count += 1
    return count


@kernel(nb.void(_READ_I64, _READ_I64, _READ_I64, _READ_I64, _I64))
def run_ints(first: Ints, carries: Ints, at: Ints, deltas: Ints, out: Ints) -> None:
    """Running sums, modulo 2^64."""
    e = 0
    for g in range(first.size):
        stop = first[g + 1] if g + 1 < first.size else out.size
        total = carries[g]
        out[first[g]] = total
        for p in range(first[g] + 1, stop):
            while e < at.size and at[e] == p:
                total += deltas[e]
                e += 1
            out[p] = total
