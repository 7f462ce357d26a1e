"""How much memory windows will need: rows that are held until their ends, and rows still to come.

A row that has passed a window keeps the end that it got (002, §2.1), so a smaller window helps from its
instant on, and not before. What is held is therefore known far ahead: it is a function of time that only
falls. On top of it come new rows, at their rate, for as long as the size that is chosen for them says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


class Outlook:
    """What some windows will need, at its highest, for any choice of their sizes."""

    def __init__(self, fixed: float, demands: Sequence[Demand]) -> None:
        self.demands = demands
        self._now = np.array([d.now for d in demands], np.float64)
        self._cost = np.array([d.cost for d in demands])
        self._delay = np.array([d.delay for d in demands], np.float64)
        held = [(d, c) for d in demands for c in d.cohorts]
        first = np.array([c.first + c.size + d.delay for d, c in held], np.float64)
        last = np.array([c.last + c.size + d.delay for d, c in held], np.float64)
        weight = np.array([c.rows * d.bytes for d, c in held])
        begin = self._now.min(initial=np.inf)
        marks = np.unique(np.concatenate((first, last, self._now)))
        self._marks = marks[marks >= begin] if len(demands) else np.zeros(1)
        self._held = fixed + _committed(self._marks, first, last, weight)

    def peak(self, sizes: Sequence[float] | Reals) -> float:
        """The most that will be needed at any time to come."""
        if not self.demands:
            return float(self._held.max())
        lengths = np.asarray(sizes, np.float64) + self._delay
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
