"""What passes a granularity: how many ends an aggregate behind it will hold, for any grain (002, §2.2).

How many different lines there are is measured from the ends that are pending, and so is what a line costs.
"""

from __future__ import annotations

import math
from typing import Any, Self

from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.memory.demands import MANY, Cohort, lines_a_row
from headrace.memory.flows import Flow, passed_to, size_at, windows_of
from headrace.operators.adaptable import Adaptable
from headrace.operators.contract import Stateless
from headrace.plan.nodes import Granularity

_STEPS = 60


class GrainFlow(Flow):
    """A granularity that may change: the lines that its rows become, how many different ones there are."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = MANY

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
        self.kinds = MANY
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


def kinds_of(seen: int, different: int) -> float:
    """How many different ones there are, if so many of those that were seen were different."""
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
