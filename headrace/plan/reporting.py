"""Where each row of a relation is valid at one tick only: RSTREAM reports it when it comes, and is done."""

from __future__ import annotations

from headrace.plan import nodes
from headrace.plan.nodes import Plan
from headrace.plan.session import SessionAggregate
from headrace.plan.trees import is_static

KEEPS = (nodes.Select, nodes.Project, nodes.Union, nodes.Join)
"""What gives rows the intervals of the rows below: of two that meet, the common part, here all of it."""


def tick_of(plan: Plan) -> int | None:
    """The slide from whose tick τ = k·slide − 1 to the next each row is valid; None if that is not so."""
    if isinstance(plan, nodes.SlidingAggregate):
        return plan.window.slide
    if isinstance(plan, SessionAggregate):
        return 1
    if not isinstance(plan, KEEPS):
        return None
    joined = isinstance(plan, nodes.Join)
    found = {tick_of(each) for each in plan.inputs if not (joined and is_static(each))}
    return found.pop() if len(found) == 1 else None


def reported(plan: Plan, slide: int) -> nodes.RStream:
    """The relation at every tick of a slide, row by row where that is all."""
    return nodes.RStream(plan, slide, once=tick_of(plan) == slide)
