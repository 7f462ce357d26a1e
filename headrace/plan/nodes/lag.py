"""LAG: values of the row that came some rows earlier in the same partition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.expressions import Literal
from headrace.plan.nodes.core import Unary
from headrace.schema import Schema


@dataclass(frozen=True)
class LagCall:
    """`LAG(column, offset, default) AS name`; the default has the column's type, None is null."""

    name: str
    column: str
    offset: int = 1
    default: Literal | None = None


@dataclass(frozen=True)
class Lag(Unary):
    """A stream with added columns: for each call, the value of the row `offset` rows before, with equal keys.

    Rows are ordered by time; simultaneous rows as in `headrace.plan.analysis.ordering`. Where no row is so
    far back, the result is the default; a null value stays null. Keys compare as in GROUP BY.
    """

    keys: tuple[str, ...]
    calls: tuple[LagCall, ...]

    @cached_property
    def _schema(self) -> Schema:
        below = self.input.schema
        return pa.schema([*below, *(pa.field(c.name, below.field(c.column).type) for c in self.calls)])

    @property
    def schema(self) -> Schema:
        return self._schema
