"""Time windows: each row of a stream gets the interval in which it is valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from headrace.arrays import Times
from headrace.flow.batch import Batch
from headrace.operators import ticks
from headrace.operators.adaptable import AdaptableValidity, QualityColumn
from headrace.operators.contract import Stateless
from headrace.plan.nodes.core import Window
from headrace.plan.nodes.quality import bounds_of
from headrace.plan.nodes.windows import Now, Range, Sliding, Unbounded
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Validity:
    """How a window turns a time into [start, end), and a heartbeat of the stream into one of the relation."""

    start: Callable[[Times], Times]
    end: Callable[[Times], Times]
    heartbeat: Callable[[int], int]


class WindowOperator(Stateless):
    """Assigns validity row by row; starts are in the order of times. Rows that are in no window are dropped.

    A punctuation passes: a row that will not come will not start to be valid. Its time is mapped like a
    heartbeat.
    """

    def __init__(self, plan: Window) -> None:
        super().__init__()
        self._validity = VALIDITIES[type(plan.spec)](plan.spec)
        self._told = QualityColumn(plan)
        self._size = plan.spec.size if isinstance(plan.spec, (Range, Sliding)) else 0

    def apply(self, batch: Batch) -> Batch:
        start, end = self._validity.start(batch.start), self._validity.end(batch.start)
        out = Batch(self._told.quality_column(batch.data, self._size), start, end, None, batch.arrival)
        return out.filter(start < end)

    def map_heartbeat(self, heartbeat: int) -> int:
        return self._validity.heartbeat(heartbeat)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return replace(punctuation, until=self.map_heartbeat(punctuation.until))


class AdaptableWindowOperator(AdaptableValidity):
    """`[RANGE MIN …, MAX …]`: a row is valid for the window size in force at its time
    (Cammert et al., §2.1).

    Rows that have passed keep their ends, so after a change the state shrinks as they leave.
    """

    def __init__(self, plan: Window) -> None:
        super().__init__(bounds_of(plan))
        self._told = QualityColumn(plan)

    def apply(self, batch: Batch) -> Batch:
        size = self.history.of(batch.start)
        self.history.use(batch.last)
        end = ticks.add_each(batch.start, size)
        return Batch(self._told.quality_column(batch.data, size), batch.start, end, None, batch.arrival)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return punctuation


class AdaptableSlidingOperator(AdaptableValidity):
    """`[RANGE MIN …, MAX … SLIDE …]`: a row is in the windows of the size in force at its time.

    Sizes differ by whole slides, so the instants of reports, and the first one of a row, are those of a fixed
    size.
    """

    def __init__(self, plan: Window) -> None:
        super().__init__(bounds_of(plan))
        assert isinstance(plan.spec, Sliding)
        self._told, self._spec = QualityColumn(plan), plan.spec
        self._validity = VALIDITIES[Sliding](plan.spec)

    def apply(self, batch: Batch) -> Batch:
        size = self.history.of(batch.start)
        self.history.use(batch.last)
        start, end = self._validity.start(batch.start), sliding_end(self._spec, batch.start, size)
        out = Batch(self._told.quality_column(batch.data, size), start, end, None, batch.arrival)
        return out.filter(start < end)

    def map_heartbeat(self, heartbeat: int) -> int:
        return self._validity.heartbeat(heartbeat)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return replace(punctuation, until=self.map_heartbeat(punctuation.until))


def time_window(plan: Window) -> Stateless:
    """The operator of a time window: a fixed one holds nothing."""
    if bounds_of(plan) is None:
        return WindowOperator(plan)
    return (AdaptableSlidingOperator if isinstance(plan.spec, Sliding) else AdaptableWindowOperator)(plan)


def _same(times: Times) -> Times:
    return times


def _now(spec: Now) -> Validity:
    return _range(Range(1))


def _range(spec: Range) -> Validity:
    return Validity(_same, lambda times: ticks.add(times, spec.size), int)


def _unbounded(spec: Unbounded) -> Validity:
    return Validity(_same, lambda times: np.full_like(times, MAX_TIME), int)


def _sliding(spec: Sliding) -> Validity:
    """Valid from the answer of the first window that holds the row to that of the first that does not."""

    def start(times: Times) -> Times:
        """The last tick of the first window that holds each time."""
        return _report(spec, (times - spec.shift) // spec.slide + 1)

    def end(times: Times) -> Times:
        return sliding_end(spec, times, spec.size)

    def heartbeat(time: int) -> int:
        """Just before the next tick: no future row can start earlier."""
        return time if time in (MIN_TIME, MAX_TIME) else ticks.tick_after(time, spec.ticks) - 1

    return Validity(start, end, heartbeat)


def sliding_end(spec: Sliding, times: Times, size: int | Times) -> Times:
    """The last tick of the first later window, of a size, that does not hold each time."""
    return _report(spec, (times - spec.offset) // spec.slide + size // spec.slide + 1)


def _report(spec: Sliding, windows: Times) -> Times:
    """The last tick of each window."""
    scaled = ticks.scale(windows, spec.slide)
    return np.where(scaled == MAX_TIME, MAX_TIME, ticks.add(scaled - 1, spec.shift))


VALIDITIES: Final[dict[type[Any], Callable[[Any], Validity]]] = {
    Range: _range,
    Sliding: _sliding,
    Now: _now,
    Unbounded: _unbounded,
}
