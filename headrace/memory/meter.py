"""Measures what windows hold and what they will need: rows by window, rates of streams, bytes per row."""

from __future__ import annotations

import json
from typing import Any, Final

from headrace import tuning
from headrace.flow.batch import Batch
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.origins import sources_behind
from headrace.memory.accounting import account, charge
from headrace.memory.admission import LINE, OVERHEAD, Measured, row_cost
from headrace.memory.choice import Demand, GrainDemand, Needs
from headrace.memory.flows import (
    Arrivals,
    Flow,
    GrainFlow,
    apart_from,
    comes_to_grains_only,
    demand_of,
    grains_of,
    windows_behind,
    windows_of,
)
from headrace.operators.adaptable import Adaptable
from headrace.plan.analysis.ordering import Order
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import without_bounds
from headrace.plan.nodes.trees import everywhere
from headrace.state.part import Chunk
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_SLACK: Final = 1.3
"""Growing state has at most a third of unused capacity."""


def _written(plan: Plan) -> Plan:
    """A plan of the graph as a query has it: without bounds, and without the sorts that the graph added."""
    plain = everywhere(plan, lambda node: node.input if isinstance(node, Order) else node)
    return without_bounds(plain)


class Meter:
    """Counts the rows of a graph's streams and windows, and measures the bytes that they cost.

    What it has counted is in the snapshot. No clock is read.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._arrivals: dict[str, Arrivals] = {}
        self._flows: dict[int, Flow] = {}
        self._grains: dict[int, GrainFlow] = {}
        self._frontier = MIN_TIME
        self._looked = MIN_TIME
        self._fixed = 0.0
        self._fresh = self._patience = self._released = 0

    # ------------------------------------------------------------------------------------------- counting

    def arrived(self, stream: str, batch: Batch) -> None:
        """Count rows that were pushed into a stream."""
        if len(batch):
            first, last = int(batch.start.min()), int(batch.start.max())
            self._arrivals.setdefault(stream, Arrivals()).note(len(batch), batch.bytes(), first, last)
            self._fresh += len(batch)

    def arrivals(self) -> dict[str, dict[str, Any]]:
        """By stream, what came, as plain data."""
        return {name: each.state() for name, each in self._arrivals.items()}

    def _mark(self) -> int:
        """Record how many rows of each stream have come; returns the newest time."""
        for each in self._arrivals.values():
            each.mark()
        return max((a.newest for a in self._arrivals.values() if a.newest is not None), default=MIN_TIME)

    def _count(self) -> None:
        """Note what passed each window since the last time."""
        nodes = windows_of(self._graph)
        self._flows = {n.id: self._flows.get(n.id) or Flow() for n in nodes}
        known = [max(s.promised, s.arc.heartbeat) for s in self._graph.sources.values()]
        self._frontier = min(known, default=MIN_TIME)
        for node in nodes:
            self._flows[node.id].count(node)
            self._flows[node.id].forget(self._frontier)
        grains = grains_of(self._graph)
        self._grains = {n.id: self._grains.get(n.id) or GrainFlow() for n in grains}
        for node in grains:
            self._grains[node.id].count_lines(node, windows_behind(self._graph, node))
            self._grains[node.id].forget(self._frontier)

    # ------------------------------------------------------------------------------------------ measuring

    def _measure(self) -> None:
        """Measure what a row costs behind each window, and what is held independently of the windows."""
        self._count()
        for node in grains_of(self._graph):
            self._grains[node.id].look(node)
        held = account(self._graph, tight=True)
        flows = {**self._flows, **self._grains}
        rows = {id: flow.live(self._frontier) for id, flow in flows.items()}
        charged = charge(self._graph, held, rows)
        for id, flow in flows.items():
            flow.calibrate(_SLACK * charged[id], rows[id])
        waiting = sum(held.arcs[node.name] for node in grains_of(self._graph))
        self._fixed = max(0.0, _SLACK * (held.own - waiting - sum(charged.values())))

    def _release_and_measure(self) -> None:
        """Measure; while quality is reduced, only after operators have freed what they can."""
        if not self._is_short() or self._release():
            self._measure()

    def _is_short(self) -> bool:
        """Whether some window is smaller, or some granularity coarser, than it could be."""
        operators = [node.operator for node in (*windows_of(self._graph), *grains_of(self._graph))]
        histories = [o.history for o in operators if isinstance(o, Adaptable)]
        return any(history.value != history.bounds.best for history in histories)

    def _release(self, *, at_once: bool = False) -> bool:
        """Let operators free memory, unless less than an eighth of the rows held is new.

        Few rows are then expired but not dropped yet, so the bytes held show what a row costs.
        """
        live = sum(flow.live(self._frontier) for flow in self._flows.values())
        arrived = sum(a.rows for a in self._arrivals.values())
        if not at_once and 8 * (arrived - self._released) < live:
            return False
        self._released = arrived
        for node in self._graph.nodes:
            node.operator.memory.release()
        return True

    def _held_within(self, limit: int) -> int:
        """The bytes held; if they are more than `limit`, after operators have freed what they can."""
        held = account(self._graph).own
        if held > limit:
            self._release(at_once=True)
            held = account(self._graph).own
        return held

    # ----------------------------------------------------------------------------------------------- need

    def _needs(self) -> Needs:
        """What the windows and granularities hold and will need, in the order of the graph."""
        nodes, coarsened = windows_of(self._graph), grains_of(self._graph)
        users = self._graph.quality.nodes()
        weights = {node: self._graph.quality.weight(queries) for node, queries in users.items()}
        demands = [self._demand(node, weights.get(node, 1.0)) for node in nodes]
        grains = [self._grain_demand(node, nodes, demands, weights.get(node, 1.0)) for node in coarsened]
        apart = sum(apart_from(self._flows[node.id], each) for node, each in zip(nodes, demands, strict=True))
        held = self._held(nodes, demands) + sum(
            each.bytes * self._grains[node.id].live(self._frontier)
            for node, each in zip(coarsened, grains, strict=True)
        )
        return Needs(self._fixed + apart, held, tuple(demands), tuple(grains))

    def measured(self) -> Measured:
        """What is known about the queries that run and their streams, for a query that wants to come."""
        for node in windows_of(self._graph):
            self._flows.setdefault(node.id, Flow())
        for node in grains_of(self._graph):
            self._grains.setdefault(node.id, GrainFlow())
        known = [each.cost for each in (*self._flows.values(), *self._grains.values()) if each.cost]
        counted = [(n, self._flows[n.id]) for n in windows_of(self._graph)]
        shares = {_written(node.plan): flow.share for node, flow in counted if flow.time is not None}
        arrivals = {name: [each] for name, each in self._arrivals.items()}
        return Measured(self._needs(), arrivals, max(known, default=None), shares)

    def _rows_until_look(self, needs: Needs, budget: int) -> int:
        """How many rows may come before the next look."""
        dearest = max([1.0, *(each.bytes for each in (*needs.windows, *needs.grains))])
        return int(max(0.0, budget - needs.held) / tuning.current.budget_looks / dearest)

    def _demand(self, node: Node, weight: float) -> Demand:
        """What a window needs, as input to `choose`; `weight`: how much its queries count."""
        flow = self._flows[node.id]
        behind = [self._arrivals[s.name] for s in sources_behind(node) if s.name in self._arrivals]
        newest = max((a.newest for a in behind if a.newest is not None), default=MIN_TIME)
        begin = max((a.first for a in behind), default=0)
        now = begin if flow.time is None else flow.time
        delay = 0 if self._frontier == MAX_TIME else max(0, newest - self._frontier)
        known = [each.cost for each in self._flows.values() if each.cost]
        prior = max(known, default=row_cost(behind))
        if comes_to_grains_only(node):
            prior = 0.0
        return demand_of(node, flow, behind, now, delay, prior, weight, self._unchanged(node))

    def _grain_demand(
        self, node: Node, windows: list[Node], demands: list[Demand], weight: float
    ) -> GrainDemand:
        """What a granularity needs, as input to `choose_both`."""
        flow, operator = self._grains[node.id], node.operator
        assert isinstance(operator, Adaptable)
        before = tuple(windows.index(each) for each in windows_behind(self._graph, node))
        behind = [self._arrivals[s.name] for s in sources_behind(node) if s.name in self._arrivals]
        passed = sum(self._flows[windows[i].id].passed for i in before)
        rows = max(1, sum(a.rows for a in behind))
        row = float(LINE * (1 + round(sum(a.bytes for a in behind) / rows / LINE)))
        bounds = operator.history.bounds
        return GrainDemand(
            least=bounds.least,
            most=bounds.most,
            size=operator.history.value,
            weight=weight,
            now=max((demands[i].now for i in before), default=self._looked),
            rate=sum(demands[i].rate for i in before) * flow.passed / max(1, passed),
            bytes=OVERHEAD * row if flow.cost is None else flow.cost,
            delay=max((demands[i].delay for i in before), default=0),
            cohorts=tuple(flow.cohorts),
            unchanged=self._unchanged(node),
            step=bounds.step,
            kinds=flow.kinds,
            waiting=row,
            windows=before,
        )

    def _unchanged(self, node: Node) -> int:
        """For how many ticks a window or granularity has had its value."""
        if not isinstance(node.operator, Adaptable):
            return MAX_TIME
        entries = node.operator.history.entries
        return MAX_TIME if len(entries) == 1 else self._looked - entries[-1][0]

    def _held(self, nodes: list[Node], demands: list[Demand]) -> float:
        """Estimate of the bytes held once all rows that came have passed the windows."""
        live = [self._flows[node.id].live(self._frontier) for node in nodes]
        passed = sum(d.bytes * rows for d, rows in zip(demands, live, strict=True))
        timed = [each for each in demands if not each.counted]
        coming = sum(d.cost * min(max(0, self._looked - d.now), d.most) for d in timed)
        return self._fixed + passed + coming

    # ---------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        flows = [*self._flows.values(), *self._grains.values()]
        return 64 * (len(self._arrivals) + sum(len(f.cohorts) for f in flows))

    def changes(self, full: bool) -> Chunk:
        state = {
            "arrivals": self.arrivals(),
            "flows": {id: flow.state() for id, flow in self._flows.items()},
            "grains": {id: flow.state() for id, flow in self._grains.items()},
            "own": [self._fixed, self._fresh, self._looked, self._patience, self._released],
        }
        return {"state": json.dumps(state)}

    def apply(self, chunk: Chunk) -> None:
        state = json.loads(chunk["state"])
        self._arrivals = {name: Arrivals.of(each) for name, each in state["arrivals"].items()}
        self._flows = {int(id): Flow.of(each) for id, each in state["flows"].items()}
        self._grains = {int(id): GrainFlow.of(each) for id, each in state.get("grains", {}).items()}
        self._fixed, self._fresh, self._looked, self._patience, self._released = state["own"]
