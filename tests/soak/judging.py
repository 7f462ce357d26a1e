"""Whether a series of samples stays flat: its slope over the last two thirds, against a stated bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

MOST_POINTS: Final = 600
"""Points that slopes are taken between: of more samples, means of neighbours."""


@dataclass(frozen=True)
class Bound:
    """How much a series may grow while it is judged: a share of its level, or a few units if that is more."""

    share: float
    units: float
    unit: str

    def allows(self, level: float) -> float:
        return max(self.share * level, self.units)


MB: Final = 1e6
KB: Final = 1e3
BOUNDS: Final[dict[str, Bound]] = {
    "rss": Bound(0.05, 8 * MB, "MB"),
    "state": Bound(0.10, 0.5 * MB, "MB"),
    "handles": Bound(0.0, 0.9, ""),
    "threads": Bound(0.0, 0.9, ""),
    "checkpoint": Bound(0.10, 0.5 * MB, "MB"),
    "record": Bound(0.02, 1 * KB, "kB"),
    "spill": Bound(0.15, 1 * MB, "MB"),
    "spool": Bound(0.15, 0.5 * MB, "MB"),
}
"""What is judged. All of it is bounded by the windows and the rates, which do not change."""


@dataclass(frozen=True)
class Verdict:
    """A series over the judged part of the run. `growth` is its slope times the length of that part."""

    name: str
    first: float
    last: float
    most: float
    growth: float
    allowed: float
    unit: str

    @property
    def flat(self) -> bool:
        return bool(self.growth <= self.allowed)

    def line(self) -> str:
        scale = {"MB": MB, "kB": KB}.get(self.unit, 1)
        shown = (f"{value / scale:>10,.2f}" for value in (self.first, self.last, self.most, self.growth))
        told = "flat" if self.flat else "GROWS"
        return f"{self.name:<11}{' '.join(shown)} {self.allowed / scale:>10,.2f} {self.unit:<3} {told}"


HEAD: Final = f"{'':<11}{'first':>10} {'last':>10} {'most':>10} {'growth':>10} {'allowed':>10}"


def judge(samples: Sequence[Mapping[str, Any]], since: float) -> list[Verdict]:
    """Judge each series from the instant `since` on, which is to be after the last kill."""
    late = [sample for sample in samples if sample["at"] >= since]
    times = np.array([sample["at"] for sample in late], np.float64)
    found = []
    for name, bound in BOUNDS.items():
        values = np.array([sample[name] for sample in late], np.float64)
        level = slope_and_level(times, values)
        growth = level[0] * float(times[-1] - times[0])
        ends = (level[1], level[1] + growth, float(values.max()))
        found.append(Verdict(name, *ends, growth, bound.allows(max(level[1], 0.0)), bound.unit))
    return found


EXPIRED: Final = 80.0
"""Seconds after which nothing of a burst is left: the longest window, the lateness, and a full snapshot."""

RETURNED: Final = {"held": Bound(0.5, 2 * MB, "MB"), "rss": Bound(0.05, 8 * MB, "MB")}
"""How far above its level before a burst a series may be when all of it has expired.

State goes back to where it was before the first burst. The process keeps freed memory at hand
(`headrace.memory.budget`): it must find room for the second burst in what the first one left.
"""


def judge_return(
    samples: Sequence[Mapping[str, Any]], bursts: Sequence[tuple[float, float]], since: float
) -> list[Verdict]:
    """Whether what two bursts took was given back; the process is the same before and after."""
    same = [sample for sample in samples if sample["pid"] == samples[-1]["pid"]]
    first, second = bursts
    before = {
        "held": [each for each in same if each["at"] < first[0]],
        "rss": [each for each in same if (first[1] + second[0]) / 2 < each["at"] < second[0]],
    }
    if second[0] - first[1] < EXPIRED:
        before["rss"] = []
    found = []
    for name, bound in RETURNED.items():
        if not before[name]:
            continue  # it ended by itself since, which is a mistake already; or the run is too short
        level = float(np.median([each[name] for each in before[name]]))
        after = float(np.median([each[name] for each in same if each["at"] >= since]))
        most = max(each[name] for each in same)
        found.append(
            Verdict(f"{name} back", level, after, most, after - level, bound.allows(level), bound.unit)
        )
    return found


def slope_and_level(times: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """The median of all slopes between two points, and where the line with that slope begins.

    Saw teeth (chains of increments, windows that close) and single bursts do not move a median.
    """
    if len(times) > MOST_POINTS:
        parts = np.array_split(np.arange(len(times)), MOST_POINTS)
        times, values = (np.array([each[part].mean() for part in parts]) for each in (times, values))
    before, after = np.triu_indices(len(times), 1)
    apart = times[after] - times[before]
    far = apart >= (times[-1] - times[0]) / 4  # neighbours say more about noise than about the trend
    slope = float(np.median((values[after] - values[before])[far] / apart[far]))
    return slope, float(np.median(values - slope * (times - times[0])))
