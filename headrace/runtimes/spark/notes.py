"""What a host tells beside its answers: late and rejected rows, and how it is.

Answers and notes leave a host as rows of one table: an answer has no `kind`, a note has nothing but notes'
columns, whose names no column of an answer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

RESULT, LATE, REJECTED, METRICS, REASONS = "result", "late", "rejected", "metric", "reasons"

KIND: Final = "__headrace_kind"

NARROW: Final = pa.schema(
    [
        (KIND, pa.string()),
        ("__headrace_shard", pa.int32()),
        ("__headrace_stream", pa.string()),
        ("__headrace_heartbeat", pa.int64()),
        ("__headrace_waiting", pa.int64()),
        ("__headrace_rows", pa.int64()),
        ("__headrace_state_bytes", pa.int64()),
        ("__headrace_body", pa.binary()),
    ]
)
"""The columns of notes where nobody wants late or rejected rows, only their number."""

WIDE: Final = pa.schema(
    [
        *NARROW,
        ("__headrace_time", pa.int64()),
        ("__headrace_lateness", pa.int64()),
        ("__headrace_missed", pa.int64()),
        ("__headrace_admitted", pa.bool_()),
        ("__headrace_code", pa.string()),
        ("__headrace_reason", pa.string()),
        ("__headrace_row", pa.string()),
    ]
)

LATE_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("time", pa.int64()),
        ("heartbeat", pa.int64()),
        ("lateness", pa.int64()),
        ("missed", pa.int64()),
        ("admitted", pa.bool_()),
        ("row", pa.string()),
    ]
)
REJECTED_SCHEMA: Final = pa.schema(
    [("stream", pa.string()), ("code", pa.string()), ("reason", pa.string()), ("row", pa.string())]
)


def named(field: str) -> str:
    """A note's field as a column among those of answers."""
    return f"__headrace_{field}"


def schema_for(kinds: frozenset[str]) -> pa.Schema:
    """The columns of notes that tell of `kinds`."""
    return NARROW if kinds <= {RESULT} else WIDE


def notes(kind: str, shard: int, columns: Mapping[str, Any], count: int = 1) -> pa.Table:
    """Notes of a kind: the fields given (arrays, or one value for all), the others nothing."""
    given = {KIND: kind, named("shard"): shard, **{named(name): value for name, value in columns.items()}}
    arrays = [_column(given.get(field.name), field.type, count) for field in WIDE]
    return pa.Table.from_arrays(arrays, schema=WIDE)


def _column(value: Any, of: pa.DataType, count: int) -> pa.Array:
    if isinstance(value, pa.Array):
        return value.cast(of)
    return pa.nulls(count, of) if value is None else pa.repeat(pa.scalar(value, of), count)


def counted(kind: str, shard: int, count: int) -> pa.Table:
    """So many rows of a kind, nobody wants which."""
    return notes(kind, shard, {"rows": count})
