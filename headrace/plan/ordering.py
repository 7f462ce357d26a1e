"""Where rows are put in order, and where they need not be (Tucker & Maier, §4; Srivastava & Widom, §7.5).

A disordered stream is left so as long as the operators above do not mind, and ordered as late as possible:
after selections and projections, when fewer and narrower rows are left. A union below an operator that does
not mind either merges without waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expressions import col, lit
from headrace.plan.nodes import (
    Aggregate,
    IStream,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    ToStream,
    Unary,
    Union,
    Window,
)
from headrace.plan.reporting import ticks_of
from headrace.plan.session import LooseSessions, SessionAggregate
from headrace.plan.trees import takes_pieces, walk
from headrace.plan.user_aggregates import UserCall
from headrace.plan.windows import Sliding

INSENSITIVE = (Select, Project)


@dataclass(frozen=True)
class Order(Unary):
    """Rows in order of time; simultaneous rows in order of arrival. The input manager of one operator."""


@dataclass(frozen=True)
class Merge(Union):
    """Union that leaves disorder: rows pass as they come, punctuations bound the disorder."""


@dataclass(frozen=True)
class Expand(Unary):
    """A copy of each row for each window that holds it, at the tick at which that window is answered.

    So a row that comes late counts in the windows that are still open, and only in those.
    """

    window: Sliding


@dataclass(frozen=True)
class Disorder:
    """The streams whose rows may come out of order; of these, `admitted` are late only for what is past."""

    streams: frozenset[str]
    admitted: frozenset[str] = frozenset()


def place_orders(plan: Plan, disorder: Disorder) -> Plan:
    """`plan` with every disordered stream put in order before the first operator that needs it."""
    return _place(plan, disorder, minds=False, pieces=True)


def _place(plan: Plan, disorder: Disorder, minds: bool, pieces: bool) -> Plan:
    """`minds`: the operator above takes rows in any order. `pieces`: what is above takes a row that is valid
    for several slides as one row for each."""
    if isinstance(plan, Source):
        return plan if minds or plan.name not in disorder.streams else Order(plan)
    if isinstance(plan, INSENSITIVE):
        below = plan.with_inputs((_place(plan.inputs[0], disorder, True, pieces),))
        return below if minds or not is_disordered(below, disorder) else Order(below)
    if isinstance(plan, Union):
        return _place_union(plan, disorder, minds, pieces)
    admitted = bool(_sources(plan) & disorder.admitted)
    if isinstance(plan, SlidingAggregate) and admitted:
        return _place_admitting(plan, disorder)
    if isinstance(plan, SessionAggregate) and admitted:
        return _place_sessions(plan, disorder)
    if isinstance(plan, Window) and isinstance(plan.spec, Sliding) and admitted and pieces:
        return _place_window(plan, plan.spec, disorder)
    pieces = isinstance(plan, ToStream) or (pieces and takes_pieces(plan))
    placed = plan.with_inputs(tuple(_place(i, disorder, False, pieces) for i in plan.inputs))
    return _remembering(placed) if isinstance(placed, ToStream) and admitted else placed


def _place_union(plan: Union, disorder: Disorder, minds: bool, pieces: bool) -> Plan:
    branches = tuple(_place(b, disorder, minds, pieces) for b in plan.branches)
    loose = any(is_disordered(b, disorder) for b in branches)
    return Merge(branches) if loose else Union(branches)


def _remembering(plan: ToStream) -> Plan:
    """What reports rows, where below it a row may have become several, each valid for one slide."""
    if isinstance(plan, IStream):
        return replace(plan, nets=plan.nets or any(isinstance(each, Expand) for each in walk(plan)))
    if isinstance(plan, RStream):
        return replace(plan, once=plan.once or ticks_of(plan.input) == plan.ticks)
    return plan


def _place_window(plan: Window, window: Sliding, disorder: Disorder) -> Plan:
    """As of an aggregate: a row that is valid for several slides becomes one for each."""
    below = _place(plan.input, disorder, True, True)
    if not is_disordered(below, disorder):
        return plan.with_inputs((below,))
    return replace(plan, input=Order(Expand(below, window)), spec=_one_slide(window))


def _one_slide(window: Sliding) -> Sliding:
    """What holds the copies of `Expand` for a window from its answer to the next."""
    return Sliding(window.slide, window.slide, window.ticks.phase)


def _place_admitting(plan: SlidingAggregate, disorder: Disorder) -> Plan:
    """Rows go to their windows before they are ordered: each window is one tick of one slide."""
    placed = _place(plan.input, disorder, True, True)
    if not is_disordered(placed, disorder):
        return plan.with_inputs((placed,))
    _refuse_order(plan)
    window = plan.window
    each = replace(plan, input=Order(Expand(placed, window)), window=_one_slide(window))
    if plan.bounds is None or window.size == window.slide:
        return each
    start, end = plan.bounds
    size = lit(window.size, pa.int64())
    names = [name for name in plan.schema.names if name != start]
    columns = {name: col(name) for name in names} | {start: col(end) - size}
    return Project(each, tuple((name, columns[name]) for name in plan.schema.names))


def _place_sessions(plan: SessionAggregate, disorder: Disorder) -> Plan:
    """Rows go to their sessions as they come, and sessions that a row is between become one."""
    below = _place(plan.input, disorder, True, True)
    if not is_disordered(below, disorder):
        return plan.with_inputs((below,))
    _refuse_order(plan)
    single = next((c for c in plan.calls if isinstance(c, UserCall) and not c.definition.merges), None)
    if single is not None:
        raise PlanError(
            "HR-P010",
            f"{single.function} cannot merge, but under `admit` a late row may make one session of two",
            hint=f"give {single.function} a method merge(state, later), or enforce this stream strictly",
        )
    values = {f.name: getattr(plan, f.name) for f in fields(plan)}
    return LooseSessions(**{**values, "input": below})


def _refuse_order(plan: Aggregate) -> None:
    placed = next((call for call in plan.calls if call.minds_order), None)
    if placed is not None:
        raise PlanError(
            "HR-P010",
            f"{placed.function} needs rows in order, which `admit` does not keep",
            hint="enforce this stream strictly, or use min and max",
        )


def is_disordered(plan: Plan, disorder: Disorder) -> bool:
    """Whether the rows of a placed plan may come out of order."""
    if isinstance(plan, Source):
        return plan.name in disorder.streams
    if isinstance(plan, Merge):
        return True
    return isinstance(plan, (*INSENSITIVE, Expand)) and is_disordered(plan.inputs[0], disorder)


def _sources(plan: Plan) -> frozenset[str]:
    if isinstance(plan, Source):
        return frozenset({plan.name})
    return frozenset[str]().union(*(_sources(i) for i in plan.inputs))
