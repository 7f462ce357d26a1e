"""Sequences against offline as-of joins: RECENT and CHRONICLE, and Polars and DuckDB, on one core.

RECENT without a predicate is an as-of join, so its answer is checked equal to theirs. CHRONICLE has no
offline counterpart: it is held to the same yardstick, and checked against the oracle on fewer rows.
`HEADRACE_BENCH_ROWS` makes a smaller run for a quick look.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks import offline
from benchmarks.engine_bench import ROWS, best, run_engine
from benchmarks.report import OUT, Result, write
from benchmarks.workloads import Workload
from headrace.flow.batch import Batch
from headrace.plan.nodes.core import Source
from headrace.plan.nodes.sequence import Mode, Sequence, Step
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

KEYS = 10_000
FLOORS = {Mode.RECENT: 0.3, Mode.CHRONICLE: 0.2}
CHECKED = 2_000


def workload(rows: int, mode: Mode, keys: int = KEYS) -> Workload:
    """Two streams of `rows` rows each; times of the first are distinct, so the most recent is one."""
    rng = np.random.default_rng(7)
    cases = {"t": np.arange(rows) * 2, "k": rng.integers(0, keys, rows), "v": rng.integers(0, 100, rows)}
    later = np.sort(rng.integers(0, 2 * rows, rows))
    products = {"t2": later, "k2": rng.integers(0, keys, rows), "v2": np.arange(rows)}
    tables = {"a": pa.record_batch(cases), "b": pa.record_batch(products)}
    streams = tuple(Source(name, table.schema) for name, table in tables.items())
    return Workload(Sequence(streams, (Step(("k",)), Step(("k2",))), mode), tables)


def polars_asof(tables: dict[str, pl.LazyFrame]) -> pa.Table:
    """The most recent `a` of each `b`."""
    later, earlier = tables["b"], tables["a"]
    found = later.join_asof(
        earlier,
        left_on="t2",
        right_on="t",
        by_left="k2",
        by_right="k",
        coalesce=False,
        check_sortedness=False,
    )
    return found.filter(pl.col("t").is_not_null()).collect().to_arrow()


def duck_asof(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """The same in SQL."""
    query = "SELECT t, k, v, t2, k2, v2 FROM b ASOF JOIN a ON b.k2 = a.k AND b.t2 >= a.t"
    return connection.sql(query).to_arrow_table()


def check_recent(answers: list[Batch], theirs: pa.Table) -> None:
    """Fail unless both have the same rows; `v2` numbers those of `b`."""
    ours = pa.Table.from_batches([b.data for b in answers])
    order = np.argsort(theirs.column("v2").to_numpy(), kind="stable")
    for name in ("t", "v", "t2", "v2"):
        mine, other = ours.column(name).to_numpy(), theirs.column(name).to_numpy()[order]
        if not np.array_equal(mine, other):
            raise SystemExit(f"answers differ in {name}: {len(mine)} rows against {len(other)}")


def check_chronicle() -> None:
    """Fail unless the engine agrees with the oracle."""
    work = workload(CHECKED, Mode.CHRONICLE, 50)
    rows = {
        name: [(t, row) for t, row in zip(table.column(0).to_pylist(), table.to_pylist(), strict=True)]
        for name, table in work.tables.items()
    }
    assert_same_stream(run_engine(work), oracle.stream(work.plan, rows))


def results() -> list[Result]:
    """Rows/s of each, and ours ÷ the faster of theirs."""
    works = {mode: workload(ROWS, mode) for mode in FLOORS}
    recent = works[Mode.RECENT]
    lazy, duck = offline.polars_tables(recent), offline.duck_tables(recent)
    yardsticks: dict[str, Callable[[], pa.Table]] = {
        "polars": lambda: polars_asof(lazy),
        "duckdb": lambda: duck_asof(duck),
    }
    answers = run_engine(recent)
    for yardstick in yardsticks.values():
        check_recent(answers, yardstick())
    del answers
    check_chronicle()
    ours = {mode.value: lambda mode=mode: run_engine(works[mode]) for mode in FLOORS}
    seconds = best({**ours, **yardsticks})
    fastest = min(seconds[y] for y in yardsticks)
    rates: list[Result] = [
        {"name": f"{who}.rows_per_s", "value": recent.rows / took, "unit": "rows/s"}
        for who, took in seconds.items()
    ]
    ratios: list[Result] = [
        {
            "name": f"{mode.value}.vs_offline",
            "value": fastest / seconds[mode.value],
            "unit": "x",
            "floor": floor,
        }
        for mode, floor in FLOORS.items()
    ]
    return [*rates, *ratios]


def main() -> int:
    """Run on one core and write `sequence.json`."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    return 0 if write(OUT / "sequence.json", results()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
