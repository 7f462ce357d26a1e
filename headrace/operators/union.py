"""Ordered union: the rows of n inputs in order of time (Bai et al. 2007, Figure 6)."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.flow.interleave import merge
from headrace.flow.promises import Agreement
from headrace.flow.state import Part
from headrace.operators.contract import Operator, Waiting
from headrace.plan.nodes import Union
from headrace.schema import Schema
from headrace.time.punctuation import Punctuation


class Uniting(Waiting):
    """The rows of n inputs under one schema.

    A punctuation on attributes is passed on when every input has made one that covers it.
    """

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

    @property
    def remembers(self) -> bool:
        """No row stays here, and what was promised holds for every query."""
        return False

    def state(self) -> dict[str, Part]:
        return {"promises": self._promises}


class UnionOperator(Uniting):
    """Takes a row once no input can bring an earlier one; equal times in any order (Figure 8)."""

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
    """Union of streams that have no times yet: rows pass as they come, nobody waits."""

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
