"""The engine against offline Polars and DuckDB, against its own growth, and its latencies, on one core.

Speeds are ratios in one run, each side's best of `RUNS`, taken in turn: these machines are noisy. Answers are
checked equal before anything is reported. `HEADRACE_BENCH_ROWS` makes a smaller run for a quick look.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable

import pyarrow as pa

from benchmarks import offline, workloads
from benchmarks.latency import ets_results
from benchmarks.report import OUT, Result, write
from benchmarks.workloads import Workload
from headrace.engine import Engine
from headrace.flow.batch import Batch

ROWS = int(os.environ.get("HEADRACE_BENCH_ROWS", "10_000_000"))
HELD = max(1_000, ROWS // 20)
RUNS = 3


def run_engine(work: Workload) -> list[Batch]:
    """Push all batches, draining as it goes, and end the streams; the answers."""
    engine = Engine()
    engine.add("q", work.plan)
    answers: list[Batch] = []
    for name, data, times in work.batches():
        engine.push(name, data, times)
        answers += engine.drain()
    for name in work.tables:
        engine.streams.end(name)
    return answers + engine.drain()


def best(ways: dict[str, Callable[[], object]], runs: int = RUNS) -> dict[str, float]:
    """The least seconds of each way, the ways taken in turn."""
    least: dict[str, float] = {}
    for _ in range(runs):
        for name, way in ways.items():
            gc.collect()
            began = time.perf_counter()
            way()
            took = time.perf_counter() - began
            least[name] = min(least.get(name, took), took)
    return least


def check_equal(answers: list[Batch], offline_answer: pa.Table) -> None:
    """Fail unless both have the same rows."""
    ours = pa.Table.from_batches([b.data for b in answers])
    theirs = offline_answer.select(ours.column_names).cast(ours.schema)
    keys = [(name, "ascending") for name in ours.column_names]
    if not ours.sort_by(keys).combine_chunks().equals(theirs.sort_by(keys).combine_chunks()):
        raise SystemExit(f"answers differ: {ours.num_rows} rows against {theirs.num_rows}")


def versus(
    name: str, work: Workload, floor: float, yardsticks: dict[str, Callable[[], pa.Table]]
) -> list[Result]:
    """Rows/s of the engine and its ratio to the faster yardstick."""
    answers = run_engine(work)
    for yardstick in yardsticks.values():
        check_equal(answers, yardstick())
    del answers
    seconds = best({"headrace": lambda: run_engine(work), **yardsticks})
    fastest = min(seconds[y] for y in yardsticks)
    rates: list[Result] = [
        {"name": f"{name}.{who}.rows_per_s", "value": work.rows / took, "unit": "rows/s"}
        for who, took in seconds.items()
    ]
    ratio: Result = {
        "name": f"{name}.vs_offline",
        "value": fastest / seconds["headrace"],
        "unit": "x",
        "floor": floor,
    }
    return [*rates, ratio]


def union_results() -> list[Result]:
    """(a) Union of two streams, each filtered at 95 %."""
    work = workloads.union(ROWS)
    lazy, duck = offline.polars_tables(work), offline.duck_tables(work)
    ways = {"polars": lambda: offline.polars_union(lazy), "duckdb": lambda: offline.duck_union(duck)}
    return versus("union", work, 0.5, ways)


def sliding_results() -> list[Result]:
    """(b) Sliding aggregate by 1,000 keys, 60 s each second."""
    work = workloads.sliding(ROWS)
    lazy, duck = offline.polars_tables(work), offline.duck_tables(work)
    ways = {"polars": lambda: offline.polars_sliding(lazy), "duckdb": lambda: offline.duck_sliding(duck)}
    return versus("sliding", work, 0.5, ways)


def join_results() -> list[Result]:
    """(c) Window join of two streams on a key."""
    work = workloads.join(ROWS, HELD)
    lazy, duck = offline.polars_tables(work), offline.duck_tables(work)
    ways = {
        "polars": lambda: offline.polars_join(lazy, HELD),
        "duckdb": lambda: offline.duck_join(duck, HELD),
    }
    return versus("join", work, 0.3, ways)


def top_results() -> list[Result]:
    """Top three of each of 10,000 keys over a window of `HELD` rows, as a stream of what enters."""
    work = workloads.top(max(1_000, ROWS // 4), HELD)
    run_engine(work)
    took = best({"headrace": lambda: run_engine(work)})["headrace"]
    return [{"name": "top.rows_per_s", "value": work.rows / took, "unit": "rows/s"}]


def steady_cost(work: Workload, since: int) -> float:
    """Nanoseconds a row from instant `since` on, when the windows are full."""
    engine = Engine()
    engine.add("q", work.plan)
    spent, rows = 0, 0
    gc.collect()
    for name, data, times in work.batches():
        began = time.perf_counter_ns()
        engine.push(name, data, times)
        engine.drain()
        if times[0] >= since:
            spent += time.perf_counter_ns() - began
            rows += len(times)
    return spent / rows


def growth(name: str, small: Workload, large: Workload, since: int) -> list[Result]:
    """Cost a row with 100 times the state ÷ cost a row before, each in its steady state.

    Medians of runs taken in turn: the least of each would compare the luckiest moments of the shared cache.
    """
    runs = [[steady_cost(work, since) for work in (small, large)] for _ in range(RUNS)]
    costs = [statistics.median(costs) for costs in zip(*runs, strict=True)]
    ratio: Result = {"name": f"{name}.growth", "value": costs[1] / costs[0], "unit": "x", "ceiling": 1.25}
    sizes = ("small", "large")
    return [
        {"name": f"{name}.{n}_ns", "value": c, "unit": "ns/row"} for n, c in zip(sizes, costs, strict=True)
    ] + [ratio]


def growth_results() -> list[Result]:
    """The same match rate and output rate, 100 times the state.

    The join's small state is 100,000 rows a side, about what the caches of this machine hold: below that a
    row costs half as much (`join.cached_ns`), which is the memory's doing and not the state's.
    """
    rate = ROWS // 1_200
    sliding_small, sliding_large = (workloads.sliding(ROWS, size=size, rate=rate) for size in (6, 600))
    results = growth("sliding", sliding_small, sliding_large, 720 * workloads.SECOND)
    del sliding_small, sliding_large
    rows, since = 2 * ROWS, ROWS * 17 // 10
    cached = min(steady_cost(workloads.join(ROWS, ROWS // 1_000), ROWS // 2) for _ in range(RUNS))
    results.append({"name": "join.cached_ns", "value": cached, "unit": "ns/row"})
    return results + growth("join", workloads.join(rows, ROWS // 100), workloads.join(rows, ROWS), since)


def snapshot_results() -> list[Result]:
    """The cost of a snapshot after a change of 1 % of the state, against a full one."""
    rows = max(10_000, ROWS // 10)
    work = workloads.join(rows, rows)
    engine = Engine()
    engine.add("q", work.plan)
    held = {name: table.num_rows * 9 // 10 for name, table in work.tables.items()}
    _push(engine, [(n, t.slice(0, held[n])) for n, t in work.tables.items()])
    version, full = _timed_snapshot(engine, None)
    step, change = held["a"] // 100, float("inf")
    for i in range(3):
        _push(engine, [(n, t.slice(held[n] + i * step, step)) for n, t in work.tables.items()])
        version, took = _timed_snapshot(engine, version)
        change = min(change, took)
    return [{"name": "snapshot.fraction", "value": change / full, "unit": "x", "ceiling": 0.05}]


def _push(engine: Engine, pieces: list[tuple[str, pa.RecordBatch]]) -> None:
    for name, data in pieces:
        engine.push(name, data, data.column(0).to_numpy())
    engine.drain()


def _timed_snapshot(engine: Engine, since: int | None) -> tuple[int, float]:
    began = time.perf_counter()
    snapshot = engine.snapshot(since)
    return snapshot.version, time.perf_counter() - began


SECTIONS = (
    union_results,
    sliding_results,
    join_results,
    top_results,
    growth_results,
    ets_results,
    snapshot_results,
)


def main() -> int:
    """Run every section on one core and write `engine.json`."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    wanted = sys.argv[1:] or [s.__name__.removesuffix("_results") for s in SECTIONS]
    results = [r for s in SECTIONS if s.__name__.removesuffix("_results") in wanted for r in s()]
    return 0 if write(OUT / "engine.json", results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
