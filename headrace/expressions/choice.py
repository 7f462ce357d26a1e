"""CASE and COALESCE: choosing among values of one common type.

Every expression is total, so all branches may be computed for all rows; a NULL condition counts as false.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Kernel, Vector, call
from headrace.expressions.casts import to_common
from headrace.expressions.comparison import comparison
from headrace.expressions.logic import as_boolean

Branch = tuple[Bound, Bound]


def _naive_case(of: pa.DataType, *parts: Any) -> Any:
    """`parts` are condition, value, condition, value, …, and the default."""
    for condition, value in zip(parts[:-1:2], parts[1::2], strict=True):
        if condition is True:
            return value
    return parts[-1]


def _case_vector(call: Call) -> Vector:
    """Arrow's if_else for one branch, case_when for more."""
    if len(call.args) == 3:
        choose, fill = arrow.function("if_else"), arrow.function("coalesce")
        return lambda condition, value, other: choose(fill(condition, arrow.FALSE), value, other)
    names = [str(index) for index in range(len(call.args) // 2)]
    conditions, choose = (
        arrow.function("make_struct", pc.MakeStructOptions(names)),
        arrow.function("case_when"),
    )
    return lambda *parts: choose(conditions(*parts[:-1:2]), *parts[1::2], parts[-1])


def _first(of: pa.DataType, *values: Any) -> Any:
    return next((value for value in values if value is not None), None)


CASE: Final = Kernel("CASE", _naive_case, _case_vector, strict=False)
COALESCE: Final = Kernel("COALESCE", _first, arrow.direct("coalesce"), strict=False)


def _reachable(branches: Sequence[Branch], otherwise: Bound) -> tuple[list[Branch], Bound]:
    """The branches without those that a constant condition rules out."""
    kept: list[Branch] = []
    for condition, value in branches:
        if not isinstance(condition, Constant):
            kept.append((condition, value))
        elif condition.value is True:
            return kept, value
    return kept, otherwise


def case(branches: Sequence[Branch], otherwise: Bound) -> Bound:
    """The value of the first branch whose condition is true."""
    conditions = [as_boolean("CASE WHEN", condition) for condition, _ in branches]
    values, of = to_common("CASE", *(value for _, value in branches), otherwise)
    kept, otherwise = _reachable(list(zip(conditions, values, strict=False)), values[-1])
    if not kept:
        return otherwise
    return call(CASE, (*(part for branch in kept for part in branch), otherwise), of)


def coalesce(*operands: Bound) -> Bound:
    """The first value that is not NULL."""
    values, of = to_common("COALESCE", *operands)
    kept = [each for each in values if not (isinstance(each, Constant) and each.value is None)]
    end = next((at for at, each in enumerate(kept) if isinstance(each, Constant)), len(kept))
    kept = kept[: end + 1]
    if len(kept) < 2:
        return kept[0] if kept else Constant(None, of)
    return call(COALESCE, tuple(kept), of)


def nullif(left: Bound, right: Bound) -> Bound:
    """NULL where both are equal, else the left value."""
    return case([(comparison("=", left, right), Constant(None, left.type))], left)
