"""Quality of service: windows and granularities that change at run time, within the bounds of the query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headrace.arrays import Times
from headrace.engine.loop import Loop, check_instant
from headrace.engine.scheduling import node_named
from headrace.errors import GraphError
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.operators.adaptable import Adaptable
from headrace.operators.state.history import Entries
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import counts_rows
from headrace.plan.show import Span, show_node

SpanOf = Callable[[Sequence[str]], Span]
"""How durations of some queries are written."""


@dataclass(frozen=True)
class Setting:
    """A window or a granularity that may change: its queries, its bounds, its value and its history.

    `history` are pairs (t, value): rows with time ≥ t get the value. `earliest` is the first instant from
    which it can still be changed. Values differ by multiples of `step`. `rows`: they count rows, not ticks.
    """

    node: str
    what: str
    queries: tuple[str, ...]
    least: int
    most: int
    value: int
    history: Entries
    earliest: int
    step: int = 1
    rows: bool = False

    def __str__(self) -> str:
        return self.described(str)

    def described(self, span: Span) -> str:
        """The setting as text; `span` formats durations."""
        span = _rows if self.rows else span
        now = f"{span(self.value)} now, from {span(self.least)} to {span(self.most)}"
        return f"{self.node}: {self.what}; {now}; {self._changes()}"

    def _changes(self) -> str:
        changed = len(self.history) - 1
        return f"changed {changed} times, last from {self.history[-1][0]}" if changed else "never changed"


class QualityOfService:
    """`engine.quality`: windows and granularities that may change within the bounds of their queries."""

    def __init__(self, loop: Loop, span_of: SpanOf) -> None:
        self._loop, self._graph, self._span_of = loop, loop.graph, span_of

    def settings(self) -> list[Setting]:
        """Windows and granularities that may change: bounds, value, history, queries that use them."""
        return settings(self._graph, self._span_of)

    def resize(
        self,
        node: Node | str | Plan,
        value: int,
        *,
        at: int | None = None,
        query: str | None = None,
        clamp: bool = False,
    ) -> int:
        """Change a window or a granularity for rows with time ≥ `at`, or as soon as possible without it.

        `node` is an operator or its name or, with `query`, a node of that query's plan. Other queries that
        share the operator change too. Returns the instant from which the change holds: a granularity changes
        at a multiple of the old one. With `clamp`, a value outside of the bounds becomes the nearest within.
        """
        if at is not None:
            check_instant(at, "at")
        self._loop.agenda.stir_all()
        if isinstance(node, Plan):
            self._graph.sink(query)
            found = self._graph.quality.node(str(query), node)
            if found is None:
                raise not_adaptable(str(query))
            node = found
        return _resize(node_named(self._graph, node), value, at, clamp)

    def node_of(self, query: str, written: Plan) -> str | None:
        """The name of the operator that runs a window or granularity of a query's plan."""
        found = self._graph.quality.node(query, written)
        return None if found is None else found.name

    def histories(self, query: str) -> dict[Plan, Entries]:
        """The windows and granularities of a query, by the nodes of its plan, as pairs (t, value).

        Rows with time ≥ t got the value. With these pairs the result can be recomputed exactly.
        """
        self._graph.sink(query)
        return self._graph.quality.histories(query)

    def in_force(self, query: str, times: ArrayLike) -> dict[Plan, Times]:
        """The window sizes and granularities of a query at some times, such as the times of its results.

        By node of the plan, one value for each time: the value for rows of that time.
        """
        return in_force(self.histories(query), times)


def settings(graph: Graph, span_of: SpanOf) -> list[Setting]:
    """Everything that may change, in the order of the graph; `span_of` formats durations."""
    users = graph.quality.nodes()
    return [_setting(node, users[node], span_of(users[node])) for node in graph.nodes if node in users]


def _setting(node: Node, queries: list[str], span: Span) -> Setting:
    """The adjustable value of one operator, with its bounds and its history."""
    operator = node.operator
    assert isinstance(operator, Adaptable)
    history = operator.history
    least, most = history.bounds.least, history.bounds.most
    what = show_node(node.plan, span)
    return Setting(
        node.name,
        what,
        tuple(queries),
        least,
        most,
        history.value,
        history.entries,
        operator.earliest,
        history.bounds.step,
        counts_rows(node.plan),
    )


def _rows(count: int) -> str:
    """A number of rows as text."""
    return f"{count} rows"


def in_force(histories: Mapping[Plan, Sequence[tuple[int, int]]], times: ArrayLike) -> dict[Plan, Times]:
    """By window or granularity, the value at each time."""
    found: dict[Plan, Times] = {}
    for plan, entries in histories.items():
        since, values = (np.array(each, np.int64) for each in zip(*entries, strict=True))
        found[plan] = values[np.searchsorted(since, np.asarray(times, np.int64), side="right") - 1]
    return found


def _resize(node: Node, value: int, at: int | None, clamp: bool = False) -> int:
    """Change the value of a node for rows from an instant on; returns the instant."""
    operator = node.operator
    if not isinstance(operator, Adaptable):
        raise not_adaptable(node.name)
    bounds = operator.history.bounds
    if clamp:
        value = bounds.nearest(value)
    if isinstance(value, bool) or not isinstance(value, int) or value not in bounds:
        raise GraphError(
            "HR-G016",
            f"{value!r} is outside of the bounds of all queries that use it",
            place=node.name,
            hint=f"from {bounds.least} to {bounds.most}"
            + (f", in steps of {bounds.step}" if bounds.step > 1 else ""),
        )
    instant = operator.earliest if at is None else at
    if instant < operator.earliest:
        raise GraphError(
            "HR-G017",
            f"rows of time {operator.earliest - 1} have been answered for, {instant} is too early",
            place=node.name,
            hint=f"from {operator.earliest} on, or leave at= out",
        )
    return operator.change(instant, value)


def not_adaptable(place: str) -> GraphError:
    """The error for a window without bounds."""
    return GraphError(
        "HR-G015",
        "this operator has no bounds to change within",
        place=place,
        hint="write [RANGE MIN 2 HOURS, MAX 5 HOURS] or [GRANULARITY COARSEST …, FINEST …]",
    )
