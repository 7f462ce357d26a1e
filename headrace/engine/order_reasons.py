"""Where the rows of queries are put in order and where not, and why: for `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.drawing import Section
from headrace.graph.graph import Graph
from headrace.graph.levels import selectivity, streams_below
from headrace.graph.node import Node
from headrace.operators.adaptive_order import AdaptiveOrderOperator
from headrace.operators.order import AnyOrder, OrderOperator
from headrace.operators.union import MergeOperator


def order_section(graph: Graph, queries: list[str]) -> tuple[Section, ...]:
    """A line for each operator that sorts or takes rows in any order; no section if there is none."""
    nodes = dict.fromkeys(node for query in queries for node in graph.nodes_of(query))
    lines = [line for node in nodes for line in _lines(graph, node)]
    return (Section("order of rows", "\n".join(f"  {line}" for line in lines)),) if lines else ()


def _lines(graph: Graph, node: Node) -> Iterator[str]:
    operator = node.operator
    if isinstance(operator, AdaptiveOrderOperator):
        yield f"{node.name}: {_of(node)} are put in order {_for(graph, node)}; {_cut(operator)}"
    elif isinstance(operator, OrderOperator):
        yield f"{node.name}: {_of(node)} are put in order {_for(graph, node)}{_passing(node)}"
    elif isinstance(operator, MergeOperator):
        yield f"{node.name}: {_of(node)} pass as they come; nothing above needs them in order"
    elif isinstance(operator, AnyOrder):
        yield f"{node.name}: takes {_of(node)} in any order, so nothing is sorted before it"


def _of(node: Node) -> str:
    return "rows of " + ", ".join(sorted(streams_below(node)))


def _for(graph: Graph, node: Node) -> str:
    """What needs the rows in order."""
    above = ", ".join(after.name for after in node.successors)
    answers = [query for query, sink in graph.sinks.items() if sink.arc is node.operator.output]
    return f"for {above}" if above else f"for the results of {', '.join(answers)}"


def _passing(node: Node) -> str:
    """What runs before rows wait, and how much of them is left."""
    steps: list[Node] = []
    before: Any = node.predecessors[0]
    while isinstance(before, Node) and not before.operator.idle_waiting_prone:
        steps.append(before)
        before = before.predecessors[0]
    if not steps:
        return ", as they come from the source"
    left = 1.0
    for step in steps:
        left *= selectivity(step)
    names = ", ".join(step.name for step in reversed(steps))
    return f", after {names}: {left:.3g} rows wait for each that comes"


def _cut(operator: AdaptiveOrderOperator) -> str:
    """Before which steps rows wait, and what that costs."""
    steps = operator.plan.steps
    names = [type(step).__name__.lower() for step in steps]
    where = f"after {', '.join(names[: operator.cut])}" if operator.cut else f"before {', '.join(names)}"
    if not operator.is_measured:
        return f"they wait {where}; not measured yet"
    costs = operator.costs()
    others = [f"{cost:.0f} after {step}" for cost, step in zip(costs, ("none", *names), strict=True)]
    chosen = f"{costs[operator.cut]:.0f} bytes for each row that comes"
    return f"they wait {where}: {chosen} ({', '.join(others)})"
