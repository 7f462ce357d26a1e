"""The metrics of an engine: counts, sizes, waiting times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.memory.accounting import Account, account
from headrace.time.timestamp import MIN_TIME


@dataclass(frozen=True)
class SourceMetrics:
    """A source: rows in = processed + late + rejected + shed; ETS made, heartbeat promised, its buffer.

    `known` is the heartbeat that held at the last instant, even if no operator has asked for it. `read_until`
    is the instant up to which its source has been read; None if rows do not wait there. `lags` is a histogram
    of a disordered stream: pairs (bound, rows that need a bound of up to that), see `headrace.time.lags`.
    """

    rows_in: int
    rows_processed: int
    rows_late: int
    rows_rejected: int
    ets_made: int
    promised: int
    held_rows: int
    held_bytes: int
    rows_shed: int = 0
    known: int = MIN_TIME
    read_until: int | None = None
    lags: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class NodeMetrics:
    """An operator: rows out, state, the rows in its output buffer, its waiting time in wall-clock ticks.

    `spilled_bytes` of state are on disk, beyond `state_bytes`. `queued_rows` wait in its inputs.
    """

    rows_out: int
    runs: int
    state_bytes: int
    held_rows: int
    held_bytes: int
    waiting_since: int | None
    waited: int
    spilled_bytes: int = 0
    queued_rows: int = 0


@dataclass(frozen=True)
class Metrics:
    """Everything, by name. `memory` counts each buffer once, see `headrace.memory.accounting`.

    `orders`: the joins of queries that run in another order than planned; `conditions`: the operators that
    try theirs in another order than written.
    """

    sources: dict[str, SourceMetrics]
    nodes: dict[str, NodeMetrics]
    held_items: int
    memory: Account
    orders: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)

    @property
    def state_bytes(self) -> int:
        """Bytes of state over all operators."""
        return self.memory.state

    @property
    def bytes(self) -> int:
        """All bytes held: state, and rows in buffers."""
        return self.memory.total

    @property
    def spilled_bytes(self) -> int:
        """Bytes of state on disk, over all operators."""
        return sum(n.spilled_bytes for n in self.nodes.values())


def account_waiting(nodes: Iterable[Node], now: int) -> None:
    """Note which operators idle-wait from `now` on, and close the waits that have ended.

    An operator that emitted something and still holds rows starts a new wait: for something else.
    """
    for node in nodes:
        if not node.operator.idle_waiting_prone:
            continue
        waits = any(reader.rows for reader in node.operator.inputs)
        moved = node.operator.rows_out != node.rows_out_seen
        if node.waiting_since is not None and (moved or not waits):
            node.waited += now - node.waiting_since
            node.waiting_since = None
        if waits and node.waiting_since is None:
            node.waiting_since = now
        node.rows_out_seen = node.operator.rows_out


def measure(graph: Graph, now: int) -> Metrics:
    """The metrics of a graph at wall-clock instant `now`."""
    memory = account(graph)
    sources = {
        name: SourceMetrics(
            s.admission.rows_in,
            s.arc.rows_in,
            s.admission.rows_late,
            s.admission.rows_rejected,
            s.ets_made,
            s.promised,
            s.arc.held_rows(),
            memory.sources[name],
            s.admission.rows_shed,
            max(s.promised, s.held_to),
            s.read_until,
            s.lags.pairs(),
        )
        for name, s in graph.sources.items()
    }
    nodes = {node.name: _node(node, now, memory) for node in graph.nodes}
    arcs = [s.arc for s in graph.sources.values()] + [n.operator.output for n in graph.nodes]
    sinks = {id(sink.arc) for sink in graph.sinks.values()}
    held = sum(arc.held_items() for arc in arcs if id(arc) not in sinks)
    return Metrics(sources, nodes, held, memory)


def _node(node: Node, now: int, memory: Account) -> NodeMetrics:
    """The metrics of one operator; a wait that is still open counts up to now."""
    open_wait = 0 if node.waiting_since is None else now - node.waiting_since
    operator = node.operator
    return NodeMetrics(
        operator.rows_out,
        node.runs,
        memory.states[node.name],
        operator.output.held_rows(),
        memory.arcs[node.name],
        node.waiting_since,
        node.waited + open_wait,
        operator.memory.spilled_bytes(),
        sum(reader.rows for reader in operator.inputs),
    )
