"""What a graph holds in memory: bytes per operator, arc and query, every buffer counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.flow.arc import Arc
from headrace.flow.batch import Batch
from headrace.flow.holdings import Holdings
from headrace.flow.sorter import Sorter
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator


@dataclass(frozen=True)
class Account:
    """Bytes by name: `states` of operators, `arcs` behind them, `sources` (tables too), `queries`.

    A buffer that several hold is counted with the first of them, sources before operators. A query is
    charged for everything that it uses, what it shares with others included: `queries` may add up to more
    than `total`, which counts everything once. `answers` are those of `arcs` that wait to be taken.
    """

    states: dict[str, int]
    arcs: dict[str, int]
    sources: dict[str, int]
    queries: dict[str, int]
    answers: int = 0

    @property
    def state(self) -> int:
        """Bytes of state over all operators."""
        return sum(self.states.values())

    @property
    def own(self) -> int:
        """All bytes but those of answers, which are the taker's to free."""
        return self.total - self.answers

    @property
    def total(self) -> int:
        """All bytes, state and rows on their way."""
        return self.state + sum(self.arcs.values()) + sum(self.sources.values())


def account(graph: Graph, *, tight: bool = False) -> Account:
    """Measure a graph. Costs a look at each operator and at each batch that waits.

    `tight` counts rows as if each lay by itself, and leaves out spare room, rows that all have read, and what
    is kept for the next snapshot: these depend on how a state came to be what it is, and so do not survive a
    restore.
    """
    count = _tight if tight else Holdings().add
    held_by = Arc.unread if tight else Arc.batches
    sources = {name: count(held_by(source.arc)) for name, source in graph.sources.items()}
    sources |= {name: count(table.arc.batches()) for name, table in graph.tables.items()}
    states: dict[str, int] = {}
    arcs: dict[str, int] = {}
    for node in graph.nodes:
        states[node.name] = _state(node.operator, count)
        if tight:
            states[node.name] -= node.operator.log_bytes() + node.operator.spare_bytes()
        arcs[node.name] = count(held_by(node.operator.output))
    answers = sum(arcs[node.name] for node in graph.nodes if node.sinks and not node.successors)
    held = Account(states, arcs, sources, {}, answers)
    return replace(held, queries={query: _charged(graph, query, held) for query in graph.sinks})


def _tight(batches: Iterable[Batch]) -> int:
    return sum(batch.bytes() - _of_data(batch) + _values(batch) for batch in batches)


def _of_data(batch: Batch) -> int:
    return int(batch.data.nbytes)


def _values(batch: Batch) -> int:
    """Bytes of the values alone: which of them are known may be written down where all are, or not."""
    return sum(map(_column, batch.data.columns))


def _column(column: pa.Array) -> int:
    known = -(-len(column) // 8) if column.null_count else 0
    if pt.is_nested(column.type) or pt.is_dictionary(column.type):
        return int(column.nbytes)
    if pt.is_null(column.type):
        return 0
    if any(is_fixed(column.type) for is_fixed in FIXED):
        return -(-len(column) * int(column.type.bit_width) // 8) + known
    lengths = pc.sum(pc.binary_length(column)).as_py() if len(column) else 0
    return int(lengths or 0) + 4 * (len(column) + 1) + known


FIXED: Final = (pt.is_primitive, pt.is_fixed_size_binary, pt.is_decimal)
"""Types of which each value has as many bits."""


def _state(operator: Operator, count: Callable[[Iterable[Batch]], int]) -> int:
    """Bytes of an operator's state; batches in it may have been counted before."""
    own = operator.state_bytes()
    for part in operator.state().values():
        if isinstance(part, Sorter):
            own += count(part.batches()) - part.bytes()
    return own


def _charged(graph: Graph, query: str, held: Account) -> int:
    """Bytes of everything that a query's rows come by."""
    arc = graph.sinks[query].arc
    ends: list[Node | SourceNode] = [*graph.nodes, *graph.sources.values(), *graph.tables.values()]
    queue = [end for end in ends if (end.operator.output if isinstance(end, Node) else end.arc) is arc]
    seen = set(map(id, queue))
    charged = 0
    while queue:
        one = queue.pop()
        if not isinstance(one, Node):
            charged += held.sources[one.name]
            continue
        charged += held.states[one.name] + held.arcs[one.name]
        fresh = [p for p in dict.fromkeys(one.predecessors) if id(p) not in seen]
        seen.update(map(id, fresh))
        queue.extend(fresh)
    return charged
