"""Quality of service: the bounds within which windows and granularities may change (Cammert et al., §3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.plan.nodes.core import Granularity, Plan, Window
from headrace.plan.nodes.windows import Range


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value of a window size or a grain; `best` is the preferred one."""

    least: int
    most: int
    best: int

    def meet(self, other: Bounds) -> Bounds | None:
        """The bounds that satisfy both (§3.2), or None. Windows start largest, grains finest."""
        least, most = max(self.least, other.least), min(self.most, other.most)
        if least > most:
            return None
        return Bounds(least, most, most if self.best == self.most else least)

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.most


def bounds_of(plan: Plan) -> Bounds | None:
    """The bounds of this node, if it may change."""
    if isinstance(plan, Granularity) and plan.coarsest is not None:
        return Bounds(plan.grain, plan.coarsest, plan.grain)
    if isinstance(plan, Window) and isinstance(plan.spec, Range) and plan.spec.least is not None:
        return Bounds(plan.spec.least, plan.spec.size, plan.spec.size)
    return None


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
        return replace(plan, grain=1, coarsest=1)
    assert isinstance(plan, Window)
    return replace(plan, spec=Range(1, 1))
