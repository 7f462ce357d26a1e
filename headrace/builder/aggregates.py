"""The aggregates for `agg`: `count()`, `max_("price")`, and any other by name.

Names that Python already uses end in an underscore. Aggregates can be used in expressions: `max_("price") -
min_("price")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.builder.expressions import Call, piece
from headrace.builder.windows import Keys, count_of, duration, listed
from headrace.errors import SqlError
from headrace.expressions import Expression
from headrace.sql.fragments import ordered
from headrace.sql.place import Code
from headrace.time.durations import Duration

Argument = str | Expression


class Aggregate(Call):
    """A call of an aggregate."""

    def filter(self, condition: Argument) -> Aggregate:
        """Aggregate only the rows that meet the condition."""
        return Aggregate(f"{self.text} FILTER (WHERE {piece(condition, 'a condition').text})")

    def granularity(self, finest: Duration, coarsest: Duration | None = None) -> Aggregate:
        """Round validity to multiples of the finest granularity, or adaptively up to the coarsest."""
        bounds = duration(finest)
        if coarsest is not None:
            bounds = f"COARSEST {duration(coarsest)}, FINEST {bounds}"
        return Aggregate(f"{self.text} [GRANULARITY {bounds}]")


def aggregate(name: str, *arguments: Argument) -> Aggregate:
    """The aggregate `name`; whether it exists is checked when a query uses it."""
    return Aggregate(f"{name}({', '.join(piece(each).text for each in arguments)})")


def count(of: Argument = "*") -> Aggregate:
    """The number of rows, or of rows where `of` is not null."""
    return aggregate("count", of)


def count_distinct(of: Argument) -> Aggregate:
    """The number of distinct values, without nulls."""
    return Aggregate(f"count(DISTINCT {piece(of).text})")


def sum_(of: Argument) -> Aggregate:
    """The sum."""
    return aggregate("sum", of)


def avg(of: Argument) -> Aggregate:
    """The mean."""
    return aggregate("avg", of)


def min_(of: Argument) -> Aggregate:
    """The least value."""
    return aggregate("min", of)


def max_(of: Argument) -> Aggregate:
    """The greatest value."""
    return aggregate("max", of)


def stddev(of: Argument) -> Aggregate:
    """The standard deviation of a sample."""
    return aggregate("stddev", of)


def variance(of: Argument) -> Aggregate:
    """The variance of a sample."""
    return aggregate("variance", of)


def first(of: Argument) -> Aggregate:
    """The value of the oldest row."""
    return aggregate("first", of)


def last(of: Argument) -> Aggregate:
    """The value of the newest row."""
    return aggregate("last", of)


def lag(
    of: Argument, back: int = 1, *, default: Argument | None = None, partition_by: Keys | None = None
) -> Call:
    """The value of `of` `back` rows earlier, overall or in the same partition; not an aggregate."""
    more = [] if default is None else [piece(default).text]
    arguments = ", ".join([piece(of).text, str(count_of(back, "lag")), *more])
    keys = ", ".join(piece(each, "a key").text for each in listed(partition_by or ()))
    return Call(f"LAG({arguments}) OVER ({f'PARTITION BY {keys}' if keys else ''})")


# The order of `top`: columns and expressions, ascending or descending.


@dataclass(frozen=True)
class Descending:
    """Descending order."""

    of: str | Expression


By = str | Expression | Descending


def desc(of: str | Expression) -> Descending:
    """Sort by `of` in descending order: `top(3, by=desc("price"))`."""
    return Descending(of)


def row_number(by: By | Sequence[By], partition_by: Keys | None) -> str:
    """The ROW_NUMBER() of a row within its partition."""
    orders = [by] if isinstance(by, (str, Expression, Descending)) else list(by)
    if not orders:
        raise SqlError(Code.SYNTAX, "top needs an order", hint='write top(3, by="price DESC")')
    order = f"ORDER BY {', '.join(map(_order, orders))}"
    keys = [piece(each, "a key").text for each in listed(partition_by)] if partition_by is not None else []
    parts = [f"PARTITION BY {', '.join(keys)}"] if keys else []
    return f"ROW_NUMBER() OVER ({' '.join([*parts, order])})"


def _order(of: By) -> str:
    """A sort key as CQL."""
    if isinstance(of, Descending):
        return f"{piece(of.of).text} DESC"
    return piece(of).text if isinstance(of, Expression) else ordered(of)


def bound(n: object) -> int:
    """Check `n`, the number of rows to keep."""
    return count_of(n, "top")
