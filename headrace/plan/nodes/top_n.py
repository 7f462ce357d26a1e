"""The first rows of each key in some order: `ROW_NUMBER() … <= n`, `ORDER BY … LIMIT n`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.plan.nodes.core import Unary
from headrace.schema import Schema


@dataclass(frozen=True)
class SortKey:
    """A column to order by. NaN is the greatest number; `nulls_first` sets the place of nulls.

    `ascending` and `descending` have Spark's defaults: nulls first when ascending, last when descending.
    """

    column: str
    descends: bool = False
    nulls_first: bool = True


def ascending(column: str) -> SortKey:
    """Least first, nulls before all values."""
    return SortKey(column)


def descending(column: str) -> SortKey:
    """Greatest first, nulls after all values."""
    return SortKey(column, descends=True, nulls_first=False)


@dataclass(frozen=True)
class TopN(Unary):
    """At every instant the first `count` of the valid rows of each key, by `order`.

    Rows that are equal in `order` are ordered by content (`headrace.plan.analysis.ordering`), so that the
    result depends on the valid rows alone. Keys compare as in GROUP BY: null is a key. `rank` names a column
    with the row's number within its key, from 1; a row whose number changes is withdrawn and added again.
    """

    keys: tuple[str, ...]
    order: tuple[SortKey, ...]
    count: int
    rank: str | None = None

    @cached_property
    def _schema(self) -> Schema:
        below = self.input.schema
        return below if self.rank is None else below.append(pa.field(self.rank, pa.int64()))

    @property
    def schema(self) -> Schema:
        return self._schema
