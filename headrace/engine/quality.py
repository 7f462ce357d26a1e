"""What can be changed while it runs: windows and granularities, within the bounds that users wrote (002)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headrace.errors import GraphError
from headrace.flow.batch import Times
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.operators.adaptable import Adaptable
from headrace.operators.history import Entries
from headrace.plan.nodes import Plan
from headrace.plan.show import show_node


@dataclass(frozen=True)
class Setting:
    """A window or a granularity that may change: whose it is, its bounds, what it is and has been.

    `history` are pairs (t, value): rows with time ≥ t get the value. `earliest` is the first instant from
    which it can still be changed.
    """

    node: str
    what: str
    queries: tuple[str, ...]
    least: int
    most: int
    value: int
    history: Entries
    earliest: int

    def __str__(self) -> str:
        return f"{self.node}: {self.what}, {self.value} in [{self.least}, {self.most}], {self._changes()}"

    def _changes(self) -> str:
        changed = len(self.history) - 1
        return f"changed {changed} times, last from {self.history[-1][0]}" if changed else "never changed"


def settings(graph: Graph) -> list[Setting]:
    """Everything that may change, in the order of the graph."""
    users = graph.quality.nodes()
    return [_setting(node, users[node]) for node in graph.nodes if node in users]


def _setting(node: Node, queries: list[str]) -> Setting:
    operator = node.operator
    assert isinstance(operator, Adaptable)
    history = operator.history
    least, most = history.bounds.least, history.bounds.most
    what = show_node(node.plan)
    return Setting(
        node.name, what, tuple(queries), least, most, history.value, history.entries, operator.earliest
    )


def in_force(histories: Mapping[Plan, Entries], times: Times) -> dict[Plan, Times]:
    """By window or granularity, the value at each time."""
    found: dict[Plan, Times] = {}
    for plan, entries in histories.items():
        since, values = (np.array(each, np.int64) for each in zip(*entries, strict=True))
        found[plan] = values[np.searchsorted(since, times, side="right") - 1]
    return found


def resize(node: Node, value: int, at: int | None) -> int:
    """Change the value of a node for rows from an instant on; returns the instant."""
    operator = node.operator
    if not isinstance(operator, Adaptable):
        raise GraphError(
            "HR-G015",
            "this operator has no bounds to change within",
            place=node.name,
            hint="write [RANGE MIN 2 HOURS, MAX 5 HOURS] or [GRANULARITY COARSEST …, FINEST …]",
        )
    bounds = operator.history.bounds
    if isinstance(value, bool) or not isinstance(value, int) or value not in bounds:
        raise GraphError(
            "HR-G016",
            f"{value!r} is outside of the bounds of all queries that use it",
            place=node.name,
            hint=f"from {bounds.least} to {bounds.most}",
        )
    instant = operator.earliest if at is None else at
    if instant < operator.earliest:
        raise GraphError(
            "HR-G017",
            f"rows of time {operator.earliest - 1} have been answered for, {instant} is too early",
            place=node.name,
            hint=f"from {operator.earliest} on, or leave at= out",
        )
    return operator.change(instant, value)
