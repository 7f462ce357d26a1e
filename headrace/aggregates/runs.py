"""Aggregates over complete runs of rows: nothing is kept from one run to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.aggregates.panes.values import Rowset
from headrace.aggregates.recipes import all_needs, recipe
from headrace.aggregates.session_values import session_values
from headrace.arrays import Ints
from headrace.plan.nodes.core import AggregateCall
from headrace.state.code_table import CodeTable


def fold_runs(calls: Sequence[AggregateCall], data: pa.RecordBatch, runs: Ints, count: int) -> list[pa.Array]:
    """Each call over each of `count` runs; `runs` is the run of each row, and rows are in order."""
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
