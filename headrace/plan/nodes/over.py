"""OVER: aggregates of each row's frame, the rows of its partition shortly before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.plan.nodes.aggregates import result_type
from headrace.plan.nodes.core import Aggregate, AggregateCall, Unary, Window
from headrace.plan.nodes.windows import Range, Unbounded
from headrace.schema import Schema


@dataclass(frozen=True)
class RowsFrame:
    """`ROWS BETWEEN n PRECEDING AND CURRENT ROW`: the row and the n before it; None is UNBOUNDED."""

    preceding: int | None


@dataclass(frozen=True)
class RangeFrame:
    """`RANGE BETWEEN d PRECEDING AND CURRENT ROW`: the rows with times in [t − d, t]; None is UNBOUNDED.

    Rows of one instant are peers, as in SQL: each is in the frame of the others.
    """

    preceding: int | None


Frame = RowsFrame | RangeFrame


@dataclass(frozen=True)
class Over(Unary):
    """A stream with added columns: for each call, the aggregate of the row's frame within its partition.

    Rows are ordered by time; simultaneous rows as in `headrace.plan.analysis.ordering`. Keys compare as in
    GROUP BY.
    """

    keys: tuple[str, ...]
    frame: Frame
    calls: tuple[AggregateCall, ...]

    @cached_property
    def _schema(self) -> Schema:
        below = self.input.schema
        return pa.schema([*below, *(pa.field(c.name, result_type(c, below)) for c in self.calls)])

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def minds_order(self) -> bool:
        """Whether the order of simultaneous rows changes the result."""
        return isinstance(self.frame, RowsFrame) or any(call.minds_order for call in self.calls)

    @cached_property
    def aggregate(self) -> Aggregate:
        """The aggregate whose value, at the time of a row, is that of the row's frame.

        If the frame counts rows, the end of a row is not known from its time; then the size has no meaning.
        """
        preceding = self.frame.preceding
        rows = isinstance(self.frame, RowsFrame)
        spec = Unbounded() if preceding is None else Range(1 if rows else preceding + 1)
        return Aggregate(Window(self.input, spec), self.keys, self.calls)
