"""The loop that runs a graph: operators with work first, then sources that can help waiting operators."""

from __future__ import annotations

import numpy as np

from headrace.engine.timekeeper import Asking
from headrace.errors import InputError
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.scheduling.executor import Agenda, Executor
from headrace.scheduling.table import StateTable, strategy
from headrace.time.timestamp import MAX_TIME


class Loop:
    """A graph, the wall clock, and who runs next. The parts of an engine share one loop."""

    def __init__(self, run_by: str, eqg: bool, now: int) -> None:
        self.now = now
        self.table = StateTable(strategy(run_by), eqg)
        self.graph = Graph(lambda: self.now)
        self.agenda = Agenda()
        self.asking = Asking(self.graph, self.agenda)
        self._executor = Executor(self.table, lambda source: source.demand(self.now))

    def run(self) -> None:
        """Run until no operator can do anything and no source can help an operator that waits."""
        while True:
            node = self._next()
            if node is not None:
                self._executor.run(node)
            elif not self.asking.ask(self.now):
                break

    def catch_up(self) -> None:
        """Run with the heartbeats from before this instant, for which some of its rows are late.

        No source is asked for a heartbeat: those of this instant hold only for later rows.
        """
        for source in self.graph.sources.values():
            source.heartbeat(source.in_force(self.now))
        while (node := self._next()) is not None:
            self._executor.run(node, ask=False)

    def _next(self) -> Node | None:
        """The operator to run, if one may have work; ranks follow what was measured since."""
        table = self.table
        if self.agenda.rank is None:
            return self.agenda.ready()
        if table.standing.look(self.graph.nodes, self._executor.steps):
            table.forget()
        node = self.agenda.ready()
        if node is not None:
            table.standing.came(node)
        return node

    def rank(self) -> None:
        """Call when the graph or a strategy has changed: who goes first among the operators with work."""
        self.table.standing.rewire(self.graph.nodes)
        self.table.forget()
        self.agenda.rank = self.table.rank if self.table.ranked else None

    def wake(self, source: SourceNode) -> None:
        """A source has new rows or a new heartbeat."""
        self.asking.came(source)
        for node in source.successors:
            node.fresh = True


def check_instant(instant: int, place: str) -> None:
    """Raise an error if the value is not an instant: an int64 tick."""
    if isinstance(instant, bool) or not isinstance(instant, (int, np.integer)) or abs(instant) > MAX_TIME:
        raise InputError(
            "HR-I012", f"{instant!r} is not an instant", place=place, hint="instants are int64 ticks"
        )
