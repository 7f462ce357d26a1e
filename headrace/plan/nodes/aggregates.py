"""The aggregate functions: their argument and result types. `headrace.aggregates` computes them.

All ignore nulls except `count(*)`, `first` and `last`; without a non-null value they return null (`count`:
0). Sums of integers are exact modulo 2^64, as int64. `first` and `last` are by time, and for simultaneous
rows by `headrace.plan.analysis.ordering`. Sample variance and deviation of fewer than two values are null, as
in Spark.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from headrace.errors import PlanError
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.schema import DataType, Schema

if TYPE_CHECKING:
    from headrace.plan.nodes.core import AggregateCall

Typing = Callable[[DataType], DataType | None]


def _always(result: DataType) -> Typing:
    """The result type for arguments of any type."""
    return lambda _: result


def _of_numbers(result: DataType) -> Typing:
    """The result type for numbers; other arguments are refused."""
    return lambda t: result if _is_number(t) else None


def _same(t: DataType) -> DataType | None:
    return t


def _ordered(t: DataType) -> DataType | None:
    """The type of the argument, unless it has no order."""
    return None if pt.is_nested(t) else t


def _sum(t: DataType) -> DataType | None:
    """Decimals with full precision, int64 for integers and booleans, float64 for floats."""
    if pt.is_decimal(t):
        return pa.decimal128(38, t.scale)
    if pt.is_integer(t) or pt.is_boolean(t):
        return pa.int64()
    return pa.float64() if pt.is_floating(t) else None


def _is_number(t: DataType) -> bool:
    return bool(pt.is_integer(t) or pt.is_floating(t) or pt.is_decimal(t))


FUNCTIONS: dict[str, Typing] = {
    "count": _always(pa.int64()),
    "count_distinct": _always(pa.int64()),
    "sum": _sum,
    "avg": _of_numbers(pa.float64()),
    "min": _ordered,
    "max": _ordered,
    "variance": _of_numbers(pa.float64()),
    "var_pop": _of_numbers(pa.float64()),
    "stddev": _of_numbers(pa.float64()),
    "stddev_pop": _of_numbers(pa.float64()),
    "first": _same,
    "last": _same,
}


def result_type(call: AggregateCall, schema: Schema) -> DataType:
    """The result type of `call` over rows of `schema`; raises a PlanError if there is none."""
    if isinstance(call, UserCall):
        return call.definition.result_of(tuple(_type_of(name, call, schema) for name in call.columns))
    typing = FUNCTIONS.get(call.function)
    if typing is None:
        near = difflib.get_close_matches(call.function, FUNCTIONS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(FUNCTIONS)}"
        raise PlanError("HR-P003", f"unknown aggregate {call.function!r}", place=call.name, hint=hint)
    if call.column is None:
        if call.function != "count":
            raise PlanError(
                "HR-P004", f"{call.function} needs a column", place=call.name, hint="only count takes *"
            )
        return pa.int64()
    below = _type_of(call.column, call, schema)
    result = typing(below)
    if result is None:
        raise PlanError(
            "HR-P006", f"{call.function} cannot take {below}", place=call.name, hint="cast the column first"
        )
    return result


def _type_of(column: str, call: AggregateCall, schema: Schema) -> DataType:
    """The type of a column; raises HR-P005 with the nearest name if there is none."""
    if column not in schema.names:
        near = difflib.get_close_matches(column, schema.names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(schema.names)}"
        raise PlanError("HR-P005", f"unknown column {column!r}", place=call.name, hint=hint)
    return schema.field(column).type
