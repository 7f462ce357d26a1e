"""Projection: new columns computed from each row."""

from __future__ import annotations

import pyarrow as pa

from headrace.expressions import Column, compile
from headrace.flow.batch import Batch
from headrace.operators.contract import Stateless
from headrace.plan.nodes.core import Project
from headrace.state.rows import bare_rows
from headrace.time.punctuation import Punctuation


class ProjectOperator(Stateless):
    """Computes columns; a bare column is the input's own array, at no cost.

    A punctuation passes under the new names when every attribute that it restricts is projected as it is;
    otherwise it is dropped, because it says nothing about computed values.
    """

    def __init__(self, plan: Project) -> None:
        super().__init__()
        below = plan.input.schema
        self._schema = plan.schema
        self._programs = [compile(expression, below) for _, expression in plan.columns]
        bare = [(e.name, name) for name, e in plan.columns if isinstance(e, Column)]
        self._names = dict(reversed(bare))

    def apply(self, batch: Batch) -> Batch:
        if not self._programs:
            return batch.with_data(bare_rows(len(batch)))
        columns = [program(batch.data) for program in self._programs]
        return batch.with_data(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return punctuation.rename(self._names)
