"""Aggregates of runs of rows that are at hand as a whole: nothing is kept from one run to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.tables import CodeTable
from headrace.operators.accumulators.pane_values import Rowset
from headrace.operators.accumulators.recipes import all_needs, recipe
from headrace.operators.accumulators.session_values import session_values
from headrace.plan.nodes import AggregateCall

Ints = npt.NDArray[np.int64]


def fold_runs(calls: Sequence[AggregateCall], data: pa.RecordBatch, runs: Ints, count: int) -> list[pa.Array]:
    """Each call over each of `count` runs; `runs` says which one a row is of, and rows are in order."""
    recipes = [recipe(call, data.schema) for call in calls]
    values, _ = session_values(all_needs(recipes), data.schema)
    columns: dict[str, Any] = {k: v for each in values for k, v in each.columns().items()}
    table = CodeTable(**columns)
    table.grow(1 << max(4, (count - 1).bit_length()))
    rows = Rowset(runs, runs, runs, 0, data)
    for value in values:
        value.add(rows, table)
    found = {value.spec: value.of(np.arange(count), table) for value in values}
    return [each.make(found) for each in recipes]
