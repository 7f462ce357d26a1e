"""The aggregate functions of `headrace.plan.nodes.aggregates` in plain Python, by definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa

from headrace.plan.nodes.user_aggregates import UserCall
from headrace.schema import Schema
from headrace.testing.compare import NAN, Row, canonical, order_key

Fold = Callable[[list[Any]], Any]


def fold(function: str, column: Sequence[Any]) -> Any:
    """`function` over the values of a column in order of time; for `count(*)` the values do not matter."""
    if function in POSITIONAL:
        return POSITIONAL[function](list(column))
    known = [value for value in column if value is not None]
    if not known and function not in COUNTS:
        return None
    return FOLDS[function](known)


def fold_user(call: UserCall, below: Schema, rows: Sequence[Row]) -> Any:
    """A user-defined aggregate over rows in order, one row at a time."""
    user = call.definition.make()
    at = [below.names.index(name) for name in call.columns]
    types = [below.field(i).type for i in at]
    state, given = user.initialize(), 0
    for row in rows:
        values = [row[i] for i in at]
        if None in values and not call.definition.nulls:
            continue
        given += 1
        state = user.iterate(state, *(pa.array([v], of) for v, of in zip(values, types, strict=True)))
    found = user.terminate(state) if given else None
    return found.as_py() if isinstance(found, pa.Scalar) else found


def total(values: Sequence[Any]) -> Any:
    """The sum: exact for integers and decimals, rounded once for floats."""
    if not isinstance(values[0], float):
        return sum(values, start=type(values[0])() if isinstance(values[0], Decimal) else 0)
    if all(map(math.isfinite, values)):
        return nearest(sum(map(Fraction, values), start=Fraction()))
    return canonical(sum(value for value in values if not math.isfinite(value)))


def nearest(value: Fraction) -> float:
    """The float nearest to a number; an infinity if the number is out of range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def mean(values: Sequence[Any]) -> float:
    return float(canonical(total(values) / len(values)))


def spread(values: Sequence[Any], free: int) -> float | None:
    """The sum of squared distances from the mean, divided by n − `free`; null if that is not positive."""
    count = len(values) - free
    if count <= 0:
        return None
    if not all(math.isfinite(value) for value in values):
        return NAN
    exact = [Fraction(value) for value in values]
    middle = sum(exact, start=Fraction()) / len(exact)
    return nearest(sum(((value - middle) ** 2 for value in exact), start=Fraction()) / count)


def root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


COUNTS: Final[dict[str, Fold]] = {
    "count": len,
    "count_distinct": lambda values: len(set(map(canonical, values))),
}
POSITIONAL: Final[dict[str, Fold]] = {"first": lambda values: values[0], "last": lambda values: values[-1]}
FOLDS: Final[dict[str, Fold]] = {
    **COUNTS,
    "sum": total,
    "avg": mean,
    "min": lambda values: min(values, key=order_key),
    "max": lambda values: max(values, key=order_key),
    "variance": lambda values: spread(values, 1),
    "var_pop": lambda values: spread(values, 0),
    "stddev": lambda values: root(spread(values, 1)),
    "stddev_pop": lambda values: root(spread(values, 0)),
}
