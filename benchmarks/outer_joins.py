"""What a LEFT JOIN costs more than the INNER JOIN of the same streams.

`python -m benchmarks.outer_joins` replaces these numbers in `benchmarks/out/language.json`.
Both run in turn in one process. Every left row has a partner at some time, so both give the same pairs, and
the left join must also find when a row has none. Answers are checked against the oracle on fewer rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.engine_bench import run_engine
from benchmarks.report import OUT, Result, measured_before, write
from benchmarks.workloads import Workload
from headrace import Catalog, query
from headrace.sql import StreamDef
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

KEYS: Final = 10_000
CHECKED: Final = 600
ROWS: Final = 4_000_000
TURNS: Final = 5
JOINS: Final = {
    "language.outer_over_inner": "l [RANGE 20000 SLIDE 20000] {} JOIN r [RANGE 20000 SLIDE 20000] ON lk = rk",
    "language.outer_over_inner.each_instant": "l [RANGE 20000] {} JOIN r [RANGE 20000] ON lk = rk",
}
"""Joins by the name of their result: of windows that are reported at their end, and at each instant."""
BOUNDED: Final = "language.outer_over_inner"
CEILING: Final = 1.3


def workload(join: str, kind: str, rows: int, keys: int) -> Workload:
    """Two streams of `rows` rows each; a key comes about twice in the length of a window."""
    rng = np.random.default_rng(7)
    times = np.arange(rows)
    tables = {
        "l": pa.record_batch({"lt": times, "lk": rng.integers(0, keys, rows), "x": times}),
        "r": pa.record_batch({"rt": times, "rk": rng.integers(0, keys, rows), "y": times}),
    }
    streams = [
        StreamDef(name, data.schema, time_column=f"{name}t", ticks_per_second=None)
        for name, data in tables.items()
    ]
    text = f"SELECT lt, lk, x, y FROM {join.format(kind)}"
    return Workload(query(text, Catalog(streams)).plan, tables)


def check(join: str) -> None:
    """Fail unless the LEFT JOIN agrees with the oracle."""
    work = workload(join.replace("20000", "40"), "LEFT", CHECKED, 50)
    given = {name: [(row[f"{name}t"], row) for row in data.to_pylist()] for name, data in work.tables.items()}
    assert_same_stream(run_engine(work), oracle.stream(work.plan, given))


def seconds(ways: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """The least CPU seconds of each, in turn."""
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(turns):
        for name, way in ways.items():
            began = time.process_time()
            way()
            least[name] = min(least[name], time.process_time() - began)
    return least


def outer_over_inner(rows: int, turns: int = TURNS) -> list[Result]:
    """CPU time of the LEFT JOIN over that of the INNER JOIN, for both joins."""
    found: list[Result] = []
    for name, join in JOINS.items():
        check(join)
        works = {kind: workload(join, kind, rows // 2, KEYS) for kind in ("LEFT", "INNER")}
        taken = seconds({kind: partial(run_engine, work) for kind, work in works.items()}, turns)
        result: Result = {"name": name, "value": taken["LEFT"] / taken["INNER"], "unit": "x"}
        found.append({**result, "ceiling": CEILING} if name == BOUNDED else result)
    return found


def main() -> int:
    """Measure on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    path = OUT / "language.json"
    kept = [each for each in measured_before(path) if each["name"] not in JOINS]
    return 0 if write(path, [*kept, *outer_over_inner(ROWS)]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
