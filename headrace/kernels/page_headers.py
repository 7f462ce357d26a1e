"""Headers of the pages of a Parquet file, in Thrift's compact protocol.

Numba, because a large file has three headers or more for each 20,000 rows, and each has some thirty fields.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.kernels.aggregate_panes import I64
from headrace.kernels.compiling import kernel
from headrace.kernels.text_lengths import READ_U8

FOUND = 9
"""Numbers of a header: kind, size and packed size; then values and encoding of each kind of page."""
DEEPEST = 4
"""Structs in structs that are read: a header, the header of its kind of page, its statistics."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_NONE = -1


@kernel(nb.types.UniTuple(nb.int64, 2)(READ_U8, nb.int64))
def _varint(data: npt.NDArray[np.uint8], at: int) -> tuple[int, int]:
    """An unsigned number below 2^56, and the offset after it; that is -1 if there is none."""
    value, shift = 0, 0
    while at < data.size and shift < 56:
        byte = int(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1


@kernel(nb.int64(nb.int64, nb.int64, nb.int64))
def _place(depth: int, above: int, number: int) -> int:
    """Where a number of a header is kept: -1 if it is not needed."""
    if depth == 0:
        return number - 1 if 1 <= number <= 3 else -1
    kind = 0 if above == 5 else (1 if above == 7 else (2 if above == 8 else -1))
    if depth > 1 or kind < 0:
        return -1
    if number == 1:
        return 3 + 2 * kind
    return 4 + 2 * kind if number == (4 if kind == 2 else 2) else -1


@kernel(nb.int64(READ_U8, I64))
def page_header(data: npt.NDArray[np.uint8], found: Ints) -> int:
    """Find the numbers of a header; returns its length, or -1 if it is damaged, cut off, or unusual."""
    found[:] = _NONE
    numbers = np.zeros(DEEPEST, np.int64)
    depth, at = 0, 0
    while at < data.size:
        head = int(data[at])
        at += 1
        if head == _STOP:
            depth -= 1
            if depth < 0:
                return at
            continue
        if head >> 4:
            numbers[depth] += head >> 4
        else:
            raw, at = _varint(data, at)
            if at < 0:
                return -1
            numbers[depth] = (raw >> 1) ^ -(raw & 1)
        kind = head & 15
        place = _place(depth, numbers[0], numbers[depth])
        inner = depth == 0 and numbers[0] in (5, 7, 8)
        if inner != (kind == _STRUCT and depth == 0):
            return -1
        if kind == _STRUCT:
            depth += 1
            if depth == DEEPEST or place >= 0 or (inner and found[_place(1, numbers[0], 1)] >= 0):
                return -1
            numbers[depth] = 0
        elif 4 <= kind <= 6:
            raw, at = _varint(data, at)
            if at < 0:
                return -1
            if place >= 0:
                found[place] = (raw >> 1) ^ -(raw & 1)
        elif place >= 0:
            return -1
        elif kind == _BINARY:
            length, at = _varint(data, at)
            if at < 0 or length > data.size - at:
                return -1
            at += length
        elif kind in (_BYTE, _DOUBLE):
            at += 8 if kind == _DOUBLE else 1
        elif kind not in (_TRUE, _FALSE):
            return -1
    return -1
