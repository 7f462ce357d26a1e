"""How much memory windows will need: rows that are held until their ends, and rows still to come.

A row that has passed a window keeps the end that it got (002, §2.1), so a smaller window helps from its
instant on, and not before. What is held is therefore known far ahead: it is a function of time that only
falls. On top of it come new rows, at their rate, for as long as the size that is chosen for them says.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cohort:
    """Rows that passed a window together: times in (first, last], each held for `size` ticks."""

    first: int
    last: int
    rows: float
    size: int

    def live(self, time: int) -> float:
        """How many are still held at a time, as if they were spread evenly."""
        left = self.last + self.size - time
        return self.rows * min(1.0, max(0.0, left / max(1, self.last - self.first)))


@dataclass(frozen=True)
class Demand:
    """A window: rows that it has let through, and the rate, in rows a tick, of those from `now` on.

    `bytes` is what a row costs as long as it is held, wherever that is. `delay` is by how much rows outlive
    their ends, because another stream is behind. `weight`: how many queries would feel a change; `size` is
    what it is now.
    """

    least: int
    most: int
    size: int
    weight: float
    now: int
    rate: float
    bytes: float
    delay: int = 0
    cohorts: tuple[Cohort, ...] = ()

    @property
    def cost(self) -> float:
        """Bytes that one more tick of window costs in the long run."""
        return self.rate * self.bytes


class Grain(Protocol):
    """What a granularity costs; see `headrace.memory.grains.GrainDemand`."""

    @property
    def now(self) -> int:
        """The time from which rows come that a choice is for."""
        ...

    @property
    def delay(self) -> int:
        """By how much lines outlive their ends."""
        ...

    @property
    def bytes(self) -> float:
        """What a line costs."""
        ...

    @property
    def cohorts(self) -> tuple[Cohort, ...]:
        """Lines that are held."""
        ...

    @property
    def windows(self) -> tuple[int, ...]:
        """The positions of the windows that hold them."""
        ...

    def cost(self, grain: float) -> float:
        """Bytes that one more tick of window costs."""
        ...

    def wait(self, grain: float) -> float:
        """Bytes of rows that wait for the end of a grain."""
        ...


class Outlook:
    """What windows will need, at its highest, for any choice of their sizes, granularities at `values`."""

    def __init__(
        self,
        fixed: float,
        demands: Sequence[Demand],
        grains: Sequence[Grain] = (),
        values: Sequence[int] = (),
    ) -> None:
        self.demands = demands
        both: list[Demand | Grain] = [*demands, *grains]
        self._now = np.array([d.now for d in both], np.float64)
        self._delay = np.array([d.delay for d in both], np.float64)
        self._windows = [each.windows for each in grains]
        self._fixed, self._grains = fixed, grains
        held = [(d, c) for d in both for c in d.cohorts]
        first = np.array([c.first + c.size + d.delay for d, c in held], np.float64)
        last = np.array([c.last + c.size + d.delay for d, c in held], np.float64)
        weight = np.array([c.rows * d.bytes for d, c in held])
        begin = self._now.min(initial=np.inf)
        marks = np.unique(np.concatenate((first, last, self._now)))
        self._marks = marks[marks >= begin] if both else np.zeros(1)
        self._committed = _committed(self._marks, first, last, weight)
        self._set(values)

    def _set(self, values: Sequence[int]) -> None:
        pairs = list(zip(self._grains, values, strict=True))
        self._cost = np.array([*(d.cost for d in self.demands), *(g.cost(v) for g, v in pairs)])
        self._held = self._fixed + self._committed + sum(g.wait(v) for g, v in pairs)

    def at(self, values: Sequence[int]) -> Outlook:
        """The same with other granularities."""
        other = copy(self)
        other._set(values)
        return other

    @property
    def costs(self) -> Reals:
        """Bytes that one more tick of each window costs, what its granularities make of it included."""
        found = self._cost[: len(self.demands)].copy()
        for cost, windows in zip(self._cost[len(self.demands) :], self._windows, strict=True):
            found[list(windows)] += cost
        return found

    def peak(self, sizes: Sequence[float] | Reals) -> float:
        """The most that will be needed at any time to come."""
        if not len(self._now):
            return float(self._held.max())
        own = [float(size) for size in sizes]
        behind = [max((own[i] for i in windows), default=0.0) for windows in self._windows]
        lengths = np.array([*own, *behind]) + self._delay
        times = np.concatenate((self._marks, self._now + lengths))
        held = np.interp(times, self._marks, self._held)
        new = np.clip(times[:, None] - self._now, 0, lengths) @ self._cost
        return float((held + new).max())


def _committed(times: Reals, first: Reals, last: Reals, weight: Reals) -> Reals:
    """Bytes of the rows that have passed and will still be held at each time."""
    if not len(weight):
        return np.zeros(len(times))
    span = np.maximum(last - first, 1)
    shares = np.clip((last - times[:, None]) / span, 0, 1)
    return np.asarray(shares @ weight, np.float64)
