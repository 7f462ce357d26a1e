"""Time windows: each row of a stream gets the interval in which it is valid (`design.md` §4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from headrace.flow.batch import Batch, Times
from headrace.operators import ticks
from headrace.operators.adaptable import Adaptable
from headrace.operators.contract import Stateless
from headrace.operators.told import Told
from headrace.plan.nodes import Window
from headrace.plan.quality import bounds_of
from headrace.plan.windows import Now, Range, Sliding, Unbounded
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Validity:
    """How a window turns a time into [start, end), and what a heartbeat of the stream is to the relation."""

    start: Callable[[Times], Times]
    end: Callable[[Times], Times]
    heartbeat: Callable[[int], int]


class WindowOperator(Stateless):
    """Assigns validity row by row; starts keep the order of the times. Rows that no window holds vanish.

    A punctuation passes: a row that will not come will not start to be valid. Its time, like a heartbeat,
    becomes the last instant before which no row of the rest can start.
    """

    def __init__(self, plan: Window) -> None:
        super().__init__()
        self._validity = VALIDITIES[type(plan.spec)](plan.spec)
        self._told = Told(plan)
        self._size = plan.spec.size if isinstance(plan.spec, Range) else 0

    def apply(self, batch: Batch) -> Batch:
        start, end = self._validity.start(batch.start), self._validity.end(batch.start)
        out = Batch(self._told.beside(batch.data, self._size), start, end, None, batch.arrival)
        return out.filter(start < end)

    def map_heartbeat(self, heartbeat: int) -> int:
        return self._validity.heartbeat(heartbeat)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return replace(punctuation, until=self.map_heartbeat(punctuation.until))


class AdaptableWindowOperator(Adaptable):
    """`[RANGE MIN …, MAX …]`: a row is valid for the size that its history says of its time (§2.1).

    Rows that have passed keep their ends; what holds them gets smaller as they leave.
    """

    def __init__(self, plan: Window) -> None:
        super().__init__(bounds_of(plan))
        self._told = Told(plan)

    def apply(self, batch: Batch) -> Batch:
        size = self.history.of(batch.start)
        self.history.use(batch.last)
        end = ticks.add_each(batch.start, size)
        return Batch(self._told.beside(batch.data, size), batch.start, end, None, batch.arrival)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return punctuation


def time_window(plan: Window) -> Stateless:
    """The operator of a time window: a fixed one holds nothing."""
    return WindowOperator(plan) if bounds_of(plan) is None else AdaptableWindowOperator(plan)


def _same(times: Times) -> Times:
    return times


def _now(spec: Now) -> Validity:
    return _range(Range(1))


def _range(spec: Range) -> Validity:
    return Validity(_same, lambda times: ticks.add(times, spec.size), int)


def _unbounded(spec: Unbounded) -> Validity:
    return Validity(_same, lambda times: np.full_like(times, MAX_TIME), int)


def _sliding(spec: Sliding) -> Validity:
    """From the answer of the first window that holds the row to that of the first that does not."""
    slide, whole = spec.slide, spec.size // spec.slide

    def start(times: Times) -> Times:
        return _answer((times - spec.shift) // slide + 1)

    def end(times: Times) -> Times:
        return _answer((times - spec.offset) // slide + whole + 1)

    def _answer(windows: Times) -> Times:
        scaled = ticks.scale(windows, slide)
        return np.where(scaled == MAX_TIME, MAX_TIME, ticks.add(scaled - 1, spec.shift))

    def heartbeat(time: int) -> int:
        return time if time in (MIN_TIME, MAX_TIME) else ticks.tick_after(time, spec.ticks) - 1

    return Validity(start, end, heartbeat)


VALIDITIES: Final[dict[type[Any], Callable[[Any], Validity]]] = {
    Range: _range,
    Sliding: _sliding,
    Now: _now,
    Unbounded: _unbounded,
}
