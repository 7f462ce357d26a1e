"""The first rows of each key by an order: `ROW_NUMBER() … <= n`, `ORDER BY … LIMIT n`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.plan.nodes import Unary
from headrace.schema import Schema


@dataclass(frozen=True)
class SortKey:
    """A column to order by. NaN is the greatest number; nulls come where `nulls_first` says.

    Spark's default is nulls first going up and last going down, which `ascending` and `descending` give.
    """

    column: str
    descends: bool = False
    nulls_first: bool = True


def ascending(column: str) -> SortKey:
    """Least first, nulls before all."""
    return SortKey(column)


def descending(column: str) -> SortKey:
    """Greatest first, nulls after all."""
    return SortKey(column, descends=True, nulls_first=False)


@dataclass(frozen=True)
class TopN(Unary):
    """At every instant the first `count` of the valid rows of each key, by `order`.

    Rows that `order` leaves equal go by content (`headrace.plan.order`), so that the answer depends on the
    valid rows alone. Keys compare as in GROUP BY: null is a key. `rank` names a column with the row's number
    among those of its key, from 1; a row whose number changes is another row.
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
