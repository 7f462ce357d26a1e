"""Where the rows of a node come from: what can make time pass for it, and what holds its late rows out."""

from __future__ import annotations

from collections.abc import Callable

from headrace.graph.admission import Gate
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator
from headrace.operators.order import OrderOperator
from headrace.plan.nodes import Plan
from headrace.plan.ordering import Expand


def origins_behind(before: Node | SourceNode) -> list[SourceNode | Operator]:
    """What can make an ETS for rows that come by way of `before`: sources, and operators that make time."""
    if isinstance(before, SourceNode):
        return [before]
    if before.operator.makes_time:
        return [before.operator]
    return list(dict.fromkeys(o for p in before.predecessors for o in origins_behind(p)))


def sources_behind(before: Node | SourceNode) -> list[SourceNode]:
    """The sources whose rows can come by way of `before`."""
    if isinstance(before, SourceNode):
        return [before]
    return list(dict.fromkeys(s for p in before.predecessors for s in sources_behind(p)))


def set_gates(graph: Graph) -> None:
    """Tell every source where its rows are put in order."""
    for source in graph.sources.values():
        source.admission.gates = []
    for node in graph.nodes:
        if isinstance(node.operator, OrderOperator):
            window = next((p.window for p in _path(node.plan) if isinstance(p, Expand)), None)
            behind = [*sources_behind(node), *node.label]
            gate = Gate(node.operator, window, _least_in_force(behind))
            for source in sources_behind(node):
                source.admission.gates.append(gate)


def _least_in_force(sources: list[SourceNode]) -> Callable[[int], int]:
    return lambda now: min(source.in_force(now) for source in sources)


def _path(plan: Plan) -> list[Plan]:
    return [plan] + [below for p in plan.inputs for below in _path(p)]
