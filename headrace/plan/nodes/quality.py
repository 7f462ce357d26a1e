"""Quality of service: the bounds within which windows and granularities may change (Cammert et al., §3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.plan.nodes.core import Granularity, Plan, Window
from headrace.plan.nodes.windows import Range, Rows, Sliding, WindowSpec


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value of a window size or a grain; `best` is the preferred one.

    Values differ from the greatest one by multiples of `step`.
    """

    least: int
    most: int
    best: int
    step: int = 1

    def meet(self, other: Bounds) -> Bounds | None:
        """The bounds that satisfy both (§3.2), or None. Windows start largest, grains finest."""
        least, most = max(self.least, other.least), min(self.most, other.most)
        if least > most or self.step != other.step or (self.most - other.most) % self.step:
            return None
        return Bounds(least, most, most if self.best == self.most else least, self.step)

    def nearest(self, value: int) -> int:
        """The greatest value allowed that is not more than `value`, or the least one."""
        within = min(max(value, self.least), self.most)
        return self.most + (within - self.most) // self.step * self.step

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.most and (self.most - value) % self.step == 0


def bounds_of(plan: Plan) -> Bounds | None:
    """The bounds of this node, if it may change."""
    if isinstance(plan, Granularity) and plan.coarsest is not None:
        return Bounds(plan.grain, plan.coarsest, plan.grain, plan.ticks.slide)
    return window_bounds(plan.spec) if isinstance(plan, Window) else None


def window_bounds(spec: WindowSpec) -> Bounds | None:
    """The bounds of a window, if it may change: of a size in ticks, or of a number of rows."""
    if not isinstance(spec, (Range, Sliding, Rows)) or spec.least is None:
        return None
    most = spec.count if isinstance(spec, Rows) else spec.size
    return Bounds(spec.least, most, most, spec.slide if isinstance(spec, Sliding) else 1)


def counts_rows(plan: Plan) -> bool:
    """Whether the value that may change is a number of rows."""
    return isinstance(plan, Window) and isinstance(plan.spec, Rows)


def adaptable(plan: Plan) -> Iterator[Plan]:
    """Every node that may change, depth first; a node that occurs twice comes twice."""
    for below in plan.inputs:
        yield from adaptable(below)
    if bounds_of(plan) is not None:
        yield plan


def without_bounds(plan: Plan) -> Plan:
    """The plan without bounds: equal for plans that differ in bounds alone."""
    plan = plan.with_inputs(tuple(map(without_bounds, plan.inputs))) if plan.inputs else plan
    if bounds_of(plan) is None:
        return plan
    if isinstance(plan, Granularity):
        return replace(plan, grain=plan.ticks.slide, coarsest=plan.ticks.slide)
    assert isinstance(plan, Window)
    return replace(plan, spec=_unbounded(plan.spec))


def _unbounded(spec: WindowSpec) -> WindowSpec:
    """The same for all windows that differ in bounds alone; of slides, the instants of reports remain."""
    if isinstance(spec, Rows):
        return replace(spec, count=1, least=1)
    if isinstance(spec, Sliding):
        size = spec.size % spec.slide or spec.slide
        return replace(spec, size=size, least=size)
    return Range(1, 1)
