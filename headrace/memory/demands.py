"""Windows and granularities as the choice of their sizes sees them: bounds, what is held, what is to come.

Rows of a grain start together and end together, and those that are equal in what is aggregated are one line.
Of m rows that are drawn from N different ones, about N (1 − e^(−m/N)) are different; m grows with the grain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MANY: Final = 1e12
"""So many different lines that no two are equal."""
_TRIED: Final = 12


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


@dataclass(frozen=True, kw_only=True)
class _Adjustable:
    """What windows and granularities have in common.

    `size` is what it is now, `weight` how many queries would feel a change. `rate` counts the rows a tick
    that come from `now` on; `bytes` is what one costs as long as it is held, wherever that is. `delay` is by
    how much rows outlive their ends, because another stream is behind.
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


@dataclass(frozen=True, kw_only=True)
class Demand(_Adjustable):
    """A window."""

    @property
    def cost(self) -> float:
        """Bytes that one more tick of window costs in the long run."""
        return self.rate * self.bytes


@dataclass(frozen=True, kw_only=True)
class GrainDemand(_Adjustable):
    """A granularity: what lines cost for as long as the windows before it hold them.

    `windows` are the positions of these among the demands, `kinds` counts unequal lines, `bytes` is what a
    line costs, and `waiting` what a row costs that waits for the end of its grain.
    """

    kinds: float
    waiting: float
    windows: tuple[int, ...]

    def cost(self, grain: float) -> float:
        """Bytes that one more tick of window costs in the long run."""
        return self.rate * lines_a_row(self.rate, grain, self.kinds) * self.bytes

    def wait(self, grain: float) -> float:
        """Bytes of the rows that wait for the end of a grain."""
        return self.rate * grain * self.waiting

    def loss(self, grain: float) -> float:
        """The loss of quality of a grain."""
        return (
            self.weight * ((grain - self.least) / (self.most - self.least)) ** 2
            if self.most > self.least
            else 0.0
        )

    def candidates(self) -> Sequence[int]:
        """Grains worth trying, the finest first: evenly spaced in their logarithms."""
        if self.most == self.least or self.kinds >= MANY:
            return (self.least,)
        ratio = (self.most / self.least) ** (1 / _TRIED)
        tried = (int(self.least * ratio**i) for i in range(_TRIED))
        return sorted({self.least, *tried, self.most})


def lines_a_row(rate: float, grain: float, kinds: float) -> float:
    """The lines that a row becomes on average, at `rate` rows a tick."""
    rows = rate * grain / kinds
    return 1.0 if rows < 1e-9 else -math.expm1(-rows) / rows
