"""`= <> < <= > >=` and the null-safe `<=>`.

NULL compared with anything is NULL, except under `<=>`. Floats are ordered as in Spark: NaN equals NaN and is
greater than every other number, -0.0 equals 0.0. Strings compare by code point. Operands meet in their
common type; a string beside a date or timestamp is read as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Datum, Kernel, Vector, call
from headrace.expressions.casts import cast, in_canonical_type
from headrace.expressions.types import common_type, family, mismatch

FLIPPED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
ARROW: Final = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
INVERSE: Final = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
READ_FROM_STRING: Final = frozenset({"date", "timestamp"})


def rank(value: Any) -> tuple[bool, Any]:
    """A key that orders values as SQL does: NaN last and equal to itself."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0.0 if is_nan else value


NAIVE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda left, right: rank(left) == rank(right),
    "<>": lambda left, right: rank(left) != rank(right),
    "<": lambda left, right: rank(left) < rank(right),
    "<=": lambda left, right: rank(left) <= rank(right),
    ">": lambda left, right: rank(left) > rank(right),
    ">=": lambda left, right: rank(left) >= rank(right),
}

_invert, _and, _or = arrow.function("invert"), arrow.function("and"), arrow.function("or")
_is_null, _is_nan, _fill = arrow.function("is_null"), arrow.function("is_nan"), arrow.function("coalesce")
_equal, _less_equal = arrow.function("equal"), arrow.function("less_equal")


def _float_equal(left: Datum, right: Datum) -> Datum:
    return _or(_equal(left, right), _and(_is_nan(left), _is_nan(right)))


def _float_less(left: Datum, right: Datum) -> Datum:
    """`not right <= left` also holds where a NaN is involved, which is right unless it is on the left."""
    return _and(_invert(_less_equal(right, left)), _equal(left, left))


FLOAT: Final[dict[str, Vector]] = {
    "=": _float_equal,
    "<>": lambda left, right: _invert(_float_equal(left, right)),
    "<": _float_less,
    "<=": lambda left, right: _invert(_float_less(right, left)),
    ">": lambda left, right: _float_less(right, left),
    ">=": lambda left, right: _invert(_float_less(left, right)),
}


def is_ordinary(bound: Bound) -> bool:
    """A constant that is a number: comparing with it needs no thought of NaN on that side."""
    return isinstance(bound, Constant) and not (isinstance(bound.value, float) and math.isnan(bound.value))


def _with_number(op: str) -> Vector:
    """Against an ordinary number on the right, NaN is greater: `>` is the inverse of `<=`."""
    if op in (">", ">="):
        inverse = arrow.function(ARROW[INVERSE[op]])
        return lambda left, right: _invert(inverse(left, right))
    return arrow.function(ARROW[op])


def _lower(op: str) -> Callable[[Call], Vector]:
    def lower(call: Call) -> Vector:
        left, right = call.args
        if family(left.type) != "float":
            return arrow.function(ARROW[op])
        return _with_number(op) if is_ordinary(right) else FLOAT[op]

    return lower


def _null_safe(call: Call) -> Vector:
    right = call.args[1]
    if isinstance(right, Constant) and right.value is None:
        return lambda left, _: _is_null(left)
    equal = _lower("=")(call)
    if isinstance(right, Constant):
        return lambda left, other: _fill(equal(left, other), arrow.FALSE)
    return lambda left, other: _or(
        _fill(equal(left, other), arrow.FALSE), _and(_is_null(left), _is_null(other))
    )


def _naive_null_safe(of: pa.DataType, left: Any, right: Any) -> bool:
    return left is right if left is None or right is None else NAIVE["="](left, right)


def _naive(op: str) -> Callable[..., Any]:
    return lambda of, left, right: NAIVE[op](left, right)


KERNELS: Final[dict[str, Kernel]] = {
    **{op: Kernel(op, _naive(op), _lower(op)) for op in ARROW},
    "<=>": Kernel("<=>", _naive_null_safe, _null_safe, strict=False),
}


def meeting_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Where two operands of a comparison meet: their common type, strings read as dates or timestamps."""
    for one, other in ((left, right), (right, left)):
        if family(one) == "string" and family(other) in READ_FROM_STRING:
            return other
    return common_type(left, right)


def comparison(op: str, left: Bound, right: Bound) -> Bound:
    """`left op right`, with a lone constant moved to the right."""
    left, right = in_canonical_type(left), in_canonical_type(right)
    of = meeting_type(left.type, right.type)
    if of is None or family(of) == "other":
        raise mismatch(f"'{op}'", left.type, right.type)
    if pa.types.is_null(of):
        of = pa.bool_()
    if isinstance(left, Constant):
        left, right, op = right, left, FLIPPED[op]
    return call(KERNELS[op], (cast(left, of), cast(right, of)), pa.bool_())
