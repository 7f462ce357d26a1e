"""What a plan says about how its rows come and go, read off its windows."""

from __future__ import annotations

import math
from typing import Final

from headrace.plan.nodes import (
    Distinct,
    Join,
    Plan,
    Project,
    Select,
    SlidingAggregate,
    Table,
    ToStream,
    Union,
    Window,
)
from headrace.plan.session import SessionAggregate
from headrace.plan.windows import Now, Range, Sliding, Ticks, Unbounded

FOREVER: Final = math.inf
GROWING: Final = (Select, Project, Join, Distinct, Union)


def ticks_of(plan: Plan) -> frozenset[Ticks]:
    """When the windows between this relation and the streams it is made of are answered."""
    if isinstance(plan, ToStream) or not plan.is_relation:
        return frozenset()
    own: frozenset[Ticks] = frozenset()
    if isinstance(plan, SlidingAggregate):
        own = frozenset({plan.window.ticks})
    if isinstance(plan, SessionAggregate):
        own = frozenset({Ticks(1)})
    if isinstance(plan, Window) and isinstance(plan.spec, Sliding):
        own = frozenset({plan.spec.ticks})
    return own.union(*(ticks_of(each) for each in plan.inputs))


def lasts(plan: Plan) -> float:
    """A bound on how long after the last input a row of the relation may stay valid, in ticks."""
    if isinstance(plan, SlidingAggregate):
        return plan.window.size + plan.window.slide
    if isinstance(plan, SessionAggregate):
        return 1
    if isinstance(plan, Window):
        return _window_lasts(plan)
    bounds = [lasts(each) for each in plan.inputs if each.is_relation]
    return min(bounds) if isinstance(plan, Join) else max(bounds, default=FOREVER)


def keeps_all(plan: Plan) -> bool:
    """Whether no row ever leaves the relation."""
    if isinstance(plan, Window):
        return isinstance(plan.spec, Unbounded)
    if isinstance(plan, Table):
        return True
    return isinstance(plan, GROWING) and all(keeps_all(each) for each in plan.inputs)


def _window_lasts(plan: Window) -> float:
    match plan.spec:
        case Now():
            return 1
        case Range(size):
            return size
        case Sliding(size, slide):
            return size + slide
    return FOREVER
