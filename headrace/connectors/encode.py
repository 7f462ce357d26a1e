"""Rows as JSON lines or CSV, column by column."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.types as pt

from headrace.schema import DataType, Schema

_QUOTED = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"


def json_lines(rows: pa.RecordBatch) -> bytes:
    """One JSON object per line. NaN and infinities are written as the strings that Spark writes."""
    return b"".join(_bytes_of(chunk) for chunk in _chunks(_objects(rows, "}\n"))) if rows.num_rows else b""


def json_objects(rows: pa.RecordBatch) -> pa.Array:
    """Each row as JSON, as `json_lines` writes it."""
    if not rows.num_columns:
        return pa.array(["{}"] * rows.num_rows, pa.large_string())
    return _objects(rows, "}")


def _objects(rows: pa.RecordBatch, ending: str) -> Any:
    """Each row as a JSON object that ends with `ending`."""
    pieces: list[Any] = []
    for i, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        pieces += [("{" if i == 0 else ",") + json.dumps(name) + ":", json_values(column)]
    return pc.binary_join_element_wise(*[_large(piece) for piece in [*pieces, ending, ""]])


def _large(piece: Any) -> Any:
    """A text as large_string, so that offsets do not overflow."""
    return (
        piece.cast(pa.large_string()) if isinstance(piece, pa.Array) else pa.scalar(piece, pa.large_string())
    )


def _chunks(lines: Any) -> list[pa.Array]:
    return list(lines.chunks) if isinstance(lines, pa.ChunkedArray) else [lines]


def _bytes_of(lines: pa.Array) -> bytes:
    """The values concatenated, which is how Arrow stores them."""
    if not len(lines):
        return b""
    _, offsets, values = lines.buffers()
    width = memoryview(offsets).cast("q")
    return bytes(memoryview(values)[width[lines.offset] : width[lines.offset + len(lines)]])


def json_values(column: pa.Array) -> pa.Array:
    """Each value as JSON; null as `null`."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    make = next((make for holds, make in _MAKERS if holds(column.type)), _by_python)
    return pc.fill_null(make(column), "null")


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _number(column: pa.Array) -> pa.Array:
    """Floats; NaN and infinities become quoted names."""
    text = column.cast(pa.string())
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() in (True, None):
        return text
    names = pc.case_when(
        pc.make_struct(pc.is_nan(column), pc.greater(column, 0)), '"NaN"', '"Infinity"', '"-Infinity"'
    )
    return pc.if_else(finite, text, names)


def _string(column: pa.Array) -> pa.Array:
    """Quoted and escaped text."""
    if pc.any(pc.match_substring_regex(column, _QUOTED)).as_py():
        if pc.any(pc.match_substring_regex(column, _CONTROL)).as_py():
            return _by_python(column)
        column = pc.replace_substring(column, "\\", "\\\\")
        column = pc.replace_substring(column, '"', '\\"')
    return pc.binary_join_element_wise('"', column, '"', "")


def _instant(column: pa.Array) -> pa.Array:
    """Times in ISO 8601, quoted."""
    text = pc.replace_substring(column.cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise('"', text, '"', "")


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")


def _by_python(column: pa.Array) -> pa.Array:
    """Lists, structs, bytes, and text with control characters."""
    values = [
        None if v is None else json.dumps(v, default=_other, ensure_ascii=False) for v in column.to_pylist()
    ]
    return pa.array(values, pa.string())


def _other(value: Any) -> Any:
    """JSON for values that Python's encoder does not know."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


_MAKERS: Final[tuple[tuple[Callable[[DataType], bool], Callable[[pa.Array], pa.Array]], ...]] = (
    (pt.is_floating, _number),
    (lambda of: pt.is_integer(of) or pt.is_boolean(of) or pt.is_decimal(of) or pt.is_null(of), _text),
    (lambda of: pt.is_string(of) or pt.is_large_string(of), _string),
    (pt.is_timestamp, _instant),
    (lambda of: pt.is_date(of) or pt.is_time(of), _quoted),
)


def csv_lines(rows: pa.RecordBatch) -> bytes:
    """CSV without a header; text is quoted, null is empty."""
    out = pa.BufferOutputStream()
    pv.write_csv(rows, out, pv.WriteOptions(include_header=False))
    return bytes(out.getvalue())


def csv_header(schema: Schema) -> bytes:
    """The names of the columns."""
    return (",".join('"' + name.replace('"', '""') + '"' for name in schema.names) + "\n").encode()
