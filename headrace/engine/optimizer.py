"""Plans that change while they run: the order of joins and conditions follows measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headrace import tuning
from headrace.drawing import Section
from headrace.engine.adapting import Adapting, Reordering, Reorderings
from headrace.errors import GraphError
from headrace.graph.graph import Graph


class Optimizer:
    """`engine.optimizer`: reorders joins and conditions, on request or automatically; same results."""

    def __init__(self, graph: Graph, run: Callable[[], None]) -> None:
        self._graph, self._run = graph, run
        self.orders = Reorderings()
        self.adapting = Adapting(graph, self.orders)

    def rewire(self) -> None:
        """The graph has changed."""
        self.adapting.use()

    def reoptimize(
        self, query: str, order: Sequence[int] | None = None, *, gain: float | None = None
    ) -> Reordering | None:
        """Join the relations of a query in the order that is cheapest for their current rows, or in `order`.

        None if there are fewer than three relations, if the gain is too small, or if the change is
        impossible: other queries share the joins, or a punctuation has closed keys. The new order takes over
        once all joins have results up to a common instant, which is immediately if none lags.
        """
        self._graph.sink(query)
        gain = tuning.current.reorder_gain if gain is None else gain
        self._run()
        found = self.orders.decide(self._graph, query, order, gain)
        self._run()
        return None if found is None else self.orders.done.get(query, found)

    def reoptimize_every(self, rows: int | bool = True) -> None:
        """From now on, reorder joins and conditions automatically; measure after `rows` rows or more.

        Joins change as with `reoptimize`, if two measurements prefer the same order and the change repays its
        cost. Of the conditions of a filter, the one that drops most rows for its cost comes first. False
        turns this off.
        """
        if rows is True:
            rows = tuning.current.reorder_every
        if rows is not False and rows < 1:
            raise GraphError("HR-G018", f"{rows} rows between two looks", hint="1 or more, or False")
        self.adapting.every = rows or None
        self.adapting.use()

    def joins(self) -> dict[str, str]:
        """The queries whose joins run, or will soon run, in another order than planned, with that order."""
        orders = {**self.orders.done, **self.orders.pending}
        return {query: str(order) for query, order in orders.items() if query in self._graph.sinks}

    def conditions(self) -> dict[str, str]:
        """The operators that try their conditions in another order than written, with that order."""
        return self.adapting.conditions()

    def explained(self, queries: Iterable[str]) -> tuple[Section, ...]:
        """Both as text, for some queries."""
        queries = list(queries)
        nodes = [node for query in queries for node in self._graph.nodes_of(query)]
        return self.orders.explained(queries) + self.adapting.explained(nodes)
