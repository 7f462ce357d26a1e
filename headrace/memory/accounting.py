"""The memory that a graph uses: bytes per operator, arc and query, with every buffer counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.flow.arc import Arc
from headrace.flow.batch import Batch, Holdings
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator
from headrace.plan.nodes.core import Granularity
from headrace.state.sorter import Sorter


@dataclass(frozen=True)
class Account:
    """Bytes by name: `states` of operators, `arcs` behind them, `sources` (tables too), `queries`.

    A shared buffer is counted with its first holder, sources before operators. A query is charged for
    everything that it uses, including what it shares with others: `queries` may add up to more than `total`,
    which counts everything once. `answers` is the part of `arcs` that waits to be taken.
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
        """All bytes except those of answers, which only the reader of the query can free."""
        return self.total - self.answers

    @property
    def total(self) -> int:
        """All bytes: state and rows in arcs."""
        return self.state + sum(self.arcs.values()) + sum(self.sources.values())


def account(graph: Graph, *, tight: bool = False) -> Account:
    """Measure a graph. Looks at each operator and each waiting batch.

    `tight` counts the values of rows alone, and leaves out unused capacity, rows that all readers have read,
    and what is kept for the next snapshot: these depend on the history of the state, so a restore changes
    them.
    """
    count = _tight if tight else Holdings().add
    held_by = Arc.unread if tight else Arc.batches
    sources = {
        name: count(held_by(source.arc)) + source.admission.punctuate.bytes()
        for name, source in graph.sources.items()
    }
    sources |= {name: count(table.arc.batches()) for name, table in graph.tables.items()}
    states: dict[str, int] = {}
    arcs: dict[str, int] = {}
    for node in graph.nodes:
        states[node.name] = _state(node.operator, count)
        if tight:
            states[node.name] -= node.operator.memory.log_bytes() + node.operator.memory.spare_bytes()
        arcs[node.name] = count(held_by(node.operator.output))
    answers = sum(arcs[node.name] for node in graph.nodes if node.sinks and not node.successors)
    held = Account(states, arcs, sources, {}, answers)
    return replace(held, queries={query: _charged(graph, query, held) for query in graph.sinks})


def _tight(batches: Iterable[Batch]) -> int:
    """Bytes of batches, without what their Arrow buffers hold beyond the values."""
    return sum(batch.bytes() - _of_data(batch) + _values(batch) for batch in batches)


def _of_data(batch: Batch) -> int:
    return int(batch.data.nbytes)


def _values(batch: Batch) -> int:
    """Bytes of the values alone; a null bitmap counts only if there are nulls."""
    return sum(map(_column, batch.data.columns))


def _column(column: pa.Array) -> int:
    """Bytes of a column's values, offsets and null bitmap, without padding or unused parts of buffers."""
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
"""Types with a fixed number of bits per value."""


def _state(operator: Operator, count: Callable[[Iterable[Batch]], int]) -> int:
    """Bytes of an operator's state; batches in it may have been counted before."""
    own = operator.memory.bytes()
    for part in operator.state().values():
        if isinstance(part, Sorter):
            own += count(part.batches()) - part.bytes()
    return own


def _charged(graph: Graph, query: str, held: Account) -> int:
    """Bytes of everything that a query's rows pass."""
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


# Who uses the memory: bytes of operators and arcs, charged to the windows that their rows passed.
#
# Rows that pass a granularity that may change are charged to it, by lines. Rows that wait for the end of
# a grain are not charged to any window: they depend on the grain.


Rows = dict[int, float]
"""How many rows are held behind each window, by node id."""


def charge(graph: Graph, held: Account, rows: Rows) -> dict[int, float]:
    """Bytes by window; rows that pass several windows are charged to them in proportion to their rows."""
    charged = dict.fromkeys(rows, 0.0)
    for node in graph.nodes:
        waiting = 0 if node.sinks and not node.successors else held.arcs[node.name]
        if node.id in rows:
            charged[node.id] += 0 if isinstance(node.plan, Granularity) else waiting
            if node.operator.keeps_rows:
                charged[node.id] += held.states[node.name]
            continue
        sides = node.operator.memory.bytes_by_input() or ()
        for before, size in zip(node.predecessors, sides, strict=False):
            _share(charged, _behind([before], rows), size)
        rest = max(0, held.states[node.name] - sum(sides))
        _share(charged, _behind(list(node.predecessors), rows), waiting + rest)
    return charged


def _behind(nodes: list[Node | SourceNode], rows: Rows) -> Rows:
    """The windows that rows pass on their way to some nodes."""
    found: Rows = {}
    queue = nodes[:]
    while queue:
        one = queue.pop()
        if isinstance(one, SourceNode):
            continue
        if one.id in rows:
            found[one.id] = rows[one.id]
        else:
            queue.extend(one.predecessors)
    return found


def _share(charged: dict[int, float], windows: Rows, size: float) -> None:
    """Charge bytes to windows in proportion to their rows."""
    total = sum(windows.values())
    for id, held in windows.items():
        charged[id] += size * held / total if total else size / len(windows)
