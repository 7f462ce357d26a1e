"""Granularity: validity rounded to a coarser time line (Cammert et al., §2.2)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headrace.arrays import Times
from headrace.flow.batch import Batch
from headrace.operators import ticks
from headrace.operators.adaptable import AdaptableValidity, QualityColumn
from headrace.operators.contract import Stateless
from headrace.plan.nodes.core import Granularity
from headrace.plan.nodes.quality import bounds_of
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


class GranularityOperator(Stateless):
    """Start up, end down, to multiples of the grain; a row left empty vanishes, an open end stays open.

    Ends must be known when rows start, so withdrawals cannot be rounded: the planner keeps them away. A
    punctuation passes, with its time rounded as a heartbeat is.
    """

    def __init__(self, plan: Granularity) -> None:
        super().__init__()
        self._grain, self._origin = plan.grain, plan.origin
        self._told = QualityColumn(plan)

    def apply(self, batch: Batch) -> Batch:
        assert batch.end is not None
        assert batch.sign is None, "granularity over rows whose end is not known when they start"
        start, end = _rounded(batch, self._grain, self._origin)
        data = self._told.quality_column(batch.data, self._grain)
        return Batch(data, start, end, None, batch.arrival).filter(start < end)

    def map_heartbeat(self, heartbeat: int) -> int:
        """Just before the first multiple at which a later row can start."""
        return _before_next(heartbeat, self._grain, self._origin)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return replace(punctuation, until=self.map_heartbeat(punctuation.until))


class AdaptableGranularityOperator(AdaptableValidity):
    """`[GRANULARITY COARSEST …, FINEST …]`: a row is rounded to the grain in force at its start.

    A grain ends at one of its own multiples: rows before it are rounded up to it at most, and rows from it on
    start there or later, so the output stays in order of start.
    """

    def __init__(self, plan: Granularity) -> None:
        super().__init__(bounds_of(plan))
        self._told, self._origin = QualityColumn(plan), plan.origin

    def apply(self, batch: Batch) -> Batch:
        assert batch.end is not None
        assert batch.sign is None, "granularity over rows whose end is not known when they start"
        grain = self.history.of(batch.start)
        self.history.use(batch.last)
        start, end = _rounded(batch, grain, self._origin)
        data = self._told.quality_column(batch.data, grain)
        return Batch(data, start, end, None, batch.arrival).filter(start < end)

    def map_heartbeat(self, heartbeat: int) -> int:
        """Just before the first start of the next row. Others rely on it, so no change may reach back."""
        if heartbeat in (MIN_TIME, MAX_TIME):
            return heartbeat
        self.history.use(heartbeat)
        return _before_next(heartbeat, self.history.at(heartbeat + 1), self._origin)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """Passes: starts are only rounded up, so a row that will not come will not start earlier either."""
        return punctuation

    def change(self, at: int, value: int) -> int:
        if not self.history.begun and at == MIN_TIME:
            return super().change(at, value)
        grain = self.history.at(at)
        return super().change(-(-(at - self._origin) // grain) * grain + self._origin, value)


def _rounded(batch: Batch, grain: int | Times, origin: int) -> tuple[Times, Times]:
    """Starts up and ends down, to multiples of a grain plus `origin`."""
    assert batch.end is not None
    if not origin:
        return ticks.ceil_to(batch.start, grain), ticks.floor_to(batch.end, grain)
    shift = np.asarray(origin % grain, np.int64)
    ends = np.where(batch.end == MAX_TIME, MAX_TIME, (batch.end - shift) // grain * grain + shift)
    return ticks.add_each(ticks.ceil_to(batch.start - shift, grain), shift), ends


def _before_next(heartbeat: int, grain: int, origin: int) -> int:
    """Just before the first multiple of a grain, plus `origin`, that is later than a heartbeat."""
    if heartbeat in (MIN_TIME, MAX_TIME):
        return heartbeat
    return min(MAX_TIME, (heartbeat - origin) // grain * grain + origin + grain - 1)


def granularity(plan: Granularity) -> Stateless:
    """The operator of a granularity: a fixed one holds nothing."""
    return GranularityOperator(plan) if bounds_of(plan) is None else AdaptableGranularityOperator(plan)
