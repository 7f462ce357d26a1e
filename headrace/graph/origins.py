"""The sources of a node's rows: what can advance its time, and where late rows are stopped."""

from __future__ import annotations

from collections.abc import Callable

from headrace.flow.batch import Batch
from headrace.graph.gates import OpenGate, OrderGate, SessionGate, Way
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator, Stateless
from headrace.operators.early_results import EarlyWindowsOperator
from headrace.operators.order import OrderOperator
from headrace.operators.session_aggregate import MergingSessionsOperator
from headrace.operators.union import MergeOperator
from headrace.operators.unsorted_windows import UnsortedPanesOperator, UnsortedWindowsOperator
from headrace.plan.analysis.ordering import Expand
from headrace.plan.nodes.core import Plan, SlidingAggregate
from headrace.plan.nodes.windows import Sliding

IN_WINDOWS = (UnsortedWindowsOperator, UnsortedPanesOperator, EarlyWindowsOperator)
"""Aggregates over windows whose rows come in any order."""


def origins_behind(before: Node | SourceNode) -> list[SourceNode | Operator]:
    """What can make an ETS for rows that pass `before`: sources, and operators that make time."""
    if isinstance(before, SourceNode):
        return [before]
    if before.operator.makes_time:
        return [before.operator]
    return list(dict.fromkeys(o for p in before.predecessors for o in origins_behind(p)))


def sources_behind(before: Node | SourceNode) -> list[SourceNode]:
    """The sources whose rows can pass `before`."""
    if isinstance(before, SourceNode):
        return [before]
    return list(dict.fromkeys(s for p in before.predecessors for s in sources_behind(p)))


def set_gates(graph: Graph) -> None:
    """Set the gates of every source: where its rows are put in order, enter windows or sessions, or leave."""
    for source in graph.sources.values():
        source.admission.gates = []
    for node in graph.nodes:
        behind = sources_behind(node)
        in_force = _least_in_force([*behind, *node.label])
        if isinstance(node.operator, OrderOperator):
            window = next((p.window for p in _path(node.plan) if isinstance(p, Expand)), None)
            for source in behind:
                source.admission.gates.append(OrderGate(node.operator, window, in_force))
        elif isinstance(
            node.operator, (UnsortedWindowsOperator, UnsortedPanesOperator, EarlyWindowsOperator)
        ):
            window = _window_at(node)
            for source in behind:
                if _ways(source, node):
                    source.admission.gates.append(OrderGate(node.operator, window, in_force))
        elif isinstance(node.operator, MergingSessionsOperator):
            for source in behind:
                ways = _ways(source, node)
                if ways:
                    source.admission.gates.append(SessionGate(node.operator, ways, in_force))

    for source in graph.sources.values():
        if _leaves_at_once(source, graph):
            source.admission.gates.append(OpenGate())


def _leaves_at_once(source: SourceNode, graph: Graph) -> bool:
    """Whether rows of a source come to some result without waiting anywhere."""
    if any(sink.arc is source.arc for sink in graph.sinks.values()):
        return True
    ends = [n for n in graph.nodes if n.sinks and isinstance(n.operator, (Stateless, MergeOperator))]
    return any(_ways(source, node) for node in ends)


def _window_at(node: Node) -> Sliding | None:
    """The windows that a row counts in one by one, at an aggregate over rows in any order; None: once."""
    assert isinstance(node.plan, SlidingAggregate)
    if isinstance(node.operator, UnsortedPanesOperator):
        return None
    below = node.plan.input
    return below.window if isinstance(below, Expand) else node.plan.window


def _ways(source: SourceNode, node: Node) -> list[Way]:
    """The ways from a source to a node on which rows do not wait and are not put in order."""
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
    """The way, followed by an operator."""
    return lambda batch: operator.apply(way(batch))


def _least_in_force(sources: list[SourceNode]) -> Callable[[int], int]:
    """A function that returns the least heartbeat in force at these sources."""
    return lambda now: min(source.in_force(now) for source in sources)


def _path(plan: Plan) -> list[Plan]:
    """The plan and all plans below it."""
    return [plan] + [below for p in plan.inputs for below in _path(p)]
