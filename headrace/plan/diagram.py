"""A plan as a diagram: a box per node, equal parts once, as an engine would share them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from headrace.drawing import Arc, Box, Diagram, Look
from headrace.plan.nodes import Plan, Source, Table
from headrace.plan.ordering import Expand, Merge, Order
from headrace.plan.show import show_node
from headrace.plan.spans import Span

TITLES: Final[dict[type[Plan], Callable[[Any], tuple[str, str]]]] = {
    Source: lambda p: (p.name, f"{p.time.value} time"),
    Table: lambda p: (p.name, "table"),
    Expand: lambda p: ("copies", "one for each window"),
    Order: lambda p: ("order", "by time"),
    Merge: lambda p: ("merge", "disorder is left"),
}
"""Those whose line in the text does not begin with their name."""

LOOKS: Final[dict[type[Plan], Look]] = {
    Source: Look.SOURCE,
    Table: Look.TABLE,
    Order: Look.ORDER,
}


def headline(plan: Plan, span: Span = str) -> tuple[str, str]:
    """What a box says of a node: its name and a line about it."""
    rule = TITLES.get(type(plan))
    if rule is not None:
        return rule(plan)
    name, _, rest = show_node(plan, span).partition(" ")
    return name.rstrip(",:"), rest


def plan_diagram(plan: Plan, answer: str, native: Collection[Plan] = (), span: Span = str) -> Diagram:
    """The plan from its streams up to the answer; `native` are the nodes that Spark runs itself.

    `span` writes durations.
    """
    parts = list(dict.fromkeys(_inputs_first(plan)))
    ids = {part: f"p{i}" for i, part in enumerate(parts)}
    boxes = [_box(part, ids[part], part in native, span) for part in parts]
    arcs = [Arc(ids[below], ids[part]) for part in parts for below in part.inputs]
    top = Box("answer", answer, "answer", Look.SINK, note=", ".join(plan.schema.names))
    return Diagram((*boxes, top), (*arcs, Arc(ids[plan], "answer")))


def _inputs_first(plan: Plan) -> list[Plan]:
    return [*(part for below in plan.inputs for part in _inputs_first(below)), plan]


def _box(plan: Plan, id: str, native: bool, span: Span) -> Box:
    title, detail = headline(plan, span)
    look = Look.NATIVE if native else LOOKS.get(type(plan), Look.PLAIN)
    return Box(id, title, detail, look, note=show_node(plan, span))
