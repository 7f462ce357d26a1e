"""Decides where rows must be sorted by time (Tucker & Maier, §4; Srivastava & Widom, §7.5).

A disordered stream stays so as long as the operators above accept it, and is sorted as late as possible:
after selections and projections, when fewer and narrower rows are left; with an unnesting among them, where
measurements say that they are fewest bytes. Aggregates over windows and sessions
accept it, if the order of rows cannot change their answers. A union below an operator that accepts any order
merges without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import pyarrow as pa

from headrace import tuning
from headrace.errors import PlanError
from headrace.expressions import col, lit
from headrace.plan.analysis.istream_state import TIME_WINDOWS, ticks_of
from headrace.plan.nodes.core import (
    Aggregate,
    IStream,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    Table,
    ToStream,
    Unary,
    Union,
    Window,
)
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.early import EarlySessions, EarlyWindows
from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.latent import is_latent
from headrace.plan.nodes.over import Over
from headrace.plan.nodes.quality import bounds_of
from headrace.plan.nodes.session import MergingSessions, SessionAggregate
from headrace.plan.nodes.trees import everywhere, takes_pieces, walk
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.unsorted import UnsortedWindows
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.plan.nodes.windows import Sliding, SlidingRows
from headrace.schema import Schema

INSENSITIVE = (Select, Project, Unnest)


@dataclass(frozen=True)
class Order(Unary):
    """Rows in order of time; simultaneous rows in order of arrival. The input manager of one operator."""


@dataclass(frozen=True)
class AdaptiveOrder(Unary):
    """The rows of `top` in order of time, where `top` is `input` after some steps that take rows one by one.

    Rows wait before some of the steps and after the others, where they are fewest bytes as measured: which
    changes neither the rows nor their order.
    """

    top: Plan

    @property
    def steps(self) -> tuple[Plan, ...]:
        """The nodes from `input`, which is not among them, up to `top`."""
        found: list[Plan] = []
        each = self.top
        while each != self.input:
            found.insert(0, each)
            each = each.inputs[0]
        return tuple(found)

    @property
    def schema(self) -> Schema:
        return self.top.schema

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        top = inputs[0]
        for step in self.steps:
            top = step.with_inputs((top,))
        return replace(self, input=inputs[0], top=top)


@dataclass(frozen=True)
class Merge(Union):
    """A union that does not sort: rows pass as they come, and punctuations bound the disorder."""


@dataclass(frozen=True)
class Expand(Unary):
    """One copy of each row for each window that contains it, at the tick at which the window is reported.

    So a late row counts in the windows that are still open, and only in those.
    """

    window: Sliding


@dataclass(frozen=True)
class Disorder:
    """The streams whose rows may come out of order; with `admitted`, a late row still counts where it can."""

    streams: frozenset[str]
    admitted: frozenset[str] = frozenset()


def place_orders(plan: Plan, disorder: Disorder, ordered: bool = True, placement: str = "cost") -> Plan:
    """`plan` with every disordered stream sorted below the first operator that needs it.

    If the results need not be `ordered`, nothing is sorted for their sake, unions do not wait, and their last
    aggregate answers closed groups early. Other placements than by cost are there to be compared with it.
    """
    return PLACEMENTS[placement](plan, disorder, ordered)


def _by_cost(plan: Plan, disorder: Disorder, ordered: bool) -> Plan:
    """Where rows are fewest: known for selections and projections, measured for unnestings."""
    return _place(plan, disorder, False, True) if ordered else _place_loose(plan, disorder)


def _late(plan: Plan, disorder: Disorder, ordered: bool) -> Plan:
    """As late as possible, whatever it costs (Srivastava & Widom, §7.5)."""
    return everywhere(
        _by_cost(plan, disorder, ordered),
        lambda each: Order(each.top) if isinstance(each, AdaptiveOrder) else each,
    )


def _first(plan: Plan, disorder: Disorder, ordered: bool) -> Plan:
    """Each stream as it comes in (Srivastava & Widom, Figure 1)."""
    sorted_ = disorder.streams - disorder.admitted
    return everywhere(
        plan, lambda each: Order(each) if isinstance(each, Source) and each.name in sorted_ else each
    )


PLACEMENTS: Final[dict[str, Callable[[Plan, Disorder, bool], Plan]]] = {
    "cost": _by_cost,
    "late": _late,
    "first": _first,
}


def _place_loose(plan: Plan, disorder: Disorder) -> Plan:
    """The plan for results in any order: rows that nothing has to wait for leave as they come."""
    if isinstance(plan, Source):
        return plan
    if isinstance(plan, Union) and not is_latent(plan):
        return Merge(tuple(_place_loose(branch, disorder) for branch in plan.branches))
    if _passes_rows(plan, disorder):
        return plan.with_inputs((_place_loose(plan.inputs[0], disorder),))
    early = _place_early(plan, disorder)
    return _place(plan, disorder, True, True) if early is None else early


def _passes_rows(plan: Plan, disorder: Disorder) -> bool:
    """Whether a node passes each row on by itself, at once and in any order."""
    if isinstance(plan, Window):
        by_time = isinstance(plan.spec, TIME_WINDOWS) and bounds_of(plan) is None
        return by_time and not _comes_in_pieces(plan, disorder)
    return isinstance(plan, INSENSITIVE) or (_only_comings(plan) and not _comes_in_pieces(plan, disorder))


def _comes_in_pieces(plan: Plan, disorder: Disorder) -> bool:
    """Whether a row may be split into one for each slide, because it may be admitted late."""
    sliding = any(isinstance(each, Window) and isinstance(each.spec, Sliding) for each in walk(plan))
    return sliding and bool(_sources(plan) & disorder.admitted)


def _only_comings(plan: Plan) -> bool:
    """Whether a node reports each row of a relation by itself."""
    return (isinstance(plan, IStream) and not plan.nets) or (isinstance(plan, RStream) and plan.once)


def _place_early(plan: Plan, disorder: Disorder) -> Plan | None:
    """An aggregate over windows or sessions that answers closed groups early; None if it cannot."""
    if not isinstance(plan, (SlidingAggregate, SessionAggregate)) or not plan.keys:
        return None
    if any(call.minds_order for call in plan.calls):
        return None
    below = _place(plan.input, disorder, True, True)
    if isinstance(plan, SlidingAggregate):
        return _each_window(plan, below, EarlyWindows) if _is_copied(plan.window) else None
    single = any(isinstance(call, UserCall) and not call.definition.merges for call in plan.calls)
    return None if single else _as(EarlySessions, plan, below)


def _is_copied(window: Sliding) -> bool:
    """Whether a row is in so few windows that closed groups are answered early, from a copy for each."""
    return window.size <= tuning.current.early_copies * window.slide


def _place_early_union(plan: Union, disorder: Disorder) -> Plan | None:
    """A union of results as they come, if one of its branches answers early."""
    early = [_place_early(branch, disorder) for branch in plan.branches]
    if all(branch is None for branch in early):
        return None
    branches = zip(early, plan.branches, strict=True)
    return Merge(tuple(_place(b, disorder, True, True) if e is None else e for e, b in branches))


def _place(plan: Plan, disorder: Disorder, any_order_ok: bool, pieces: bool) -> Plan:
    """Place orders below an operator.

    `any_order_ok`: the operator accepts rows in any order. `pieces`: it accepts one row per slide in place of
    a row that is valid for several slides.
    """
    if isinstance(plan, Source):
        return plan if any_order_ok or plan.name not in disorder.streams else Order(plan)
    if isinstance(plan, INSENSITIVE):
        below = plan.with_inputs((_place(plan.inputs[0], disorder, True, pieces),))
        return below if any_order_ok or not is_disordered(below, disorder) else _ordered(below)
    if isinstance(plan, Union):
        return _place_union(plan, disorder, any_order_ok, pieces)
    admitted = bool(_sources(plan) & disorder.admitted)
    if isinstance(plan, SlidingAggregate) and (admitted or _takes_any_order(plan)):
        return _place_windows(plan, disorder, admitted)
    if isinstance(plan, SessionAggregate) and (admitted or _takes_any_order(plan)):
        return _place_sessions(plan, disorder, admitted)
    slides = isinstance(plan, Window) and isinstance(plan.spec, Sliding) and bounds_of(plan) is None
    if slides and admitted and pieces:
        assert isinstance(plan, Window)
        assert isinstance(plan.spec, Sliding)
        return _place_window(plan, plan.spec, disorder)
    pieces = isinstance(plan, ToStream) or (pieces and takes_pieces(plan))
    placed = plan.with_inputs(tuple(_place(i, disorder, False, pieces) for i in plan.inputs))
    return _remembering(placed) if isinstance(placed, ToStream) and admitted else placed


def _ordered(plan: Plan) -> Plan:
    """Selections and projections in order: rows wait after them, when fewer and narrower ones are left.

    Where a row may become several, only a measurement tells whether it is cheaper to wait before that.
    """
    first, each = None, plan
    while isinstance(each, INSENSITIVE):
        first = each if isinstance(each, Unnest) else first
        each = each.inputs[0]
    return Order(plan) if first is None else AdaptiveOrder(first.inputs[0], plan)


def _place_union(plan: Union, disorder: Disorder, any_order_ok: bool, pieces: bool) -> Plan:
    """A `Merge`, which does not sort, if the rows of a branch may be out of order; else a `Union`."""
    branches = tuple(_place(b, disorder, any_order_ok, pieces) for b in plan.branches)
    loose = any(is_disordered(b, disorder) for b in branches)
    return Merge(branches) if loose else Union(branches)


def _remembering(plan: ToStream) -> Plan:
    """A node that reports rows, adapted to an input that may split a row into one per slide."""
    if isinstance(plan, IStream):
        return replace(plan, nets=plan.nets or any(isinstance(each, Expand) for each in walk(plan)))
    if isinstance(plan, RStream):
        return replace(plan, once=plan.once or ticks_of(plan.input) == plan.ticks)
    return plan


def _place_window(plan: Window, window: Sliding, disorder: Disorder) -> Plan:
    """As for an aggregate: a row that is valid for several slides becomes one row for each."""
    below = _place(plan.input, disorder, True, True)
    if not is_disordered(below, disorder):
        return plan.with_inputs((below,))
    return replace(plan, input=Order(Expand(below, window)), spec=_one_slide(window))


def _one_slide(window: Sliding) -> Sliding:
    """A window that holds the copies of `Expand` from one report to the next."""
    return Sliding(window.slide, window.slide, window.ticks.phase)


def _takes_any_order(plan: Aggregate) -> bool:
    """Whether the aggregate gives the same answers, bit for bit, in whatever order rows come.

    Sums are exact. A user-defined aggregate may add up floats, so it gets its rows in one order. How many
    values are distinct in windows that overlap is counted row by row.
    """
    if any(isinstance(call, UserCall) or call.minds_order for call in plan.calls):
        return False
    overlap = isinstance(plan, SlidingAggregate) and plan.window.size > plan.window.slide
    return not (overlap and any(call.function == "count_distinct" for call in plan.calls))


def _place_windows(plan: SlidingAggregate, disorder: Disorder, admitted: bool) -> Plan:
    """Open panes take rows in any order. A late row that is admitted counts in each window by itself."""
    below = _place(plan.input, disorder, True, True)
    if not is_disordered(below, disorder):
        return plan.with_inputs((below,))
    if not admitted:
        return _as(UnsortedWindows, plan, below)
    _refuse_order(plan)
    return _each_window(plan, below, UnsortedWindows)


def _each_window(plan: SlidingAggregate, below: Plan, kind: type[SlidingAggregate]) -> Plan:
    """The aggregate with windows that do not overlap; if need be over copies of rows, one for each."""
    window = plan.window
    if window.size == window.slide or (window.size < window.slide and kind is UnsortedWindows):
        return _as(kind, plan, below)
    each = _as(kind, replace(plan, window=_one_slide(window)), Expand(below, window))
    if plan.bounds is None:
        return each
    start, end = plan.bounds
    size = lit(window.size, pa.int64())
    names = [name for name in plan.schema.names if name != start]
    columns = {name: col(name) for name in names} | {start: col(end) - size}
    return Project(each, tuple((name, columns[name]) for name in plan.schema.names))


def _place_sessions(plan: SessionAggregate, disorder: Disorder, admitted: bool) -> Plan:
    """Rows are assigned to sessions as they come; a row between two sessions merges them."""
    below = _place(plan.input, disorder, True, True)
    if not is_disordered(below, disorder):
        return plan.with_inputs((below,))
    if admitted:
        _refuse_order(plan)
        _refuse_single(plan)
    return _as(MergingSessions, plan, below)


def _refuse_single(plan: Aggregate) -> None:
    """Raise HR-P010 for an aggregate that cannot merge."""
    single = next((c for c in plan.calls if isinstance(c, UserCall) and not c.definition.merges), None)
    if single is not None:
        raise PlanError(
            "HR-P010",
            f"{single.function} cannot merge, but under `admit` a late row may make one session of two",
            hint=f"give {single.function} a method merge(state, later), or enforce this stream strictly",
        )


def _as(kind: type[Aggregate], plan: Aggregate, below: Plan) -> Plan:
    """The node as another kind of node with the same fields, over another input."""
    values = {f.name: getattr(plan, f.name) for f in fields(plan)}
    return kind(**{**values, "input": below})


def _refuse_order(plan: Aggregate) -> None:
    """Raise HR-P010 for an aggregate that depends on the order of rows."""
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
    if isinstance(plan, (Merge, EarlyWindows, EarlySessions)):
        return True
    passes = isinstance(plan, (*INSENSITIVE, Expand, Window)) or _only_comings(plan)
    return passes and is_disordered(plan.inputs[0], disorder)


def _sources(plan: Plan) -> frozenset[str]:
    if isinstance(plan, Source):
        return frozenset({plan.name})
    return frozenset[str]().union(*(_sources(i) for i in plan.inputs))


# The order of simultaneous rows, if the result depends on it.
#
# Only `[ROWS n]`, `LAG`, frames of rows, `DISTINCT ON`, `first` and `last` depend on it. The law: on a path
# of nodes that take a stream row by row (selections, projections, unnestings, LAG, OVER, DISTINCT ON) from
# one source or table, simultaneous rows keep the order in which it delivered them; anywhere else (after a
# union, join, aggregate …) they are ordered by content, column by column, nulls first, NaN last. So the
# answer depends on the rows alone, never on scheduling, batching or parallelism.


def keeps_arrival_order(plan: Plan) -> bool:
    """Whether simultaneous rows of `plan` are taken in the order of their source."""
    while isinstance(plan, (Select, Project, Unnest, Lag, Over, DistinctOn, Window, Order, AdaptiveOrder)):
        if isinstance(plan, Window) and isinstance(plan.spec, SlidingRows):
            return False  # rows of different partitions enter at one instant
        plan = plan.input
    return isinstance(plan, (Source, Table))
