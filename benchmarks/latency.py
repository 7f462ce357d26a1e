"""Latency of single rows (k = 1) through a union whose other input is silent (Bai et al. 2007, Figure 7)."""

from __future__ import annotations

import gc
import statistics
import time

import numpy as np
import pyarrow as pa

from benchmarks.report import Result
from headrace.engine import Engine
from headrace.expressions import col
from headrace.plan.nodes.core import Plan, Project, Select, Source, TimeKind, Union

SCHEMA = pa.schema([("v", pa.int64())])
ROWS = 4_000
ROUNDS = 5


def simple_union(kind: TimeKind) -> Plan:
    """Figure 4: each input filtered, then the union."""
    return Union(tuple(Select(Source(name, SCHEMA, kind), col("v") < 95) for name in ("a", "b")))


def long_paths(kind: TimeKind) -> Plan:
    """Nested unions with several operators that never wait between source and union (cf. Figure 10)."""
    return Union((Union((_path("a", kind), _path("b", kind))), _path("c", kind)))


def _path(name: str, kind: TimeKind) -> Plan:
    plan: Plan = Source(name, SCHEMA, kind)
    for bound in range(200, 205):
        plan = Project(Select(plan, col("v") < bound), (("v", col("v")),))
    return plan


def mean_latency(plan: Plan, propagation: str) -> float:
    """Mean milliseconds from push to answer of rows that come one by one on stream `a`."""
    engine = Engine(strategy="dfs", propagation=propagation)
    engine.add("q", plan)
    row = pa.record_batch([pa.array([7], pa.int64())], schema=SCHEMA)
    taken: list[float] = []
    gc.collect()
    gc.disable()
    for i in range(ROWS):
        engine.streams.set_clock(20_000 * i)
        began = time.perf_counter_ns()
        engine.push("a", row)
        answers = engine.drain()
        taken.append((time.perf_counter_ns() - began) / 1e6)
        assert sum(len(b) for b in answers) == 1, f"row {i} waits"
    gc.enable()
    return statistics.fmean(np.sort(taken)[: ROWS * 99 // 100])


def ets_results() -> list[Result]:
    """On demand against latent, and the enhanced graph against punctuations in-band."""
    ways = {
        "latent": (simple_union(TimeKind.LATENT), "eqg"),
        "on_demand.eqg": (simple_union(TimeKind.INTERNAL), "eqg"),
        "on_demand.punctuation": (simple_union(TimeKind.INTERNAL), "punctuation"),
        "long.eqg": (long_paths(TimeKind.INTERNAL), "eqg"),
        "long.punctuation": (long_paths(TimeKind.INTERNAL), "punctuation"),
    }
    least = {name: float("inf") for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            least[name] = min(least[name], mean_latency(*way))
    results: list[Result] = [
        {"name": f"latency.{name}_ms", "value": value, "unit": "ms"} for name, value in least.items()
    ]
    extra = least["on_demand.eqg"] - least["latent"]
    ratio = least["long.eqg"] / least["long.punctuation"]
    results.append({"name": "ets.minus_latent_ms", "value": extra, "unit": "ms", "ceiling": 0.1})
    results.append({"name": "eqg.vs_punctuation", "value": ratio, "unit": "x", "ceiling": 1.0})
    return results
