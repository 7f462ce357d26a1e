"""Simultaneous rows in order of content (`headrace.plan.analysis.ordering`): nulls first, NaN last."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Indices
from headrace.flow.batch import Batch


def by_content(batch: Batch) -> Batch:
    """The same rows in order of start, and those of equal start column by column."""
    if len(batch) < 2 or bool(np.all(batch.start[:-1] < batch.start[1:])):
        return batch
    return batch.take(content_order([pa.array(batch.start), *batch.data.columns]))


def content_order(columns: list[pa.Array]) -> Indices:
    """The stable order of rows by some columns; Arrow sorts nulls after NaN, so validity goes before."""
    keys: list[pa.Array] = []
    for column in columns:
        if column.null_count:
            keys.append(column.is_valid())
        keys.append(_sortable(column))
    names = [str(i) for i in range(len(keys))]
    table = pa.RecordBatch.from_arrays(keys, names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return np.asarray(order.to_numpy(), np.int64)


def _sortable(column: pa.Array) -> pa.Array:
    """Nested values as text, because Arrow cannot sort them."""
    if not pt.is_nested(column.type):
        return column
    return pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
