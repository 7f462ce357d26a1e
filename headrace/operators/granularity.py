"""Granularity: validity rounded to a coarser time line (Cammert et al., §2.2)."""

from __future__ import annotations

from dataclasses import replace

from headrace.flow.batch import Batch
from headrace.operators import ticks
from headrace.operators.contract import Stateless
from headrace.plan.nodes import Granularity
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


class GranularityOperator(Stateless):
    """Start up, end down, to multiples of the grain; a row left empty vanishes, an open end stays open.

    Ends must be known when rows start, so withdrawals cannot be rounded: the planner keeps them away. A
    punctuation passes, with its time rounded as a heartbeat is.
    """

    def __init__(self, plan: Granularity) -> None:
        super().__init__()
        self._grain = plan.grain

    def apply(self, batch: Batch) -> Batch:
        assert batch.end is not None
        assert batch.sign is None, "granularity over rows whose end is not known when they start"
        start, end = ticks.ceil_to(batch.start, self._grain), ticks.floor_to(batch.end, self._grain)
        return Batch(batch.data, start, end, None, batch.arrival).filter(start < end)

    def map_heartbeat(self, heartbeat: int) -> int:
        """Just before the first multiple at which a later row can start."""
        if heartbeat in (MIN_TIME, MAX_TIME):
            return heartbeat
        return min(MAX_TIME, heartbeat // self._grain * self._grain + self._grain - 1)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return replace(punctuation, until=self.map_heartbeat(punctuation.until))
