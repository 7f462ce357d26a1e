"""Chain (Babcock et al. 2003, which Bai et al. §3 and Srivastava & Widom §7.3 name): queues under bursts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments import levels
from experiments.arrivals import Instants, poisson
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from experiments.simulation import SCHEMA, Simulation, Trace, held_items, run_together
from headrace.engine import Engine
from headrace.expressions import col
from headrace.plan.nodes.core import Plan, Select, Source, TimeKind

STEP = 20_000
"""Nanoseconds that a step of an operator takes: the claim counts rows, so it is the same on every machine."""
STRATEGIES = {"dfs": "FIFO (DFS)", "bfs": "BFS", "rr": "round robin", "chain": "Chain"}
PASSING = (2, 4, 6, 8)
Pair = tuple[str, str]
LEVELS = (
    ("dfs", "operator"),
    ("chain", "operator"),
    ("dfs", "memory"),
    ("chain", "memory"),
    ("dfs", "query"),
)


def plan(passing: int) -> Plan:
    """An operator that passes every row, a condition that one row in ten passes, then more that pass all."""
    first = Select(Source("s", SCHEMA, TimeKind.INTERNAL), col("v") < 100)
    found: Plan = Select(first, col("v") < 10)
    for i in range(passing):
        found = Select(found, col("v") < 101 + i)
    return found


def arrivals(bursts: int, size: int) -> Instants:
    """Some rows to measure with; then bursts of a row for every two steps, with pauses between them."""
    measured = np.arange(200) * STEP * 20
    begins = measured[-1] + STEP * 100 + np.arange(bursts) * size * STEP * 5
    found: Instants = np.concatenate([measured, (begins[:, None] + np.arange(size) * STEP * 2).ravel()])
    return found


def compared(passing: int, bursts: int, size: int, conditions: Conditions) -> dict[str, Trace]:
    """Each strategy over the same arrivals."""
    runs = []
    for strategy in STRATEGIES:
        engine = Engine(strategy=strategy)
        engine.add("q", plan(passing))
        instants = {"s": arrivals(bursts, size)}
        runs.append(Simulation(engine, instants, conditions, gauge=held_items, wrappers=True))
    return dict(zip(STRATEGIES, run_together(runs), strict=True))


def at_levels(seconds: float, conditions: Conditions) -> dict[Pair, float]:
    """Figure 5 of Srivastava & Widom, where O1 makes eight rows of one: peak memory in KiB."""
    sent = {name: poisson(rate, seconds, seed=60 + i) for i, (name, rate) in enumerate(levels.RATES.items())}
    late = {name: sent[name] + (levels.LAG if name == "s3" else 0) for name in levels.NAMES}
    feed = levels.rows_of(sent, late, 2)
    runs = [
        Simulation(
            levels.engine_at(level, way), late, conditions, gauge=levels.held_bytes, gauge_each=4, feed=feed
        )
        for way, level in LEVELS
    ]
    return {key: trace.peak / 1024 for key, trace in zip(LEVELS, run_together(runs), strict=True)}


def run(conditions: Conditions) -> Result:
    """Queues against the number of operators after the condition; then Chain with levels of heartbeats."""
    counted = replace(conditions, service=STEP, real=False)
    bursts, size = conditions.of((1, 400), (4, 1_000), (10, 5_000))
    shapes = conditions.of((6,), PASSING, PASSING)
    found = [compared(passing, bursts, size, counted) for passing in shapes]
    held = at_levels(conditions.of(2.5, 3.0, 20.0), counted)
    last = found[-1]
    over = [traces["chain"].peak / traces["dfs"].peak for traces in found]
    return Result(
        [
            *(Measure(f"chain.{name}_peak", last[name].peak, "rows") for name in STRATEGIES),
            Measure("chain.peak_over_fifo", over[-1], "×", ceiling=0.5, paper="less"),
            Measure("chain.latency_over_fifo", last["chain"].mean_ms / last["dfs"].mean_ms, "×"),
            *(Measure(f"chain.fig5.{way}_{level}_kib", held[way, level], "KiB") for way, level in LEVELS),
            Measure(
                "chain.operator_over_fifo_operator_memory",
                held["chain", "operator"] / held["dfs", "operator"],
                "×",
                ceiling=1.05,
                paper="future work",
            ),
            Measure(
                "chain.memory_aware_over_query_memory",
                held["chain", "memory"] / held["dfs", "query"],
                "×",
                ceiling=1.1,
                paper="future work",
            ),
        ],
        [_queues(shapes, found), _levels(held)],
        f"with bursts of {size:,} rows the queues hold at most {last['chain'].peak:,} rows under Chain and "
        f"{last['dfs'].peak:,} first in, first out; with heartbeats per operator, Chain holds "
        f"{held['chain', 'operator'] / held['dfs', 'operator']:.2f} × as much as FIFO",
    )


def _queues(shapes: Sequence[int], found: list[dict[str, Trace]]) -> Panel:
    lines = [Line(label, shapes, [t[name].peak for t in found]) for name, label in STRATEGIES.items()]
    x = "Operators after the condition"
    return Panel("(a) bursts", x, "Peak total queue size (rows)", lines, from_zero=True)


def _levels(held: dict[Pair, float]) -> Panel:
    names = tuple(f"{STRATEGIES[way]},\n{level}" for way, level in held)
    lines = [Line("peak memory", list(range(len(held))), list(held.values()), "bars")]
    return Panel("(b) with levels of heartbeats", "", "Peak memory (KiB)", lines, ticks=names)


EXPERIMENT = Experiment(
    name="chain",
    figure="Chain, which Bai et al. §3 and Srivastava & Widom §7.3 refer to",
    claim="under bursts Chain keeps the queues at most half as long as first in, first out; with heartbeats "
    "per operator it needs no more memory than other strategies (left for future work)",
    method="bursts in which a row arrives with every other step of an operator; an operator that passes "
    "all, a condition that one row in ten passes, and up to eight operators that pass all; peak of all rows "
    "in buffers except the sink's; (b) Figure 5 as in `levels`, where O1 makes eight rows of one, under "
    "pairs of strategy and level; every step takes 20 µs, so the numbers are counts, the same everywhere",
    differs="Chain chooses among the operators that can run. Heartbeats per operator make O1 able to run "
    "ahead of S3, and where the machine is not overloaded it then does, under any strategy; so Chain does "
    "not replace the memory-aware labels, and works together with them.",
    run=run,
)
