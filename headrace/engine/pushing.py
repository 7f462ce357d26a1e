"""What `Engine.push` accepts besides record batches: tables, DataFrames, dicts; and rows that bring times."""

from __future__ import annotations

import pyarrow as pa
from numpy.typing import ArrayLike

from headrace.errors import InputError
from headrace.graph.source import SourceNode
from headrace.graph.table import one_batch
from headrace.plan.nodes.core import TimeKind
from headrace.schema import show_columns
from headrace.tabular import as_table


def rows_for(source: SourceNode, data: object) -> pa.RecordBatch:
    """Rows of any kind as one batch with the columns of a stream; other columns are dropped."""
    if isinstance(data, pa.RecordBatch):
        return data
    found = as_table(data, source.name)
    missing = next((name for name in source.schema.names if name not in found.schema.names), None)
    if missing is not None:
        raise _unfit(source, found, f"the rows have no column {missing!r}")
    try:
        return one_batch(found.select(source.schema.names).cast(source.schema), source.schema)
    except (pa.ArrowException, ValueError) as error:
        raise _unfit(source, found, str(error).splitlines()[0]) from None


def _unfit(source: SourceNode, found: pa.Table, why: str) -> InputError:
    """The error for rows that do not have the columns of their stream."""
    return InputError(
        "HR-I003",
        f"the rows do not fit the stream: {why}",
        place=source.name,
        hint=f"the stream has ({show_columns(source.schema)}), the rows have ({show_columns(found.schema)})",
    )


def times_for(
    source: SourceNode, data: pa.RecordBatch, times: ArrayLike | pa.Array | None
) -> ArrayLike | pa.Array | None:
    """The times of rows: as given or, for an external stream, from its time column if that holds ticks."""
    if times is not None or source.stamp is None or source.kind is not TimeKind.EXTERNAL:
        return times
    at = data.schema.get_field_index(source.stamp)
    return None if at < 0 else data.column(at)
