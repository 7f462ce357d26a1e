"""Casts among booleans, integers, floats and decimals."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.bound import Call, Datum, Kernel, Vector
from headrace.expressions.literals import as_float, as_scaled, in_range
from headrace.expressions.types import INTEGER_DIGITS, MAX_PRECISION

EXACT_DIGITS: Final = 15
"""Unscaled decimals of at most this many digits are exact in float64, so one division rounds correctly."""


def _integer_to_float(of: pa.DataType, value: int) -> float:
    return float(np.int64(value).astype(np.float32)) if of == pa.float32() else float(value)


def _float_to_integer(of: pa.DataType, value: float) -> int | None:
    return in_range(of, math.trunc(value)) if math.isfinite(value) else None


def _float_to_decimal(of: pa.DataType, value: float) -> Decimal | None:
    return as_scaled(of, Decimal(repr(value))) if math.isfinite(value) else None


def _float32_text(of: pa.DataType, value: float) -> Decimal | None:
    """A float32 as a decimal of the digits that it shows, not of its exact binary value."""
    return as_scaled(of, Decimal(str(np.float32(value)))) if math.isfinite(value) else None


def _whole_to_decimal(of: pa.DataType, value: int) -> Decimal | None:
    return as_scaled(of, Decimal(value))


def _decimal_to_float(of: pa.DataType, value: Decimal) -> float:
    return as_float(of, float(value))


def unsafe(call: Call) -> Vector:
    """One Arrow cast that cannot fail, and whose results equal the naive half."""
    return arrow.cast_to(call.type)


def guarded(fast: Callable[[Call], Vector]) -> Callable[[Call], Vector]:
    """The fast lowering; a batch with a value that does not fit goes row by row."""

    def lower(call: Call) -> Vector:
        quick, careful = fast(call), arrow.rowwise(call)

        def run(*args: Datum) -> Datum:
            try:
                return quick(*args)
            except pa.ArrowInvalid:
                return careful(*args)

        return run

    return lower


def _safe(call: Call) -> Vector:
    """Arrow's checked cast."""
    return arrow.function("cast", pc.CastOptions.safe(call.type))


def _truncating(call: Call) -> Vector:
    """A checked cast that drops the fraction of decimals."""
    return arrow.function("cast", pc.CastOptions(call.type, allow_decimal_truncate=True))


def _float_to_integer_vector(call: Call) -> Vector:
    """Arrow truncates a batch whose values all fit.

    Otherwise values that do not fit, and NaN, become NULL.
    """
    of, limit, fast = call.type, 2.0 ** (call.type.bit_width - 1), arrow.cast_to(call.type)

    def run(array: pa.Array) -> pa.Array:
        given = arrow.values(array)
        if len(given) and given.min() > -limit and given.max() < limit:
            return fast(array)
        whole = np.trunc(given)
        valid = (whole >= -limit) & (whole < limit) & arrow.validity(array)
        return arrow.from_numpy(of, np.where(valid, whole, 0).astype(arrow.dtype_of(of)), valid)

    return run


def _integer_to_decimal_vector(call: Call) -> Vector:
    """Arrow requires room for the widest integer; if the target is narrower, the second cast checks."""
    room = INTEGER_DIGITS[call.args[0].type] + call.type.scale
    if room > MAX_PRECISION:
        return arrow.rowwise(call)
    widen = arrow.cast_to(pa.decimal128(max(room, call.type.precision), call.type.scale))
    narrow = _safe(call)
    return lambda array: narrow(widen(array))


def _decimal_to_decimal_vector(call: Call) -> Vector:
    """Reduces the scale by rounding half up, with one more digit for the carry."""
    source, of, narrow = call.args[0].type, call.type, _safe(call)
    if of.scale >= source.scale:
        return narrow
    widen = arrow.cast_to(pa.decimal256(source.precision + 1, source.scale))
    half_up = arrow.function("round", pc.RoundOptions(of.scale, "half_towards_infinity"))
    return lambda array: narrow(half_up(widen(array)))


def _decimal_to_float_vector(call: Call) -> Vector:
    """Arrow's own cast is off in the last place (99.99 → 99.99000000000001), so divide exactly."""
    source, of = call.args[0].type, call.type
    if source.precision > EXACT_DIGITS:
        return arrow.rowwise(call)
    divisor, dtype = 10.0**source.scale, of.to_pandas_dtype()

    def run(array: pa.Array) -> pa.Array:
        found = (arrow.unscaled(array) / divisor).astype(dtype)
        return arrow.from_numpy(of, found, arrow.validity(array))

    return run


def _nonzero(call: Call) -> Vector:
    """Whether decimals are not zero, which is their cast to boolean."""
    compare, zero = arrow.function("not_equal"), pa.scalar(Decimal(0), call.args[0].type)
    return lambda array: compare(array, zero)


def _boolean_to_decimal_vector(call: Call) -> Vector:
    choose = arrow.function("if_else")
    one, zero = (pa.scalar(as_scaled(call.type, Decimal(each)), call.type) for each in (1, 0))
    return lambda array: choose(array, one, zero)


def _of(convert: Callable[..., Any]) -> Callable[..., Any]:
    """A naive half that ignores the type."""
    return lambda of, value: convert(value)


ROWS: Final[dict[tuple[str, str], Kernel]] = {
    ("boolean", "integer"): Kernel("cast", _of(int), unsafe),
    ("boolean", "float"): Kernel("cast", _of(float), unsafe),
    ("boolean", "decimal"): Kernel("cast", _whole_to_decimal, _boolean_to_decimal_vector),
    ("integer", "boolean"): Kernel("cast", _of(bool), unsafe),
    ("integer", "integer"): Kernel("cast", in_range, guarded(_safe)),
    ("integer", "float"): Kernel("cast", _integer_to_float, unsafe),
    ("integer", "decimal"): Kernel("cast", _whole_to_decimal, guarded(_integer_to_decimal_vector)),
    ("float", "boolean"): Kernel("cast", _of(bool), unsafe),
    ("float", "integer"): Kernel("cast", _float_to_integer, _float_to_integer_vector),
    ("float", "float"): Kernel("cast", as_float, unsafe),
    ("float", "decimal"): Kernel("cast", _float_to_decimal),
    ("float32", "decimal"): Kernel("cast", _float32_text),
    ("decimal", "boolean"): Kernel("cast", _of(bool), _nonzero),
    ("decimal", "integer"): Kernel("cast", lambda of, value: in_range(of, int(value)), guarded(_truncating)),
    ("decimal", "float"): Kernel("cast", _decimal_to_float, _decimal_to_float_vector),
    ("decimal", "decimal"): Kernel("cast", as_scaled, guarded(_decimal_to_decimal_vector)),
}
