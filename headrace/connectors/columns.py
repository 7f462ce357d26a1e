"""Columns as they were found, made into those that were declared; rows that do not fit are set apart."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.codes import Code
from headrace.connectors.contract import Bad, Block, shown
from headrace.schema import DataType, Schema

Mask = npt.NDArray[np.bool_]
CANNOT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeDecodeError)


def fit(found: pa.RecordBatch, schema: Schema, raw: list[bytes] | None = None) -> Block:
    """The rows of `found` with the columns of `schema`, in its order; others of its columns are left out.

    A column that is absent is null. `raw` are the rows as they were written, to show the bad ones.
    """
    reasons: dict[int, str] = {}
    columns = [_column(found, field, reasons) for field in schema]
    data = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not reasons:
        return Block(data)
    good = np.ones(found.num_rows, np.bool_)
    good[list(reasons)] = False
    bad = tuple(
        Bad(Code.TYPE, reasons[i], shown(raw[i] if raw is not None else row_text(found, i)))
        for i in sorted(reasons)
    )
    return Block(data.filter(pa.array(good)), bad)


def _column(found: pa.RecordBatch, field: pa.Field, reasons: dict[int, str]) -> pa.Array:
    at = found.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(found.num_rows, field.type)
    column = found.column(at)
    if column.type.equals(field.type):
        return column
    try:
        return _cast(column, field.type)
    except CANNOT:
        return _one_by_one(column, field, reasons)


def _cast(column: pa.Array, to: DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(to, safe=not pa.types.is_timestamp(to) or pa.types.is_string(column.type))


def _one_by_one(column: pa.Array, field: pa.Field, reasons: dict[int, str]) -> pa.Array:
    """Cast each value by itself; one that cannot be is null, and its row has a reason."""
    pieces = []
    for i in range(len(column)):
        try:
            pieces.append(_cast(column.slice(i, 1), field.type))
        except CANNOT as error:
            reasons.setdefault(i, f"column {field.name}: {str(error).splitlines()[0]}")
            pieces.append(pa.nulls(1, field.type))
    return pa.concat_arrays(pieces)


def row_text(rows: pa.RecordBatch, i: int) -> str:
    """A row as JSON."""
    return json.dumps(rows.slice(i, 1).to_pylist()[0], default=str)


def row_texts(rows: pa.RecordBatch) -> list[str]:
    """Each row as JSON."""
    return [json.dumps(row, default=str) for row in rows.to_pylist()]


def any_null(rows: pa.RecordBatch) -> Mask:
    """Which rows have a null somewhere."""
    mask = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        if column.null_count:
            mask |= pc.is_null(column).to_numpy(zero_copy_only=False)
    return mask
