"""Partial rows made before the shuffle: a task sends one row per key and pane in place of all its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.expressions import compile, compile_predicate
from headrace.plan.nodes import AggregateCall, Plan, Project, Select, Source
from headrace.plan.partials import Partials
from headrace.runtimes.spark.grouping import Asked, grouped
from headrace.schema import Schema

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Step = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, Mask | None]]

LEAST_GAIN: Final = 2
"""Rows that a partial row must stand for on average to be worth the grouping."""


class Preaggregation:
    """Rows to partial rows, for one task."""

    def __init__(self, partials: Partials) -> None:
        self._partials = partials
        self._steps = _chain(partials.chain)
        self._pays = True

    def __call__(self, rows: pa.RecordBatch, times: Times, doubtful: Mask) -> tuple[pa.RecordBatch, Times]:
        """The partial rows of `rows` and their times; a row that is `doubtful` stands for itself."""
        for step in self._steps:
            rows, kept = step(rows)
            if kept is not None:
                times, doubtful = times[kept], doubtful[kept]
        if not self._pays or self._has_nan(rows) or doubtful.all():
            return self._alone(rows), times
        if not doubtful.any():
            return self._weighed(rows, times)
        sure, greatest = self._weighed(rows.filter(pa.array(~doubtful)), times[~doubtful])
        alone = self._alone(rows.filter(pa.array(doubtful)))
        return pa.concat_batches([sure, alone]), np.concatenate([greatest, times[doubtful]])

    def _weighed(self, rows: pa.RecordBatch, times: Times) -> tuple[pa.RecordBatch, Times]:
        made, greatest = self._grouped(rows, times)
        self._pays = len(greatest) * LEAST_GAIN <= len(times)
        return made, greatest

    def _has_nan(self, rows: pa.RecordBatch) -> bool:
        """Arrow and Spark order NaN in different ways: such rows stand for themselves."""
        compared = {c.column for c in self._partials.calls if c.function in ("min", "max")}
        floats = [n for n in compared if n is not None and pt.is_floating(rows.schema.field(n).type)]
        return any(pc.any(pc.is_nan(rows.column(name))).as_py() for name in floats)

    def _grouped(self, rows: pa.RecordBatch, times: Times) -> tuple[pa.RecordBatch, Times]:
        keys = [rows.column(key) for key in self._partials.keys]
        by = [*keys, pa.array(times // self._partials.pane)]
        asked = [Asked(call.function, _argument(call, rows)) for call in self._partials.calls]
        found, results = grouped(by, [*asked, Asked("max", pa.array(times))])
        *values, greatest = results
        return self._typed([*found[: len(keys)], *values]), greatest.to_numpy()

    def _alone(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Each row as the partial row of itself."""
        columns = [rows.column(k) for k in self._partials.keys]
        for call in self._partials.calls:
            argument = _argument(call, rows)
            columns.append(argument.is_valid().cast(pa.int64()) if call.function == "count" else argument)
        return self._typed(columns)

    def _typed(self, columns: list[pa.Array]) -> pa.RecordBatch:
        schema: Schema = self._partials.source.schema
        return pa.RecordBatch.from_arrays(
            [c.cast(field.type) for c, field in zip(columns, schema, strict=True)], schema=schema
        )


def _argument(call: AggregateCall, rows: pa.RecordBatch) -> pa.Array:
    """What a call is taken of; `count(*)` counts something that is never null."""
    if call.column is None:
        return pa.array(np.ones(rows.num_rows, np.int8))
    column = rows.column(call.column)
    wide = call.function == "sum" and pt.is_floating(column.type)
    return column.cast(pa.float64()) if wide else column


def _chain(plan: Plan) -> list[Step]:
    """The selections and projections below the aggregate, from the stream up."""
    if isinstance(plan, Source):
        return []
    assert isinstance(plan, (Select, Project))
    return [*_chain(plan.input), _selection(plan) if isinstance(plan, Select) else _projection(plan)]


def _selection(plan: Select) -> Step:
    holds = compile_predicate(plan.predicate, plan.input.schema)

    def step(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask | None]:
        mask = np.asarray(holds(rows))
        return rows.filter(pa.array(mask)), mask

    return step


def _projection(plan: Project) -> Step:
    made = [compile(expression, plan.input.schema) for _, expression in plan.columns]

    def step(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask | None]:
        return pa.RecordBatch.from_arrays([make(rows) for make in made], schema=plan.schema), None

    return step
