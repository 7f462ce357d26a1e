"""Rows as JSON text, column by column: late rows may come by the million."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_SPECIAL = r'[\x00-\x1f"\\]'


def as_json(rows: pa.RecordBatch) -> pa.Array:
    """Each row as a JSON object; what JSON has no form for is written as text."""
    if not rows.num_columns:
        return pa.array(["{}"] * rows.num_rows, pa.string())
    pieces: list[pa.Array | str] = []
    for i, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        pieces += [("{" if i == 0 else ", ") + json.dumps(name, ensure_ascii=False) + ": ", _values(column)]
    scalars = [p if isinstance(p, pa.Array) else pa.scalar(p) for p in [*pieces, "}", ""]]
    return pc.binary_join_element_wise(*scalars)


def _values(column: pa.Array) -> pa.Array:
    """Each value as JSON; null as `null`."""
    of = column.type
    if pt.is_boolean(of) or pt.is_integer(of) or (pt.is_floating(of) and _all_finite(column)):
        return pc.fill_null(column.cast(pa.string()), "null")
    if pt.is_string(of) and not _any_special(column):
        return _quoted(column)
    if pt.is_temporal(of):
        return _quoted(column.cast(pa.string()))
    texts = [json.dumps(value, default=str, ensure_ascii=False) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _all_finite(column: pa.Array) -> bool:
    return bool(pc.all(pc.is_finite(column), min_count=0).as_py())


def _any_special(column: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, _SPECIAL)).as_py())


def _quoted(column: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise(pa.scalar('"'), column, pa.scalar('"'), pa.scalar(""))
    return pc.fill_null(quoted, "null")
