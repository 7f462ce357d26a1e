"""Where the rows of a node come from: what can make time pass for it, and what holds its late rows out."""

from __future__ import annotations

from collections.abc import Callable

from headrace.flow.batch import Batch
from headrace.graph.gates import OrderGate, SessionGate, Way
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator, Stateless
from headrace.operators.loose_sessions import LooseSessionsOperator
from headrace.operators.merge import MergeOperator
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
    """Tell every source where its rows are put in order, or come to sessions as they are."""
    for source in graph.sources.values():
        source.admission.gates = []
    for node in graph.nodes:
        behind = sources_behind(node)
        in_force = _least_in_force([*behind, *node.label])
        if isinstance(node.operator, OrderOperator):
            window = next((p.window for p in _path(node.plan) if isinstance(p, Expand)), None)
            for source in behind:
                source.admission.gates.append(OrderGate(node.operator, window, in_force))
        if isinstance(node.operator, LooseSessionsOperator):
            for source in behind:
                ways = _ways(source, node)
                if ways:
                    source.admission.gates.append(SessionGate(node.operator, ways, in_force))


def _ways(source: SourceNode, node: Node) -> list[Way]:
    """The ways from a source to a node that rows go at once, in whatever order they are."""
    found: list[Way] = []
    for before in node.predecessors:
        if before is source:
            found.append(_unchanged)
        elif isinstance(before, Node) and isinstance(before.operator, (Stateless, MergeOperator)):
            found += [_then(way, before.operator) for way in _ways(source, before)]
    return found


def _unchanged(batch: Batch) -> Batch:
    return batch


def _then(way: Way, operator: Stateless | MergeOperator) -> Way:
    return lambda batch: operator.apply(way(batch))


def _least_in_force(sources: list[SourceNode]) -> Callable[[int], int]:
    return lambda now: min(source.in_force(now) for source in sources)


def _path(plan: Plan) -> list[Plan]:
    return [plan] + [below for p in plan.inputs for below in _path(p)]
