"""Keeps a memory budget by changing windows and granularities within their bounds.

A look happens several times per window: predict what the windows will need from what they hold and from the
rates of the streams; choose the sizes and grains of least loss that fit; apply them, with hysteresis. A look
comes before new rows run, so a burst meets windows that are small enough. No clock is read: the same rows in
the same steps lead to the same choices.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from headrace import tuning
from headrace.errors import BudgetError
from headrace.flow.batch import Batch
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.origins import sources_behind
from headrace.memory.accounting import account, charge
from headrace.memory.budget import size_text
from headrace.memory.choice import Demand, GrainDemand, Outlook, choose_both, settled, settled_grain
from headrace.memory.flows import (
    Arrivals,
    Flow,
    GrainFlow,
    comes_to_grains_only,
    demand_of,
    grains_of,
    size_of,
    windows_behind,
    windows_of,
)
from headrace.operators.adaptable import Adaptable
from headrace.plan.show import show_node
from headrace.state.part import Chunk
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Shortage = Literal["fail", "spill"]
"""What to do when even the least windows do not fit."""
POLICIES: Final = ("fail", "spill")
Spill = Callable[[int], int]
"""Spills about this many bytes of state, if it can; returns how many left memory."""

_SLACK: Final = 1.3
"""Growing state has at most a third of unused capacity."""
_OVERHEAD: Final = 2.5
_LINE: Final = 48
"""Until it is measured, the cost of a row is its bytes and a line of numbers, times the overhead."""


@dataclass(frozen=True)
class Forecast:
    """Result of the last look: bytes held, needed at the current sizes, and needed at the least sizes."""

    held: int
    needed: int
    least: int


def _may_change(node: Node) -> bool:
    """Whether an operator has bounds and a value that may change."""
    return isinstance(node.operator, Adaptable)


def _extremes(grains: list[GrainDemand]) -> list[list[int]]:
    """All granularities at their finest, and all at their coarsest."""
    return [[each.least for each in grains], [each.candidates()[-1] for each in grains]]


class Manager:
    """Keeps what a graph holds within `budget` bytes.

    Laws: every size is within the bounds of all queries that use it; a new size applies to rows of later
    times only; past decisions are in the histories of the windows, and the input of the next one is in the
    snapshot.
    """

    def __init__(
        self, graph: Graph, budget: int, policy: Shortage, spill: Spill, *, measure_at_snapshots: bool = False
    ) -> None:
        self.budget = budget
        self.policy: Shortage = policy
        self.forecast = Forecast(0, 0, 0)
        self._graph = graph
        self._spill = spill
        self._at_snapshots = measure_at_snapshots
        self._arrivals: dict[str, Arrivals] = {}
        self._flows: dict[int, Flow] = {}
        self._grains: dict[int, GrainFlow] = {}
        self._frontier = MIN_TIME
        self._looked = MIN_TIME
        self._fixed = 0.0
        self._fresh = self._patience = self._released = 0
        self._unsettled = False

    # ------------------------------------------------------------------------------------------- watching

    def arrived(self, stream: str, batch: Batch) -> None:
        """Count rows that were pushed into a stream."""
        if len(batch):
            first, last = int(batch.start.min()), int(batch.start.max())
            self._arrivals.setdefault(stream, Arrivals()).note(len(batch), batch.bytes(), first, last)
            self._fresh += len(batch)

    def look(self) -> None:
        """Before rows run: decide, if enough has come since the last look."""
        if not self._fresh:
            return
        for each in self._arrivals.values():
            each.mark()
        newest = max(a.newest for a in self._arrivals.values() if a.newest is not None)
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
        short = self._is_short()
        released = short and self._release()
        if not self._at_snapshots and (released or not short):
            self._measure()
        self._hold()

    def _pause(self) -> int:
        """Ticks between two looks when few rows come."""
        grains = grains_of(self._graph)
        windows = [w for node in grains for w in windows_behind(self._graph, node)]
        sizes = [size_of(node) for node in windows_of(self._graph) if _may_change(node) or node in windows]
        looks = tuning.current.budget_looks
        return max(1, min(sizes, default=looks) // looks)

    def _changeable(self) -> list[Node]:
        """The nodes of all windows and granularities that may change."""
        return [*filter(_may_change, windows_of(self._graph)), *grains_of(self._graph)]

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

    # ------------------------------------------------------------------------------------------- deciding

    def _decide(self) -> None:
        """Forecast the need, apply sizes and grains that fit, and spill if the budget is exceeded."""
        nodes = windows_of(self._graph)
        users = self._graph.quality.nodes()
        demands = [self._demand(node, len(users.get(node, ()))) for node in nodes]
        coarsened = grains_of(self._graph)
        grains = [self._grain_demand(node, nodes, demands, len(users.get(node, ()))) for node in coarsened]
        outlook = Outlook(self._fixed, demands, grains, [each.size for each in grains])
        held = self._held(nodes, demands) + sum(
            each.bytes * self._grains[node.id].live(self._frontier)
            for node, each in zip(coarsened, grains, strict=True)
        )
        smallest = [demand.least for demand in demands]
        least = min(outlook.at(values).peak(smallest) for values in _extremes(grains))
        target, last = tuning.current.budget_target, tuning.current.budget_reserve
        limit = target if least <= target * self.budget else last
        sizes, values = choose_both(outlook, grains, limit * self.budget)
        pressed = held > target * self.budget
        now = outlook.peak([demand.size for demand in demands])
        if grains and now <= last * self.budget:
            sizes = [max(size, demand.size) for size, demand in zip(sizes, demands, strict=True)]
            values = [min(value, grain.size) for value, grain in zip(values, grains, strict=True)]
        for node, demand, size in zip(nodes, demands, sizes, strict=True):
            self._take(node, demand, size, pressed=pressed)
        for node, grain, value in zip(coarsened, grains, values, strict=True):
            longest = max((demands[i].most for i in grain.windows), default=grain.most)
            self._take_grain(node, grain, value, longest, pressed=pressed)
        needed = outlook.at([size_of(node) for node in coarsened]).peak([size_of(node) for node in nodes])
        self.forecast = Forecast(int(held), int(needed), int(least))
        dearest = max([1.0, *(each.bytes for each in demands), *(each.bytes for each in grains)])
        self._patience = int(max(0.0, self.budget - held) / tuning.current.budget_looks / dearest)
        if self.policy == "spill" and held > self.budget:
            self._spill(int(held - tuning.current.budget_target * self.budget))

    def _demand(self, node: Node, users: int) -> Demand:
        """What a window needs, as input to `choose`; `users` is the number of queries that use it."""
        flow = self._flows[node.id]
        behind = [self._arrivals[s.name] for s in sources_behind(node) if s.name in self._arrivals]
        newest = max((a.newest for a in behind if a.newest is not None), default=MIN_TIME)
        begin = max((a.first for a in behind), default=0)
        now = begin if flow.time is None else flow.time
        delay = 0 if self._frontier == MAX_TIME else max(0, newest - self._frontier)
        rows = max(1, sum(a.rows for a in behind))
        known = [each.cost for each in self._flows.values() if each.cost]
        prior = max(known, default=_OVERHEAD * (sum(a.bytes for a in behind) / rows + _LINE))
        if comes_to_grains_only(node):
            prior = 0.0
        return demand_of(node, flow, behind, now, delay, prior, max(1, users))

    def _grain_demand(
        self, node: Node, windows: list[Node], demands: list[Demand], users: int
    ) -> GrainDemand:
        """What a granularity needs, as input to `choose_both`."""
        flow, operator = self._grains[node.id], node.operator
        assert isinstance(operator, Adaptable)
        before = tuple(windows.index(each) for each in windows_behind(self._graph, node))
        behind = [self._arrivals[s.name] for s in sources_behind(node) if s.name in self._arrivals]
        passed = sum(self._flows[windows[i].id].passed for i in before)
        rows = max(1, sum(a.rows for a in behind))
        row = float(_LINE * (1 + round(sum(a.bytes for a in behind) / rows / _LINE)))
        bounds = operator.history.bounds
        return GrainDemand(
            least=bounds.least,
            most=bounds.most,
            size=operator.history.value,
            weight=max(1, users),
            now=max((demands[i].now for i in before), default=self._looked),
            rate=sum(demands[i].rate for i in before) * flow.passed / max(1, passed),
            bytes=_OVERHEAD * row if flow.cost is None else flow.cost,
            delay=max((demands[i].delay for i in before), default=0),
            cohorts=tuple(flow.cohorts),
            kinds=flow.kinds,
            waiting=row,
            windows=before,
        )

    def _held(self, nodes: list[Node], demands: list[Demand]) -> float:
        """Estimate of the bytes held once all rows that came have passed the windows."""
        live = [self._flows[node.id].live(self._frontier) for node in nodes]
        passed = sum(d.bytes * rows for d, rows in zip(demands, live, strict=True))
        coming = sum(d.cost * min(max(0, self._looked - d.now), d.most) for d in demands)
        return self._fixed + passed + coming

    def _take(self, node: Node, demand: Demand, wanted: int, *, pressed: bool) -> None:
        """Change a window towards the size `wanted`, with hysteresis."""
        operator, flow = node.operator, self._flows[node.id]
        if not isinstance(operator, Adaptable) or demand.least == demand.most:
            return
        since = MAX_TIME if flow.changed == MIN_TIME else self._looked - flow.changed
        size = settled(demand, wanted, since, pressed)
        if size != demand.size:
            operator.change(operator.earliest, size)
            flow.changed = self._looked

    def _take_grain(
        self, node: Node, demand: GrainDemand, wanted: int, window: int, *, pressed: bool
    ) -> None:
        """Change a granularity towards the grain `wanted`, with hysteresis."""
        operator, flow = node.operator, self._grains[node.id]
        assert isinstance(operator, Adaptable)
        since = MAX_TIME if flow.changed == MIN_TIME else self._looked - flow.changed
        value = settled_grain(demand, wanted, since, pressed, window)
        if value != demand.size:
            operator.change(operator.earliest, value)
            flow.changed = self._looked

    # -------------------------------------------------------------------------------------------- holding

    def _hold(self) -> None:
        """If the budget is exceeded, free unused capacity; if that is not enough, spill or fail."""
        held = account(self._graph).own
        if held > self.budget:
            self._release(at_once=True)
            held = account(self._graph).own
        if held > self.budget and self.policy == "spill":
            self._spill(int(held - tuning.current.budget_target * self.budget))
        elif held > tuning.current.budget_failure * self.budget:
            raise self._too_small(held)

    def _is_short(self) -> bool:
        """Whether some window is smaller, or some granularity coarser, than it could be."""
        operators = [node.operator for node in self._changeable()]
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

    def _too_small(self, held: int) -> BudgetError:
        """The error for a budget that even the smallest windows do not fit into."""
        nodes = [*windows_of(self._graph), *grains_of(self._graph)]
        windows = [f"{n.name}: {show_node(n.plan)}" for n in nodes]
        least = max(held, self.forecast.least)
        return BudgetError(
            "HR-M001",
            f"the state takes {size_text(held)}, the budget is {size_text(self.budget)}; at the current "
            f"rates even the smallest windows need {size_text(least)}",
            place="; ".join(windows) or "no window could be made smaller",
            hint=f"raise the budget to {size_text(least)}, lower a MIN, or spill to disk (policy 'spill')",
        )

    # ---------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        flows = [*self._flows.values(), *self._grains.values()]
        return 64 * (len(self._arrivals) + sum(len(f.cohorts) for f in flows))

    def changes(self, full: bool) -> Chunk:
        if self._at_snapshots:
            if self._is_short():
                self._release()
            self._measure()
        state = {
            "arrivals": {name: a.state() for name, a in self._arrivals.items()},
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
        self._unsettled = False
