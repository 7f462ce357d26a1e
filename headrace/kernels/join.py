"""Hash chains over rows with intervals: link new rows, walk the rows that share a key and an instant.

`links` has one line per row held: (id of the previous row with the same word, start, end, sign, word). A table
maps each word to its newest row. Chains run from new to old, so a walk ends at the first id below `base`.
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


@nb.njit(nb.int64(_LINES, _LINES, nb.int64, nb.int64), cache=True)
def link(table: npt.NDArray[np.int64], links: npt.NDArray[np.int64], first: int, base: int) -> int:
    """Put the rows from id `first` on at the heads of their chains; returns how many words are new."""
    mask = np.int64(table.shape[0] - 1)
    added = 0
    for at in range(first - base, links.shape[0]):
        word = links[at, WORD]
        slot = slot_of(word, mask)
        while table[slot, 1] != EMPTY and table[slot, 0] != word:
            slot = (slot + 1) & mask
        if table[slot, 1] == EMPTY:
            table[slot, 0] = word
            added += 1
        links[at, NEXT] = table[slot, 1]
        table[slot, 1] = base + at
    return added


@nb.njit(nb.void(_LINES, nb.int64, nb.int64), cache=True)
def _vacate(table: npt.NDArray[np.int64], hole: np.int64, mask: np.int64) -> None:
    """Empty a slot and move later entries of its run up, so that every probe still finds its word."""
    table[hole, 1] = EMPTY
    slot = (hole + 1) & mask
    while table[slot, 1] != EMPTY:
        home = slot_of(table[slot, 0], mask)
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            table[hole, 0] = table[slot, 0]
            table[hole, 1] = table[slot, 1]
            table[slot, 1] = EMPTY
            hole = slot
        slot = (slot + 1) & mask


@nb.njit(nb.int64(_LINES, _LINES, nb.int64, nb.int64), cache=True)
def unlink(table: npt.NDArray[np.int64], links: npt.NDArray[np.int64], count: int, base: int) -> int:
    """Take words out of the table whose newest row is among the first `count` lines; returns how many."""
    mask = np.int64(table.shape[0] - 1)
    removed = 0
    for at in range(count):
        word = links[at, WORD]
        slot = slot_of(word, mask)
        while table[slot, 1] != EMPTY and table[slot, 0] != word:
            slot = (slot + 1) & mask
        if table[slot, 1] == base + at:
            _vacate(table, slot, mask)
            removed += 1
    return removed


@nb.njit(nb.void(_LINES, _READ, _ROW), cache=True)
def heads(table: npt.NDArray[np.int64], words: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> None:
    """The newest row of each word, EMPTY where there is none. Probes are independent: misses overlap."""
    mask = np.int64(table.shape[0] - 1)
    for i in range(words.size):
        slot = slot_of(words[i], mask)
        while table[slot, 1] != EMPTY and table[slot, 0] != words[i]:
            slot = (slot + 1) & mask
        out[i] = table[slot, 1]


_WALK = nb.types.UniTuple(nb.int64, 2)(
    _LINES, nb.int64, _ROW, _READ, _READ, _READ, _ROW, _ROW, _ROW, _ROW, _ROW, nb.int64, nb.int64
)


@nb.njit(_WALK, cache=True)
def walk(
    links: npt.NDArray[np.int64],
    base: int,
    cursors: npt.NDArray[np.int64],
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
    """Write probe, row, and their signed common interval for every row in a probe's chain that meets it.

    `cursors` are the chains' next ids, moved on as they are walked. Stops when the outputs are full; returns
    the probe to go on with and how many pairs are filled.
    """
    room = probes.size
    for i in range(begin, cursors.size):
        id = cursors[i]
        start, end, sign = starts[i], ends[i], signs[i]
        while id >= base:
            at = id - base
            low, high = max(start, links[at, START]), min(end, links[at, END])
            if low < high:
                if filled == room:
                    cursors[i] = id
                    return i, filled
                probes[filled] = i
                ids[filled] = id
                begins[filled] = low
                stops[filled] = high
                weights[filled] = sign * links[at, SIGN]
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
