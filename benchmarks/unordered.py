"""A part of `benchmarks.language_bench`: windows over rows in any order, against rows sorted first."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.report import Result
from headrace.engine import Engine
from headrace.graph.admission import Rules
from headrace.sql import StreamDef, query
from headrace.testing.compare import events_of
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix

PANES: Final = 1_000
"""Open panes: how far rows come out of order."""
SLIDE: Final = 100
GROUPS: Final = 5
PUSH: Final = 10_000
S: Final = StreamDef("s", pa.schema([("k", pa.int64()), ("v", pa.int64())]), ticks_per_second=None)
TEXT: Final = f"SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE {SLIDE} SLIDE {SLIDE}] GROUP BY k"


def run(rows: int, placement: str) -> tuple[float, int, Counter[object]]:
    """Seconds of CPU, the most bytes of state, and the results; "first" sorts rows as they come in."""
    rng = np.random.default_rng(3)
    reach = PANES * SLIDE
    sent = np.sort(rng.integers(0, 4 * reach, rows))
    order = np.argsort(sent + rng.integers(0, reach, rows), kind="stable")
    columns = [pa.array(rng.integers(0, GROUPS, rows)), pa.array(rng.integers(0, 1_000, rows))]
    data, times = pa.RecordBatch.from_arrays(columns, schema=S.schema), sent[order]
    engine = Engine()
    bounds = Bounds.of(SkewMatrix.of(["s"], {("s", "s"): [(0, reach)]}), timeout=10**12)
    engine.streams.manage(HeartbeatGenerator(bounds), {S.source: Rules(disordered=True, enforce="strict")})
    engine.graph.placement = placement
    engine.add("q", query(TEXT, [S], ticks_per_second=None))
    seconds, peak, results = 0.0, 0, Counter[object]()
    for begin in range(0, rows, PUSH):
        began = time.process_time()
        engine.push("s", data.slice(begin, PUSH), times[begin : begin + PUSH], now=begin + 1)
        batches = engine.drain("q")
        seconds += time.process_time() - began
        peak = max(peak, sum(node.operator.memory.bytes() for node in engine.graph.nodes))
        results.update(events_of(batches))
    engine.streams.end("s")
    results.update(events_of(engine.drain("q")))
    return seconds, peak, results


def unordered(rows: int) -> list[Result]:
    """Panes in any order against rows sorted first, with 1,000 open panes; the results are the same."""
    rows = min(rows, 2_000_000)
    for way in ("cost", "first"):
        run(rows // 20, way)
    found = {way: [run(rows, way) for _ in range(3)] for way in ("cost", "first")}
    assert found["cost"][0][2] == found["first"][0][2]
    loose, in_order = (min(seconds for seconds, _, _ in found[way]) for way in ("cost", "first"))
    bytes_ = {way: found[way][0][1] for way in found}
    name = "language.unordered"
    return [
        {"name": f"{name}.rows_per_cpu_s", "value": rows / loose, "unit": "rows/s"},
        {"name": f"{name}.vs_sorted", "value": in_order / loose, "unit": "×", "floor": 1.5},
        {"name": f"{name}.state_bytes", "value": float(bytes_["cost"]), "unit": "bytes"},
        {
            "name": f"{name}.state_ratio",
            "value": bytes_["cost"] / bytes_["first"],
            "unit": "×",
            "ceiling": 0.1,
        },
    ]
