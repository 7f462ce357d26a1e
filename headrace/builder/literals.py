"""Python values as CQL writes them: what is written is read back as the same value of the same type."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions import Literal
from headrace.expressions.literals import text
from headrace.expressions.types import sql_name
from headrace.schema import DataType

CASTS: Final[dict[DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}


def type_name(of: DataType) -> str:
    """What CAST calls the type `of`."""
    if pa.types.is_decimal128(of):
        return f"DECIMAL({of.precision}, {of.scale})"
    if of not in CASTS:
        hint = f"types: {', '.join([*CASTS.values(), 'DECIMAL'])}"
        raise ExpressionError("HR-E006", f"CQL has no name for the type {sql_name(of)}", hint=hint)
    return CASTS[of]


def written(literal: Literal) -> str:
    """The literal, in a CAST where CQL would read what is written as another type."""
    plain = PLAIN.get(type(literal.value), _quoted)(literal.value)
    return plain if _read_as(literal.value) == literal.of else f"CAST({plain} AS {type_name(literal.of)})"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return text(str(value))
    shown = repr(value)
    return shown if "e" in shown else f"{shown}e0"


def _quoted(value: object) -> str:
    if isinstance(value, bytes):
        raise ExpressionError("HR-E007", "CQL has no binary literals", hint="compare with a column")
    return text(str(value))


def _read_as(value: Any) -> DataType:
    """The type that CQL gives to the plain text of `value`; a minus stands apart from its number."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        value = abs(value)
    if isinstance(value, Decimal) and "." not in format(value, "f"):
        value = int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return pa.string()
    if type(value) not in PLAIN or (type(value) is int and value >= 2**63):
        return pa.string()
    return Literal(value).of


PLAIN: Final[dict[type, Callable[[Any], str]]] = {
    type(None): text,
    bool: text,
    str: text,
    int: str,
    Decimal: lambda value: format(value, "f"),
    float: _number,
}
"""Values of any other type are written as text in a CAST."""
