"""Who is asked for the heartbeat that an operator waits for: sources that may have one to give.

A source is asked when rows came to it, when the generator of heartbeats knows more than it has promised, or
when time itself may tell it more. One that nothing has happened to is not looked at.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.timekeeper import GeneratedPromise, Timekeeper
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.origins import origins_behind
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator
from headrace.scheduling.agenda import Agenda
from headrace.time.timestamp import MIN_TIME

Origin = SourceNode | Operator


class Asking:
    """For each origin of time the operators that may wait for it, and which origins may have news."""

    def __init__(self, graph: Graph, agenda: Agenda) -> None:
        self._graph, self._agenda = graph, agenda
        self._keeper: Timekeeper | None = None
        self._askers: dict[Origin, list[tuple[Node, int]]] = {}
        self._by_clock: list[Origin] = []
        self._by_bounds: dict[int, SourceNode] = {}
        self._given = np.empty(0, np.int64)
        self._came: dict[Origin, None] = {}

    def use(self, keeper: Timekeeper | None) -> None:
        """The graph, or what its sources promise by, has changed: all of them may have news."""
        self._keeper, self._askers = keeper, {}
        for node in self._graph.nodes:
            for input, before in enumerate(node.predecessors):
                for origin in [*origins_behind(before), *node.label]:
                    self._askers.setdefault(origin, []).append((node, input))
        self._by_bounds = {}
        for origin in self._askers:
            if isinstance(origin, SourceNode) and isinstance(origin.promise, GeneratedPromise):
                self._by_bounds[origin.promise.place] = origin
        self._by_clock = [origin for origin in self._askers if _tells_by_clock(origin)]
        self._given = np.full(0 if keeper is None else keeper.streams, MIN_TIME, np.int64)
        self._came = dict.fromkeys(self._askers)

    def came(self, source: SourceNode) -> None:
        """Something came to a source."""
        self._came[source] = None

    def ask(self, now: int) -> bool:
        """Ask for the operators that wait; true if an origin made an ETS."""
        waiting = self._agenda.waiting
        if not waiting:
            return False
        made = False
        wanted: dict[int, set[int]] = {}
        for origin, place in self._with_news(now).items():
            for node, input in self._askers.get(origin, ()):
                if node.place not in waiting:
                    continue
                if node.place not in wanted:
                    wanted[node.place] = {need.input for need in node.operator.needs()}
                if input in wanted[node.place]:
                    made |= origin.demand(now)
                    self._came.pop(origin, None)
                    if place is not None and self._keeper is not None:
                        self._given[place] = self._keeper.heartbeat(place, now)
                    break
        return made

    def _with_news(self, now: int) -> dict[Origin, int | None]:
        """The origins that may know more than they have told, and their places among those with bounds."""
        found: dict[Origin, int | None] = dict.fromkeys([*self._came, *self._by_clock])
        if self._keeper is not None and self._by_bounds:
            for place in np.flatnonzero(self._keeper.all(now) > self._given).tolist():
                if place in self._by_bounds:
                    found[self._by_bounds[place]] = place
        return found


def _tells_by_clock(origin: Origin) -> bool:
    """Whether time alone may tell it more; what the bounds of streams prove is known to their generator."""
    return not isinstance(origin, SourceNode) or origin.promise.by_clock
