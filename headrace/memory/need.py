"""How much memory windows will need: rows that are held until their ends, and rows still to come.

A row that has passed a window keeps the end that it got (002, §2.1), so a smaller window helps from its
instant on, and not before. What is held is therefore known far ahead: it is a function of time that only
falls. On top of it come new rows, at their rate, for as long as the size that is chosen for them says.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import numpy.typing as npt

from headrace.memory.demands import Demand, GrainDemand

Reals = npt.NDArray[np.float64]


class Outlook:
    """What windows will need, at its highest, for any choice of their sizes, granularities at `values`."""

    def __init__(
        self,
        fixed: float,
        demands: Sequence[Demand],
        grains: Sequence[GrainDemand] = (),
        values: Sequence[int] = (),
    ) -> None:
        self.demands = demands
        both: list[Demand | GrainDemand] = [*demands, *grains]
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
