"""Where no row can come at the very instant at which an equal one goes: ISTREAM remembers nothing there.

Either no row ever goes, or the columns of a row say when it begins: then equal rows begin together, and none
of them ends before it has begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.expressions import Column
from headrace.plan import nodes
from headrace.plan.nodes import Plan
from headrace.plan.windows import Now, Range, Sliding, Unbounded

Names = frozenset[str]
GROWS: Final = (nodes.Select, nodes.Project, nodes.Join, nodes.Union, nodes.Distinct)
"""What makes growing relations of growing relations."""
TIME_WINDOWS: Final = (Range, Sliding, Now, Unbounded)
"""Windows in which a row begins at a function of its time alone, and is valid for a while."""


def never_cancels(plan: Plan) -> bool:
    """Whether a row of a relation never comes when an equal one goes."""
    return only_grows(plan) or beginning(plan) is not None


def only_grows(plan: Plan) -> bool:
    """Whether no row ever leaves the relation."""
    if isinstance(plan, nodes.Window):
        return isinstance(plan.spec, Unbounded)
    if isinstance(plan, nodes.Table):
        return True
    return isinstance(plan, GROWS) and all(only_grows(each) for each in plan.inputs)


def beginning(plan: Plan) -> Names | None:
    """Columns that tell when a row begins: of rows that are equal in them, all begin at one instant.

    A row of a stream begins at its time. None where columns do not tell.
    """
    find = BEGINNINGS.get(type(plan))
    return None if find is None else find(plan)


def _source(plan: nodes.Source) -> Names | None:
    return None if plan.stamp is None else frozenset([plan.stamp])


def _always(plan: nodes.Table) -> Names | None:
    return frozenset()


def _same(plan: nodes.Unary) -> Names | None:
    return beginning(plan.input)


def _project(plan: nodes.Project) -> Names | None:
    below = beginning(plan.input)
    kept = {e.name: name for name, e in plan.columns if isinstance(e, Column)}
    return frozenset(kept[name] for name in below) if below is not None and below <= kept.keys() else None


def _window(plan: nodes.Window) -> Names | None:
    return beginning(plan.input) if isinstance(plan.spec, TIME_WINDOWS) else None


def _join(plan: nodes.Join) -> Names | None:
    """A pair begins with the later of the two."""
    left, right = beginning(plan.left), beginning(plan.right)
    return None if left is None or right is None else left | right


def _union(plan: nodes.Union) -> Names | None:
    """Only of streams as they are: there, the same column says the same of the time in each."""
    places = {_stamp_at(each) for each in plan.branches}
    at = places.pop()
    return None if places or at is None else frozenset([plan.schema.names[at]])


def _stamp_at(plan: Plan) -> int | None:
    """The place of the column that a stream was stamped by, if nothing but rows and columns were left out."""
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
