"""Flat JSON objects as a record batch, read by a kernel; None for lines that need Arrow's parser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace import tuning
from headrace.kernels.json_objects import REAL, TEXT, TRUTH, WHOLE, copy_texts, read_objects
from headrace.schema import DataType, Schema

KINDS: Final[tuple[tuple[Callable[[DataType], bool], int], ...]] = (
    (pt.is_integer, WHOLE),
    (pt.is_float64, REAL),
    (pt.is_boolean, TRUTH),
    (pt.is_string, TEXT),
)
LONGEST: Final = 1 << 31
PAUSE: Final = 16
"""Blocks for which nothing is tried after one that was not as expected."""


class FlatObjects:
    """Reads lines with the columns of `wire`: integers, 64-bit floats, booleans and strings."""

    def __init__(self, wire: Schema) -> None:
        self._wire = wire
        names = [name.encode() for name in wire.names]
        self._names = np.array(list(b"".join(names)), np.uint8)
        self._ends = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self._kinds = np.array([_kind(field.type) for field in wire], np.int64)
        self._usable = len(wire) > 0 and bool((self._kinds >= 0).all())
        bounds = [_bounds(field.type) for field in wire]
        self._lows, self._highs = (np.array([pair[i] for pair in bounds], np.int64) for i in (0, 1))
        self._least = 1 + sum(len(name) + len('"":0,') for name in names)
        """Bytes of the shortest line: lines that cannot be rows take no memory."""
        self._pause = 0

    def rows(self, lines: bytes) -> pa.RecordBatch | None:
        """The rows of lines of valid UTF-8; None if they are too few, or any of them is unusual."""
        if not self._usable or not tuning.current.json_kernel_bytes <= len(lines) < LONGEST:
            return None
        if self._pause:
            self._pause -= 1
            return None
        shape = len(self._wire), lines.count(b"\n") + (not lines.endswith(b"\n"))
        if shape[1] * self._least > len(lines):
            return None
        words = np.empty(shape, np.int64)
        lengths = np.empty(shape if TEXT in self._kinds else (0, 0), np.int64)
        data = np.frombuffer(lines, np.uint8)
        count = read_objects(
            data,
            np.frombuffer(lines, np.uint64, len(lines) // 8),
            self._names,
            self._ends,
            self._kinds,
            self._lows,
            self._highs,
            words,
            words.view(np.float64),
            lengths,
        )
        if count != shape[1]:
            self._pause = PAUSE
            return None
        columns = [self._array(i, data, words[i], lengths) for i in range(len(self._wire))]
        return pa.RecordBatch.from_arrays(columns, schema=self._wire)

    def _array(
        self,
        column: int,
        data: npt.NDArray[np.uint8],
        words: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
    ) -> pa.Array:
        """A column of what the kernel has found."""
        of, kind = self._wire.field(column).type, self._kinds[column]
        if kind == TEXT:
            return _texts(data, words, lengths[column])
        if kind == REAL:
            return pa.array(words.view(np.float64).copy())
        if kind == TRUTH:
            return pa.array(words.astype(np.bool_))
        return pa.array(words.astype(of.to_pandas_dtype()))


def _texts(
    data: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> pa.Array:
    """The texts that begin in `data` at these places."""
    offsets = np.zeros(len(begins) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    copy_texts(data, begins, lengths, out)
    return pa.StringArray.from_buffers(len(begins), pa.py_buffer(offsets), pa.py_buffer(out))


def _kind(of: DataType) -> int:
    """The kind of a column; -1 if the kernel does not read it."""
    return next((kind for fits, kind in KINDS if fits(of)), -1)


def _bounds(of: DataType) -> tuple[int, int]:
    """The least and the greatest value of an integer type, as far as 64 bits with a sign have them."""
    if not pt.is_integer(of):
        return 0, 0
    found = np.iinfo(of.to_pandas_dtype())
    return int(found.min), min(int(found.max), 2**63 - 1)
