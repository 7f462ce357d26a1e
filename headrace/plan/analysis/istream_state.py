"""Finds relations in which no row enters as an equal row leaves: ISTREAM needs no state for them.

Either no row ever leaves, or the columns of a row determine when it starts: then equal rows start together,
and none of them ends before it has started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.expressions import Column
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.trees import is_static, walk
from headrace.plan.nodes.windows import Now, Range, Sliding, Ticks, Unbounded

Names = frozenset[str]
GROWS: Final = (nodes.Select, nodes.Project, nodes.Join, nodes.Union, nodes.Distinct, OuterJoin)
"""Nodes that keep a growing relation growing."""
TIME_WINDOWS: Final = (Range, Sliding, Now, Unbounded)
"""Windows in which the start of a row depends on its time alone, and in which it ends later."""


def never_cancels(plan: Plan) -> bool:
    """Whether no row enters the relation at the instant at which an equal one leaves."""
    return only_grows(plan) or beginning(plan) is not None


def only_grows(plan: Plan) -> bool:
    """Whether no row ever leaves the relation."""
    if isinstance(plan, nodes.Window):
        return isinstance(plan.spec, Unbounded)
    if isinstance(plan, nodes.Table):
        return not plan.changes
    if isinstance(plan, OuterJoin) and plan.kind is not JoinKind.SEMI:
        return False
    return isinstance(plan, GROWS) and all(only_grows(each) for each in plan.inputs)


def beginning(plan: Plan) -> Names | None:
    """Columns that determine when a row starts: rows that are equal in them all start at one instant.

    A row of a stream starts at its time. None if no columns determine it.
    """
    find = BEGINNINGS.get(type(plan))
    return None if find is None else find(plan)


def _source(plan: nodes.Source) -> Names | None:
    return None if plan.stamp is None else frozenset([plan.stamp])


def _always(plan: nodes.Table) -> Names | None:
    return None if plan.changes else frozenset()


def _same(plan: nodes.Unary) -> Names | None:
    return beginning(plan.input)


def _project(plan: nodes.Project) -> Names | None:
    """The same columns under their new names, if the projection keeps all of them."""
    below = beginning(plan.input)
    kept = {e.name: name for name, e in plan.columns if isinstance(e, Column)}
    return frozenset(kept[name] for name in below) if below is not None and below <= kept.keys() else None


def _window(plan: nodes.Window) -> Names | None:
    return beginning(plan.input) if isinstance(plan.spec, TIME_WINDOWS) else None


def _join(plan: nodes.Join) -> Names | None:
    """A pair starts with the later of its two rows."""
    left, right = beginning(plan.left), beginning(plan.right)
    return None if left is None or right is None else left | right


def _union(plan: nodes.Union) -> Names | None:
    """Only for streams that have the time in the same column."""
    places = {_stamp_at(each) for each in plan.branches}
    at = places.pop()
    return None if places or at is None else frozenset([plan.schema.names[at]])


def _stamp_at(plan: Plan) -> int | None:
    """The position of a stream's time column, if only rows and columns were dropped since."""
    below, told = plan, beginning(plan)
    while isinstance(below, (nodes.Select, nodes.Project)):
        below = below.input
    if told is None or not isinstance(below, (nodes.Source, nodes.Union)):
        return None
    return int(plan.schema.names.index(*told))


BEGINNINGS: Final[dict[type[Plan], Callable[[Any], Names | None]]] = {
    nodes.Source: _source,
    nodes.Table: _always,
    nodes.Select: _same,
    nodes.Project: _project,
    nodes.Union: _union,
    nodes.Window: _window,
    nodes.Join: _join,
    nodes.IStream: _same,
}


# Relations in which each row is valid at exactly one tick: RSTREAM can report a row and forget it.


KEEPS = (nodes.Select, nodes.Project, nodes.Union, nodes.Join, OuterJoin)
"""Nodes that keep the intervals of their input; for two inputs with equal intervals, these."""


def ticks_of(plan: Plan) -> Ticks | None:
    """The ticks of a relation in which each row is valid from one tick to the next; None for others."""
    if isinstance(plan, nodes.SlidingAggregate):
        return plan.window.ticks
    if isinstance(plan, SessionAggregate):
        return Ticks(1)
    if isinstance(plan, nodes.Window):
        return (
            plan.spec.ticks if isinstance(plan.spec, Sliding) and plan.spec.size <= plan.spec.slide else None
        )
    if not isinstance(plan, KEEPS) or has_changing_table(plan):
        return None
    found = {ticks_of(each) for each in plan.inputs if not has_no_ticks(plan, each)}
    return found.pop() if len(found) == 1 else None


def has_changing_table(plan: Plan) -> bool:
    """Whether a table that is reloaded is looked up: a pair may end with its row of the table."""
    return any(isinstance(each, nodes.Table) and each.changes for each in walk(plan))


def has_no_ticks(plan: Plan, below: Plan) -> bool:
    """Whether an input is a table in which a join only looks up partners: it adds no changes of its own."""
    if isinstance(plan, OuterJoin) and below in plan.lasting:
        return False
    return isinstance(plan, nodes.Pairing) and is_static(below)


def reported(plan: Plan, ticks: Ticks) -> nodes.RStream:
    """The relation as a report at every tick; row by row if each row is valid at one tick only."""
    return nodes.RStream(plan, ticks.slide, ticks.phase, once=ticks_of(plan) == ticks)
