"""Keeps a memory budget by changing windows and granularities within their bounds.

A look happens several times per window: predict what the windows will need from what they hold and from the
rates of the streams; choose the sizes and grains of least loss that fit; apply them, with hysteresis. A look
comes before new rows run, so a burst meets windows that are small enough. No clock is read: the same rows in
the same steps lead to the same choices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from headrace import tuning
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.memory.budget import too_small
from headrace.memory.choice import Forecast, decide
from headrace.memory.flows import grains_of, size_of, windows_behind, windows_of
from headrace.memory.meter import Meter
from headrace.operators.adaptable import Adaptable
from headrace.plan.nodes.quality import counts_rows
from headrace.plan.show import show_node
from headrace.state.part import Chunk
from headrace.time.timestamp import MAX_TIME

Shortage = Literal["fail", "spill"]
"""What to do when even the least windows do not fit."""
POLICIES: Final = ("fail", "spill")
Spill = Callable[[int], int]
"""Spills about this many bytes of state, if it can; returns how many left memory."""


def _may_change(node: Node) -> bool:
    """Whether an operator has bounds and a value that may change."""
    return isinstance(node.operator, Adaptable)


class Manager(Meter):
    """Keeps what a graph holds within `budget` bytes.

    Laws: every size is within the bounds of all queries that use it; a new size applies to rows of later
    times only; past decisions are in the histories of the windows, and the input of the next one is in the
    snapshot.
    """

    def __init__(self, graph: Graph, budget: int, policy: Shortage, spill: Spill) -> None:
        super().__init__(graph)
        self.budget = budget
        self.policy: Shortage = policy
        self.forecast = Forecast(0, 0, 0)
        self._spill = spill
        self._unsettled = False

    def look(self) -> None:
        """Before rows run: decide, if enough has come since the last look."""
        if not self._fresh:
            return
        newest = self._mark()
        if self._fresh <= self._patience and newest - self._looked < self._pause():
            return
        self._looked = newest
        self._count()
        self._decide()
        self._fresh, self._unsettled = 0, True

    def settle(self) -> None:
        """After all rows have run: measure, and enforce the budget."""
        if not self._unsettled:
            return
        self._unsettled = False
        self._release_and_measure()
        self._hold()

    def _pause(self) -> int:
        """Ticks between two looks when few rows come."""
        grains = grains_of(self._graph)
        windows = [w for node in grains for w in windows_behind(self._graph, node)]
        timed = [node for node in windows_of(self._graph) if not counts_rows(node.plan)]
        sizes = [size_of(node) for node in timed if _may_change(node) or node in windows]
        if not sizes and len(timed) < len(windows_of(self._graph)):
            return MAX_TIME  # windows of rows fill up by rows: `_patience` counts these
        looks = tuning.current.budget_looks
        return max(1, min(sizes, default=looks) // looks)

    def _decide(self) -> None:
        """Forecast the need, apply sizes and grains that fit, and spill if the budget is exceeded."""
        needs = self._needs()
        decision = decide(needs, self.budget)
        nodes = [*windows_of(self._graph), *grains_of(self._graph)]
        for node, value in zip(nodes, (*decision.sizes, *decision.grains), strict=True):
            operator = node.operator
            if isinstance(operator, Adaptable) and value != operator.history.value:
                operator.change(operator.earliest, value)
        self.forecast = decision.forecast
        self._patience = self._rows_until_look(needs, self.budget)
        if self.policy == "spill" and needs.held > self.budget:
            self._spill(int(needs.held - tuning.current.budget_target * self.budget))

    def _hold(self) -> None:
        """If the budget is exceeded, free unused capacity; if that is not enough, spill or fail."""
        held = self._held_within(self.budget)
        if held > self.budget and self.policy == "spill":
            self._spill(int(held - tuning.current.budget_target * self.budget))
        elif held > tuning.current.budget_failure * self.budget:
            nodes = [*windows_of(self._graph), *grains_of(self._graph)]
            windows = [f"{n.name}: {show_node(n.plan)}" for n in nodes]
            raise too_small(held, self.budget, self.forecast.least, windows)

    def apply(self, chunk: Chunk) -> None:
        super().apply(chunk)
        self._unsettled = False
