"""Columns that became wider between two runs: state of the old type goes on as state of the new one.

Accumulators and keys hold words of eight bytes that are alike for all whole numbers, and for all floats. So
only rows that are held as they came have to be cast. Anything else is another value for the same word, or
none, and is refused.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.schema import DataType, Schema

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())
_SMALL: Final = 18
"""Digits of decimals that are words themselves; greater ones are kept under numbers."""


def goes_on(old: DataType, new: DataType) -> bool:
    """Whether state of columns of type `old` is state of columns of type `new`, exactly."""
    if old == new:
        return True
    if pt.is_decimal128(old) and pt.is_decimal128(new):
        same_form = old.scale == new.scale and (old.precision <= _SMALL) == (new.precision <= _SMALL)
        return same_form and bool(old.precision <= new.precision)
    return any(_is_wider(old, new, family) for family in (_INTEGERS, _FLOATS))


def _is_wider(old: DataType, new: DataType, family: tuple[DataType, ...]) -> bool:
    return old in family and new in family and old.bit_width < new.bit_width


def widened(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The rows, with columns in the types that `schema` has for them, by name, where these are wider."""
    if rows.schema.equals(schema):
        return rows
    fields = [_field(field, schema) for field in rows.schema]
    if [field.type for field in fields] == rows.schema.types:
        return rows
    columns = [column.cast(field.type) for column, field in zip(rows.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def _field(field: pa.Field, schema: Schema) -> pa.Field:
    at = schema.get_field_index(field.name)
    if at < 0 or schema.field(at).type == field.type or not goes_on(field.type, schema.field(at).type):
        return field
    return field.with_type(schema.field(at).type)
