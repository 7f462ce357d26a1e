"""The loop that runs a graph: operators with work first, then sources that can help waiting operators."""

from __future__ import annotations

import numpy as np

from headrace import tuning
from headrace.engine.timekeeper import Asking
from headrace.errors import InputError
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.scheduling.executor import Agenda, Executor
from headrace.scheduling.shares import Turns, turns_of
from headrace.scheduling.table import StateTable, strategy
from headrace.time.timestamp import MAX_TIME


class Loop:
    """A graph, the wall clock, and who runs next. The parts of an engine share one loop."""

    def __init__(self, run_by: str, eqg: bool, now: int) -> None:
        self.now = now
        self.table = StateTable(strategy(run_by), eqg)
        self.table.standing.clock = lambda: self.now
        self.graph = Graph(lambda: self.now)
        self.agenda = Agenda()
        self.asking = Asking(self.graph, self.agenda)
        self._turns: Turns | None = None
        self._executor = Executor(self.table, lambda source: source.demand(self.now))

    def run(self) -> None:
        """Run until no operator can do anything and no source can help an operator that waits."""
        while True:
            node = self._next()
            if node is not None:
                self._run(node)
            elif not self.asking.ask(self.now):
                break

    def _run(self, node: Node, *, ask: bool = True) -> None:
        """Run from a node; with shares, for a turn of its component."""
        if self._turns is None:
            self._executor.run(node, ask=ask)
            return
        before = self._executor.steps
        self._executor.run(node, ask=ask, most=tuning.current.turn_steps)
        self._turns.charge(node.component, self._executor.steps - before)

    def catch_up(self) -> None:
        """Run with the heartbeats from before this instant, for which some of its rows are late.

        No source is asked for a heartbeat: those of this instant hold only for later rows.
        """
        for source in self.graph.sources.values():
            source.heartbeat(source.in_force(self.now))
        while (node := self._next()) is not None:
            self._run(node, ask=False)

    def _next(self) -> Node | None:
        """The operator to run, if one may have work; ranks follow what was measured since."""
        table = self.table
        if self.agenda.rank is None:
            return self._ready()
        if table.standing.look(self.graph.nodes, self._executor.steps):
            table.forget()
        node = self._ready()
        if node is not None:
            table.standing.came(node)
        return node

    def _ready(self) -> Node | None:
        """The first node with work; with shares, of the component whose turn it is."""
        if self._turns is None:
            return self.agenda.ready()
        firsts = self.agenda.firsts()
        return firsts[self._turns.choose(firsts)] if firsts else None

    def rank(self) -> None:
        """Call when the graph or a strategy has changed: who goes first among the operators with work."""
        before, self._turns = self._turns, turns_of(self.graph)
        if before is not None and self._turns is not None:
            self._turns.follow(before)
        self.table.standing.rewire(self.graph.nodes)
        self.table.forget()
        self.agenda.rank = self.table.rank if self.table.ranked else None

    def shares(self) -> dict[str, float]:
        """By query, the part of the steps that its component gets while all have work."""
        components = [] if self._turns is None else self._turns.components
        whole = sum(each.share for each in components)
        return {query: each.share / whole for each in components for query in each.queries}

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
