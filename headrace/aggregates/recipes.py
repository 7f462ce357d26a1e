"""The aggregate functions as recipes: which partial values each needs, and how to compute it from them.

A user-defined aggregate needs one partial value, which is already its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.aggregates.limbs import Sums, spreads, to_decimal, to_real
from headrace.aggregates.specs import (
    Distinct,
    First,
    Folded,
    Greatest,
    Last,
    Least,
    Nulls,
    Real,
    Rows,
    Spec,
    Whole,
)
from headrace.arrays import Ints, Mask, Reals
from headrace.plan.nodes.core import AggregateCall
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.schema import DataType, Schema

Found = Mapping[Spec, Any]


@dataclass(frozen=True)
class Recipe:
    """`finish` takes the partial values of `needs`, in order, and returns the function's values."""

    needs: tuple[Spec, ...]
    finish: Callable[..., pa.Array]

    def make(self, found: Found) -> pa.Array:
        """The values of the function, given the partial values in `found`."""
        return self.finish(*(found[spec] for spec in self.needs))


def recipe(call: AggregateCall, below: Schema) -> Recipe:
    """How to compute `call` over rows of `below`."""
    if isinstance(call, UserCall):
        return Recipe((Folded(call.columns, call.definition),), lambda values: values)
    if call.column is None:
        return Recipe((Rows(),), _ints)
    return RECIPES[call.function](call.column, below.field(call.column).type)


def all_needs(recipes: Sequence[Recipe]) -> list[Spec]:
    """Every partial value that some recipe needs, once, and always the number of rows."""
    return list(dict.fromkeys([Rows(), *(spec for r in recipes for spec in r.needs)]))


def _count(column: str, _: DataType) -> Recipe:
    return Recipe((Rows(), Nulls(column)), lambda rows, nulls: _ints(rows - nulls))


def _distinct(column: str, _: DataType) -> Recipe:
    return Recipe((Distinct(column),), _ints)


def _sum(column: str, type: DataType) -> Recipe:
    if pt.is_floating(type):
        return _of_known(column, Real(column), lambda _, total: pa.array(total.rounded()))
    if pt.is_decimal(type):
        result = pa.decimal128(38, type.scale)
        return _of_known(column, Whole(column, 4), lambda _, limbs: to_decimal(limbs, result))
    return _of_known(column, Whole(column), lambda _, limbs: _ints(limbs[0]))


def _avg(column: str, type: DataType) -> Recipe:
    if pt.is_floating(type):
        return _of_known(column, Real(column), lambda known, total: pa.array(_ratio(total.rounded(), known)))
    unit = 10.0**type.scale if pt.is_decimal(type) else 1.0
    limbs = Whole(column, 4 if pt.is_decimal(type) else 2)
    return _of_known(column, limbs, lambda known, found: pa.array(_ratio(to_real(found), known * unit)))


def _least(column: str, _: DataType) -> Recipe:
    return _of_known(column, Least(column), lambda _, values: values)


def _greatest(column: str, _: DataType) -> Recipe:
    return _of_known(column, Greatest(column), lambda _, values: values)


def _first(column: str, _: DataType) -> Recipe:
    return Recipe((First(column),), lambda values: values)


def _last(column: str, _: DataType) -> Recipe:
    return Recipe((Last(column),), lambda values: values)


def _spread(free: int, finish: Callable[[Reals], Reals]) -> Callable[[str, DataType], Recipe]:
    """Squared distances from the mean over n − `free`, null if that is not positive."""

    def build(column: str, type: DataType) -> Recipe:
        """The recipe for one column."""
        scale = type.scale if pt.is_decimal(type) else 0

        def spread(rows: Ints, nulls: Ints | int, total: Sums, squares: Sums) -> pa.Array:
            known = rows - nulls
            return pa.array(finish(spreads(known, total, squares, free, scale)), mask=known <= free)

        return Recipe((Rows(), Nulls(column), Real(column), Real(column, 2)), spread)

    return build


def _of_known(column: str, spec: Spec, finish: Callable[[Ints, Any], pa.Array]) -> Recipe:
    """A function of the non-null values; null for groups without any."""

    def known_only(rows: Ints, nulls: Ints | int, found: Any) -> pa.Array:
        """The values, with null for groups that have only nulls."""
        known = rows - nulls
        return _masked(finish(known, found), None if isinstance(nulls, int) else known > 0)

    return Recipe((Rows(), Nulls(column), spec), known_only)


def _masked(values: pa.Array, valid: Mask | None) -> pa.Array:
    """The values, with null where not `valid`."""
    if valid is None or valid.all():
        return values
    return pa.compute.if_else(pa.array(valid), values, pa.scalar(None, values.type))


def _ints(values: Ints) -> pa.Array:
    return pa.array(values)


def _ratio(total: Reals, count: npt.NDArray[Any]) -> Reals:
    """Totals over counts; NaN or an infinity, without a warning, where a count is 0."""
    with np.errstate(all="ignore"):
        return np.asarray(total / count, np.float64)


RECIPES: Final[dict[str, Callable[[str, DataType], Recipe]]] = {
    "count": _count,
    "count_distinct": _distinct,
    "sum": _sum,
    "avg": _avg,
    "min": _least,
    "max": _greatest,
    "variance": _spread(1, lambda values: values),
    "var_pop": _spread(0, lambda values: values),
    "stddev": _spread(1, np.sqrt),
    "stddev_pop": _spread(0, np.sqrt),
    "first": _first,
    "last": _last,
}
