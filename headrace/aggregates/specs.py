"""The partial values that aggregate functions are computed from: what is kept, not how.

Functions share them: `avg(x)`, `sum(x)` and `stddev(x)` keep one real sum of x between them. Each operator
has a table from the type of a spec to the class that keeps it, by pane or by instant.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.user_aggregates import UserAggregate


@dataclass(frozen=True)
class Rows:
    """How many rows. Found: int64."""


@dataclass(frozen=True)
class OfColumn:
    """A partial value of one column."""

    column: str


@dataclass(frozen=True)
class Nulls(OfColumn):
    """How many nulls. Found: int64, or the number 0 if no column had any: then it costs nothing."""


@dataclass(frozen=True)
class Whole(OfColumn):
    """The exact sum of whole numbers, as `limbs` int64 sums.

    One limb: the number itself, modulo 2^64. More: its 32-bit pieces, low ones unsigned, so that
    2^31 rows add up with no overflow. Found: a tuple of int64.
    """

    limbs: int = 1


@dataclass(frozen=True)
class Real(OfColumn):
    """The exact sum of the `power`-th powers of numbers of any type. Found: `Sums`."""

    power: int = 1


@dataclass(frozen=True)
class Least(OfColumn):
    """The least value, NaN being the greatest. Found: an Arrow array, undefined where all are null."""


@dataclass(frozen=True)
class Greatest(OfColumn):
    """The greatest value, NaN being the greatest. Found: an Arrow array, undefined where all are null."""


@dataclass(frozen=True)
class First(OfColumn):
    """The value of the earliest row, null or not. Found: an Arrow array."""


@dataclass(frozen=True)
class Last(OfColumn):
    """The value of the latest row, null or not. Found: an Arrow array."""


@dataclass(frozen=True)
class Distinct(OfColumn):
    """How many distinct values. Found: int64."""


@dataclass(frozen=True)
class Folded:
    """A user-defined aggregate of some columns. Found: an Arrow array, the aggregate's values."""

    columns: tuple[str, ...]
    definition: UserAggregate

    def __str__(self) -> str:
        return f"{self.definition.name}({', '.join(self.columns)})"


Spec = Rows | OfColumn | Folded


def columns_of(spec: Spec) -> tuple[str, ...]:
    """The columns from which a partial value is computed."""
    if isinstance(spec, Folded):
        return spec.columns
    return (spec.column,) if isinstance(spec, OfColumn) else ()


def is_placed(spec: Spec) -> bool:
    """Whether the value depends on the order of rows."""
    return isinstance(spec, (First, Last)) or (isinstance(spec, Folded) and spec.definition.ordered)


def is_numbered(spec: Spec) -> bool:
    """Whether rows with equal arguments must still be distinguished."""
    return isinstance(spec, (First, Last, Folded))
