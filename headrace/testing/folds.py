"""The aggregate functions of `headrace.plan.nodes.aggregates` in plain Python, by definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import and_, or_, xor
from typing import Any, Final

import pyarrow as pa

from headrace.aggregates.library import (
    Bits,
    CollectList,
    CollectSet,
    Comoment,
    ExtremeBy,
    Greatest,
    ListAgg,
    NearestRank,
    Percentile,
)
from headrace.aggregates.sql_aggregate import SqlAggregate
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.schema import Schema
from headrace.testing.compare import NAN, Row, canonical, order_key
from headrace.testing.statements import value_of

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
    """A user-defined aggregate over rows in order, one row at a time; those of the library by definition."""
    user = call.definition.make()
    at = [below.names.index(name) for name in call.columns]
    if type(user) in LIBRARY:
        return LIBRARY[type(user)](user, *([row[i] for row in rows] for i in at))
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


# The aggregates of `headrace.aggregates.library`, over a list for each argument.


def extreme_by(what: ExtremeBy, x: list[Any], y: list[Any]) -> Any:
    """The x beside the greatest or least y; of several, the greatest x."""
    pairs = [(by, value) for value, by in zip(x, y, strict=True) if by is not None]
    if not pairs:
        return None
    by, _ = (max if what.greatest else min)(pairs, key=lambda pair: order_key(pair[0]))
    return max((v for b, v in pairs if order_key(b) == order_key(by)), key=order_key)


def percentile(what: Percentile, x: list[Any]) -> float | None:
    """The value at `share` of the way through the sorted values; linear between two neighbours."""
    known = sorted((float(value) for value in x if value is not None), key=order_key)
    if not known:
        return None
    place = (len(known) - 1) * what.share
    low, high = known[math.floor(place)], known[math.ceil(place)]
    if order_key(low) == order_key(high) or place == math.floor(place):
        return low
    return (math.ceil(place) - place) * low + (place - math.floor(place)) * high


def nearest_rank(what: NearestRank, x: list[Any]) -> Any:
    """The first of the sorted values up to which there is at least this share of them."""
    known = sorted((value for value in x if value is not None), key=order_key)
    needed = Fraction(what.share) * len(known)
    return next((value for number, value in enumerate(known, 1) if number >= needed), None)


def greatest(what: Greatest, x: list[Any]) -> list[Any] | None:
    """The greatest values, the greatest first."""
    known = sorted((value for value in x if value is not None), key=order_key, reverse=True)
    found: list[Any] = []
    for value in known:
        if not (what.distinct and found and order_key(found[-1]) == order_key(value)):
            found.append(value)
    return found[: what.count] or None


def comoment(what: Comoment, x: list[Any], y: list[Any]) -> float | None:
    """The mean product of the distances from both means, or that over both deviations."""
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    free = len(pairs) - (what.kind != "covar_pop")
    if free <= 0:
        return None
    if not all(math.isfinite(value) for pair in pairs for value in pair):
        return NAN
    exact = [(Fraction(a), Fraction(b)) for a, b in pairs]
    middle_x, middle_y = (sum((pair[i] for pair in exact), start=Fraction()) / len(exact) for i in (0, 1))
    apart = [(a - middle_x, b - middle_y) for a, b in exact]
    both = sum((a * b for a, b in apart), start=Fraction())
    if what.kind != "corr":
        return nearest(both / free)
    of_x, of_y = (sum((pair[i] ** 2 for pair in apart), start=Fraction()) for i in (0, 1))
    if not of_x or not of_y:
        return None
    size = math.sqrt(nearest(both**2 / (of_x * of_y)))
    return size if both >= 0 else -size


def bits(what: Bits, x: list[Any]) -> int | None:
    """Bit by bit, over all values."""
    known = [value for value in x if value is not None]
    return reduce({"and": and_, "or": or_, "xor": xor}[what.kind], known) if known else None


def collect_set(x: list[Any]) -> list[Any]:
    """The different values, sorted."""
    found: list[Any] = []
    for value in sorted((each for each in x if each is not None), key=order_key):
        if not found or order_key(found[-1]) != order_key(value):
            found.append(value)
    return found


LIBRARY: Final[dict[type[Any], Callable[..., Any]]] = {
    ExtremeBy: extreme_by,
    Percentile: percentile,
    CollectList: lambda what, x: [value for value in x if value is not None],
    NearestRank: nearest_rank,
    Greatest: greatest,
    Comoment: comoment,
    Bits: bits,
    CollectSet: lambda what, x: collect_set(x),
    SqlAggregate: lambda what, *columns: value_of(what, columns, fold),
    ListAgg: lambda what, x: what.delimiter.join(k) if (k := [v for v in x if v is not None]) else None,
}
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
