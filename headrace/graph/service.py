"""What a query may expect of the scheduler: how soon its results are wanted, its share, and its strategy."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import ScheduleError


@dataclass(frozen=True)
class Service:
    """`deadline`: how long after a row has arrived its results are wanted, in ticks of the clock.

    `share`: how much of the work the query gets under load, relative to others. Queries with a higher
    `priority` go first, as long as they stay within their share.

    `strategy`: which of its operators runs next; None: that of the engine. `breaks`: the kinds of operators
    (`join`, `select`) after which its paths are cut. An operator that several queries use has the strategy of
    the one that was added last, and is cut if one of them asks for it.
    """

    deadline: int | None = None
    share: float = 1.0
    priority: int = 0
    strategy: str | None = None
    breaks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.deadline is not None and (not isinstance(self.deadline, int) or self.deadline < 1):
            raise ScheduleError("HR-S005", f"a deadline of {self.deadline!r}", hint="whole ticks, 1 or more")
        if not isinstance(self.share, (int, float)) or not 0 < self.share < float("inf"):
            raise ScheduleError("HR-S005", f"a share of {self.share!r}", hint="a number greater than 0")
        if not isinstance(self.priority, int):
            raise ScheduleError("HR-S005", f"a priority of {self.priority!r}", hint="a whole number")


USUAL = Service()
"""What a query has that says nothing."""
