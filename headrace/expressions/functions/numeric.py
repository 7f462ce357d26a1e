"""Functions of numbers.

Logarithms of what is not positive are NULL, as in Spark; `sqrt(-1)` is NaN. `floor` and `ceil` give integers.
`greatest` and `least` pass over NULLs, and NaN is the greatest number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.arithmetic import FIT, arithmetic
from headrace.expressions.bound import Bound, Call, Datum, Kernel, Vector, call
from headrace.expressions.casts import cast
from headrace.expressions.casts.numeric import guarded
from headrace.expressions.comparison import rank
from headrace.expressions.functions.rule import REAL, FunctionRule, Rewrite, any_number, in_common, takes
from headrace.expressions.scope import Rule
from headrace.expressions.types import MAX_PRECISION, family
from headrace.expressions.values import as_scaled

DOUBLE: Final = takes(REAL, gives=pa.float64())


def _total(operation: Callable[[float], float]) -> Callable[..., float]:
    """Python's function with C's answers where Python raises: infinity and NaN."""

    def naive(of: pa.DataType, value: float) -> float:
        try:
            return operation(value)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return naive


def _power(of: pa.DataType, base: float, exponent: float) -> float:
    """C's pow; Python raises where the answer is infinite or NaN."""
    odd = exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        return math.nan if base else math.copysign(math.inf, base if odd else 1.0)


def _magnitude(value: Any) -> Any:
    """Python's own abs would round decimals to 28 digits."""
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


def _sign(of: pa.DataType, value: float) -> float:
    return math.copysign(1.0, value) if value and not math.isnan(value) else value


def _logarithm(name: str, operation: Callable[[float], float]) -> FunctionRule:
    run, at_most, zero = arrow.function(name), arrow.function("less_equal"), pa.scalar(0.0)

    def vector(array: Datum) -> Datum:
        return run(arrow.null_where(at_most(array, zero), pa.float64(), array))

    def naive(of: pa.DataType, value: float) -> float | None:
        return None if value <= 0 else operation(value)

    return FunctionRule(name, DOUBLE, Kernel(name, naive, lambda call: vector))


def _whole_decimal(name: str) -> Callable[[Call], Vector]:
    def lower(call: Call) -> Vector:
        source = call.args[0].type
        if source.precision == MAX_PRECISION:
            return arrow.rowwise(call)
        widen, step = arrow.cast_to(pa.decimal128(source.precision + 1, source.scale)), arrow.function(name)
        narrow = arrow.cast_to(call.type)
        return lambda array: narrow(step(widen(array)))

    return lower


def _towards(name: str, step: Callable[[Any], int]) -> Rewrite:
    """`floor` or `ceil`: integers stay, floats become int64, decimals lose their fraction."""

    def float_step(of: pa.DataType, value: float) -> float:
        return float(step(value)) if math.isfinite(value) else value

    floats = Kernel(name, float_step, arrow.direct(name))
    decimals = Kernel(name, lambda of, value: as_scaled(of, Decimal(step(value))), _whole_decimal(name))

    def rewrite(number: Bound) -> Bound:
        of = any_number(name, number).type
        if family(of) == "decimal":
            whole = max(1, of.precision - of.scale + (1 if of.scale else 0))
            return call(decimals, (number,), pa.decimal128(min(MAX_PRECISION, whole), 0))
        return cast(call(floats, (number,), of) if family(of) == "float" else number, pa.int64())

    return Rewrite(name, rewrite, 1, 1)


def _extreme(name: str, pick: Callable[..., Any], arrow_name: str) -> FunctionRule:
    def naive(of: pa.DataType, *values: Any) -> Any:
        present = [value for value in values if value is not None]
        return pick(present, key=rank) if present else None

    def lower(call: Call) -> Vector:
        plain = arrow.function(arrow_name, pc.ElementWiseAggregateOptions(skip_nulls=True))
        careful = arrow.rowwise(call)
        if family(call.type) == "boolean":
            return careful
        if family(call.type) == "timestamp":  # of zoned ones Arrow makes types that it then does not know
            ticks, stamp = arrow.cast_to(pa.int64()), arrow.cast_to(call.type)
            return lambda *args: stamp(plain(*map(ticks, args)))
        if family(call.type) != "float":
            return plain
        return lambda *args: (careful if any(map(_has_nan, args)) else plain)(*args)

    return FunctionRule(name, in_common, Kernel(name, naive, lower, strict=False), 2, None)


def _has_nan(datum: Datum) -> bool:
    """Arrow's extremes take NaN for missing."""
    if isinstance(datum, pa.Scalar):
        return datum.is_valid and math.isnan(datum.as_py())
    return bool(np.isnan(arrow.values(datum)).any())


ROWS: Final[tuple[Rule, ...]] = (
    FunctionRule(
        "abs",
        takes(any_number),
        Kernel(
            "abs",
            lambda of, value: FIT[family(of)](of, _magnitude(value)),
            guarded(arrow.direct("abs_checked")),
        ),
    ),
    FunctionRule("sqrt", DOUBLE, Kernel("sqrt", _total(math.sqrt), arrow.direct("sqrt"))),
    FunctionRule("exp", DOUBLE, Kernel("exp", _total(math.exp), arrow.direct("exp"))),
    _logarithm("ln", math.log),
    _logarithm("log10", math.log10),
    FunctionRule("power", DOUBLE, Kernel("power", _power, arrow.direct("power")), 2, 2),
    FunctionRule("sign", DOUBLE, Kernel("sign", _sign, arrow.direct("sign"))),
    _towards("floor", math.floor),
    _towards("ceil", math.ceil),
    Rewrite("mod", lambda left, right: arithmetic("%", left, right), 2, 2),
    _extreme("greatest", max, "max_element_wise"),
    _extreme("least", min, "min_element_wise"),
)
