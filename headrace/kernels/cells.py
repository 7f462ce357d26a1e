"""Cells of a pane and a group, found for rows in any order of time by one probe of a hash table."""

from __future__ import annotations

import numba as nb
import numpy as np

from headrace.arrays import Ints
from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY, slot_of

_I64 = nb.int64[::1]
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_SPREAD = np.int64(-7046029254386353131)


@nb.njit(inline="always")
def _slot(pane: int, code: int, mask: int) -> np.int64:
    """Where the search for a cell begins."""
    return slot_of(np.int64(pane) * _SPREAD + np.int64(code), np.int64(mask))


@kernel(
    nb.types.UniTuple(nb.int64, 3)(
        _READ_I64, _READ_I64, _READ_I64, _I64, _I64, _I64, _I64, nb.int64, nb.int64, _I64, _I64
    ),
)
def find_cells(
    times: Ints,
    codes: Ints,
    state: Ints,
    index: Ints,
    pane: Ints,
    code: Ints,
    marks: Ints,
    begin: int,
    seen: int,
    cells: Ints,
    touched: Ints,
) -> tuple[int, int, int]:
    """The cell of each row from `begin` on; returns how far it got, how many cells are new, and how many
    were touched.

    `state` is (slide, rest, offset, next cell, room for cells, stamp); a slide is cut into panes as in
    `headrace.kernels.aggregate_panes`. Rows near each other are often of one pane. `pane` and `code` say what
    each cell is of, `marks` which were touched since the stamp. `index` has a cell in each slot, or EMPTY; a
    cell that is over keeps its slot, and its code is EMPTY. Stops when there is no room, so that the caller
    can grow the arrays and go on.
    """
    slide, rest, shift = state[0], state[1], state[2]
    next, room, stamp = state[3], state[4], state[5]
    mask = index.size - 1
    added = number = 0
    first, end = np.int64(1), np.int64(0)
    for i in range(begin, times.size):
        time, group = times[i], codes[i]
        if time < first or time >= end:
            offset = (time - shift) % slide
            number = 2 * ((time - shift - offset) // slide) - (1 if offset < rest else 0)
            first = time - (offset if offset < rest else offset - rest)
            end = first + (rest if offset < rest else slide - rest)
        slot = _slot(number, group, mask)
        while True:
            cell = index[slot]
            if cell == EMPTY:
                if added == room:
                    return i, added, seen
                cell = next + added
                index[slot] = cell
                pane[cell] = number
                code[cell] = group
                added += 1
                break
            if pane[cell] == number and code[cell] == group:
                break
            slot = (slot + 1) & mask
        cells[i] = cell
        if marks[cell] != stamp:
            marks[cell] = stamp
            touched[seen] = cell
            seen += 1
    return times.size, added, seen


@kernel(nb.void(_I64, _READ_I64, _READ_I64, nb.int64))
def index_cells(index: Ints, pane: Ints, code: Ints, count: int) -> None:
    """Enter the cells that are not over into an empty index that has room."""
    mask = index.size - 1
    for cell in range(count):
        if code[cell] != EMPTY:
            slot = _slot(pane[cell], code[cell], mask)
            while index[slot] != EMPTY:
                slot = (slot + 1) & mask
            index[slot] = cell
