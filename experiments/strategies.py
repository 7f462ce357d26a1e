"""§2.3 and §3 of Bai et al. (query graphs): batches of k rows, round robin, break nodes."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa

from experiments import chain
from experiments.arrivals import MILLI
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from experiments.simulation import SCHEMA, Simulation, Trace, held_items, run_together
from headrace.engine import Engine
from headrace.expressions import col
from headrace.plan.nodes.core import Plan, Select, Source, TimeKind

KS = (1, 4, 16, 64, 256)
PASSING = 6
ORDERS = {"dfs": "depth-first", "bfs": "breadth-first", "rr": "round robin", "chain": "Chain"}


def path(stream: str) -> Plan:
    """Operators that pass every row."""
    found: Plan = Source(stream, SCHEMA, TimeKind.INTERNAL)
    for i in range(PASSING):
        found = Select(found, col("v") < 101 + i)
    return found


def work(batches: int, size: int) -> dict[int, float]:
    """Microseconds of CPU on a row, depth-first with k rows at a time; rows come in batches."""
    rng = np.random.default_rng(131)
    columns = [pa.array(rng.integers(0, 100, size)), pa.array(np.zeros(size, np.int64))]
    data = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    found = {}
    for k in KS:
        engine = Engine(strategy=f"dfs({k})")
        engine.add("q", path("s"))
        took = []
        for now in range(batches + 1):
            began = time.thread_time_ns()
            engine.push("s", data, now=now + 1)
            engine.drain()
            took.append(time.thread_time_ns() - began)
        found[k] = float(np.median(took[1:])) / size / 1e3
    return found


def light_and_heavy(size: int, conditions: Conditions) -> dict[str, Trace]:
    """Two paths: rows come to one a little faster than it can work, the other gets a row now and then."""
    heavy = MILLI + np.arange(size) * (PASSING - 1) * chain.STEP
    instants = {"heavy": heavy, "light": np.linspace(2 * MILLI, 0.9 * heavy[-1], 20).astype(np.int64)}
    runs = []
    for strategy in ORDERS:
        engine = Engine(strategy=strategy)
        for name in instants:
            engine.add(name, path(name))
        runs.append(Simulation(engine, instants, conditions, wrappers=True))
    return dict(zip(ORDERS, run_together(runs), strict=True))


def of_light(trace: Trace) -> float:
    """The mean latency on the path with few rows, in ms; sinks are in the order of the queries."""
    return float(trace.latency_ms[trace.sink == 1].mean())


def with_a_break(count: int, size: int, conditions: Conditions) -> tuple[int, int]:
    """Peak of all queues depth-first, without and with a break node after the selective condition."""
    runs = []
    for broken in (False, True):
        engine = Engine(strategy="dfs")
        engine.add("q", chain.plan(PASSING))
        if broken:
            engine.scheduling.set_break(engine.graph.nodes[1])
        instants = {"s": chain.arrivals(count, size)}
        runs.append(Simulation(engine, instants, conditions, gauge=held_items, wrappers=True))
    without, cut = run_together(runs)
    return without.peak, cut.peak


def run(conditions: Conditions) -> Result:
    """(a) work against k; (b) who waits beside a path that is overloaded; (c) queues with a break node."""
    counted = replace(conditions, service=chain.STEP, real=False)
    row = work(*conditions.of((3, 512), (10, 2_048), (50, 8_192)))
    orders = light_and_heavy(conditions.of(300, 1_000, 5_000), counted)
    without, cut = with_a_break(*conditions.of((1, 400), (4, 1_000), (10, 5_000)), counted)
    light = {name: of_light(trace) for name, trace in orders.items()}
    saved = row[KS[0]] / row[KS[-1]]
    bars = Line("latency", list(range(len(light))), list(light.values()), "bars")
    names = tuple(label.replace(" ", "\n") for label in ORDERS.values())
    return Result(
        [
            *(Measure(f"strategies.k{k}_row_us", row[k], "µs") for k in KS),
            Measure("strategies.k_least_over_most_work", saved, "×", floor=3),
            *(Measure(f"strategies.{name}_light_ms", light[name], "ms") for name in ORDERS),
            Measure("strategies.rr_light_over_dfs", light["rr"] / light["dfs"], "×", ceiling=0.2),
            Measure("strategies.dfs_peak", without, "rows"),
            Measure("strategies.dfs_with_break_peak", cut, "rows"),
            Measure("strategies.break_over_dfs_peak", cut / without, "×", ceiling=0.6),
        ],
        [
            Panel(
                "(a) batches of k",
                "k (rows)",
                "Work on a row (µs)",
                [Line("", KS, [*row.values()])],
                "log",
                "log",
            ),
            Panel("(b) beside an overloaded path", "", "Latency (ms)", [bars], y_scale="log", ticks=names),
        ],
        f"{KS[-1]} rows at a time cost {saved:.0f} × less work than row by row; beside an overloaded path a "
        f"row of another waits {light['dfs']:.0f} ms depth-first and {light['rr']:.1f} ms in round robin; "
        f"a break node after the selective condition keeps {cut:,} rows in place of {without:,}",
    )


EXPERIMENT = Experiment(
    name="strategies",
    figure="Bai et al., query graphs, §2.3 and §3",
    claim="batches of k rows save the cost of going from operator to operator, round robin lets no path wait "
    "until another has caught up, and a break node after an operator that drops rows keeps queues short",
    method="paths of six operators that pass every row; (a) rows that come in batches, depth-first, k at a "
    "time: CPU time; (b) one path gets a row every five steps of an operator, of which it needs six, and the "
    "other a row now and then; (c) queues as in `chain`, depth-first with and without a break node after the "
    "condition that one row in ten passes; in (b) and (c) every step takes 20 µs, so the numbers are counts",
    differs="The paper describes these strategies and shows no figure of them. In a turn of round robin a "
    "path works off all of its rows, so a longer overload makes turns longer.",
    run=run,
)
