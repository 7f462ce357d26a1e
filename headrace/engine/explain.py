"""The running graph of an engine as a diagram: arcs, operators that may wait, where rows are sorted."""

from __future__ import annotations

from headrace.drawing import Arc, Box, Diagram, Look, Section
from headrace.engine.quality import settings
from headrace.graph.ets_arcs import EtsArc
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.graph.table import TableNode
from headrace.plan.nodes.core import Plan
from headrace.plan.show import LOOKS, Span, headline, show_node

Origin = Node | SourceNode


def graph_diagram(graph: Graph, queries: list[str], ets: list[EtsArc], span: Span = str) -> Diagram:
    """The part of the graph that these queries use, from the streams up to the results."""
    ends = {query: _end_of(graph, query) for query in queries}
    used = _behind(list(ends.values()))
    rows = [Arc(_id(b), _id(node), note=f"rows of {b.name}") for node in used for b in _before(node)]
    answers = [Arc(_id(end), f"answer {query}", note=f"rows of {end.name}") for query, end in ends.items()]
    times = [_ets(each) for each in ets if each.target in used]
    sinks = [Box(f"answer {query}", query, "answer", Look.SINK) for query in queries]
    return Diagram((*(_box(each, span) for each in used), *sinks), (*rows, *answers, *times))


def explained_sections(
    graph: Graph, queries: list[str], plan: str, table: str, ets: list[EtsArc], span: Span = str
) -> tuple[Section, ...]:
    """The same as text: the plan, the operators that may wait, what runs next, the arcs of heartbeats."""
    used = _behind([_end_of(graph, query) for query in queries])
    ets = [arc for arc in ets if arc.target in used]
    arcs = "\n".join(f"  {arc.origin.name} -> {arc.target.name}, input {arc.input}" for arc in ets)
    waiting = "\n".join(_waiting(graph, queries)) or "  none"
    sections: tuple[Section, ...] = (
        Section("plan", plan),
        Section("operators that may wait for an idle input", waiting),
        Section("scheduling", table),
    )
    changeable = [each for each in settings(graph, lambda _: span) if set(each.queries) & set(queries)]
    quality = "\n".join(f"  {each.described(span)}" for each in changeable)
    sections += (Section("quality", quality),) if quality else ()
    return (*sections, Section("heartbeat arcs", arcs)) if ets else sections


def _waiting(graph: Graph, queries: list[str]) -> list[str]:
    """For each operator in which rows may wait, the streams that it waits for."""
    used = _behind([_end_of(graph, query) for query in queries])
    prone = [node for node in used if isinstance(node, Node) and node.operator.idle_waiting_prone]
    return [f"  {node.name}: {', '.join(b.name for b in node.predecessors)}" for node in prone]


def _end_of(graph: Graph, query: str) -> Origin:
    """The node that produces the results of a query."""
    arc = graph.sinks[query].arc
    nodes: list[Origin] = [n for n in graph.nodes if n.operator.output is arc]
    leaves = [*graph.sources.values(), *graph.tables.values()]
    return (nodes + [each for each in leaves if each.arc is arc])[0]


def _behind(ends: list[Origin]) -> list[Origin]:
    """These nodes and everything upstream of them, inputs first and in order."""
    found: dict[Origin, None] = {}

    def visit(one: Origin) -> None:
        """Add the predecessors first, so that the result is in topological order."""
        if one not in found:
            for before in _before(one):
                visit(before)
            found[one] = None

    for end in ends:
        visit(end)
    return list(found)


def _before(one: Origin) -> list[Origin]:
    """The predecessors of an operator; a source has none."""
    return one.predecessors if isinstance(one, Node) else []


def _id(one: Origin) -> str:
    kind = "node" if isinstance(one, Node) else "stream"
    return f"{kind} {one.name}"


def _ets(arc: EtsArc) -> Arc:
    """An arc that carries heartbeats past the operators in between."""
    through = [type(each).__name__.removesuffix("Operator").lower() for each in arc.through]
    past = f", skipping {', '.join(through)}" if through else ""
    note = f"heartbeats of {arc.origin.name} to input {arc.input} of {arc.target.name}{past}"
    return Arc(_id(arc.origin), _id(arc.target), ets=True, note=note)


def _box(one: Origin, span: Span) -> Box:
    """The box of an operator, a stream or a table in the diagram."""
    if isinstance(one, Node):
        return _operator(one, one.plan, span)
    look = Look.TABLE if isinstance(one, TableNode) else Look.SOURCE
    detail = "table" if look is Look.TABLE else f"{one.kind.value} time"
    return Box(_id(one), one.name, detail, look, note=f"{one.name}: {', '.join(one.schema.names)}")


def _operator(node: Node, plan: Plan, span: Span) -> Box:
    look = LOOKS.get(type(plan), Look.PLAIN)
    waits = node.operator.idle_waiting_prone
    return Box(_id(node), node.name, headline(plan, span)[1], look, waits, show_node(plan, span))
