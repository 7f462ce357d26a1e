"""When events arrive, and in which order: disorder, delays, silence.

All three are functions of the event's number and stream, so that a run can be taken up anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.connectors.nexmark.draws import Numbers, below, draw, high, key, low
from headrace.connectors.nexmark.laws import MILLISECOND, Laws
from headrace.errors import InputError
from headrace.flow.batch import Mask

STRIDE: Final = 953


@dataclass(frozen=True)
class Silence:
    """A stream that says nothing in [begin, end), ticks since the first event.

    Its rows of that time are lost, or if `held` they all arrive at the end, late.
    """

    stream: str
    begin: int
    end: int
    held: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end:
            raise InputError("HR-I110", f"a silence of [{self.begin}, {self.end})", hint="0 <= begin < end")


@dataclass(frozen=True)
class Arrival:
    """How rows come: the p-th event to arrive is number `number(p)`, at the instant `instant`.

    `disorder` is the size of the groups of events inside which the order is scattered (1: none): p-th to
    arrive is ⌊p/n⌋·n + (953·p mod n). A share `delayed` of all events comes up to `delay` ticks later still.
    """

    seed: int
    laws: Laws
    disorder: int = 1
    delayed: float = 0.0
    delay: int = 3_000_000
    silences: tuple[Silence, ...] = ()

    def __post_init__(self) -> None:
        if self.disorder < 1 or (self.disorder > 1 and self.disorder % STRIDE == 0):
            hint = f"a number from 1 that {STRIDE} does not divide"
            raise InputError("HR-I110", f"groups of {self.disorder} events", hint=hint)
        if not 0 <= self.delayed <= 1 or not 0 < self.delay < 2**32:
            raise InputError("HR-I110", f"{self.delayed} of the events delayed by up to {self.delay} ticks")

    def numbers(self, positions: Numbers) -> Numbers:
        """Which events arrive at these positions: those of a group, scattered."""
        size = self.disorder
        return positions // size * size + positions * STRIDE % size if size > 1 else positions

    @property
    def slack(self) -> int:
        """So long after its turn an event arrives, so that none comes before it has happened."""
        return -(-(self.disorder - 1) * self.laws.delay.numerator // self.laws.delay.denominator)

    def promised(self, position: int) -> int:
        """No event from this position on has a time below this; delays and held rows break it."""
        first = np.array([position // self.disorder * self.disorder])
        return int(self.laws.times(first)[0])

    def instants(self, stream: str, positions: Numbers) -> tuple[Numbers, Mask]:
        """When the events at these positions arrive, and which do so at all."""
        instants = self.laws.times(positions) + self.slack
        heard = np.ones(len(positions), np.bool_)
        for silence in self.silences:
            if silence.stream == stream:
                since = instants - self.laws.base
                quiet = (since >= silence.begin) & (since < silence.end)
                instants = np.where(quiet & silence.held, self.laws.base + silence.end, instants)
                heard &= ~quiet | silence.held
        return instants + self._delays(positions), heard

    def _delays(self, positions: Numbers) -> Numbers | int:
        if not self.delayed:
            return 0
        bits = draw(key(self.seed, "delay"), positions)
        return np.where(low(bits) < self.delayed * 2**32, 1 + below(high(bits), self.delay), 0)

    @property
    def longest(self) -> int:
        """No event arrives later than this after its turn."""
        held = sum(silence.end - silence.begin for silence in self.silences if silence.held)
        return self.slack + held + (self.delay + 1 if self.delayed else 0)

    @property
    def skew(self) -> int:
        """Whatever has arrived with time τ, all that is still to come has a time > τ − skew."""
        late = self.longest - self.slack
        if not self.slack and not late:
            return 1
        return self.slack + (self.slack + late if late else 0) + MILLISECOND + 1
