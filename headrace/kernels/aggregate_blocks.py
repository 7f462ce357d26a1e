"""Windows without subtraction: suffixes of one block of panes, prefixes of the next (van Herk; Gil & Werman).

Time is cut into blocks as long as a window. A window meets at most one block edge, so its value is that of
a suffix of the block before the edge merged with that of a prefix of the block after: three merges an entry
or output row, however many panes a window has, and no error from taking away. `prefix[e]` merges a group's
entries from the start of the block up to e, `suffix[e]` those from e to the end of the block. `edges` are the
entries at which blocks begin, the last the end of what is scanned. Entries lie in rings.

Real sums are unevaluated pairs high + low (Dekker; Knuth's two-sum), so that they are as good as sums of
twice the precision.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.aggregate_panes import F64, I32, READ_F64, READ_I64
from headrace.kernels.compiling import kernel

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

SPLITTER = 134217729.0


@nb.njit(inline="always")
def two_sum(a: float, b: float) -> tuple[float, float]:
    """A + b as its rounding and the exact error of that."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@nb.njit(inline="always")
def square(a: float) -> tuple[float, float]:
    """a² as its rounding and the exact error of that, while nothing overflows."""
    s = a * a
    t = SPLITTER * a
    high = t - (t - a)
    low = a - high
    return s, ((high * high - s) + 2.0 * high * low) + low * low


@kernel(nb.void(READ_I64, READ_F64, F64, F64))
def add_reals(slots: Ints, values: Reals, high: Reals, low: Reals) -> None:
    """Add each value to its entry."""
    mask = high.size - 1
    for i in range(slots.size):
        s = slots[i] & mask
        high[s], error = two_sum(high[s], values[i])
        low[s] += error


@kernel(nb.void(READ_I64, READ_F64, F64, F64))
def add_squares(slots: Ints, values: Reals, high: Reals, low: Reals) -> None:
    """Add the square of each value to its entry."""
    mask = high.size - 1
    for i in range(slots.size):
        s = slots[i] & mask
        product, rest = square(values[i])
        high[s], error = two_sum(high[s], product)
        low[s] += error + rest


@kernel(nb.void(I32, READ_I64, nb.int64, F64, F64, F64, F64))
def prefix_reals(
    back: Ints, edges: Ints, begin: int, high: Reals, low: Reals, out_high: Reals, out_low: Reals
) -> None:
    """Prefix sums of the entries from `begin` on, in the blocks between `edges`."""
    mask = back.size - 1
    for b in range(edges.size - 1):
        for e in range(max(begin, edges[b]), edges[b + 1]):
            at = e & mask
            p = e - back[at]
            if edges[b] <= p < e:
                out_high[at], error = two_sum(out_high[p & mask], high[at])
                out_low[at] = out_low[p & mask] + low[at] + error
            else:
                out_high[at], out_low[at] = high[at], low[at]


@kernel(nb.void(I32, READ_I64, F64, F64, F64, F64))
def suffix_reals(ahead: Ints, edges: Ints, high: Reals, low: Reals, out_high: Reals, out_low: Reals) -> None:
    """Suffix sums of the entries in the blocks between `edges`."""
    mask = ahead.size - 1
    for b in range(edges.size - 1):
        for e in range(edges[b + 1] - 1, edges[b] - 1, -1):
            at = e & mask
            n = e + ahead[at]
            if e < n < edges[b + 1]:
                out_high[at], error = two_sum(high[at], out_high[n & mask])
                out_low[at] = low[at] + out_low[n & mask] + error
            else:
                out_high[at], out_low[at] = high[at], low[at]


@kernel(nb.void(READ_I64, READ_I64, READ_I64, READ_I64, F64, F64, F64, F64, F64, F64))
def join_reals(
    rows: Ints,
    cuts: Ints,
    heads: Ints,
    tails: Ints,
    suffix_high: Reals,
    suffix_low: Reals,
    prefix_high: Reals,
    prefix_low: Reals,
    out_high: Reals,
    out_low: Reals,
) -> None:
    """The sum of each output row; those of window w are rows[w] … rows[w + 1] − 1, its block edge cuts[w]."""
    mask = suffix_high.size - 1
    for w in range(cuts.size):
        for o in range(rows[w], rows[w + 1]):
            h, t = heads[o] & mask, tails[o] & mask
            if heads[o] >= cuts[w]:
                out_high[o], out_low[o] = prefix_high[t], prefix_low[t]
            elif tails[o] < cuts[w]:
                out_high[o], out_low[o] = suffix_high[h], suffix_low[h]
            else:
                out_high[o], error = two_sum(suffix_high[h], prefix_high[t])
                out_low[o] = suffix_low[h] + prefix_low[t] + error
