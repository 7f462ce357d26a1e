"""Two batches as one in order of start, each column read once where its values have eight bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch, Signs, Times, concat
from headrace.flow.words import constant, empty, from_words, is_constant, is_plain, place_of, words_of
from headrace.kernels.merge import interleave, merge_sides

Sides = npt.NDArray[np.uint8]


def merge(left: Batch, right: Batch) -> Batch:
    """Two batches in order of start as one; equal starts: `left` first."""
    if left.last <= right.first:
        return concat([left, right])
    if right.last < left.first:
        return concat([right, left])
    return _Merging(left, right).batch()


class _Merging:
    """One merge of two batches, column by column; columns that lie in the same place are merged once."""

    def __init__(self, left: Batch, right: Batch) -> None:
        self._left, self._right = left, right
        rows = len(left) + len(right)
        self._sides, start = np.empty(rows, np.uint8), empty(rows)
        merge_sides(np.ascontiguousarray(left.start), np.ascontiguousarray(right.start), self._sides, start)
        self._merged = {place_of(left.start, right.start): start}
        self._order: pa.Array | None = None

    def batch(self) -> Batch:
        left, right = self._left, self._right
        columns = [self._column(*pair) for pair in zip(left.data.columns, right.data.columns, strict=True)]
        return Batch(
            pa.RecordBatch.from_arrays(columns, schema=left.data.schema),
            self._values(left.start, right.start),
            self._optional(left.end, right.end),
            self._signs(),
            self._optional(left.arrival, right.arrival),
        )

    def _column(self, left: pa.Array, right: pa.Array) -> pa.Array:
        if not is_plain(left) or not is_plain(right):
            return pa.concat_arrays([left, right]).take(self._indices())
        return from_words(left.type, self._values(words_of(left), words_of(right)))

    def _indices(self) -> pa.Array:
        """Where each row is in `left` followed by `right`; made when a column needs it."""
        if self._order is None:
            of_left = self._sides.astype(np.bool_)
            order = np.empty(len(of_left), np.int64)
            order[of_left] = np.arange(len(self._left))
            order[~of_left] = np.arange(len(self._left), len(order))
            self._order = pa.array(order)
        return self._order

    def _values(self, left: Times, right: Times) -> Times:
        if is_constant(left) and is_constant(right) and left[0] == right[0]:
            return constant(int(left[0]), len(self._sides))
        place = place_of(left, right)
        if place not in self._merged:
            values = empty(len(self._sides))
            interleave(np.ascontiguousarray(left), np.ascontiguousarray(right), self._sides, values)
            self._merged[place] = values
        return self._merged[place]

    def _optional(self, left: Times | None, right: Times | None) -> Times | None:
        return None if left is None or right is None else self._values(left, right)

    def _signs(self) -> Signs | None:
        left, right = self._left, self._right
        if left.sign is None and right.sign is None:
            return None
        signs: Signs = np.concatenate([left.signs(), right.signs()])[self._indices().to_numpy()]
        return signs
