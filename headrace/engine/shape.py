"""The shape of a running graph as plain data: operators, what each reads, and the queries that it answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.graph.table import TableNode
from headrace.plan.show import Span, headline

LONGEST: Final = 120
"""The length of the description of an operator; the rest is cut off."""


@dataclass(frozen=True)
class OperatorShape:
    """An operator: its name, its kind, what it does in a few words.

    `inputs` are names of operators, or `stream NAME` or `table NAME`. `answers`: the queries whose results
    it emits. `waits`: it may wait for an idle input.
    """

    name: str
    kind: str
    detail: str
    inputs: tuple[str, ...]
    answers: tuple[str, ...] = ()
    waits: bool = False


@dataclass(frozen=True)
class Shape:
    """All operators of a graph, inputs first. `id` is equal for graphs of the same queries and streams."""

    id: str
    operators: tuple[OperatorShape, ...]


def shape_of(graph: Graph, span_of: Callable[[Sequence[str]], Span]) -> Shape:
    """The shape of a graph as it is now; its cost follows the number of operators."""
    users: dict[int, list[str]] = {}
    for query in graph.sinks:
        for node in graph.nodes_of(query):
            users.setdefault(node.id, []).append(query)
    answers: dict[int, list[str]] = {}
    for query, sink in graph.sinks.items():
        answers.setdefault(id(sink.arc), []).append(query)
    operators = tuple(
        _operator(node, span_of(users.get(node.id, [])), tuple(answers.get(id(node.operator.output), ())))
        for node in graph.nodes
    )
    names = "\n".join([*sorted(graph.sinks), "", *sorted(graph.sources)])
    return Shape(hashlib.blake2b(names.encode(), digest_size=6).hexdigest(), operators)


def _operator(node: Node, span: Span, answers: tuple[str, ...]) -> OperatorShape:
    kind, detail = headline(node.plan, span)
    inputs = tuple(map(_input, node.predecessors))
    return OperatorShape(node.name, kind, detail[:LONGEST], inputs, answers, node.operator.idle_waiting_prone)


def _input(one: Node | SourceNode) -> str:
    if isinstance(one, Node):
        return one.name
    return f"table {one.name}" if isinstance(one, TableNode) else f"stream {one.name}"
