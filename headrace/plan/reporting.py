"""Where each row of a relation is valid at one tick only: RSTREAM reports it when it comes, and is done."""

from __future__ import annotations

from headrace.plan import nodes
from headrace.plan.nodes import Plan
from headrace.plan.session import SessionAggregate
from headrace.plan.trees import is_static
from headrace.plan.windows import Sliding, Ticks

KEEPS = (nodes.Select, nodes.Project, nodes.Union, nodes.Join)
"""What gives rows the intervals of the rows below: of two that meet, the common part, here all of it."""


def ticks_of(plan: Plan) -> Ticks | None:
    """The ticks from one of which to the next each row is valid; None if that is not so."""
    if isinstance(plan, nodes.SlidingAggregate):
        return plan.window.ticks
    if isinstance(plan, SessionAggregate):
        return Ticks(1)
    if isinstance(plan, nodes.Window):
        return (
            plan.spec.ticks if isinstance(plan.spec, Sliding) and plan.spec.size <= plan.spec.slide else None
        )
    if not isinstance(plan, KEEPS):
        return None
    joined = isinstance(plan, nodes.Join)
    found = {ticks_of(each) for each in plan.inputs if not (joined and is_static(each))}
    return found.pop() if len(found) == 1 else None


def reported(plan: Plan, ticks: Ticks) -> nodes.RStream:
    """The relation at every tick, row by row where that is all."""
    return nodes.RStream(plan, ticks.slide, ticks.phase, once=ticks_of(plan) == ticks)
