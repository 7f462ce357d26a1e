"""Adaptive reordering of joins and conditions: when to measure, and when a change is worth its cost.

The rows that the joins of a query hold show what each join order would cost. They are measured after as many
new rows as are held, so that measuring costs a fixed share of processing. The order changes if two
measurements in a row prefer the same one, if it leaves far fewer rows between the joins, and if it saves more
in a few windows than the change costs. After a change, the pause before the next measurement doubles, until
one prefers no change. All decisions depend only on counts of rows, and the counts are part of the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import permutations
from typing import Any

import numpy as np

from headrace import tuning
from headrace.drawing import Section
from headrace.errors import GraphError
from headrace.expressions import Column
from headrace.expressions.adaptive_filter import AdaptiveFilter
from headrace.flow.batch import Batch
from headrace.graph.graph import Graph
from headrace.graph.join_box import JoinBox, join_box, switch
from headrace.graph.node import Node
from headrace.plan.nodes.trees import sources_of
from headrace.state.keys import encode_keys
from headrace.state.part import Chunk


@dataclass
class Look:
    """When the joins of a query are measured next, in rows, and which order the last measurement preferred.

    `agreed`: how many measurements in a row preferred it. `rest`: how many are skipped after the next change.
    """

    due: int
    wanted: tuple[int, ...] | None = None
    agreed: int = 0
    rest: int = 1

    def want(self, order: tuple[int, ...] | None) -> None:
        """Note the order that a measurement prefers; None for no change."""
        self.agreed = self.agreed + 1 if order == self.wanted else 1
        self.wanted = order


class Adapting:
    """Measures the joins of each query at intervals, and lets filters measure their conditions."""

    def __init__(self, graph: Graph, orders: Reorderings) -> None:
        self.every: int | None = None
        self._graph, self._orders = graph, orders
        self._looks: dict[str, Look] = {}
        self._boxes: dict[str, JoinBox] | None = None

    def use(self) -> None:
        """Call when the graph has changed: finds its joins again, and sets the interval of all filters."""
        self._boxes = None
        for _, adaptive_filter in self._sieves():
            adaptive_filter.every = self.every

    def _sieves(self) -> Iterator[tuple[Node, AdaptiveFilter]]:
        """The operators that try their conditions in a measured order."""
        return (
            (node, node.operator.adaptive_filter)
            for node in self._graph.nodes
            if node.operator.adaptive_filter is not None
        )

    # --------------------------------------------------------------------------------------------- looking

    def look(self, spare: Callable[[], float]) -> None:
        """Measure the joins that have taken enough rows since the last time.

        `spare`: the bytes that may be used. During a change, the old and the new joins exist side by side.
        """
        if self.every is None:
            return
        for query, box in self._known().items():
            look = self._looks.setdefault(query, Look(self.every))
            if box.rows_in >= look.due and query not in self._orders.pending:
                self._look(query, box, look, spare)

    def _known(self) -> dict[str, JoinBox]:
        """The queries with joins that can be reordered; found once per change of the graph."""
        if self._boxes is None:
            found = {query: join_box(self._graph, query) for query in self._graph.sinks}
            self._boxes = {query: box for query, box in found.items() if box is not None}
        return self._boxes

    def _look(self, query: str, box: JoinBox, look: Look, spare: Callable[[], float]) -> None:
        """Measure the joins of a query, and begin a change if enough looks in a row agree on an order."""
        assert self.every is not None
        if box.obstacle(self._graph, query) or any(join.has_shelved for join in box.joins):
            look.due = box.rows_in + self.every
            look.want(None)
            return
        cost = Measured(box)
        pause = max(self.every, cost.rows)
        look.due = box.rows_in + pause
        look.want(worth(cost, len(box.leaves)))
        if look.wanted is None:
            look.rest = max(1, look.rest // 2)
        elif look.agreed >= tuning.current.reorder_agreement and box.bytes <= spare():
            self._orders.begin(query, box, cost, look.wanted)
            look.due += look.rest * pause
            look.rest = min(tuning.current.reorder_rest, 2 * look.rest)
            look.want(None)

    # --------------------------------------------------------------------------------------------- telling

    def conditions(self) -> dict[str, str]:
        """The conditions that run in another order than written, by operator, with what each lets pass."""
        return {
            node.name: str(adaptive_filter)
            for node, adaptive_filter in self._sieves()
            if adaptive_filter.is_changed
        }

    def explained(self, nodes: Iterable[Node]) -> tuple[Section, ...]:
        """The conditions that run in another order than written, for `explain`."""
        named, found = {node.name for node in nodes}, self.conditions()
        lines = [f"  {name}: {order}" for name, order in found.items() if name in named]
        return (Section("order of conditions, as measured", "\n".join(lines)),) if lines else ()

    # ----------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        return 64 * len(self._looks)

    def changes(self, full: bool) -> Chunk:
        looks = {query: asdict(look) for query, look in self._looks.items()}
        sieves = {str(node.id): adaptive_filter.state() for node, adaptive_filter in self._sieves()}
        return {"looks": json.dumps(looks), "sieves": json.dumps(sieves)}

    def apply(self, chunk: Chunk) -> None:
        self._looks = {query: _look(entry) for query, entry in json.loads(chunk["looks"]).items()}
        known = json.loads(chunk["sieves"])
        for node, adaptive_filter in self._sieves():
            if str(node.id) in known:
                adaptive_filter.restore(known[str(node.id)])


def worth(cost: Measured, relations: int) -> tuple[int, ...] | None:
    """The best order, if it is much better than the current one and soon repays the cost of the change."""
    now, best = tuple(range(relations)), cost.best()
    before, after = cost.of(now), cost.of(best)
    pays = tuning.current.reorder_payback * (before - after) >= cost.rows + after
    return best if best != now and after < tuning.current.reorder_gain * before and pays else None


def _look(entry: dict[str, Any]) -> Look:
    wanted = entry["wanted"]
    return Look(**entry | {"wanted": None if wanted is None else tuple(wanted)})


# Changes of the join order while queries run: based on measurements, without any effect on results.


@dataclass(frozen=True)
class Reordering:
    """A change of the join order: the `relations`, their new order, and the rows between the joins.

    `before` and `after` count the rows between the joins, without the last one, as measured when the change
    was decided. `at` is the instant from which the new order produces results; None until the old joins reach
    it.
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
    """Changes that are decided but not done yet, and changes that are done; both are part of a snapshot."""

    def __init__(self) -> None:
        self.pending: dict[str, Reordering] = {}
        self.done: dict[str, Reordering] = {}
        self.log: list[dict[str, Any]] = []

    def decide(self, graph: Graph, query: str, order: Sequence[int] | None, gain: float) -> Reordering | None:
        """Choose an order, or take a given one; None if the change gains too little or is impossible."""
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
        """Decide a change: `order` takes over once all joins of the query have reached a common instant."""
        before = cost.of(range(len(box.leaves)))
        self.pending[query] = found = Reordering(query, cost.names, order, before, cost.of(order))
        box.hold()
        return found

    def settle(self, graph: Graph) -> bool:
        """Carry out the changes that are decided and possible now; true if there was one."""
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
        """True if the joins have reached the common instant; drops a change that is no longer possible."""
        box = join_box(graph, query) if query in graph.sinks else None
        if box is None or box.obstacle(graph, query):
            self.pending.pop(query)
            if box is not None:
                box.release()
            return False
        return box.is_settled()

    def explained(self, queries: Iterable[str]) -> tuple[Section, ...]:
        """The queries whose joins run in another order than planned, with the reason, for `explain`."""
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
        """Restore the log. `follow` has changed the join orders before."""
        self.log = json.loads(chunk["log"])
        self.done = {entry["query"]: _read(entry) for entry in self.log}

    def follow(self, graph: Graph, chunk: Chunk) -> bool:
        """Bring a graph of the same queries into the join order of a snapshot."""
        missing = json.loads(chunk["log"])[len(self.log) :]
        for entry in missing:
            switch(graph, entry["query"], entry["order"], entry["ids"], prime=False)
        self.log += missing
        return bool(missing)

    def resume(self, graph: Graph, chunk: Chunk | None) -> None:
        """Take over changes that a snapshot lists as decided but not done, after its state is restored."""
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
    """The order, if it names each relation once; else HR-G021."""
    if sorted(order) != list(range(relations)):
        raise GraphError(
            "HR-G021",
            f"{list(order)} does not order the {relations} relations",
            hint=f"each of 0 … {relations - 1} once",
        )
    return tuple(order)


class Measured:
    """How many rows would be between the joins in each order, from the rows that they hold now.

    For two relations joined by a key, matching pairs are counted, not estimated. For more relations,
    conditions are assumed to be independent. Other conditions than equal keys are ignored.
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
        """The rows after each join but the last, in this order."""
        return sum(self._size(order[:count]) for count in range(2, len(order)))

    def _size(self, together: Sequence[int]) -> float:
        """The estimated number of rows of the join of these relations."""
        size = float(np.prod([self._sizes[i] for i in together], dtype=np.float64))
        chosen = set(together)
        return size * float(np.prod([s for edge, s in self._shares.items() if edge <= chosen]))

    def best(self) -> tuple[int, ...]:
        """The order with the fewest rows; of equal ones the first."""
        every = range(len(self._sizes))
        candidates: Iterable[tuple[int, ...]]
        if len(self._sizes) <= tuning.current.reorder_exhaustive:
            candidates = (order for order in permutations(every) if order[0] < order[1])
        else:
            candidates = map(self._greedy, every)
        return min(candidates, key=lambda order: (self.of(order), order))

    def _greedy(self, first: int) -> tuple[int, ...]:
        """The join order that starts with `first` and always adds the relation with the smallest result."""
        order = [first]
        while len(order) < len(self._sizes):
            rest = [i for i in range(len(self._sizes)) if i not in order]
            order.append(min(rest, key=lambda i: self._size([*order, i])))
        return tuple(order)


def _pairs(left: Batch, a: str, right: Batch, b: str, null_safe: bool) -> float:
    """How many pairs are equal on a key; half a pair if there is none, so that no join counts as free."""
    keys = [
        encode_keys([batch.data.column(name)], len(batch), (0,) if null_safe else ())
        for batch, name in ((left, a), (right, b))
    ]
    known = [each.words if each.valid is None else each.words[each.valid] for each in keys]
    words = [np.unique(each, return_counts=True) for each in known]
    _, at, there = np.intersect1d(words[0][0], words[1][0], assume_unique=True, return_indices=True)
    return max(0.5, float(np.dot(words[0][1][at].astype(np.float64), words[1][1][there])))
