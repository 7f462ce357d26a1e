"""Two batches as one in order of start, each column read once where its values have eight bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.flow.batch import Batch, Signs, Times, concat
from headrace.kernels.merge import interleave, merge_sides

Sides = npt.NDArray[np.uint8]
_WIDTH = 64


def merge(left: Batch, right: Batch) -> Batch:
    """Two batches in order of start as one; equal starts: `left` first."""
    if left.last <= right.first:
        return concat([left, right])
    if right.last < left.first:
        return concat([right, left])
    sides = np.empty(len(left) + len(right), np.uint8)
    merge_sides(np.ascontiguousarray(left.start), np.ascontiguousarray(right.start), sides)
    return _Merging(sides).batch(left, right)


class _Merging:
    """One merge of two batches, column by column."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._order: pa.Array | None = None

    def batch(self, left: Batch, right: Batch) -> Batch:
        columns = [self._column(*pair) for pair in zip(left.data.columns, right.data.columns, strict=True)]
        return Batch(
            pa.RecordBatch.from_arrays(columns, schema=left.data.schema),
            self._values(left.start, right.start),
            self._optional(left.end, right.end),
            self._signs(left, right),
            self._optional(left.arrival, right.arrival),
        )

    def _column(self, left: pa.Array, right: pa.Array) -> pa.Array:
        if not _plain(left) or not _plain(right):
            return pa.concat_arrays([left, right]).take(self._indices(len(left)))
        values = self._values(_words(left), _words(right))
        return pa.Array.from_buffers(left.type, len(values), [None, pa.py_buffer(values)])

    def _indices(self, first_right: int) -> pa.Array:
        """Where each row is in `left` followed by `right`; made when a column needs it."""
        if self._order is None:
            of_left = self._sides.astype(np.bool_)
            order = np.empty(len(of_left), np.int64)
            order[of_left] = np.arange(first_right)
            order[~of_left] = np.arange(first_right, len(order))
            self._order = pa.array(order)
        return self._order

    def _values(self, left: Times, right: Times) -> Times:
        values = np.empty(len(self._sides), np.int64)
        interleave(np.ascontiguousarray(left), np.ascontiguousarray(right), self._sides, values)
        return values

    def _optional(self, left: Times | None, right: Times | None) -> Times | None:
        return None if left is None or right is None else self._values(left, right)

    def _signs(self, left: Batch, right: Batch) -> Signs | None:
        if left.sign is None and right.sign is None:
            return None
        signs: Signs = np.concatenate([left.signs(), right.signs()])[self._indices(len(left)).to_numpy()]
        return signs


def _plain(array: pa.Array) -> bool:
    """Whether each value is a word of eight bytes, and none is null."""
    of = array.type
    words = pt.is_integer(of) or pt.is_floating(of) or pt.is_timestamp(of) or pt.is_duration(of)
    return bool(words) and of.bit_width == _WIDTH and not array.null_count


def _words(array: pa.Array) -> Times:
    words: Times = np.frombuffer(array.buffers()[1], np.int64)
    return words[array.offset : array.offset + len(array)]
