"""Levels of heartbeats: what each input manager waits for (Srivastava & Widom, §7 and Figure 6)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from headrace import tuning
from headrace.errors import ScheduleError
from headrace.graph.graph import Graph, Link
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.graph.table import TableNode
from headrace.operators.contract import Waiting
from headrace.operators.order import InputManager, no_label
from headrace.plan.nodes.core import TimeKind
from headrace.time.timestamp import MAX_TIME

Labels = dict[int, frozenset[str]]
"""The streams whose heartbeats bound an operator's, by node id."""


def streams_below(node: Node) -> frozenset[str]:
    """U of a node: the streams that are input in its subtree."""
    names: set[str] = set()
    for before in node.predecessors:
        if isinstance(before, Node):
            names |= streams_below(before)
        elif not isinstance(before, TableNode):
            names.add(before.name)
    return frozenset(names)


def query_labels(graph: Graph) -> Labels:
    """Query-level: every operator waits for all streams of its component (§7.1)."""
    labels: Labels = {}
    for component in graph.components():
        everything = frozenset[str]().union(*(streams_below(n) for n in component))
        labels |= {node.id: everything for node in component}
    return labels


def operator_labels(graph: Graph) -> Labels:
    """Operator-level: every operator waits for its own inputs only (§7.2)."""
    return {node.id: streams_below(node) for node in graph.nodes}


def memory_labels(graph: Graph) -> Labels:
    """Memory-aware: a proliferating operator waits until what it makes can be used (Figure 6).

    A node's selectivity is rows out ÷ rows in as measured so far. Shared nodes take the union of the labels
    that each of their consumers gives them. A link comes and goes only where the selectivity is well away
    from 1 (`tuning.link_margin`), so that labels do not change with every row.
    """
    labels: Labels = {}
    links: set[Link] = set()
    for node in reversed(graph.nodes):
        own = streams_below(node)
        found = {(below.id, node.id) for below in _subtree(node) if _link_reaches(below, node, graph.links)}
        links |= found
        given = [labels[after.id] for after in node.successors] if found else []
        labels[node.id] = own.union(*given)
    graph.links = links
    return labels


def _link_reaches(origin: Node, top: Node, known: set[Link]) -> bool:
    """Whether the chain from `origin` up to and including `top` still emits more rows than it takes."""
    margin = tuning.current.link_margin
    factor, node = 1.0, origin
    while True:
        factor *= selectivity(node)
        if factor <= (1 / margin if (origin.id, node.id) in known else margin):
            return False
        if node is top:
            return True
        node = _towards(node, top)


def _towards(node: Node, top: Node) -> Node:
    """The successor of `node` on a path to `top`."""
    return next(after for after in node.successors if top in _downstream(after))


def _downstream(node: Node) -> list[Node]:
    """The node and all nodes after it; a node that several paths reach is listed once for each."""
    found = [node]
    for after in node.successors:
        found += _downstream(after)
    return found


def _subtree(node: Node) -> Iterable[Node]:
    """The node and all nodes before it."""
    yield node
    for before in node.predecessors:
        if isinstance(before, Node):
            yield from _subtree(before)


def selectivity(node: Node) -> float:
    """Rows out per row in, as measured; 1 before the first row."""
    return node.operator.rows_out / node.rows_in if node.rows_in else 1.0


LEVELS: dict[str, Callable[[Graph], Labels]] = {
    "query": query_labels,
    "operator": operator_labels,
    "memory": memory_labels,
}


def check_level(level: str) -> None:
    """Raise HR-S003 unless the level exists."""
    if level not in LEVELS:
        near = difflib.get_close_matches(level, LEVELS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(LEVELS)}"
        raise ScheduleError("HR-S003", f"unknown level {level!r}", hint=hint)


def apply_labels(graph: Graph, labels: Labels) -> None:
    """Let every input manager wait for the label of the operator it feeds.

    Rows of a stream that is in order have no input manager: the operator that reads them waits itself.
    """
    for node in graph.nodes:
        if isinstance(node.operator, InputManager):
            wanted = labels[node.id].union(*(_delayed(fed, labels) for fed in _feeds(node)))
            node.label = _beyond(graph, node, wanted)
            node.operator.label = _least_promised(node.label) if node.label else no_label
        elif isinstance(node.operator, Waiting) and node.operator.keeps_to_labels:
            wanted = _delayed(node, labels) if _reads_in_order(node) else frozenset()
            node.label = _beyond(graph, node, wanted)
            node.operator.beyond = _least_promised(node.label) if node.label else None


def _beyond(graph: Graph, node: Node, wanted: frozenset[str]) -> list[SourceNode]:
    """The streams of a label that a node does not read. Latent rows have no heartbeats to wait for."""
    sources = (graph.sources[name] for name in sorted(wanted - streams_below(node)))
    return [source for source in sources if source.kind is not TimeKind.LATENT]


def _reads_in_order(node: Node) -> bool:
    """Whether rows of a stream come to an operator that needs their order, without waiting before it."""
    if not node.operator.order_sensitive:
        return False
    return any(_comes_at_once(before) for before in node.predecessors)


def _comes_at_once(before: Node | SourceNode) -> bool:
    """Whether rows of a stream come here without waiting."""
    if not isinstance(before, Node):
        return not isinstance(before, TableNode)
    return not before.operator.idle_waiting_prone and any(map(_comes_at_once, before.predecessors))


def _feeds(node: Node) -> Iterable[Node]:
    """The operators at which the rows of `node` wait next; others pass them on at once."""
    for after in node.successors:
        if after.operator.idle_waiting_prone:
            yield after
        else:
            yield from _feeds(after)


def _delayed(node: Node, labels: Labels) -> frozenset[str]:
    """The label of an operator that must wait for more than its own inputs; else empty."""
    label = labels[node.id]
    return frozenset() if label == streams_below(node) else label


def _least_promised(sources: list[SourceNode]) -> Callable[[], int]:
    """A function that returns the least heartbeat of these sources: promised, or shown by their rows."""
    return lambda: min((max(s.promised, s.arc.heartbeat) for s in sources), default=MAX_TIME)
