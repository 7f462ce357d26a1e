"""What passes a window and is held behind it: counts by cohort, and what a row of it costs."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any, Self

from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.origins import sources_behind
from headrace.memory.arrivals import Arrivals
from headrace.memory.demands import Cohort, Demand
from headrace.operators.adaptable import Adaptable
from headrace.plan.nodes import Window
from headrace.plan.windows import Range
from headrace.time.timestamp import MIN_TIME, plus

_COHORTS = 48
_FEW = 256
"""Fewer rows than this say nothing about what a row costs."""


class Flow:
    """A window of the graph, fixed or not: rows that passed, rows that are held, bytes of each."""

    def __init__(self) -> None:
        self.passed = 0
        self.consumed = 0
        self.time: int | None = None
        self.cost: float | None = None
        self.share = 1.0
        self.changed = MIN_TIME
        self.cohorts: list[Cohort] = []

    def count(self, node: Node) -> None:
        """Note what passed since the last look."""
        rows, self.passed = node.operator.rows_out - self.passed, node.operator.rows_out
        consumed = sum(s.arc.rows_in - s.arc.held_rows() for s in sources_behind(node))
        came, self.consumed = consumed - self.consumed, consumed
        if came > 0:
            self.share = 0.5 * self.share + 0.5 * rows / came if self.time is not None else rows / came
        if not rows:
            return
        time = passed_to(node)
        first = time - 1 if self.time is None else min(self.time, time - 1)
        self.time = time
        self.cohorts.append(Cohort(first, time, float(rows), size_at(node, first, time)))
        self._thin()

    def _thin(self) -> None:
        """Merge the two oldest neighbours of one size, when there are many."""
        if len(self.cohorts) <= _COHORTS:
            return
        spans = [b.last - a.first for a, b in zip(self.cohorts, self.cohorts[1:], strict=False)]
        at = min(
            range(len(spans)), key=lambda i: (self.cohorts[i].size != self.cohorts[i + 1].size, spans[i])
        )
        one, two = self.cohorts[at : at + 2]
        merged = Cohort(one.first, two.last, one.rows + two.rows, max(one.size, two.size))
        self.cohorts[at : at + 2] = [merged]

    def forget(self, frontier: int) -> None:
        """Rows that end by the frontier are gone."""
        self.cohorts = [c for c in self.cohorts if c.last + c.size > frontier]

    def live(self, frontier: int) -> float:
        """How many rows are held."""
        return sum(c.live(frontier) for c in self.cohorts)

    def calibrate(self, bytes: float, rows: float) -> None:
        """So many rows hold so many bytes."""
        if rows < _FEW:
            return
        now = bytes / rows
        self.cost = now if self.cost is None else max(now, 0.75 * self.cost + 0.25 * now)

    def state(self) -> list[Any]:
        """As plain data."""
        cohorts = [astuple(c) for c in self.cohorts]
        return [self.passed, self.consumed, self.time, self.cost, self.share, self.changed, cohorts]

    @classmethod
    def of(cls, state: list[Any]) -> Self:
        """What `state` gave."""
        made = cls()
        made.passed, made.consumed, made.time, made.cost, made.share, made.changed, cohorts = state
        made.cohorts = [Cohort(*c) for c in cohorts]
        return made


def windows_of(graph: Graph) -> list[Node]:
    """The nodes of time windows whose rows are held for the size of the window."""
    return [n for n in graph.nodes if isinstance(n.plan, Window) and isinstance(n.plan.spec, Range)]


def passed_to(node: Node) -> int:
    """About the latest time of a row that passed a window."""
    return plus(node.operator.output.heartbeat, 1)


def size_at(node: Node, first: int, last: int) -> int:
    """The greatest size that rows of these times got."""
    operator = node.operator
    if isinstance(operator, Adaptable):
        return max(operator.history.at(first + 1), operator.history.at(last))
    return size_of(node)


def size_of(node: Node) -> int:
    """The size of a window now, or the grain of a granularity."""
    operator = node.operator
    if isinstance(operator, Adaptable):
        return operator.history.value
    assert isinstance(node.plan, Window)
    assert isinstance(node.plan.spec, Range)
    return node.plan.spec.size


def demand_of(
    node: Node, flow: Flow, behind: list[Arrivals], now: int, delay: int, prior: float, weight: int
) -> Demand:
    """What a window is to the choice."""
    operator, size = node.operator, size_of(node)
    bounds = operator.history.bounds if isinstance(operator, Adaptable) else None
    least, most = (size, size) if bounds is None else (bounds.least, bounds.most)
    short = max(1, min(least // 2, most // 64))
    rate = sum(a.rate(short, max(short, most // 16)) for a in behind)
    delay, cost = min(delay, most), prior if flow.cost is None else flow.cost
    return Demand(
        least=least,
        most=most,
        size=size,
        weight=weight,
        now=now,
        rate=rate * flow.share,
        bytes=cost,
        delay=delay,
        cohorts=tuple(flow.cohorts),
    )
