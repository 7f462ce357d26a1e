"""What an experiment is and what it finds: numbers with their bounds, pictures in the paper's axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks import report

Scale = Literal["linear", "log", "symlog"]
Size = Literal["tiny", "default", "full"]
T = TypeVar("T")


@dataclass(frozen=True)
class Conditions:
    """How to run: the size, on the simulated clock or in real time, and what a step of an operator costs.

    `service` None: the CPU time that it really took. A number: so many nanoseconds, whatever it took, so that
    tests find the same each time.
    """

    size: Size = "default"
    real: bool = False
    service: int | None = None

    def of(self, tiny: T, default: T, full: T) -> T:
        """The value for this size."""
        return {"tiny": tiny, "default": default, "full": full}[self.size]

    def seconds(self, tiny: float, default: float, full: float) -> float:
        """How long streams run. In real time a run is cut to a minute, unless the full size is asked for."""
        chosen = self.of(tiny, default, full)
        return min(chosen, 60.0) if self.real and self.size != "full" else chosen


WARM_UP = Conditions("tiny", service=1_000)
"""For a short run before the one that counts: it compiles kernels and fills caches."""


@dataclass(frozen=True)
class Measure:
    """One number: with a floor it must reach, a ceiling it must not pass, and what the paper says."""

    name: str
    value: float
    unit: str = ""
    floor: float | None = None
    ceiling: float | None = None
    paper: str = ""
    differs: str = ""

    def plain(self) -> report.Result:
        """As `benchmarks.report` has it: what is empty is left out."""
        return {k: v for k, v in asdict(self).items() if v not in (None, "")} | {"unit": self.unit}  # type: ignore[return-value]


@dataclass(frozen=True)
class Line:
    """A curve; `style` is one of `plotting.STYLES`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "points"


@dataclass(frozen=True)
class Panel:
    """A picture: titled axes and curves. With `ticks` the x axis has these words at 0, 1, 2, …"""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    ticks: Sequence[str] = ()
    from_zero: bool = False


@dataclass(frozen=True)
class Result:
    """What was found; `verdict` is one line in words."""

    measures: Sequence[Measure]
    panels: Sequence[Panel]
    verdict: str

    @property
    def holds(self) -> bool:
        """Whether no bound is broken."""
        return report.holds(m.plain() for m in self.measures)


@dataclass(frozen=True)
class Experiment:
    """A figure of a paper: its claim, how ours is measured, and the function that measures it."""

    name: str
    figure: str
    claim: str
    method: str
    run: Callable[[Conditions], Result]
    differs: str = ""
    tags: Sequence[str] = field(default=())


def numbers(values: npt.ArrayLike) -> list[float]:
    """An array as JSON can hold it."""
    return [float(v) for v in np.asarray(values, dtype=np.float64)]


def panel_data(panel: Panel) -> dict[str, Any]:
    """A panel as JSON."""
    return asdict(panel) | {
        "ticks": list(panel.ticks),
        "lines": [asdict(line) | {"x": numbers(line.x), "y": numbers(line.y)} for line in panel.lines],
    }
