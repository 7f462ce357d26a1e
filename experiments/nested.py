"""The nested unions of Bai et al. (query graphs, Figures 5 and 10), with a sliding aggregate between them.

The text we have of the paper has no pictures. What it says of the graph: unions are nested, an aggregate with
a slide is part of it, and operators that never wait stand between those that do. Hence:

    a ─ σπ… ─┐
             ├─ ∪ ─ Σ(slide) ─ σπ… ─┐
    b ─ σπ… ─┘                      ├─ ∪ ─ sink
    c ─ σπ… ────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.arrivals import Instants
from experiments.result import Conditions
from experiments.simulation import ARRIVED, SCHEMA, Simulation, Trace
from headrace.engine import Engine
from headrace.expressions import col
from headrace.operators.contract import ignore_heartbeat
from headrace.plan.nodes.core import (
    AggregateCall,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    TimeKind,
    Union,
)
from headrace.plan.nodes.windows import Sliding
from headrace.time.ets import NONE, ON_DEMAND, Policy

STREAMS = ("a", "b", "c")
AGGREGATED = 1_000
"""Added to `v` of the aggregate's rows, to tell them from those of `c`."""


def _path(plan: Plan, pairs: int) -> Plan:
    """`pairs` selections and projections, which pass all rows and never wait."""
    for bound in range(2_000, 2_000 + pairs):
        columns = (("v", col("v")), (ARRIVED, col(ARRIVED)))
        plan = Project(Select(plan, col("v") < bound), columns)
    return plan


def nested_unions(slide: int, pairs: int) -> Plan:
    """A row each `slide` from the aggregate, every row of `c`; `pairs` never waiting on every path."""
    a, b, c = (_path(Source(name, SCHEMA, TimeKind.INTERNAL), pairs) for name in STREAMS)
    calls = (AggregateCall("v", "max", "v"), AggregateCall(ARRIVED, "max", ARRIVED))
    aggregate = SlidingAggregate(Union((a, b)), (), calls, Sliding(2 * slide, slide))
    marked = Project(RStream(aggregate, slide), (("v", col("v") + AGGREGATED), (ARRIVED, col(ARRIVED))))
    return Union((_path(marked, pairs), c))


@dataclass(frozen=True)
class Way:
    """How time is made known: by ETS of the sources or not, by heartbeats of operators or their rows only."""

    label: str
    policy: Policy
    propagation: str = "eqg"
    rows_only: bool = False


ROWS_ONLY = Way("no ETS, time known by rows only", NONE, rows_only=True)
NO_ETS = Way("no ETS, operators pass heartbeats on", NONE)
PUNCTUATION = Way("on-demand ETS as punctuations", ON_DEMAND, "punctuation")
EQG = Way("on-demand ETS along ETS arcs", ON_DEMAND)


def nested(
    way: Way, slide: int, pairs: int, arrivals: Mapping[str, Instants], conditions: Conditions
) -> Simulation:
    """A run to be, row by row and depth-first."""
    engine = Engine(strategy="dfs", propagation=way.propagation)
    for name in STREAMS:
        engine.streams.declare(Source(name, SCHEMA, TimeKind.INTERNAL), policy=way.policy)
    engine.add("nested", nested_unions(slide, pairs))
    if way.rows_only:
        for node in engine.graph.nodes:
            node.operator.promise = ignore_heartbeat
    return Simulation(engine, arrivals, conditions)


def passed_ms(trace: Trace) -> float:
    """Average latency of the rows of `c`: those of the aggregate wait for the end of their window."""
    passed = trace.latency_ms[trace.value < AGGREGATED]
    return float(passed.mean()) if len(passed) else float("nan")
