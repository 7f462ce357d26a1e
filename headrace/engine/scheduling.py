"""What runs next, and what each operator waits for: strategies, break nodes, and the heartbeat level."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from headrace.engine.loop import Loop
from headrace.errors import ScheduleError
from headrace.graph.ets_arcs import EtsArc, wire
from headrace.graph.graph import Graph
from headrace.graph.levels import LEVELS, apply_labels, check_level
from headrace.graph.node import Node, kinds
from headrace.graph.origins import set_gates, sources_behind
from headrace.graph.service import Service
from headrace.plan.nodes.core import Select
from headrace.scheduling.table import Strategy
from headrace.scheduling.table import strategy as named_strategy
from headrace.state.sorter import Sorter


@dataclass(frozen=True)
class Waiting:
    """An operator that holds rows until its inputs have heartbeats of `wanted`, and the streams that lack it.

    `since`: the instant since which it has emitted nothing, if that is measured. `streams`: the one that is
    furthest behind comes first. `queries` use the operator. `rows` wait in its inputs and its sort buffers;
    an operator that takes rows into windows at once has none.
    """

    wanted: int
    since: int | None
    streams: tuple[str, ...]
    queries: tuple[str, ...] = ()
    rows: int = 0


@dataclass(frozen=True)
class Dropping:
    """A query without a result, because this operator has let none of its rows through.

    `condition`: it drops them by a condition, such as WHERE; otherwise its rows do not match each other.
    """

    query: str
    operator: str
    rows: int
    condition: bool


class Scheduling:
    """`engine.scheduling`: the state table that decides what runs next; it can be changed at run time."""

    def __init__(self, loop: Loop, propagation: str) -> None:
        self.propagation = propagation
        self.level = "operator"
        self.table = loop.table
        self._loop, self._graph = loop, loop.graph
        self._arcs: list[EtsArc] = []

    def rewire(self) -> None:
        """The graph has changed."""
        self._arcs = wire(self._graph, self.propagation)
        self._graph.set_deadlines()
        self._ask()
        self._label()
        self._loop.rank()

    def _ask(self) -> None:
        """Take over the strategies and break nodes that queries ask for."""
        strategies: dict[int, Strategy] = {}
        breaks: set[int] = set()
        for query, service in self._graph.services.items():
            if service.strategy is None and not service.breaks:
                continue
            nodes = self._graph.nodes_of(query)
            if service.strategy is not None:
                strategies |= {node.id: named_strategy(service.strategy) for node in nodes}
            breaks |= {node.id for node in nodes if node.kind in service.breaks}
        self.table.ask(strategies, breaks)

    def _label(self) -> None:
        """Recompute the labels and gates of the graph for the current heartbeat level."""
        apply_labels(self._graph, LEVELS[self.level](self._graph))
        set_gates(self._graph)

    def use(self, strategy: str, nodes: Iterable[Node | str] | None = None) -> None:
        """Use another strategy, everywhere or at some nodes (or their names), from the next step on."""
        chosen = None if nodes is None else [node_named(self._graph, node) for node in nodes]
        self.table.choose(named_strategy(strategy), chosen)
        self._loop.rank()

    def use_for(self, query: str, strategy: str) -> None:
        """Use another strategy for the operators of a query, if it runs here, from the next step on."""
        named_strategy(strategy)
        before = self._graph.services.get(query)
        if before is not None:
            self._graph.services[query] = replace(before, strategy=strategy)
            self._ask()
            self._loop.rank()

    def set_break(self, node: Node | str) -> None:
        """Cut the graph at the output of a node."""
        self.table.set_break(node_named(self._graph, node))

    def unset_break(self, node: Node | str) -> None:
        """Undo `set_break`."""
        self.table.unset_break(node_named(self._graph, node))

    def set_level(self, level: str) -> None:
        """Heartbeats per `query`, per `operator`, or memory-aware (`memory`)."""
        check_level(level)
        self.level = level
        self.relabel()

    def relabel(self) -> None:
        """Recompute the streams that each operator waits for: the memory-aware level follows measurements."""
        self._label()
        self._loop.agenda.stir_all()
        self._loop.asking.refresh()

    def shares(self) -> dict[str, float]:
        """By query, the part of the steps that its component gets under load; empty if none has a share."""
        return self._loop.shares()

    @property
    def arcs(self) -> list[EtsArc]:
        """The ETS arcs that carry heartbeats; empty if heartbeats are in-band."""
        return self._arcs if self.propagation == "direct" else []

    def waiting(self) -> dict[str, Waiting]:
        """The operators that hold rows, by name, with what each waits for."""
        found = {}
        for node in self._graph.nodes:
            needs = node.operator.needs()
            if needs:
                wanted = max(need.heartbeat for need in needs)
                behind = [s for need in needs for s in sources_behind(node.predecessors[need.input])]
                lacking = sorted(
                    {s for s in behind if s.promised < wanted}, key=lambda s: (s.promised, s.name)
                )
                users = tuple(q for q in self._graph.sinks if node in self._graph.nodes_of(q))
                names = tuple(source.name for source in lacking)
                found[node.name] = Waiting(wanted, node.waiting_since, names, users, _held(node))
        return found

    def dropping(self) -> tuple[Dropping, ...]:
        """The queries that have no result because an operator has let none of its rows through."""
        return tuple(each for query in self._graph.sinks if (each := self._dropping(query)) is not None)

    def _dropping(self, query: str) -> Dropping | None:
        """The first operator that got rows, gave none, and does not wait for anything."""
        nodes = self._graph.nodes_of(query)
        if any(node.waits for node in nodes) or any(n.operator.rows_out for n in nodes if n.sinks):
            return None
        for node in nodes:
            if node.rows_in and not node.operator.rows_out:
                return Dropping(query, node.name, node.rows_in, isinstance(node.plan, Select))
        return None

    def show(self) -> str:
        """The state table in the notation of the papers."""
        return self.table.show(self._graph.nodes)


def check_service(service: Service) -> None:
    """Raise HR-S001 or HR-S004 if a strategy or a kind of operator that a query names does not exist."""
    if service.strategy is not None:
        named_strategy(service.strategy)
    known = kinds()
    for kind in service.breaks:
        if kind not in known:
            near = get_close_matches(kind, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"kinds: {', '.join(sorted(known))}"
            raise ScheduleError("HR-S004", f"there is no kind of operator {kind!r}", hint=hint)


def _held(node: Node) -> int:
    """Rows that wait in the inputs and the sort buffers of an operator."""
    buffers = (part for part in node.operator.state().values() if isinstance(part, Sorter))
    return sum(reader.rows for reader in node.operator.inputs) + sum(map(len, buffers))


def node_named(graph: Graph, node: Node | str) -> Node:
    """A node of the graph, given as a node or by its name."""
    if isinstance(node, Node):
        return node
    names = {each.name: each for each in graph.nodes}
    if node not in names:
        raise ScheduleError("HR-S004", f"no operator {node!r}", hint=f"operators: {', '.join(names)}")
    return names[node]
