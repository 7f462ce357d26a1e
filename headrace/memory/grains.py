"""What passes a granularity: how many ends an aggregate behind it will hold, for any grain (002, §2.2).

Rows of a grain start together and end together, and those that are equal in what is aggregated are one line.
Of m rows that are drawn from N different ones, about N (1 − e^(−m/N)) are different; m grows with the grain.
N is measured from the ends that are pending, and so is what a line costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.memory.flows import Flow, passed_to, size_at, windows_of
from headrace.memory.need import Cohort
from headrace.operators.adaptable import Adaptable
from headrace.operators.contract import Stateless
from headrace.plan.nodes import Granularity

_TRIED = 12
_MANY = 1e12
_STEPS = 60


class GrainFlow(Flow):
    """A granularity that may change: the lines that its rows become, how many different ones there are."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = _MANY

    def count_lines(self, node: Node, behind: list[Node]) -> None:
        """Note what passed since the last look: as lines, held as long as the windows before it say."""
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
        """Learn how many different lines there are, where those behind are held as one."""
        self.kinds = _MANY
        found = [each.operator.ends_apart() for each in holders(node)]
        if found and None not in found:
            self.kinds = 2 * max(kinds_of(*each) for each in found if each is not None)

    def state(self) -> list[Any]:
        return [*super().state(), self.kinds]

    @classmethod
    def of(cls, state: list[Any]) -> Self:
        made = super().of(state[:-1])
        made.kinds = state[-1]
        return made


def lines_a_row(rate: float, grain: float, kinds: float) -> float:
    """The lines that a row becomes on average, at `rate` rows a tick."""
    rows = rate * grain / kinds
    return 1.0 if rows < 1e-9 else -math.expm1(-rows) / rows


def kinds_of(seen: int, different: int) -> float:
    """How many different ones there are, if so many of those that were seen were different."""
    if seen - different < 2:
        return _MANY
    low, high = 1.0, _MANY
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
    """The operators with state that a node's rows come to first."""
    found: list[Node] = []
    for after in node.successors:
        found += holders(after) if isinstance(after.operator, Stateless) else [after]
    return found


def windows_behind(graph: Graph, node: Node) -> list[Node]:
    """The time windows that rows come through on their way to a node."""
    windows = set(windows_of(graph))
    found, queue = list[Node](), [p for p in node.predecessors if isinstance(p, Node)]
    while queue:
        one = queue.pop()
        if one in windows:
            found.append(one)
        else:
            queue += [p for p in one.predecessors if isinstance(p, Node)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class GrainDemand:
    """A granularity to the choice: what lines cost for as long as the windows before it hold them.

    `windows` are the positions of these among the demands, `rate` counts rows a tick, `kinds` unequal lines,
    `bytes` is what a line costs, and `waiting` what a row costs that waits for the end of its grain.
    """

    least: int
    most: int
    size: int
    weight: float
    now: int
    rate: float
    kinds: float
    bytes: float
    waiting: float
    windows: tuple[int, ...]
    delay: int = 0
    cohorts: tuple[Cohort, ...] = ()

    def cost(self, grain: float) -> float:
        """Bytes that one more tick of window costs in the long run."""
        return self.rate * lines_a_row(self.rate, grain, self.kinds) * self.bytes

    def wait(self, grain: float) -> float:
        """Bytes of the rows that wait for the end of a grain."""
        return self.rate * grain * self.waiting

    def loss(self, grain: float) -> float:
        """The loss of quality of a grain."""
        return (
            self.weight * ((grain - self.least) / (self.most - self.least)) ** 2
            if self.most > self.least
            else 0.0
        )

    def candidates(self) -> Sequence[int]:
        """Grains worth trying, the finest first: evenly spaced in their logarithms."""
        if self.most == self.least or self.kinds >= _MANY:
            return (self.least,)
        ratio = (self.most / self.least) ** (1 / _TRIED)
        tried = (int(self.least * ratio**i) for i in range(_TRIED))
        return sorted({self.least, *tried, self.most})
