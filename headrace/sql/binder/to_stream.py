"""Relations to streams: ISTREAM, DSTREAM, RSTREAM, and the default if none is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.plan.nodes.core import (
    Distinct,
    DStream,
    IStream,
    Join,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Table,
    ToStream,
    Union,
    Window,
)
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.windows import Now, Range, Sliding, Ticks, Unbounded
from headrace.sql.catalog import Relation
from headrace.sql.place import Code, Place, fail


def _istream(relation: Relation, place: Place) -> Relation:
    """The rows that are inserted; for a stream, these are all its rows."""
    return relation if relation.is_stream else replace(relation, plan=IStream(relation.plan), implicit=False)


def _dstream(relation: Relation, place: Place) -> Relation:
    """The rows that leave the relation; an error if no row ever does."""
    if relation.is_stream:
        hint = "add a window such as [RANGE 10 MINUTES]"
        fail(Code.MEANINGLESS_OUTPUT, "DSTREAM needs a window: without one no row ever leaves", place, hint)
    if relation.implicit and keeps_all(relation.plan):
        hint = "add windows such as [RANGE 10 MINUTES]"
        fail(Code.MEANINGLESS_OUTPUT, "DSTREAM needs windows: without one no row ever leaves", place, hint)
    return replace(relation, plan=DStream(relation.plan), implicit=False)


def _rstream(relation: Relation, place: Place) -> Relation:
    """All rows again at each slide, or at each tick if no window slides."""
    if relation.is_stream or lasts(relation.plan) == FOREVER:
        hint = "use a window such as [NOW] or [RANGE 10 MINUTES SLIDE 1 MINUTE], or write ISTREAM"
        fail(
            Code.ENDLESS, "RSTREAM would repeat these rows without end, because they never leave", place, hint
        )
    return _reported(relation, _ticks(relation, place) or Ticks(1))


OUTPUTS: Final[dict[str, Callable[[Relation, Place], Relation]]] = {
    "ISTREAM": _istream,
    "DSTREAM": _dstream,
    "RSTREAM": _rstream,
}


def by_default(relation: Relation, place: Place) -> Relation:
    """The default.

    A stream stays as it is, a sliding query reports each window once, any other its new rows.
    """
    if relation.is_stream:
        return relation
    ticks = _ticks(relation, place)
    if ticks is None or lasts(relation.plan) == FOREVER:
        return _istream(relation, place)
    return _reported(relation, ticks)


def _reported(relation: Relation, ticks: Ticks) -> Relation:
    """Report the whole relation at each slide."""
    return replace(relation, plan=RStream(relation.plan, ticks.slide, ticks.phase), implicit=False)


def _ticks(relation: Relation, place: Place) -> Ticks | None:
    """When the windows of the query are answered; an error if they do not agree."""
    found = ticks_of(relation.plan)
    if len({ticks.slide for ticks in found}) > 1:
        hint = "write ISTREAM(…), or use the same SLIDE in all windows"
        fail(Code.SLIDES, "the windows slide by different amounts", place, hint)
    if len(found) > 1:
        hint = "write ISTREAM(…), or choose ranges that differ by a multiple of the SLIDE"
        fail(Code.SLIDES, "the windows end at different times", place, hint)
    return next(iter(found), None)


# How long rows of a plan stay valid, according to its windows.


FOREVER: Final = math.inf
GROWING: Final = (Select, Project, Join, Distinct, Union)


def ticks_of(plan: Plan) -> frozenset[Ticks]:
    """The times at which the windows between this relation and its streams are answered."""
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
    """How long a row stays in a window after the last input, in ticks."""
    match plan.spec:
        case Now():
            return 1
        case Range(size):
            return size
        case Sliding(size, slide):
            return size + slide
    return FOREVER
