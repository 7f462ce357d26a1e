"""Beyond the papers: earliest deadline first, for many queries that want their results differently soon."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from experiments.arrivals import MILLI, Instants
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from experiments.simulation import SCHEMA, Simulation, Trace, run_together
from headrace.engine import Engine
from headrace.expressions import col
from headrace.graph.service import Service
from headrace.plan.nodes.core import Plan, Select, Source, TimeKind

STEP = 20_000
"""Nanoseconds that a step of an operator takes: the claim counts steps, so it holds on every machine."""
QUERIES = 50
FIXED = {"dfs": "depth-first", "bfs": "breadth-first", "rr": "round robin", "chain": "Chain"}
STRATEGIES = FIXED | {"edf": "earliest deadline first"}
SHARES = (50, 75, 90, 95, 99)


def targets() -> npt.NDArray[np.int64]:
    """From 20 ms to a second, in an order that has nothing to do with that of the queries."""
    wanted = np.geomspace(20 * MILLI, 1_000 * MILLI, QUERIES).astype(np.int64)
    found: npt.NDArray[np.int64] = np.random.default_rng(81).permutation(wanted)
    return found


def plan(query: int) -> Plan:
    """One to three conditions that pass every row, no two alike."""
    found: Plan = Source("s", SCHEMA, TimeKind.INTERNAL)
    for i in range(1 + query % 3):
        found = Select(found, col("v") < 101 + 3 * query + i)
    return found


def arrivals(bursts: int, size: int) -> Instants:
    """Bursts of rows that come within a millisecond; the work on one takes half the time to the next."""
    begins = MILLI + np.arange(bursts) * size * 4 * QUERIES * STEP
    found: Instants = (begins[:, None] + np.arange(size) * MILLI // size).ravel()
    return found


def compared(bursts: int, size: int, conditions: Conditions) -> dict[str, Trace]:
    """Each strategy over the same arrivals."""
    runs = []
    for strategy in STRATEGIES:
        engine = Engine(strategy=strategy)
        for query, deadline in enumerate(targets().tolist()):
            engine.add(f"q{query}", plan(query), service=Service(deadline))
        instants = {"s": arrivals(bursts, size)}
        runs.append(Simulation(engine, instants, conditions, wrappers=True))
    return dict(zip(STRATEGIES, run_together(runs), strict=True))


def used(trace: Trace) -> npt.NDArray[np.float64]:
    """The latency of each answer, as a part of what its query allows."""
    found: npt.NDArray[np.float64] = trace.latency_ms * MILLI / targets()[trace.sink]
    return found


def run(conditions: Conditions) -> Result:
    """The tail of the latency, as a part of the deadline, and the answers that come too late."""
    counted = replace(conditions, service=STEP, real=False)
    traces = compared(*conditions.of((1, 15), (4, 40), (20, 100)), counted)
    parts = {name: used(trace) for name, trace in traces.items()}
    p99 = {name: float(np.percentile(part, 99)) for name, part in parts.items()}
    late = {name: float((part > 1).mean()) for name, part in parts.items()}
    best = min(FIXED, key=lambda name: p99[name])
    lines = [
        Line(label, SHARES, [float(np.percentile(parts[name], share)) for share in SHARES])
        for name, label in STRATEGIES.items()
    ]
    x, y = "Percentile of the answers", "Latency over the query's deadline"
    return Result(
        [
            *(Measure(f"deadline.{name}_p99", p99[name], "×") for name in STRATEGIES),
            *(Measure(f"deadline.{name}_late_share", late[name]) for name in STRATEGIES),
            Measure("deadline.p99_over_best_fixed", p99["edf"] / p99[best], "×", ceiling=0.8),
        ],
        [Panel(f"{QUERIES} queries", x, y, lines, "linear", "log")],
        f"99 % of the answers take at most {p99['edf']:.2f} of the time that their queries allow, and "
        f"{p99[best]:.2f} under the best other strategy, {FIXED[best]}; {late['edf']:.0%} come too late, "
        f"there {late[best]:.0%}",
    )


EXPERIMENT = Experiment(
    name="deadline",
    figure="earliest deadline first (beyond the papers)",
    claim="with many queries that want their results differently soon, the tail of their latencies, as a "
    "part of what each allows, is shorter than under any strategy that does not know this",
    method="50 queries of one to three operators over one stream, with deadlines from 20 ms to a second; "
    "bursts of rows; every step takes 20 µs, so the numbers are counts, the same everywhere; latency of each "
    "answer from the arrival of its row, divided by the deadline of its query",
    run=run,
)
