"""How many rows pass a window and are held behind it, by cohort, and the bytes per row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, Self

from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.origins import sources_behind
from headrace.memory.choice import MANY, Cohort, Demand, lines_a_row
from headrace.operators.adaptable import Adaptable
from headrace.operators.contract import Stateless
from headrace.operators.rows_window import AdaptableRows
from headrace.plan.nodes.core import Granularity, Plan, Window
from headrace.plan.nodes.quality import window_bounds
from headrace.plan.nodes.windows import Range, Sliding
from headrace.time.timestamp import plus

_COHORTS = 48
_FEW = 256
"""With fewer rows, bytes per row cannot be measured."""


class Flow:
    """A window of the graph, fixed or not: rows that passed, rows held, and bytes per row."""

    def __init__(self) -> None:
        self.passed = 0
        self.consumed = 0
        self.time: int | None = None
        self.cost: float | None = None
        self.share = 1.0
        self.cohorts: list[Cohort] = []
        self.held: list[int] | None = None

    def count(self, node: Node) -> None:
        """Note what passed since the last look."""
        if isinstance(node.operator, AdaptableRows):
            self.held = list(node.operator.held())
            self.time = passed_to(node)
            return
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
        """If there are many cohorts, merge two neighbours: of equal size if possible, of short span."""
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
        """Drop the cohorts that end by the frontier."""
        self.cohorts = [c for c in self.cohorts if c.last + c.size > frontier]

    def live(self, frontier: int) -> float:
        """How many rows are held."""
        if self.held is not None:
            return float(self.held[0])
        return sum(c.live(frontier) for c in self.cohorts)

    def calibrate(self, bytes: float, rows: float) -> None:
        """Learn the bytes per row; the estimate rises at once and falls slowly."""
        if rows < _FEW:
            return
        now = bytes / rows
        self.cost = now if self.cost is None else max(now, 0.75 * self.cost + 0.25 * now)

    def state(self) -> list[Any]:
        """The state as plain data, for a snapshot."""
        cohorts = [astuple(c) for c in self.cohorts]
        return [self.passed, self.consumed, self.time, self.cost, self.share, cohorts, self.held]

    @classmethod
    def of(cls, state: list[Any]) -> Self:
        """Restore from the result of `state`."""
        made = cls()
        made.passed, made.consumed, made.time, made.cost, made.share, cohorts, *held = state
        made.cohorts = [Cohort(*c) for c in cohorts]
        made.held = held[0] if held else None
        return made


def windows_of(graph: Graph) -> list[Node]:
    """The nodes of windows whose rows are held for the size of the window, and of all that may change."""
    return [n for n in graph.nodes if isinstance(n.plan, Window) and _is_sized(n.plan)]


def _is_sized(window: Window) -> bool:
    return isinstance(window.spec, Range) or window_bounds(window.spec) is not None


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
    node: Node,
    flow: Flow,
    behind: list[Arrivals],
    now: int,
    delay: int,
    prior: float,
    weight: float,
    unchanged: int,
) -> Demand:
    """A window as input to `choose`; `prior` is the cost of a row until it is measured."""
    operator, size = node.operator, size_of(node)
    bounds = operator.history.bounds if isinstance(operator, Adaptable) else None
    least, most = (size, size) if bounds is None else (bounds.least, bounds.most)
    if isinstance(operator, AdaptableRows):
        partitions = 0 if flow.held is None else flow.held[1]
        cost = prior if flow.cost is None else flow.cost
        return Demand(
            least=least,
            most=most,
            size=size,
            weight=weight,
            now=now,
            rate=partitions,
            bytes=cost,
            counted=True,
        )
    rate = rate_of(behind, least, most)
    delay, cost = min(delay, most) + slide_of(node.plan), prior if flow.cost is None else flow.cost
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
        unchanged=unchanged,
        step=1 if bounds is None else bounds.step,
    )


def slide_of(plan: Plan) -> int:
    """How much longer than the size of its window a row may be held: until the next report."""
    return plan.spec.slide if isinstance(plan, Window) and isinstance(plan.spec, Sliding) else 0


def apart_from(flow: Flow, demand: Demand) -> float:
    """Bytes of a window of rows that do not depend on its size: partitions with fewer rows than the least."""
    return 0.0 if flow.held is None else flow.held[2] * demand.bytes


# Rates of streams in rows per tick of application time, from counts alone: no clock is read.


def rate_of(arrivals: Sequence[Arrivals], least: int, most: int) -> float:
    """The rate that counts for a window within these bounds, in rows per tick."""
    short = max(1, min(least // 2, most // 64))
    return sum(each.rate(short, max(short, most // 16)) for each in arrivals)


_KEPT = 64
_FEW_ARRIVALS = 64


class Arrivals:
    """Row counts over time: pairs (newest time, rows so far), the older ones thinned out."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.newest: int | None = None
        self._times: list[int] = []
        self._counts: list[int] = []

    def note(self, rows: int, bytes: int, first: int, last: int) -> None:
        """Count rows with times from `first` to `last`."""
        if self.newest is None:
            self.newest = first - 1
            self.mark()
        self.rows += rows
        self.bytes += bytes
        self.newest = max(self.newest, last)

    def mark(self) -> None:
        """Record the number of rows so far."""
        if self.newest is None:
            return
        if self._times and self._times[-1] >= self.newest:
            self._counts[-1] = self.rows
            return
        self._times.append(self.newest)
        self._counts.append(self.rows)
        if len(self._times) > _KEPT:
            keep = [0, *range(2, _KEPT // 2, 2), *range(_KEPT // 2, len(self._times))]
            self._times = [self._times[i] for i in keep]
            self._counts = [self._counts[i] for i in keep]

    @property
    def first(self) -> int:
        """The time before the first row."""
        return self._times[0] if self._times else 0

    def rate(self, short: int, long: int) -> float:
        """The recent rate in rows per tick: over the last `short` or `long` ticks, the greater of the two.

        So a burst is seen at once, and its end only after `long` ticks. Few rows in a short time are ignored.
        """
        if not self._times:
            return 0.0
        elapsed = max(1, self._times[-1] - self._times[0])
        return max(
            self._over(long, long), *(self._over(h, min(h, elapsed), _FEW_ARRIVALS) for h in (short, long))
        )

    def _over(self, horizon: int, ticks: int, least: int = 0) -> float:
        """The rows of the last `horizon` ticks per tick of `ticks`; 0 for fewer than `least` rows."""
        rows = self._since(horizon)
        return rows / ticks if rows >= least else 0.0

    def _since(self, horizon: int) -> float:
        """Rows of the last `horizon` ticks up to the last mark."""
        return self._counts[-1] - self._rows_by(self._times[-1] - horizon)

    def _rows_by(self, time: int) -> float:
        """How many rows had come by a time, interpolated between marks."""
        times, counts = self._times, self._counts
        if time <= times[0]:
            return 0.0 if time < times[0] else float(counts[0])
        at = next(i for i in range(len(times) - 1, -1, -1) if times[i] <= time)
        if at == len(times) - 1:
            return float(counts[at])
        share = (time - times[at]) / (times[at + 1] - times[at])
        return counts[at] + share * (counts[at + 1] - counts[at])

    def state(self) -> dict[str, Any]:
        """The state as plain data, for a snapshot."""
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "newest": self.newest,
            "times": self._times,
            "counts": self._counts,
        }

    @classmethod
    def of(cls, state: dict[str, Any]) -> Arrivals:
        """Restore from the result of `state`."""
        made = cls()
        made.rows, made.bytes, made.newest = state["rows"], state["bytes"], state["newest"]
        made._times, made._counts = list(state["times"]), list(state["counts"])
        return made


# Rows that pass a granularity: how many ends an aggregate behind it will hold, for any grain (Cammert et al.,
# §2.2).
#
# The number of distinct lines and the cost of a line are measured from the pending ends.


_STEPS = 60


class GrainFlow(Flow):
    """A granularity that may change: the lines that its rows become, and how many of them are distinct."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = MANY

    def count_lines(self, node: Node, behind: list[Node]) -> None:
        """Note what passed since the last look, as lines, held for the size of the windows before."""
        rows, self.passed = node.operator.rows_out - self.passed, node.operator.rows_out
        if not rows:
            return
        time = passed_to(node)
        first = time - 1 if self.time is None else min(self.time, time - 1)
        self.time = time
        assert isinstance(node.operator, Adaptable)
        grain = node.operator.history.at(time)
        lines = rows * lines_a_row(rows / (time - first), grain, self.kinds)
        size = max((size_at(each, first, time) for each in behind), default=grain)
        self.cohorts.append(Cohort(first, time, lines, size))
        self._thin()

    def look(self, node: Node) -> None:
        """Estimate the number of distinct lines, if the operators behind combine equal ones."""
        self.kinds = MANY
        found = [each.operator.memory.distinct_ends() for each in holders(node)]
        if found and None not in found:
            self.kinds = 2 * max(kinds_of(*each) for each in found if each is not None)

    def state(self) -> list[Any]:
        return [*super().state(), self.kinds]

    @classmethod
    def of(cls, state: list[Any]) -> Self:
        made = super().of(state[:-1])
        made.kinds = state[-1]
        return made


def kinds_of(seen: int, different: int) -> float:
    """An estimate of the number of distinct lines, from a sample of `seen` with `different` distinct ones."""
    if seen - different < 2:
        return MANY
    low, high = 1.0, MANY
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if middle * -math.expm1(-seen / middle) < different:
            low = middle
        else:
            high = middle
    return high


def grains_of(graph: Graph) -> list[Node]:
    """The granularities that may change."""
    return [node for node in graph.nodes if _is_grain(node)]


def comes_to_grains_only(node: Node) -> bool:
    """Whether all rows of a node are held behind granularities that may change, and nowhere else."""
    return bool(node.successors) and all(
        isinstance(after.operator, Stateless) and (_is_grain(after) or comes_to_grains_only(after))
        for after in node.successors
    )


def _is_grain(node: Node) -> bool:
    return isinstance(node.plan, Granularity) and isinstance(node.operator, Adaptable)


def holders(node: Node) -> list[Node]:
    """The first operators with state that a node's rows reach."""
    found: list[Node] = []
    for after in node.successors:
        found += holders(after) if isinstance(after.operator, Stateless) else [after]
    return found


def windows_behind(graph: Graph, node: Node) -> list[Node]:
    """The time windows that rows pass on their way to a node."""
    windows = set(windows_of(graph))
    found, queue = list[Node](), [p for p in node.predecessors if isinstance(p, Node)]
    while queue:
        one = queue.pop()
        if one in windows:
            found.append(one)
        else:
            queue += [p for p in one.predecessors if isinstance(p, Node)]
    return list(dict.fromkeys(found))
