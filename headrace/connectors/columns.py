"""Columns as they were found, made into those that were declared; rows that do not fit are set apart."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.connectors.codes import Code
from headrace.connectors.contract import Bad, Block, shown
from headrace.connectors.encode import json_objects, json_values
from headrace.connectors.times import is_time, times_of
from headrace.expressions.types import sql_name
from headrace.schema import DataType, Schema

Mask = npt.NDArray[np.bool_]
Converted = tuple[pa.Array, Mask | None]
"""A column, and which of its rows could not be converted: they are null in it. None: all could."""

CANNOT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeDecodeError)
BLANKS: Final = " \t"
"""What may stand beside a value that is not text."""


def fit(found: pa.RecordBatch, schema: Schema, raw: list[bytes] | None = None) -> Block:
    """The rows of `found` with the columns of `schema`, in its order; others of its columns are left out.

    A column that is absent is null. `raw` are the rows as they were written, to show the bad ones.
    """
    columns: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for field in schema:
        column, wrong = _column(found, field)
        columns.append(column)
        if wrong is not None:
            for i in np.flatnonzero(wrong).tolist():
                reasons.setdefault(i, unfit(field, found.column(field.name), i))
    data = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not reasons:
        return Block(data)
    good = np.ones(found.num_rows, np.bool_)
    good[list(reasons)] = False
    texts = raw if raw is not None else row_texts(found.take(pa.array(sorted(reasons), pa.int64())))
    bad = tuple(
        Bad(Code.TYPE, reasons[i], shown(texts[i if raw is not None else n]))
        for n, i in enumerate(sorted(reasons))
    )
    return Block(data.filter(pa.array(good)), bad)


def unfit(field: pa.Field, column: pa.Array, i: int) -> str:
    """Why a row of a column was rejected; text in quotes, so that blanks are seen."""
    return unfit_value(field, str(json_values(column.slice(i, 1))[0]))


def unfit_value(field: pa.Field, value: str) -> str:
    """Why a row was rejected: the column, the value as JSON, and what it should have been."""
    short = value if len(value) <= SHOWN_VALUE else f"{value[:SHOWN_VALUE]}…"
    # Half of a character, which JSON can write and UTF-8 cannot.
    short = short.encode("utf-8", "backslashreplace").decode()
    return f"column {field.name}: {short} is not a {sql_name(field.type).upper()}"


SHOWN_VALUE: Final = 80


def _column(found: pa.RecordBatch, field: pa.Field) -> Converted:
    at = found.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(found.num_rows, field.type), None
    column = found.column(at)
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    return converted(column, field.type)


def converted(column: pa.Array, to: DataType) -> Converted:
    """A column in another type; text becomes a value by one set of rules, whatever format it came in."""
    if column.type.equals(to):
        return column, None
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)) or _is_plain(to):
        return _all_or_each(column, to)
    if is_time(to):
        made, wrong = times_of(column, to)
        return made, wrong if wrong.any() else None
    return _all_or_each(pc.utf8_trim(column, BLANKS), to)


def _is_plain(of: DataType) -> bool:
    """Whether blanks are part of its values."""
    return bool(pt.is_string(of) or pt.is_large_string(of) or pt.is_binary(of) or pt.is_large_binary(of))


def _all_or_each(column: pa.Array, to: DataType) -> Converted:
    """Cast all values at once or, if one cannot be, each by itself."""
    try:
        return _cast(column, to), None
    except CANNOT:
        pass
    pieces, wrong = [], np.zeros(len(column), np.bool_)
    for i in range(len(column)):
        try:
            pieces.append(_cast(column.slice(i, 1), to))
        except CANNOT:
            pieces.append(pa.nulls(1, to))
            wrong[i] = True
    return pa.concat_arrays(pieces), wrong


def _cast(column: pa.Array, to: DataType) -> pa.Array:
    return column.cast(to, safe=not pt.is_timestamp(to))


def row_texts(rows: pa.RecordBatch) -> list[str]:
    """Each row as JSON."""
    texts: list[str] = json_objects(rows).to_pylist()
    return texts


def any_null(rows: pa.RecordBatch) -> Mask:
    """Which rows have a null somewhere."""
    mask = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        if column.null_count:
            mask |= pc.is_null(column).to_numpy(zero_copy_only=False)
    return mask
