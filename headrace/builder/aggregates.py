"""The aggregates for `agg`: `count()`, `max_("price")`, and any other by its name.

Names that Python has taken end in an underscore. Like every expression they can be computed with:
`max_("price") - min_("price")`.
"""

from __future__ import annotations

from headrace.builder.durations import duration
from headrace.builder.expressions import Call, piece
from headrace.builder.windows import Keys, count_of, listed
from headrace.expressions import Expression
from headrace.time.durations import Duration

Argument = str | Expression


class Aggregate(Call):
    """A call of an aggregate."""

    def filter(self, condition: Argument) -> Aggregate:
        """Of those rows alone that meet the condition."""
        return Aggregate(f"{self.text} FILTER (WHERE {piece(condition, 'a condition').text})")

    def granularity(self, finest: Duration, coarsest: Duration | None = None) -> Aggregate:
        """Of validity rounded to multiples of the finest grain, or of one up to the coarsest."""
        bounds = duration(finest)
        if coarsest is not None:
            bounds = f"COARSEST {duration(coarsest)}, FINEST {bounds}"
        return Aggregate(f"{self.text} [GRANULARITY {bounds}]")


def aggregate(name: str, *arguments: Argument) -> Aggregate:
    """The aggregate called `name`, of which a query says whether there is one."""
    return Aggregate(f"{name}({', '.join(piece(each).text for each in arguments)})")


def count(of: Argument = "*") -> Aggregate:
    """How many rows, or in how many of them `of` is not null."""
    return aggregate("count", of)


def count_distinct(of: Argument) -> Aggregate:
    """How many different values, nulls left out."""
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
    """The value that `of` had so many rows earlier, in all or in the same partition; no aggregate."""
    more = [] if default is None else [piece(default).text]
    arguments = ", ".join([piece(of).text, str(count_of(back, "lag")), *more])
    keys = ", ".join(piece(each, "a key").text for each in listed(partition_by or ()))
    return Call(f"LAG({arguments}) OVER ({f'PARTITION BY {keys}' if keys else ''})")
