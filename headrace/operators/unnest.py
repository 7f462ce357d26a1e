"""UNNEST: each row once for every element of an array or map."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Ints
from headrace.expressions import compile
from headrace.expressions.arrow import validity
from headrace.flow.batch import Batch
from headrace.operators.contract import Stateless
from headrace.plan.nodes.unnest import Unnest
from headrace.time.punctuation import Punctuation


class UnnestOperator(Stateless):
    """Gathers all elements of a batch at once. The copies of a row keep its time, so order is kept."""

    def __init__(self, plan: Unnest) -> None:
        super().__init__()
        self._plan, self._schema = plan, plan.schema
        self._program = compile(plan.operand, plan.input.schema)
        self._types = plan.element_types

    def apply(self, batch: Batch) -> Batch:
        lists = self._program(batch.data)
        if lists.type != self._plan.operand_type:
            lists = lists.cast(self._plan.operand_type)
        offsets = np.asarray(lists.offsets, np.int64)
        length = np.where(validity(lists), np.diff(offsets), 0)
        copies = np.maximum(length, 1) if self._plan.outer else length
        rows = np.repeat(np.arange(len(batch)), copies)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
        there = pa.array(offsets[:-1][rows] + nth, mask=nth >= length[rows])
        copied = batch.take(rows)
        made = [column.cast(of) for column, of in zip(self._parts(lists, there), self._types, strict=True)]
        if self._plan.ordinal is not None:
            made.append(_numbers(nth, there))
        return copied.with_data(
            pa.RecordBatch.from_arrays([*copied.data.columns, *made], schema=self._schema)
        )

    def _parts(self, lists: pa.Array, at: pa.Array) -> list[pa.Array]:
        """The new columns for the elements at these places."""
        if isinstance(lists, pa.MapArray):
            return [lists.keys.take(at), lists.items.take(at)]
        elements = lists.values.take(at)
        if not self._plan.takes_apart:
            return [elements]
        return [pc.struct_field(elements, [i]) for i in range(elements.type.num_fields)]

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """It holds for the copies too: they have the columns and the time of their row."""
        return punctuation


def _numbers(nth: Ints, there: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(there), pa.array(nth + 1, pa.int64()), pa.scalar(None, pa.int64()))
