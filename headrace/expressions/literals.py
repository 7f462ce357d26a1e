"""Python values as SQL literals: their type, their normal form and their text."""

from __future__ import annotations

import ctypes
import datetime as dt
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions.types import INSTANT, MICROS, sql_name


def _integer_type(value: int) -> pa.DataType:
    return pa.int32() if -(2**31) <= value < 2**31 else pa.int64()


def _decimal_type(value: Decimal) -> pa.DataType:
    exponent = value.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    return pa.decimal128(max(scale, value.adjusted() + 1 + scale, 1), scale)


def _timestamp_type(value: dt.datetime) -> pa.DataType:
    return INSTANT if value.tzinfo else MICROS


INFERRED: Final[dict[type, Callable[[Any], pa.DataType]]] = {
    type(None): lambda value: pa.null(),
    bool: lambda value: pa.bool_(),
    int: _integer_type,
    float: lambda value: pa.float64(),
    Decimal: _decimal_type,
    str: lambda value: pa.string(),
    dt.datetime: _timestamp_type,
    dt.date: lambda value: pa.date32(),
}

TEXT: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda value: "NULL",
    bool: lambda value: str(value).upper(),
    str: lambda value: "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'",
    dt.datetime: lambda value: f"{'TIMESTAMP' if value.tzinfo else 'TIMESTAMP_NTZ'} '{value}'",
    dt.date: lambda value: f"DATE '{value}'",
}


def infer(value: object) -> pa.DataType:
    """The type of a Python value as Spark reads it: `int` is int32 where it fits, else int64."""
    rule = INFERRED.get(type(value))
    if rule is None:
        raise ExpressionError(
            "HR-E007",
            f"{value!r} is not an SQL value",
            hint="pass a number, string, bool, date, datetime or Decimal",
        )
    return rule(value)


def normal(value: Any, of: pa.DataType) -> Any:
    """`value` as Arrow returns it from a value of type `of`, so that equal literals hold equal values."""
    try:
        return pa.scalar(value, of).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as reason:
        raise ExpressionError("HR-E007", f"{value!r} is not a {sql_name(of)}", hint=str(reason)) from None


def text(value: object) -> str:
    """The literal as SQL."""
    return TEXT.get(type(value), str)(value)


# Which values fit which type, in plain Python: the basis of naive evaluation.


WIDE: Final = Context(prec=120)
"""Enough digits for any product or quotient of two 38-digit decimals before rounding."""


def in_range(of: pa.DataType, value: int) -> int | None:
    """`value`, or NULL if the integer type `of` cannot hold it."""
    limit = 1 << (of.bit_width - 1)
    return value if -limit <= value < limit else None


def as_float(of: pa.DataType, value: float) -> float:
    """`value` rounded to the precision of `of`."""
    return ctypes.c_float(value).value if of == pa.float32() else value


def as_scaled(of: pa.DataType, value: Decimal) -> Decimal | None:
    """`value` rounded half up to the scale of `of`, or NULL if it exceeds the precision."""
    if not value.is_finite() or value.adjusted() > of.precision:
        return None
    scaled = value.quantize(Decimal(1).scaleb(-of.scale), ROUND_HALF_UP, WIDE)
    if not scaled:
        return abs(scaled)
    return scaled if scaled.adjusted() < of.precision - of.scale else None
