"""A node of the query graph: an operator and its place."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isabstract

from headrace.flow.arc import Arc, Reader
from headrace.flow.batch import Batch
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator
from headrace.plan.nodes.core import Plan
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME


class Node:
    """An operator with its neighbours. Queries of one generation (`since`) may share it.

    `clears` are nodes that may continue when rows have passed this one, even if they get none of these rows.
    """

    def __init__(
        self, id: int, plan: Plan, operator: Operator, predecessors: list[Node | SourceNode], since: int = 0
    ) -> None:
        self.id = id
        self.since = since
        self.plan = plan
        self.operator = operator
        self.predecessors = predecessors
        self.successors: list[Node] = []
        self.tsm_successors: list[Node] = []
        self.sinks = 0
        self.branch = -1
        self.clears: list[Node] = []
        self.place = 0
        self.deadline = MAX_TIME
        self.component = 0
        self.stir: Callable[[Node], None] = nobody_looks
        self._fresh = False
        self.runs = 0
        self.rows_in = 0
        self.label: list[SourceNode] = []
        self.waiting_since: int | None = None
        self.waited = 0
        self.rows_out_seen = 0

    @property
    def fresh(self) -> bool:
        """Whether it got new input since it last ran."""
        return self._fresh

    @fresh.setter
    def fresh(self, fresh: bool) -> None:
        if fresh and self._fresh:
            return
        self._fresh = fresh
        self.stir(self)

    @property
    def name(self) -> str:
        """A short name, unique in the graph, as tables and pictures show it."""
        return f"{self.kind}{self.id}"

    @property
    def kind(self) -> str:
        """What kind of operator it is, such as `join`."""
        return kind_of(type(self.operator))

    @property
    def waits(self) -> bool:
        """Whether it holds something that a heartbeat would release."""
        return bool(self.operator.needs())

    def __repr__(self) -> str:
        return self.name


def kind_of(operator: type[Operator]) -> str:
    """The name of a kind of operator."""
    return operator.__name__.removesuffix("Operator").lower()


def kinds() -> frozenset[str]:
    """The names of all kinds of operators."""
    found, todo = set[str](), Operator.__subclasses__()
    while todo:
        of = todo.pop()
        found |= {kind_of(of)} if not isabstract(of) else set()
        todo += of.__subclasses__()
    return frozenset(found)


def nobody_looks(node: Node) -> None:
    """The `stir` of a node that is not in an engine's agenda: does nothing."""


# A sink: where a query's answers wait to be taken.


class Sink:
    """A reader of the query's last arc. `promises` are the punctuations that the last `drain` has passed.

    While it is `paused`, answers stay in the arc, and so in snapshots; a later `drain` takes them in order.
    """

    def __init__(self, query: str, arc: Arc) -> None:
        self.query = query
        self.arc = arc
        self.reader: Reader = arc.reader()
        self.promises: list[Punctuation] = []
        self.paused = False

    def drain(self) -> list[Batch]:
        """All answers not yet taken, in order; none while it is paused."""
        batches: list[Batch] = []
        self.promises = []
        if self.paused:
            return batches
        while not self.reader.empty:
            item = self.reader.take(max(1, self.reader.rows))
            if isinstance(item, Batch):
                batches.append(item)
            elif item is not None and item.patterns:
                self.promises.append(item)
        return batches

    def close(self) -> None:
        """Stop reading."""
        self.arc.close(self.reader)
