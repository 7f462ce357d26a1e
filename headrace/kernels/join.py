"""Hash chains over rows with intervals: link new rows, walk the rows that share a key and an instant.

`links` has one line of 32 bytes per row held: (previous row of the same bucket, word, start, end), where the
lowest bit of the first says whether the row is a withdrawal. `table` has, for each bucket, the newest row of
either side of the join, so that one cache miss serves both to link a row and to find its partners. Chains
run from new to old: a walk ends at the first id below `base`, and rows that expire from the head need not be
unlinked.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY, slot_of

NEXT, WORD, START, END = 0, 1, 2, 3
_AHEAD = 256
_NEVER = np.int64(-(2**63) + 1)
_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)
_ROW = nb.int64[::1]
_LINES = nb.int64[:, ::1]


@kernel(nb.void(_LINES, nb.int64, _LINES, nb.int64, nb.int64, _ROW))
def enter(
    table: npt.NDArray[np.int64],
    side: int,
    links: npt.NDArray[np.int64],
    first: int,
    base: int,
    partners: npt.NDArray[np.int64],
) -> None:
    """Put the rows from id `first` on at the heads of their chains; note the other side's heads."""
    mask = np.int64(table.shape[0] - 1)
    begin = first - base
    for at in range(begin, links.shape[0]):
        bucket = slot_of(links[at, WORD], mask)
        partners[at - begin] = table[bucket, 1 - side]
        links[at, NEXT] = (table[bucket, side] << 1) | (links[at, NEXT] & 1)
        table[bucket, side] = base + at


@kernel(nb.void(_LINES, nb.int64, _READ, _ROW))
def heads(
    table: npt.NDArray[np.int64], side: int, words: npt.NDArray[np.int64], out: npt.NDArray[np.int64]
) -> None:
    """The newest row of one side in each word's bucket."""
    mask = np.int64(table.shape[0] - 1)
    for i in range(words.size):
        out[i] = table[slot_of(words[i], mask), side]


@kernel(nb.int64(_LINES, nb.int64, _ROW, nb.int64, nb.int64))
def _touch(
    links: npt.NDArray[np.int64], base: int, cursors: npt.NDArray[np.int64], begin: int, stop: int
) -> np.int64:
    """Read the first lines of some walks, so that their cache misses overlap; the sum is not used."""
    found = np.int64(0)
    if links.shape[0] == 0:
        return found
    for i in range(begin, stop):
        found ^= links[max(cursors[i] - base, 0), WORD]
    return found


_WALK = nb.types.UniTuple(nb.int64, 2)(
    _LINES, nb.int64, _ROW, _READ, _READ, _READ, _READ, _ROW, _ROW, _ROW, _ROW, _ROW, nb.int64, nb.int64
)


@kernel(_WALK)
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
    """Write probe, row and their signed common interval for every row with the word of a probe that meets it.

    `cursors` are the chains' next ids, moved on as they are walked. Stops when the outputs are full; returns
    the probe to continue with and how many pairs are filled.
    """
    room = probes.size
    touched, useless = begin, np.int64(0)
    for i in range(begin, cursors.size):
        if i == touched:
            touched = min(i + _AHEAD, cursors.size)
            useless ^= _touch(links, base, cursors, i, touched)
        id = cursors[i]
        word, start, end = words[i], starts[i], ends[i]
        while id >= base:
            at = id - base
            line = links[at, NEXT]
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
                    weights[filled] = signs[i] * (1 - 2 * (line & 1))
                    filled += 1
            id = line >> 1
    if useless == _NEVER:
        cursors[0] = EMPTY
    return cursors.size, filled


@kernel(nb.void(_READ, _READ, nb.boolean[:], _ROW, nb.boolean[:]))
def pair_off(
    probes: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    fits: npt.NDArray[np.bool_],
    partner: npt.NDArray[np.int64],
    taken: npt.NDArray[np.bool_],
) -> None:
    """Give each probe at most one of the rows that fit it, and each row to at most one probe.

    Rows that fit the same probe are equal, so any free one will do.
    """
    for c in range(probes.size):
        if fits[c] and partner[probes[c]] == EMPTY and not taken[rows[c]]:
            partner[probes[c]] = rows[c]
            taken[rows[c]] = True
