"""CAST, and the coercions that typing inserts: a table from (family, family) to a kernel.

All casts are Spark's `try_cast`: a value that cannot be represented is NULL, never an error and never a
wrapped number. Floats become integers by truncation, decimals round half up, and NaN cannot become an
integer.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions.bound import Bound, Kernel, call
from headrace.expressions.casts import numeric, temporal, text
from headrace.expressions.types import canonical, common_of, family, sql_name

CASTS: Final[dict[tuple[str, str], Kernel]] = {**numeric.ROWS, **text.ROWS, **temporal.ROWS}


def _same_value(of: pa.DataType, value: Any) -> Any:
    return Decimal(value) if pa.types.is_decimal(of) else value


CANONICAL: Final = Kernel("canonical", _same_value, numeric.unsafe)
NOTHING: Final = Kernel("null", lambda of, value: None, numeric.unsafe)


def in_canonical_type(bound: Bound) -> Bound:
    """The same values in their canonical type."""
    of = canonical(bound.type)
    return bound if of == bound.type else call(CANONICAL, (bound,), of)


def _kernel(source: pa.DataType, to: pa.DataType) -> Kernel | None:
    """The kernel for a cast; None if there is none."""
    if pa.types.is_null(source):
        return NOTHING
    single = CASTS.get(("float32", family(to))) if source == pa.float32() else None
    return single or CASTS.get((family(source), family(to)))


def cast(bound: Bound, to: pa.DataType) -> Bound:
    """`bound` cast to `to`; unchanged if it already has that type."""
    if bound.type == to:
        return bound
    source = in_canonical_type(bound)
    if source.type == to:
        return source
    kernel = _kernel(source.type, to)
    if kernel is None:
        raise ExpressionError(
            "HR-E005",
            f"cannot cast {sql_name(bound.type)} to {sql_name(to)}",
            hint="cast in two steps, for example through STRING",
        )
    return call(kernel, (source,), to)


def to_common(what: str, *bounds: Bound) -> tuple[tuple[Bound, ...], pa.DataType]:
    """All in their common type, and that type."""
    of = common_of(what, (each.type for each in bounds))
    return tuple(cast(each, of) for each in bounds), of
