"""What a query may expect of the scheduler: how soon its results are wanted, and its share of the work."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import ScheduleError


@dataclass(frozen=True)
class Service:
    """`deadline`: how long after a row has arrived its results are wanted, in ticks of the clock.

    `share`: how much of the work the query gets under load, relative to others. Queries with a higher
    `priority` go first, as long as they stay within their share.
    """

    deadline: int | None = None
    share: float = 1.0
    priority: int = 0

    def __post_init__(self) -> None:
        if self.deadline is not None and (not isinstance(self.deadline, int) or self.deadline < 1):
            raise ScheduleError("HR-S005", f"a deadline of {self.deadline!r}", hint="whole ticks, 1 or more")
        if not isinstance(self.share, (int, float)) or not 0 < self.share < float("inf"):
            raise ScheduleError("HR-S005", f"a share of {self.share!r}", hint="a number greater than 0")
        if not isinstance(self.priority, int):
            raise ScheduleError("HR-S005", f"a priority of {self.priority!r}", hint="a whole number")


USUAL = Service()
"""What a query has that says nothing."""
