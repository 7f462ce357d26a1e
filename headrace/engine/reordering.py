"""The order of joins, chosen anew while they run: from what was measured, and without changing an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import permutations
from typing import Any, Final

import numpy as np

from headrace.drawing import Section
from headrace.errors import GraphError
from headrace.expressions import Column
from headrace.flow.batch import Batch
from headrace.flow.keys import encode_keys
from headrace.flow.state import Chunk
from headrace.graph.graph import Graph
from headrace.graph.joinbox import JoinBox, join_box, switch
from headrace.plan.trees import sources_of

GAIN: Final = 0.8
"""A new order must make the results between the joins smaller than this share of what they are."""
_FEW: Final = 6
"""Relations of which every order is looked at; of more, the next is always the one that adds least."""


@dataclass(frozen=True)
class Reordering:
    """A change of the order of joins: of `relations`, from what to what, and the rows between the joins.

    `before` and `after` count the rows that the joins below the last hold between them, as measured when
    it was decided. `at` is the instant from which the new order answers; None while the joins of the old one
    are still on their way to it.
    """

    query: str
    relations: tuple[str, ...]
    order: tuple[int, ...]
    before: float
    after: float
    at: int | None = None

    def __str__(self) -> str:
        joined = " ⋈ ".join(self.relations[i] for i in self.order)
        when = "soon" if self.at is None else f"since {self.at}"
        return f"{joined} {when}: {self.after:,.0f} rows between the joins instead of {self.before:,.0f}"


class Reorderings:
    """What was decided and not yet done, and what was done; both are part of a snapshot."""

    def __init__(self) -> None:
        self.pending: dict[str, Reordering] = {}
        self.done: dict[str, Reordering] = {}
        self.log: list[dict[str, Any]] = []

    def decide(self, graph: Graph, query: str, order: Sequence[int] | None, gain: float) -> Reordering | None:
        """Choose an order, or take a given one; None where nothing is gained, or nothing can be done."""
        box = join_box(graph, query)
        if box is None or box.obstacle(graph, query):
            return None
        cost = Measured(box)
        now = tuple(range(len(box.leaves)))
        chosen = cost.best() if order is None else checked(order, len(now))
        if chosen == now or (order is None and cost.of(chosen) >= gain * cost.of(now)):
            return None
        return self.begin(query, box, cost, chosen)

    def begin(self, query: str, box: JoinBox, cost: Measured, order: tuple[int, ...]) -> Reordering:
        """Let the joins of a query meet at one instant, from which on `order` answers."""
        before = cost.of(range(len(box.leaves)))
        self.pending[query] = found = Reordering(query, cost.names, order, before, cost.of(order))
        box.hold()
        return found

    def settle(self, graph: Graph) -> bool:
        """Do what was decided and can be done now; true if something was."""
        ready = [query for query in self.pending if self._is_ready(graph, query)]
        for query in ready:
            box = join_box(graph, query)
            found = self.pending.pop(query)
            assert box is not None
            ids = switch(graph, query, found.order)
            self.done[query] = replace(found, at=box.split)
            self.log.append(asdict(self.done[query]) | {"ids": ids})
        return bool(ready)

    def _is_ready(self, graph: Graph, query: str) -> bool:
        box = join_box(graph, query) if query in graph.sinks else None
        if box is None or box.obstacle(graph, query):
            self.pending.pop(query)
            if box is not None:
                box.release()
            return False
        return box.is_settled()

    def explained(self, queries: Iterable[str]) -> tuple[Section, ...]:
        """In which order joins run that were not planned so, and why."""
        known = {**self.done, **self.pending}
        lines = [f"  {query}: {known[query]}" for query in queries if query in known]
        return (Section("order of joins, as measured", "\n".join(lines)),) if lines else ()

    # -------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        return 64 * len(self.log)

    def changes(self, full: bool) -> Chunk:
        pending = [asdict(each) for each in self.pending.values()]
        return {"log": json.dumps(self.log), "pending": json.dumps(pending)}

    def apply(self, chunk: Chunk) -> None:
        self.log = json.loads(chunk["log"])
        self.done = {entry["query"]: _read(entry) for entry in self.log}

    def follow(self, graph: Graph, chunk: Chunk) -> bool:
        """Bring a graph of the same queries into the order that a snapshot was taken in."""
        missing = json.loads(chunk["log"])[len(self.log) :]
        for entry in missing:
            switch(graph, entry["query"], entry["order"], entry["ids"], prime=False)
        self.log += missing
        return bool(missing)

    def resume(self, graph: Graph, chunk: Chunk | None) -> None:
        """Take up what a snapshot says was decided and not yet done, in a graph that has its state."""
        pending = [] if chunk is None else json.loads(chunk["pending"])
        for query in self.pending:
            if (box := join_box(graph, query)) is not None:
                box.release()
        self.pending = {entry["query"]: _read(entry) for entry in pending}
        for query in self.pending:
            if (box := join_box(graph, query)) is not None:
                box.hold()


def _read(entry: Mapping[str, Any]) -> Reordering:
    parts = {each.name: entry[each.name] for each in fields(Reordering)}
    return Reordering(**parts | {"relations": tuple(parts["relations"]), "order": tuple(parts["order"])})


def checked(order: Sequence[int], relations: int) -> tuple[int, ...]:
    """An order that names each relation once."""
    if sorted(order) != list(range(relations)):
        raise GraphError(
            "HR-G021",
            f"{list(order)} is no order of {relations} relations",
            hint=f"each of 0 … {relations - 1} once",
        )
    return tuple(order)


class Measured:
    """How many rows joins would hold between them, from the rows that they hold now.

    Of two relations joined by a key the number of pairs is counted, not estimated; that of more is taken to
    be what independent conditions would leave. What is said by other conditions is not counted.
    """

    def __init__(self, box: JoinBox) -> None:
        held = [leaf.held() for leaf in box.leaves]
        self.names = tuple("+".join(s.name for s in sources_of(leaf.plan)) or "table" for leaf in box.leaves)
        self.rows = sum(map(len, held))
        self._sizes = [max(1, len(batch)) for batch in held]
        self._shares: dict[frozenset[int], float] = {}
        for a, b, null_safe in box.tree.keys:
            left, right = box.tree.leaf_of(a), box.tree.leaf_of(b)
            if isinstance(a, Column) and isinstance(b, Column):
                pairs = _pairs(held[left], a.name, held[right], b.name, null_safe)
            else:
                pairs = min(self._sizes[left], self._sizes[right])
            share = pairs / (self._sizes[left] * self._sizes[right])
            edge = frozenset((left, right))
            self._shares[edge] = self._shares.get(edge, 1.0) * share

    def of(self, order: Sequence[int]) -> float:
        """Rows between the joins, all but the last."""
        return sum(self._size(order[:count]) for count in range(2, len(order)))

    def _size(self, together: Sequence[int]) -> float:
        size = float(np.prod([self._sizes[i] for i in together], dtype=np.float64))
        chosen = set(together)
        return size * float(np.prod([s for edge, s in self._shares.items() if edge <= chosen]))

    def best(self) -> tuple[int, ...]:
        """The order with the fewest; of equal ones the first."""
        every = range(len(self._sizes))
        candidates: Iterable[tuple[int, ...]]
        if len(self._sizes) <= _FEW:
            candidates = (order for order in permutations(every) if order[0] < order[1])
        else:
            candidates = map(self._greedy, every)
        return min(candidates, key=lambda order: (self.of(order), order))

    def _greedy(self, first: int) -> tuple[int, ...]:
        order = [first]
        while len(order) < len(self._sizes):
            rest = [i for i in range(len(self._sizes)) if i not in order]
            order.append(min(rest, key=lambda i: self._size([*order, i])))
        return tuple(order)


def _pairs(left: Batch, a: str, right: Batch, b: str, null_safe: bool) -> float:
    """How many pairs are equal on a key; half a pair where there is none, so that nothing is free."""
    keys = [
        encode_keys([batch.data.column(name)], len(batch), (0,) if null_safe else ())
        for batch, name in ((left, a), (right, b))
    ]
    known = [each.words if each.valid is None else each.words[each.valid] for each in keys]
    words = [np.unique(each, return_counts=True) for each in known]
    _, at, there = np.intersect1d(words[0][0], words[1][0], assume_unique=True, return_indices=True)
    return max(0.5, float(np.dot(words[0][1][at].astype(np.float64), words[1][1][there])))
