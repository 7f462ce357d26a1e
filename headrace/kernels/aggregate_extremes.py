"""The least word of each entry, and of the windows over them (van Herk; Gil & Werman).

Time is cut into blocks as long as a window. A window meets at most one block edge, so its value is that of
a suffix of the block before the edge merged with that of a prefix of the block after: three merges an entry
or output row, however many panes a window has. `prefix[e]` merges a group's entries from the start of the
block up to e, `suffix[e]` those from e to the end of the block. `edges` are the entries at which blocks
begin, the last the end of what is scanned. Entries lie in rings.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.aggregate_panes import I32, I64, READ_I64
from headrace.kernels.compiling import kernel
from headrace.kernels.value_order import ORDER, Order, less

Ints = npt.NDArray[np.int64]


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
