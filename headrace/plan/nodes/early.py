"""Aggregates whose results may leave out of order: a closed group is answered before its window ends."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.core import SlidingAggregate
from headrace.plan.nodes.session import MergingSessions


@dataclass(frozen=True)
class EarlyWindows(SlidingAggregate):
    """`SlidingAggregate` over tumbling windows and rows in any order, with early results of closed groups.

    Longer windows are made of copies of rows, one for each window (`headrace.plan.analysis.ordering.Expand`).
    """

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The columns whose values a punctuation must close."""
        return self.keys

    @property
    def gap(self) -> int:
        """Rows of one window have the same time, that of its result."""
        return 0


@dataclass(frozen=True)
class EarlySessions(MergingSessions):
    """`MergingSessions` with early results of closed groups."""
