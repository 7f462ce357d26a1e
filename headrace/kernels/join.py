"""Hash chains over rows with intervals: link new rows, walk the rows that share a key and an instant.

`links` has one line per row held: (id of the previous row in the same bucket, start, end, sign, word). `table`
has the newest row of each bucket. Chains run from new to old, so a walk ends at the first id below `base`:
rows that expire from the head need not be unlinked.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.hashing import EMPTY, slot_of

NEXT, START, END, SIGN, WORD = 0, 1, 2, 3, 4
_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)
_ROW = nb.int64[::1]
_LINES = nb.int64[:, ::1]


@nb.njit(nb.void(_ROW, _LINES, nb.int64, nb.int64), cache=True)
def link(table: npt.NDArray[np.int64], links: npt.NDArray[np.int64], first: int, base: int) -> None:
    """Put the rows from id `first` on at the heads of their buckets' chains."""
    mask = np.int64(table.size - 1)
    for at in range(first - base, links.shape[0]):
        bucket = slot_of(links[at, WORD], mask)
        links[at, NEXT] = table[bucket]
        table[bucket] = base + at


@nb.njit(nb.void(_ROW, _READ, _ROW), cache=True)
def heads(table: npt.NDArray[np.int64], words: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> None:
    """The newest row in each word's bucket. Probes are independent: their cache misses overlap."""
    mask = np.int64(table.size - 1)
    for i in range(words.size):
        out[i] = table[slot_of(words[i], mask)]


_WALK = nb.types.UniTuple(nb.int64, 2)(
    _LINES, nb.int64, _ROW, _READ, _READ, _READ, _READ, _ROW, _ROW, _ROW, _ROW, _ROW, nb.int64, nb.int64
)


@nb.njit(_WALK, cache=True)
def walk(
    links: npt.NDArray[np.int64],
    base: int,
    cursors: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    signs: npt.NDArray[np.int64],
    probes: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    weights: npt.NDArray[np.int64],
    begin: int,
    filled: int,
) -> tuple[int, int]:
    """Write probe, row, and their signed common interval for every row of a probe's word that meets it.

    `cursors` are the chains' next ids, moved on as they are walked. Stops when the outputs are full; returns
    the probe to go on with and how many pairs are filled.
    """
    room = probes.size
    for i in range(begin, cursors.size):
        id = cursors[i]
        word, start, end = words[i], starts[i], ends[i]
        while id >= base:
            at = id - base
            if links[at, WORD] == word:
                low, high = max(start, links[at, START]), min(end, links[at, END])
                if low < high:
                    if filled == room:
                        cursors[i] = id
                        return i, filled
                    probes[filled] = i
                    ids[filled] = id
                    begins[filled] = low
                    stops[filled] = high
                    weights[filled] = signs[i] * links[at, SIGN]
                    filled += 1
            id = links[at, NEXT]
    return cursors.size, filled


@nb.njit(nb.void(_READ, _READ, nb.boolean[:], _ROW, nb.boolean[:]), cache=True)
def pair_off(
    probes: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    fits: npt.NDArray[np.bool_],
    partner: npt.NDArray[np.int64],
    taken: npt.NDArray[np.bool_],
) -> None:
    """Give each probe at most one of the rows that fit it, and each row to at most one probe.

    Rows that fit the same probe are alike, so the first free one is as good as any.
    """
    for c in range(probes.size):
        if fits[c] and partner[probes[c]] == EMPTY and not taken[rows[c]]:
            partner[probes[c]] = rows[c]
            taken[rows[c]] = True
