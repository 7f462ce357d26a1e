"""AND, OR, NOT in three-valued logic, and the tests for NULL, which are always true or false."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import pyarrow as pa

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Kernel, Vector, call
from headrace.expressions.casts import cast, in_canonical_type
from headrace.expressions.types import family, mismatch


def _naive_and(of: pa.DataType, *values: bool | None) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _naive_or(of: pa.DataType, *values: bool | None) -> bool | None:
    if True in values:
        return True
    return None if None in values else False


def _fold(name: str) -> Any:
    """A lowering that folds a binary Arrow function over all operands."""
    step = arrow.function(name)

    def lower(call: Call) -> Vector:
        return step if len(call.args) == 2 else lambda *args: reduce(step, args)

    return lower


AND: Final = Kernel("AND", _naive_and, _fold("and_kleene"), strict=False)
OR: Final = Kernel("OR", _naive_or, _fold("or_kleene"), strict=False)
NOT: Final = Kernel("NOT", lambda of, value: not value, arrow.direct("invert"))
IS_NULL: Final = Kernel("IS NULL", lambda of, value: value is None, arrow.direct("is_null"), strict=False)
IS_NOT_NULL: Final = Kernel(
    "IS NOT NULL", lambda of, value: value is not None, arrow.direct("is_valid"), strict=False
)


def as_boolean(what: str, bound: Bound) -> Bound:
    """`bound` if it is a boolean or NULL."""
    bound = in_canonical_type(bound)
    if family(bound.type) not in ("boolean", "null"):
        raise mismatch(what, bound.type, hint="use a comparison or a boolean column")
    return cast(bound, pa.bool_())


def connective(kernel: Kernel, *operands: Bound) -> Bound:
    """AND, OR or NOT of conditions."""
    return call(kernel, tuple(as_boolean(kernel.name, each) for each in operands), pa.bool_())


def null_test(kernel: Kernel, operand: Bound) -> Bound:
    """IS NULL or IS NOT NULL, for any type."""
    return call(kernel, (operand,), pa.bool_())
