"""Relations to streams: ISTREAM, DSTREAM, RSTREAM, and the default if none is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.expressions import Column, lit
from headrace.plan.analysis.unique_keys import identifies
from headrace.plan.nodes.changelog import INSERT, Changelog
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
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.windows import Now, Range, Sliding, Ticks, Unbounded
from headrace.sql.binder.environment import column_called
from headrace.sql.binder.scope import fresh
from headrace.sql.catalog import Relation
from headrace.sql.parser import clauses
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


def _changelog(relation: Relation, place: Place) -> Relation:
    """The changes of the relation, with the operation as the first column; a stream only inserts."""
    keys = place.args.get("keys") or [] if isinstance(place, clauses.ToStream) else []
    names = relation.plan.schema.names
    operation = fresh("op", {name.lower() for name in names})
    rest = tuple((name, Column(name)) for name in names)
    if relation.is_stream and not keys:
        return replace(relation, plan=Project(relation.plan, ((operation, lit(INSERT)), *rest)))
    found = tuple(column_called(each, names) for each in keys)
    if found and not identifies(relation.plan, found):
        shown = ", ".join(found)
        hint = f"group by {shown}, use [PARTITION BY {shown} ROWS 1] or a table, or leave out the key"
        fail(Code.CHANGELOG_KEY, f"several rows may have the same {shown}", keys[0], hint)
    log = Changelog(relation.plan, operation, found)
    plan = Project(log, ((operation, Column(operation)), *rest))
    return replace(relation, plan=plan, implicit=False, time_column=None)


OUTPUTS: Final[dict[str, Callable[[Relation, Place], Relation]]] = {
    "ISTREAM": _istream,
    "DSTREAM": _dstream,
    "RSTREAM": _rstream,
    "CHANGELOG": _changelog,
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
    inputs = plan.lasting if isinstance(plan, OuterJoin) else plan.inputs
    bounds = [lasts(each) for each in inputs if each.is_relation]
    return min(bounds) if isinstance(plan, Join) else max(bounds, default=FOREVER)


def keeps_all(plan: Plan) -> bool:
    """Whether no row ever leaves the relation."""
    if isinstance(plan, Window):
        return isinstance(plan.spec, Unbounded)
    if isinstance(plan, Table):
        return not plan.changes
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
