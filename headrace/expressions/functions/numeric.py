"""Functions of numbers.

Logarithms of numbers that are not positive are NULL, as in Spark; `sqrt(-1)` is NaN. `floor` and `ceil`
return integers. `greatest` and `least` ignore NULLs, and NaN is the greatest number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expressions import arrow
from headrace.expressions.arithmetic import FIT, arithmetic
from headrace.expressions.bound import Bound, Call, Constant, Datum, Kernel, Vector, call
from headrace.expressions.casts import cast
from headrace.expressions.casts.numeric import guarded
from headrace.expressions.choice import case
from headrace.expressions.comparison import comparison, rank
from headrace.expressions.functions.rule import (
    REAL,
    WHOLE,
    FunctionRule,
    Rewrite,
    any_number,
    in_common,
    takes,
)
from headrace.expressions.literals import WIDE, as_float, as_scaled, in_range
from headrace.expressions.scope import Rule
from headrace.expressions.types import MAX_PRECISION, family

# `round(number, digits)`: half away from zero, floats by their decimal digits (2.675 → 2.68).
#
# Spark rounds floats through BigDecimal. Here a float is scaled and rounded in NumPy, and only values so
# close to a tie that the scaling could decide it go through decimal digits one by one.


SAFE_SCALED: Final = 2.0**31
"""Below this, the error of a scaled value is less than `NEAR`."""
NEAR: Final = 1e-6
FAST_DIGITS: Final = range(16)


def _half_up(value: Decimal, digits: int) -> Decimal:
    """Round half away from zero to a number of digits."""
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= -digits:
        return value
    if value.adjusted() < -digits - 1:
        return Decimal(0)
    return value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, WIDE)


def _naive_float(of: pa.DataType, value: float, digits: int) -> float:
    """Round the shortest decimal digits of a float, as Spark does."""
    if not math.isfinite(value):
        return value
    shown = str(np.float32(value)) if of == pa.float32() else repr(value)
    return as_float(of, float(_half_up(Decimal(shown), digits)) + 0.0)


def _naive_integer(of: pa.DataType, value: int, digits: int) -> int | None:
    return in_range(of, int(_half_up(Decimal(value), digits)))


def _float_vector(call: Call) -> Vector:
    """Rounds doubles in NumPy; values close to a tie go through decimal digits."""
    digits = _constant(call.args[1])
    if call.type != pa.float64() or digits not in FAST_DIGITS:
        return arrow.rowwise(call)
    scale = 10.0**digits

    def run(array: pa.Array, _: Any) -> pa.Array:
        given, valid = arrow.values(array), arrow.validity(array)
        with np.errstate(all="ignore"):
            scaled = np.abs(given) * scale
            found = np.copysign(np.floor(scaled + 0.5) / scale, given) + 0.0
            doubtful = ~(scaled < SAFE_SCALED) | (np.abs(scaled - np.floor(scaled) - 0.5) < NEAR)
        for at in np.flatnonzero(doubtful & valid):
            found[at] = _naive_float(call.type, float(given[at]), digits)
        return arrow.from_numpy(call.type, found, valid)

    return run


def _integer_vector(call: Call) -> Vector:
    """Integers change only if digits before the point are rounded."""
    digits = _constant(call.args[1])
    if digits >= 0:
        return lambda array, _: array
    run = arrow.function("round", pc.RoundOptions(digits, "half_towards_infinity"))
    return lambda array, _: run(array)


def _constant(bound: Bound) -> int:
    """The value of a constant argument."""
    if isinstance(bound, Constant):
        return int(bound.value or 0)
    raise ExpressionError(
        "HR-E011", "the number of digits of round must be a constant", hint="write a number"
    )


def _decimal(number: Bound, digits: int) -> Bound:
    """A decimal with the requested number of digits after the point, and one more before it."""
    of = number.type
    scale = max(0, min(of.scale, digits))
    precision = max(of.precision - of.scale + 1 + scale, 1 - digits)
    to = pa.decimal128(min(MAX_PRECISION, precision), scale)
    if digits >= 0:
        return cast(number, to)
    return call(DECIMAL, (number, Constant(digits, pa.int64())), to)


FLOAT: Final = Kernel("round", _naive_float, _float_vector)
INTEGER: Final = Kernel("round", _naive_integer, guarded(_integer_vector))
DECIMAL: Final = Kernel("round", lambda of, value, digits: _half_up(value, digits).quantize(Decimal(1)))


def _direct(kernel: Kernel) -> Callable[[Bound, int], Bound]:
    """Round in the type of the number."""
    return lambda number, digits: call(kernel, (number, Constant(digits, pa.int64())), number.type)


ROUNDINGS: Final = {"float": _direct(FLOAT), "integer": _direct(INTEGER), "decimal": _decimal}


def _round(number: Bound, digits: Bound | None = None) -> Bound:
    number = any_number("round", number)
    places = 0 if digits is None else _constant(WHOLE("round", digits))
    return ROUNDINGS[family(number.type)](number, places)


DOUBLE: Final = takes(REAL, gives=pa.float64())


def _total(operation: Callable[[float], float]) -> Callable[..., float]:
    """Python's function with C's results where Python raises: infinity and NaN."""

    def naive(of: pa.DataType, value: float) -> float:
        try:
            return operation(value)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return naive


def _power(of: pa.DataType, base: float, exponent: float) -> float:
    """C's pow; Python raises where the result is infinite or NaN."""
    odd = exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        return math.nan if base else math.copysign(math.inf, base if odd else 1.0)


def _magnitude(value: Any) -> Any:
    """Exact absolute value; Python's abs would round decimals to 28 digits."""
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


def _sign(of: pa.DataType, value: float) -> float:
    """-1, 0 or 1 as a double; zeros and NaN are unchanged."""
    return math.copysign(1.0, value) if value and not math.isnan(value) else value


def _logarithm(name: str, operation: Callable[[float], float]) -> FunctionRule:
    """A logarithm that is NULL for numbers that are not positive."""
    run, at_most, zero = arrow.function(name), arrow.function("less_equal"), pa.scalar(0.0)

    def vector(array: Datum) -> Datum:
        return run(arrow.null_where(at_most(array, zero), pa.float64(), array))

    def naive(of: pa.DataType, value: float) -> float | None:
        return None if value <= 0 else operation(value)

    return FunctionRule(name, DOUBLE, Kernel(name, naive, lambda call: vector))


def _whole_decimal(name: str) -> Callable[[Call], Vector]:
    """Rounds a decimal with one more digit, because `ceil(9.9)` needs it."""

    def lower(call: Call) -> Vector:
        source = call.args[0].type
        if source.precision == MAX_PRECISION:
            return arrow.rowwise(call)
        widen, step = arrow.cast_to(pa.decimal128(source.precision + 1, source.scale)), arrow.function(name)
        narrow = arrow.cast_to(call.type)
        return lambda array: narrow(step(widen(array)))

    return lower


def _towards(name: str, step: Callable[[Any], int]) -> Rewrite:
    """`floor` or `ceil`: integers are unchanged, floats become int64, decimals lose their fraction."""

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
    """`greatest` or `least`; batches with NaN go row by row."""

    def naive(of: pa.DataType, *values: Any) -> Any:
        present = [value for value in values if value is not None]
        return pick(present, key=rank) if present else None

    def lower(call: Call) -> Vector:
        plain = arrow.function(arrow_name, pc.ElementWiseAggregateOptions(skip_nulls=True))
        careful = arrow.rowwise(call)
        if family(call.type) == "boolean":
            return careful
        if family(call.type) == "timestamp":  # for zoned ones Arrow returns a type it cannot handle
            ticks, stamp = arrow.cast_to(pa.int64()), arrow.cast_to(call.type)
            return lambda *args: stamp(plain(*map(ticks, args)))
        if family(call.type) != "float":
            return plain
        return lambda *args: (careful if any(map(_has_nan, args)) else plain)(*args)

    return FunctionRule(name, in_common, Kernel(name, naive, lower, strict=False), 2, None)


def _has_nan(datum: Datum) -> bool:
    """Whether there is a NaN, which Arrow's min and max treat as missing."""
    if isinstance(datum, pa.Scalar):
        return datum.is_valid and math.isnan(datum.as_py())
    return bool(np.isnan(arrow.values(datum)).any())


def _log(base: Bound, number: Bound | None = None) -> Bound:
    """`log(x)`, or `log(base, x)`."""
    if number is None:
        return LN.bind((base,))
    args, of = DOUBLE("log", (base, number))
    return call(LOG, args, of)


def _naive_log(of: pa.DataType, base: float, number: float) -> float | None:
    """NULL where one of the two is not positive; an infinity to the base 1, as in Spark."""
    if base <= 0 or number <= 0:
        return None
    with np.errstate(all="ignore"):
        return float(np.float64(_total(math.log)(of, number)) / np.float64(_total(math.log)(of, base)))


def _pmod(left: Bound, right: Bound) -> Bound:
    """The remainder, with the sign of the divisor where that is positive."""
    rest = arithmetic("%", left, right)
    moved = cast(arithmetic("%", arithmetic("+", rest, right), right), rest.type)
    return case([(comparison("<", rest, Constant(0, pa.int32())), moved)], rest)


def _double(name: str, naive: Callable[[float], float]) -> FunctionRule:
    """A function from double to double that Arrow has too."""
    return FunctionRule(name, DOUBLE, Kernel(name, _total(naive), arrow.direct(name)))


def _scaled(name: str, factor: float) -> FunctionRule:
    """A double times a constant."""
    times, by = arrow.function("multiply"), pa.scalar(factor)
    kernel = Kernel(name, lambda of, value: value * factor, lambda call: lambda array: times(array, by))
    return FunctionRule(name, DOUBLE, kernel)


def _by_numpy(name: str, ufunc: np.ufunc) -> FunctionRule:
    """A function from double to double that NumPy has."""

    def naive(of: pa.DataType, value: float) -> float:
        with np.errstate(all="ignore"):
            return float(ufunc(np.float64(value)))

    def lower(call: Call) -> Vector:
        def run(array: pa.Array) -> pa.Array:
            value, known = arrow.operand(array)
            with np.errstate(all="ignore"):
                return arrow.from_numpy(pa.float64(), np.asarray(ufunc(value)), known)

        return run

    return FunctionRule(name, DOUBLE, Kernel(name, naive, lower))


def _nanvl(value: Bound, other: Bound) -> Bound:
    """The other number where one is not a number."""
    (value, other), _ = DOUBLE("nanvl", (value, other))
    return case([(call(IS_NAN, (value,), pa.bool_()), other)], value)


IS_NAN: Final = Kernel("isnan", lambda of, value: value is not None and math.isnan(value), strict=False)
CURVES: Final = {
    "cbrt": np.cbrt,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "expm1": np.expm1,
    "rint": np.rint,
}
LN: Final = _logarithm("ln", math.log)
LOG: Final = Kernel("log", _naive_log)

ROWS: Final[tuple[Rule, ...]] = (
    Rewrite("round", _round, 1, 2),
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
    LN,
    _logarithm("log10", math.log10),
    _logarithm("log2", math.log2),
    *(_by_numpy(name, ufunc) for name, ufunc in CURVES.items()),
    FunctionRule("isnan", takes(REAL, gives=pa.bool_()), IS_NAN),
    Rewrite("nanvl", _nanvl, 2, 2),
    FunctionRule("hypot", DOUBLE, Kernel("hypot", lambda of, x, y: math.hypot(x, y)), 2, 2),
    Rewrite("pi", lambda: Constant(math.pi, pa.float64()), 0, 0),
    Rewrite("e", lambda: Constant(math.e, pa.float64()), 0, 0),
    Rewrite("log", _log, 1, 2),
    Rewrite("pmod", _pmod, 2, 2),
    *(_double(name, getattr(math, name)) for name in ("sin", "cos", "tan", "asin", "acos", "atan")),
    FunctionRule(
        "atan2", DOUBLE, Kernel("atan2", lambda of, y, x: math.atan2(y, x), arrow.direct("atan2")), 2, 2
    ),
    _scaled("degrees", 180.0 / math.pi),
    _scaled("radians", math.pi / 180.0),
    FunctionRule("power", DOUBLE, Kernel("power", _power, arrow.direct("power")), 2, 2),
    FunctionRule("sign", DOUBLE, Kernel("sign", _sign, arrow.direct("sign"))),
    _towards("floor", math.floor),
    _towards("ceil", math.ceil),
    Rewrite("mod", lambda left, right: arithmetic("%", left, right), 2, 2),
    _extreme("greatest", max, "max_element_wise"),
    _extreme("least", min, "min_element_wise"),
)
