"""The types in declarations and CAST, as Arrow types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from sqlglot import exp
from sqlglot.expressions import DType

from headrace.expressions.types import INSTANT, MICROS
from headrace.schema import DataType
from headrace.sql.place import Code, fail

MAX_PRECISION: Final = 38
TYPES: Final[dict[DType, DataType]] = {
    DType.BOOLEAN: pa.bool_(),
    DType.TINYINT: pa.int8(),
    DType.SMALLINT: pa.int16(),
    DType.INT: pa.int32(),
    DType.BIGINT: pa.int64(),
    DType.FLOAT: pa.float32(),
    DType.DOUBLE: pa.float64(),
    DType.TEXT: pa.string(),
    DType.VARCHAR: pa.string(),
    DType.CHAR: pa.string(),
    DType.BINARY: pa.binary(),
    DType.DATE: pa.date32(),
    DType.TIMESTAMP: INSTANT,
    DType.TIMESTAMPTZ: INSTANT,
    DType.TIMESTAMPNTZ: MICROS,
    DType.TIMESTAMPLTZ: INSTANT,
}
"""Spark's TIMESTAMP, which sqlglot calls TIMESTAMPTZ, is an instant; TIMESTAMP_NTZ has no zone."""


def arrow_type(of: exp.DataType) -> DataType:
    """The Arrow type of a SQL type."""
    if of.this == DType.DECIMAL:
        return _decimal(of)
    if of.this in NESTED and of.expressions:
        return NESTED[of.this](of)
    found = TYPES.get(of.this) if isinstance(of.this, DType) else None
    if found is None:
        known = (
            "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, STRING, DATE, TIMESTAMP, "
            "ARRAY<…>, MAP<…, …>, STRUCT<name: …>"
        )
        name = of.this.value if isinstance(of.this, DType) else str(of.this)
        fail(Code.UNKNOWN_TYPE, f"CQL does not support the type {name}", of, f"types: {known}")
    return found


def _decimal(of: exp.DataType) -> DataType:
    sizes = [each.name for each in of.expressions] or ["10"]
    precision, scale = [*(int(each) if each.isdecimal() else -1 for each in sizes), 0][:2]
    if len(sizes) > 2 or not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
        hint = f"write DECIMAL(p, s) with 1 ≤ p ≤ {MAX_PRECISION} and 0 ≤ s ≤ p"
        fail(Code.UNKNOWN_TYPE, "the precision or scale of this DECIMAL is not valid", of, hint)
    return pa.decimal128(precision, scale)


def _array(of: exp.DataType) -> DataType:
    return pa.list_(arrow_type(of.expressions[0]))


def _map(of: exp.DataType) -> DataType:
    if len(of.expressions) != 2:
        fail(Code.UNKNOWN_TYPE, "a MAP has two types", of, "write MAP<STRING, INT>")
    return pa.map_(*map(arrow_type, of.expressions))


def _struct(of: exp.DataType) -> DataType:
    odd = next((each for each in of.expressions if not isinstance(each, exp.ColumnDef)), None)
    if odd is not None:
        fail(Code.UNKNOWN_TYPE, "a field of a STRUCT has a name and a type", of, "write STRUCT<a: INT>")
    return pa.struct([pa.field(each.name, arrow_type(each.args["kind"])) for each in of.expressions])


NESTED: Final[dict[object, Callable[[exp.DataType], DataType]]] = {
    DType.ARRAY: _array,
    DType.MAP: _map,
    DType.STRUCT: _struct,
}


def schema_of(columns: tuple[tuple[exp.Identifier, exp.DataType], ...]) -> pa.Schema:
    """The columns of a declaration; names must be unique."""
    seen: set[str] = set()
    for column, _ in columns:
        if column.name.lower() in seen:
            fail(Code.SAME_COLUMN, f"two columns are named {column.name!r}", column)
        seen.add(column.name.lower())
    return pa.schema([pa.field(column.name, arrow_type(of)) for column, of in columns])
