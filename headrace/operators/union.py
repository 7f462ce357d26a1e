"""Ordered union: the rows of n inputs in order of time (Bai et al. 2007, Figure 6)."""

from __future__ import annotations

from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Times
from headrace.flow.batch import Batch, Signs, concat
from headrace.flow.fixed64 import constant, empty, from_words, is_constant, is_plain, place_of, words_of
from headrace.kernels.merge import interleave, merge_sides
from headrace.operators.contract import Operator, Waiting
from headrace.operators.order import AnyOrder
from headrace.plan.nodes.core import Union
from headrace.schema import Schema
from headrace.state.part import Part
from headrace.state.promises import Agreement
from headrace.time.punctuation import Punctuation


class Uniting(Waiting):
    """The rows of n inputs under one schema.

    A punctuation on attributes is passed on when every input has made one that covers it.
    """

    keeps_rows = False  # punctuations only, and they hold for every query

    def __init__(self, plan: Union) -> None:
        super().__init__()
        self.arity = len(plan.branches)
        self._schema = plan.schema
        self._names = [dict(zip(b.schema.names, plan.schema.names, strict=True)) for b in plan.branches]
        self._promises = Agreement(self.arity)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        renamed = punctuation.rename(self._names[input])
        assert renamed is not None
        return renamed if self._promises.make(input, renamed) else None

    def state(self) -> dict[str, Part]:
        return {"promises": self._promises}


class UnionOperator(Uniting):
    """Takes a row once no input can have an earlier one; equal times in any order (Figure 8)."""

    eager = True

    def __init__(self, plan: Union) -> None:
        super().__init__(plan)
        self._taken: list[Batch] = []

    def ingest(self, input: int, batch: Batch) -> None:
        self._taken.append(conform(batch, self._schema))

    def answer(self, frontier: int) -> Batch | None:
        taken, self._taken = self._taken, []
        return reduce(merge, taken) if taken else None


class LatentUnionOperator(Operator):
    """Union of streams that have no times yet: rows pass as they come, without waiting."""

    def __init__(self, plan: Union) -> None:
        super().__init__()
        self.arity = len(plan.branches)
        self._schema = plan.schema

    @property
    def more(self) -> bool:
        return any(not reader.empty for reader in self.inputs)

    def execute(self, limit: int) -> int:
        taken = 0
        for reader in self.inputs:
            item = reader.take(max(1, limit - taken))
            if isinstance(item, Batch):
                self.emit(conform(item, self._schema))
                taken += len(item)
            if taken >= limit:
                break
        return taken


def conform(batch: Batch, schema: Schema) -> Batch:
    """The same rows under the names of `schema`."""
    if batch.data.schema is schema or batch.data.schema.equals(schema):
        return batch
    return batch.with_data(pa.RecordBatch.from_arrays(batch.data.columns, schema=schema))


# Two batches as one in order of start; columns with eight bytes per value are read once.


Sides = npt.NDArray[np.uint8]


def merge(left: Batch, right: Batch) -> Batch:
    """Two batches in order of start as one; equal starts: `left` first."""
    if left.last <= right.first:
        return concat([left, right])
    if right.last < left.first:
        return concat([right, left])
    return _Merging(left, right).batch()


class _Merging:
    """One merge of two batches, column by column; columns in the same memory are merged once."""

    def __init__(self, left: Batch, right: Batch) -> None:
        self._left, self._right = left, right
        rows = len(left) + len(right)
        self._sides, start = np.empty(rows, np.uint8), empty(rows)
        merge_sides(np.ascontiguousarray(left.start), np.ascontiguousarray(right.start), self._sides, start)
        self._merged = {place_of(left.start, right.start): start}
        self._order: pa.Array | None = None

    def batch(self) -> Batch:
        """The merged batch."""
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
        """A merged column: by words if the type allows it, else by a take."""
        if not is_plain(left) or not is_plain(right):
            return pa.concat_arrays([left, right]).take(self._indices())
        return from_words(left.type, self._values(words_of(left), words_of(right)))

    def _indices(self) -> pa.Array:
        """The index of each row in `left` followed by `right`; computed when a column needs it."""
        if self._order is None:
            of_left = self._sides.astype(np.bool_)
            order = np.empty(len(of_left), np.int64)
            order[of_left] = np.arange(len(self._left))
            order[~of_left] = np.arange(len(self._left), len(order))
            self._order = pa.array(order)
        return self._order

    def _values(self, left: Times, right: Times) -> Times:
        """Two int64 arrays merged; the result is reused for columns in the same memory."""
        if is_constant(left) and is_constant(right) and left[0] == right[0]:
            return constant(int(left[0]), len(self._sides))
        place = place_of(left, right)
        if place not in self._merged:
            values = empty(len(self._sides))
            interleave(np.ascontiguousarray(left), np.ascontiguousarray(right), self._sides, values)
            self._merged[place] = values
        return self._merged[place]

    def _optional(self, left: Times | None, right: Times | None) -> Times | None:
        """Like `_values`; None if either side is None."""
        return None if left is None or right is None else self._values(left, right)

    def _signs(self) -> Signs | None:
        """The merged signs; None if all rows are insertions."""
        left, right = self._left, self._right
        if left.sign is None and right.sign is None:
            return None
        signs: Signs = np.concatenate([left.signs(), right.signs()])[self._indices().to_numpy()]
        return signs


# A merge that keeps the disorder; punctuations bound it (Tucker & Maier, §4).


class MergeOperator(AnyOrder, Uniting):
    """Rows pass as they come; the heartbeat is the least of all inputs."""

    def ingest(self, input: int, batch: Batch) -> None:
        self.emit(self.apply(batch))

    def apply(self, batch: Batch) -> Batch:
        """The output rows of some input rows."""
        return conform(batch, self._schema)

    def answer(self, frontier: int) -> Batch | None:
        return None
