"""The structure of a graph, as a snapshot carries it: its nodes, what they compute, who reads what.

With it a snapshot can be restored into a graph of other queries: `headrace.engine.adopting`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headrace.errors import GraphError
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.operators.adaptable import Adaptable
from headrace.operators.contract import Operator, Waiting
from headrace.operators.order import OrderOperator
from headrace.plan.analysis.identity import fingerprint, label, remembers_nothing
from headrace.plan.nodes.core import Plan
from headrace.plan.show import Span, show
from headrace.state.part import decode, encode

FORMAT: Final = 1
"""The version of the state format; a newer one is refused."""

Fields = tuple[tuple[str, str], ...]
"""Names and types of columns."""


@dataclass(frozen=True)
class NodeEntry:
    """A node: what it computes, whether it holds something that a restart must not lose, and its columns.

    `sorts`: it holds rows that nothing above has seen yet. `best`: the preferred value of a window or
    granularity that may change. `reads` are the columns of each input.
    """

    id: int
    fingerprint: str
    since: int
    label: str
    holds: bool
    sorts: bool
    best: int | None
    columns: Fields
    reads: tuple[Fields, ...]


@dataclass(frozen=True)
class QueryEntry:
    """A query: its generation, its nodes, the arc of its results, and its plan as text."""

    since: int
    nodes: tuple[int, ...]
    arc: str
    plan: str


@dataclass(frozen=True)
class Structure:
    """Nodes by id, queries by name, and the consumers of each arc in the order of its readers."""

    nodes: Mapping[int, NodeEntry]
    queries: Mapping[str, QueryEntry]
    readers: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, Fields] = field(default_factory=dict)

    def digest(self) -> str:
        """Equal for graphs that write the same chunks."""
        nodes = [[e.id, e.fingerprint, e.since] for e in self.nodes.values()]
        queries = [[name, e.since, e.nodes] for name, e in self.queries.items()]
        text = json.dumps([nodes, queries, list(self.readers.items())])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_chunk(self) -> bytes:
        """As a chunk of a snapshot."""
        plain = {
            "nodes": [asdict(each) for each in self.nodes.values()],
            "queries": {name: asdict(each) for name, each in self.queries.items()},
            "readers": dict(self.readers),
            "sources": dict(self.sources),
        }
        return encode({"format": FORMAT, "structure": json.dumps(plain)})

    @staticmethod
    def from_chunk(chunk: bytes) -> Structure:
        """The structure that `to_chunk` wrote."""
        content: dict[str, Any] = decode(chunk)
        check_format(content["format"])
        plain = json.loads(content["structure"])
        nodes = [
            NodeEntry(
                **each | {"columns": _fields(each["columns"]), "reads": tuple(map(_fields, each["reads"]))}
            )
            for each in plain["nodes"]
        ]
        queries = {
            name: QueryEntry(**q | {"nodes": tuple(q["nodes"])}) for name, q in plain["queries"].items()
        }
        readers = {name: tuple(consumers) for name, consumers in plain["readers"].items()}
        sources = {name: _fields(columns) for name, columns in plain["sources"].items()}
        return Structure({each.id: each for each in nodes}, queries, readers, sources)


def check_format(format: int) -> None:
    """Raise an error for state in a newer format."""
    if format > FORMAT:
        raise GraphError(
            "HR-G023",
            f"the state has format {format}, and this version of Headrace reads up to {FORMAT}",
            hint="continue with the version that wrote it, or a newer one",
        )


def _fields(columns: Sequence[Sequence[str]]) -> Fields:
    return tuple((name, type) for name, type in columns)


def _fields_of(plan: Plan) -> Fields:
    return tuple((each.name, str(each.type)) for each in plan.schema)


def holds(plan: Plan, operator: Operator) -> bool:
    """Whether an operator keeps something from one instant to the next."""
    if remembers_nothing(plan):
        return False
    return bool(operator.state()) or isinstance(operator, Waiting)


def node_arc(id: int) -> str:
    """The name of a node's output in a snapshot."""
    return f"node/{id}/arc"


def arc_names(graph: Graph) -> dict[int, str]:
    """The name of each arc in a snapshot, by the identity of the arc."""
    names = {id(source.arc): f"source/{name}/arc" for name, source in graph.sources.items()}
    names |= {id(table.arc): f"table/{name}/arc" for name, table in graph.tables.items()}
    return names | {id(node.operator.output): node_arc(node.id) for node in graph.nodes}


def consumers_of(graph: Graph) -> dict[str, tuple[str, ...]]:
    """By arc, who reads it: `node/ID/INPUT` or `query/NAME`, in the order of the readers."""
    names = arc_names(graph)
    who: dict[int, str] = {}
    for node in graph.nodes:
        who |= {id(reader): f"node/{node.id}/{i}" for i, reader in enumerate(node.operator.inputs)}
    who |= {id(sink.reader): f"query/{name}" for name, sink in graph.sinks.items()}
    leaves = [*graph.sources.values(), *graph.tables.values()]
    arcs = [*(leaf.arc for leaf in leaves), *(node.operator.output for node in graph.nodes)]
    return {names[id(arc)]: tuple(who[id(reader)] for reader in arc.readers) for arc in arcs}


def structure_of(graph: Graph, span_of: Callable[[Sequence[str]], Span]) -> Structure:
    """The structure of a graph as it is now."""
    users: dict[int, list[str]] = {}
    for query in graph.sinks:
        for node in graph.nodes_of(query):
            users.setdefault(node.id, []).append(query)
    names = arc_names(graph)
    nodes = {node.id: _entry(node, span_of(users.get(node.id, []))) for node in graph.nodes}
    queries = {
        query: QueryEntry(
            graph.since[query],
            tuple(node.id for node in graph.nodes_of(query)),
            names[id(sink.arc)],
            show(graph.plan_of(query), span_of([query])),
        )
        for query, sink in graph.sinks.items()
    }
    sources = {name: tuple((f.name, str(f.type)) for f in s.schema) for name, s in graph.sources.items()}
    return Structure(nodes, queries, consumers_of(graph), sources)


def _entry(node: Node, span: Span) -> NodeEntry:
    plan = node.plan
    return NodeEntry(
        node.id,
        fingerprint(plan),
        node.since,
        label(plan, span),
        holds(plan, node.operator),
        isinstance(node.operator, OrderOperator),
        node.operator.history.bounds.best if isinstance(node.operator, Adaptable) else None,
        _fields_of(plan),
        tuple(map(_fields_of, plan.inputs)),
    )
