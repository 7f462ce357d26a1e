"""`round(number, digits)`: half away from zero, floats by the digits that they show (2.675 → 2.68).

Spark rounds floats through BigDecimal. Here a float is scaled and rounded in NumPy, and only values so
close to a tie that the scaling could decide it go through decimal digits one by one.
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
from headrace.expressions.bound import Bound, Call, Constant, Kernel, Vector, call
from headrace.expressions.casts import cast
from headrace.expressions.casts.numeric import guarded
from headrace.expressions.functions.rule import WHOLE, Rewrite, any_number
from headrace.expressions.scope import Rule
from headrace.expressions.types import MAX_PRECISION, family
from headrace.expressions.values import WIDE, as_float, in_range

SAFE_SCALED: Final = 2.0**31
"""Below this a scaled value is wrong by less than `NEAR`."""
NEAR: Final = 1e-6
FAST_DIGITS: Final = range(16)


def _half_up(value: Decimal, digits: int) -> Decimal:
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= -digits:
        return value
    if value.adjusted() < -digits - 1:
        return Decimal(0)
    return value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, WIDE)


def _naive_float(of: pa.DataType, value: float, digits: int) -> float:
    if not math.isfinite(value):
        return value
    shown = str(np.float32(value)) if of == pa.float32() else repr(value)
    return as_float(of, float(_half_up(Decimal(shown), digits)) + 0.0)


def _naive_integer(of: pa.DataType, value: int, digits: int) -> int | None:
    return in_range(of, int(_half_up(Decimal(value), digits)))


def _float_vector(call: Call) -> Vector:
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
    digits = _constant(call.args[1])
    if digits >= 0:
        return lambda array, _: array
    run = arrow.function("round", pc.RoundOptions(digits, "half_towards_infinity"))
    return lambda array, _: run(array)


def _constant(bound: Bound) -> int:
    if isinstance(bound, Constant):
        return int(bound.value or 0)
    raise ExpressionError("HR-E011", "round needs a constant number of digits", hint="write a literal")


def _decimal(number: Bound, digits: int) -> Bound:
    """A decimal of as many digits after the point as asked for, and one more before it."""
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
    return lambda number, digits: call(kernel, (number, Constant(digits, pa.int64())), number.type)


ROUNDINGS: Final = {"float": _direct(FLOAT), "integer": _direct(INTEGER), "decimal": _decimal}


def _round(number: Bound, digits: Bound | None = None) -> Bound:
    number = any_number("round", number)
    places = 0 if digits is None else _constant(WHOLE("round", digits))
    return ROUNDINGS[family(number.type)](number, places)


ROWS: Final[tuple[Rule, ...]] = (Rewrite("round", _round, 1, 2),)
