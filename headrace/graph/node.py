"""A node of the query graph: an operator and its place."""

from __future__ import annotations

from collections.abc import Callable

from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator
from headrace.plan.nodes import Plan


class Node:
    """An operator with its neighbours.

    `clears` are the nodes that may go on when rows have passed this one, though none of them comes to them.
    """

    def __init__(
        self, id: int, plan: Plan, operator: Operator, predecessors: list[Node | SourceNode]
    ) -> None:
        self.id = id
        self.plan = plan
        self.operator = operator
        self.predecessors = predecessors
        self.successors: list[Node] = []
        self.tsm_successors: list[Node] = []
        self.sinks = 0
        self.branch = -1
        self.clears: list[Node] = []
        self.place = 0
        self.stir: Callable[[Node], None] = nobody_looks
        self._fresh = False
        self.runs = 0
        self.rows_in = 0
        self.label: list[SourceNode] = []
        self.waiting_since: int | None = None
        self.waited = 0
        self.rows_out_seen = 0

    @property
    def fresh(self) -> bool:
        """Whether something came to it since it last ran."""
        return self._fresh

    @fresh.setter
    def fresh(self, fresh: bool) -> None:
        if fresh and self._fresh:
            return
        self._fresh = fresh
        self.stir(self)

    @property
    def name(self) -> str:
        """A short name, unique in the graph, as tables and pictures show it."""
        return f"{type(self.operator).__name__.removesuffix('Operator').lower()}{self.id}"

    @property
    def waits(self) -> bool:
        """Whether it holds something that a heartbeat would release."""
        return bool(self.operator.needs())

    def __repr__(self) -> str:
        return self.name


def nobody_looks(node: Node) -> None:
    """Of a node that is in no engine's agenda."""
