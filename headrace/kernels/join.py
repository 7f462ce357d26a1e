"""Hash chains over rows with intervals: link new rows, walk the rows that share a key and an instant.

`links` has one line per row held: (id of the previous row with the same word, start, end, sign). A table maps
each word to its newest row. Chains run from new to old, so a walk ends at the first id below `base`.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.hashing import EMPTY, slot_of

NEXT, START, END, SIGN = 0, 1, 2, 3


@nb.njit("int64(int64[:, :], int64[:, :], int64[:], int64, int64)", cache=True)
def link(
    table: npt.NDArray[np.int64],
    links: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64],
    first: int,
    base: int,
) -> int:
    """Put rows first, first + 1, … with these words at the heads of their chains; returns new words."""
    mask = table.shape[0] - 1
    added = 0
    for i in range(words.size):
        slot = slot_of(words[i], mask)
        while table[slot, 1] != EMPTY and table[slot, 0] != words[i]:
            slot = (slot + 1) & mask
        if table[slot, 1] == EMPTY:
            table[slot, 0] = words[i]
            added += 1
        links[first - base + i, NEXT] = table[slot, 1]
        table[slot, 1] = first + i
    return added


@nb.njit("void(int64[:, :], int64[:], int64[:])", cache=True)
def heads(
    table: npt.NDArray[np.int64], words: npt.NDArray[np.int64], out: npt.NDArray[np.int64]
) -> None:
    """The newest row of each word, EMPTY where there is none. Probes are independent: misses overlap."""
    mask = table.shape[0] - 1
    for i in range(words.size):
        slot = slot_of(words[i], mask)
        while table[slot, 1] != EMPTY and table[slot, 0] != words[i]:
            slot = (slot + 1) & mask
        out[i] = table[slot, 1]


@nb.njit(
    "UniTuple(int64, 2)(int64[:, :], int64, int64[:], int64[:], int64[:], int64[:, :], int64, int64)",
    cache=True,
)
def walk(
    links: npt.NDArray[np.int64],
    base: int,
    cursors: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    pairs: npt.NDArray[np.int64],
    begin: int,
    filled: int,
) -> tuple[int, int]:
    """Write (probe, row) for every row in the probe's chain whose interval meets the probe's.

    `cursors` are the chains' next ids, moved on as they are walked. Stops when `pairs` is full; returns the
    probe to go on with and how many pairs are filled.
    """
    room = pairs.shape[0]
    for i in range(begin, cursors.size):
        id = cursors[i]
        while id >= base:
            at = id - base
            if links[at, START] < ends[i] and starts[i] < links[at, END]:
                if filled == room:
                    cursors[i] = id
                    return i, filled
                pairs[filled, 0] = i
                pairs[filled, 1] = id
                filled += 1
            id = links[at, NEXT]
    return cursors.size, filled


@nb.njit("void(int64[:, :], boolean[:], int64[:], int64[:], int64, int64)", cache=True)
def pair_off(
    candidates: npt.NDArray[np.int64],
    fits: npt.NDArray[np.bool_],
    partner: npt.NDArray[np.int64],
    taken: npt.NDArray[np.int64],
    low: int,
    none: int,
) -> None:
    """Give each probe at most one candidate row, and each row to at most one probe.

    Rows that fit the same probe are alike, so the first free one is as good as any. `taken` is indexed by
    id − low.
    """
    for c in range(candidates.shape[0]):
        probe, id = candidates[c, 0], candidates[c, 1]
        if fits[c] and partner[probe] == none and taken[id - low] == 0:
            partner[probe] = id
            taken[id - low] = 1
