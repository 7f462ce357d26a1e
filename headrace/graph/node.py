"""A node of the query graph: an operator and its place."""

from __future__ import annotations

from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator
from headrace.plan.nodes import Plan


class Node:
    """An operator with its neighbours. `fresh`: something came to it since it last ran."""

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
        self.fresh = False
        self.runs = 0
        self.rows_in = 0
        self.label: list[SourceNode] = []
        self.waiting_since: int | None = None
        self.waited = 0
        self.rows_out_seen = 0

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
