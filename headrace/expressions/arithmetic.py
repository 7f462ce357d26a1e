"""`+ - * / % DIV` and unary minus, typed as in Spark SQL.

Integers are computed in the wider of the two types, decimals in Spark's precision and scale. `/` of integers
gives a double, `%` takes the sign of the dividend, `DIV` gives the exact integral part of a quotient as a
bigint. A bare NULL has the type of the other operand. Division by zero is NULL, for floats too. **Overflow is
NULL**, as in Spark's `try_add`: it neither wraps silently, as Spark without ANSI does, nor stops the stream,
as Spark with ANSI does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Datum, Kernel, Vector, call
from headrace.expressions.casts import cast, in_canonical_type
from headrace.expressions.casts.numeric import guarded
from headrace.expressions.literals import WIDE, as_float, as_scaled, in_range
from headrace.expressions.types import MAX_PRECISION, as_decimal, common_type, family, is_numeric, mismatch

FIT: Final[dict[str, Callable[[pa.DataType, Any], Any]]] = {
    "integer": in_range,
    "float": as_float,
    "decimal": as_scaled,
}


def _remainder(left: Any, right: Any) -> Any:
    """The remainder of division towards zero; NaN for an infinite dividend."""
    if isinstance(left, float):
        return math.fmod(left, right) if math.isfinite(left) and not math.isnan(right) else math.nan
    if isinstance(left, Decimal):
        return WIDE.remainder(left, right)
    return left - right * (abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1)


def _quotient(left: Any, right: Any) -> int:
    """The integral quotient, rounded towards zero."""
    if isinstance(left, Decimal):
        left, right = (int(each.scaleb(MAX_PRECISION, WIDE)) for each in (left, right))
    return int(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))


def _naive(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The naive half of an operator: compute, then fit into the result type."""
    return lambda of, left, right: FIT[family(of)](of, operation(left, right))


def _naive_unless_zero(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Like `_naive`, with NULL for division by zero."""
    return lambda of, left, right: None if right == 0 else FIT[family(of)](of, operation(left, right))


def _checked(name: str) -> Callable[[Call], Vector]:
    """Floats cannot overflow, integers are checked, decimals use Arrow where its result type is Spark's."""
    plain, checked = arrow.direct(name), guarded(arrow.direct(f"{name}_checked"))
    ways = {"float": plain, "integer": checked, "decimal": guarded(_decimal_vector(name))}
    return lambda call: ways[family(call.type)](call)


def _decimal_vector(name: str) -> Callable[[Call], Vector]:
    """Arrow's decimal operator if its result type is Spark's, else row by row."""

    def lower(call: Call) -> Vector:
        exact = SCALES[name](*(each.type for each in call.args))
        same = exact == (call.type.precision, call.type.scale)
        return arrow.function(name) if same else arrow.rowwise(call)

    return lower


def _nonzero(call: Call) -> Vector:
    """The divisor with NULL in place of zero; a constant that is not zero is left unchanged."""
    divisor = call.args[1]
    if isinstance(divisor, Constant):
        return lambda datum: datum
    is_zero, zero, of = arrow.function("equal"), pa.scalar(0, divisor.type), divisor.type

    def run(divisors: pa.Array) -> Datum:
        found = arrow.values(divisors) == 0
        if divisors.null_count:
            found &= arrow.validity(divisors)
        return arrow.null_where(is_zero(divisors, zero), of, divisors) if found.any() else divisors

    return run


def _divide(call: Call) -> Vector:
    if family(call.type) == "decimal":
        return arrow.rowwise(call)
    divide, divisor = arrow.function("divide"), _nonzero(call)
    return lambda left, right: divide(left, divisor(right))


def _modulo(call: Call) -> Vector:
    """C remainder in NumPy, on views; Arrow before 24 has no such function."""
    if family(call.type) == "decimal":
        return arrow.rowwise(call)
    of, divisor = call.type, call.args[1]
    if isinstance(divisor, Constant):
        return _modulo_by(of, of.to_pandas_dtype()(divisor.value))

    def run(left: Datum, right: Datum) -> pa.Array:
        numerator, keep = arrow.operand(left)
        denominator, valid = arrow.operand(right)
        valid = valid & keep & (denominator != 0)
        with np.errstate(all="ignore"):
            found = np.fmod(numerator, np.where(denominator == 0, 1, denominator).astype(denominator.dtype))
        return arrow.from_numpy(of, found, np.broadcast_to(valid, found.shape))

    return run


def _whole_quotient(call: Call) -> Vector:
    """Exact in int64: NumPy rounds down, so a negative quotient with a remainder is increased by one."""
    if family(call.args[0].type) == "decimal":
        return arrow.rowwise(call)
    of = call.type

    def run(left: Datum, right: Datum) -> pa.Array:
        dividend, keep = arrow.operand(left)
        divisor, valid = arrow.operand(right)
        overflows = (divisor == -1) & (dividend == np.iinfo(np.int64).min)
        valid = valid & keep & (divisor != 0) & ~overflows
        by = np.where((divisor == 0) | overflows, 1, divisor)
        found = np.floor_divide(dividend, by)
        found = found + ((found < 0) & (np.remainder(dividend, by) != 0))
        return arrow.from_numpy(of, found, np.broadcast_to(valid, found.shape))

    return run


def _modulo_by(of: pa.DataType, divisor: Any) -> Vector:
    """The remainder by a constant that is not zero."""

    def run(left: pa.Array, _: Datum) -> pa.Array:
        with np.errstate(invalid="ignore"):
            found = np.fmod(arrow.values(left), divisor)
        return arrow.from_numpy(of, found, arrow.validity(left))

    return run


def _negative(value: Any) -> Any:
    """Exact negation; Python's unary minus would round decimals to 28 digits."""
    return value.copy_negate() if isinstance(value, Decimal) else -value


def _negate(call: Call) -> Vector:
    return NEGATIONS[family(call.type)](call)


NEGATIONS: Final[dict[str, Callable[[Call], Vector]]] = {
    "float": arrow.direct("negate"),
    "decimal": arrow.direct("negate"),
    "integer": guarded(arrow.direct("negate_checked")),
}
Digits = tuple[int, int]
NEGATE: Final = Kernel("-", lambda of, value: FIT[family(of)](of, _negative(value)), _negate)


def _whole(of: pa.DataType) -> int:
    """Digits before the decimal point."""
    digits: int = of.precision - of.scale
    return digits


def _sum_digits(left: pa.DataType, right: pa.DataType) -> Digits:
    """Precision and scale of a sum or difference."""
    scale = max(left.scale, right.scale)
    return max(_whole(left), _whole(right)) + scale + 1, scale


def _product_digits(left: pa.DataType, right: pa.DataType) -> Digits:
    """Precision and scale of a product."""
    return left.precision + right.precision + 1, left.scale + right.scale


def _quotient_digits(left: pa.DataType, right: pa.DataType) -> Digits:
    """Precision and scale of a quotient."""
    scale = max(6, left.scale + right.precision + 1)
    return _whole(left) + right.scale + scale, scale


def _remainder_digits(left: pa.DataType, right: pa.DataType) -> Digits:
    """Precision and scale of a remainder."""
    scale = max(left.scale, right.scale)
    return max(1, min(_whole(left), _whole(right)) + scale), scale


SCALES: Final[dict[str, Callable[[pa.DataType, pa.DataType], Digits]]] = {
    "add": _sum_digits,
    "subtract": _sum_digits,
    "multiply": _product_digits,
    "divide": _quotient_digits,
    "modulo": _remainder_digits,
}
KERNELS: Final[dict[str, Kernel]] = {
    "+": Kernel("add", _naive(lambda left, right: _wide("add", left, right)), _checked("add")),
    "-": Kernel("subtract", _naive(lambda left, right: _wide("subtract", left, right)), _checked("subtract")),
    "*": Kernel("multiply", _naive(lambda left, right: _wide("multiply", left, right)), _checked("multiply")),
    "/": Kernel("divide", _naive_unless_zero(lambda left, right: _wide("divide", left, right)), _divide),
    "%": Kernel("modulo", _naive_unless_zero(_remainder), _modulo),
    "DIV": Kernel("div", _naive_unless_zero(_quotient), _whole_quotient),
}
DIVISIONS: Final = frozenset({"divide", "modulo", "div"})
PYTHON: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": lambda left, right: left + right,
    "subtract": lambda left, right: left - right,
    "multiply": lambda left, right: left * right,
    "divide": lambda left, right: left / right,
}


def _wide(name: str, left: Any, right: Any) -> Any:
    """Python's operator, with enough digits for decimals."""
    return getattr(WIDE, name)(left, right) if isinstance(left, Decimal) else PYTHON[name](left, right)


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Spark's bounded decimal.

    Beyond 38 digits the scale is reduced, but not below 6 digits if it had them.
    """
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    room = MAX_PRECISION - (precision - scale)
    return pa.decimal128(MAX_PRECISION, max(room, min(scale, 6)))


def _as_decimal(bound: Bound) -> Bound:
    """A number as a decimal; an integer literal gets only the digits that it has."""
    if isinstance(bound, Constant) and isinstance(bound.value, int):
        return cast(bound, pa.decimal128(len(str(abs(bound.value))), 0))
    return cast(bound, as_decimal(bound.type))


def arithmetic(op: str, left: Bound, right: Bound) -> Bound:
    """`left op right` with operands coerced and the result typed."""
    left, right = in_canonical_type(left), in_canonical_type(right)
    of = common_type(left.type, right.type)
    if of is None or not (is_numeric(of) or pa.types.is_null(of)):
        raise mismatch(f"'{op}'", left.type, right.type)
    kernel = KERNELS[op]
    left, right = (cast(each, of) if pa.types.is_null(each.type) else each for each in (left, right))
    if op == "DIV":
        return _divided_whole(kernel, left, right, of)
    if pa.types.is_decimal(of):
        left, right = _as_decimal(left), _as_decimal(right)
        return _call(kernel, left, right, decimal_type(*SCALES[kernel.name](left.type, right.type)))
    if op == "/" or pa.types.is_null(of):
        of = pa.float64()
    return _call(kernel, cast(left, of), cast(right, of), of)


def _divided_whole(kernel: Kernel, left: Bound, right: Bound, of: pa.DataType) -> Bound:
    """`DIV` for integers and decimals."""
    if family(of) == "float":
        raise mismatch("'DIV'", left.type, right.type, hint="CAST(a / b AS BIGINT) divides doubles")
    meet = _as_decimal if family(of) == "decimal" else _as_bigint
    return _call(kernel, meet(left), meet(right), pa.int64())


def _as_bigint(bound: Bound) -> Bound:
    return cast(bound, pa.int64())


def _call(kernel: Kernel, left: Bound, right: Bound, of: pa.DataType) -> Bound:
    """The call; division by a constant zero is NULL, so lowerings never see one."""
    by_zero = kernel.name in DIVISIONS and isinstance(right, Constant) and right.value == 0
    return Constant(None, of) if by_zero else call(kernel, (left, right), of)


def negate(operand: Bound) -> Bound:
    """`-operand`."""
    operand = in_canonical_type(operand)
    if pa.types.is_null(operand.type):
        operand = cast(operand, pa.float64())
    if not is_numeric(operand.type):
        raise mismatch("unary '-'", operand.type)
    return call(NEGATE, (operand,), operand.type)
