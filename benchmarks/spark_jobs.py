"""Jobs on Spark compared with each other, by the CPU time of whole runs over the same rows.

    python -m benchmarks.spark_jobs [queries] [order] [groups] [--rows N] [--add] [--out FILE]

`queries`: 20 queries that share a window, over one of them, with a Parquet folder for each; and with a
function for each, which writes to Spark's sink that drops rows. `order`: results in time order, over those
with `ordered=False`. `groups`: the cost per row of a stream with 100,000 sources in 100 groups, over the same
stream without groups. All processes count: the driver, its JVM and the Python workers. 2 M rows take some
minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import headrace
from benchmarks.report import OUT, Result, measured_before, write
from benchmarks.spark_queries import FILES, WINDOW
from benchmarks.spark_runs import (
    BASE,
    FIRST,
    LONG_AFTER,
    SECOND,
    bounds,
    cpu_seconds,
    dataframe,
    session,
    write_files,
)
from headrace.runtimes.spark.driver.progress import read
from headrace.runtimes.spark.driver.writing import Sink

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.float64())])
MANY = 20
DEVICES, GROUPS = 100_000, 100
"""Sources of one stream, and the groups that they are judged in."""
AGGREGATES = ("sum", "max", "min", "avg")
TURNS = 3


def definition(name: str) -> headrace.StreamDef:
    return headrace.StreamDef(name, SCHEMA, time_column="ts")


def windowed(number: int) -> str:
    """A query; those of all numbers share one window and its groups."""
    size, slide = WINDOW["sliding"]
    what = AGGREGATES[number % len(AGGREGATES)]
    return f"""
        SELECT k, count(*) AS n, {what}(v) AS s, window_start AS w
        FROM s [RANGE {size} SECONDS SLIDE {slide} SECONDS] GROUP BY k HAVING count(*) > {number // 4}
    """


def no_output(rows: DataFrame, batch: int) -> None:
    """A sink that computes all rows and drops them."""
    rows.write.format("noop").mode("overwrite").save()


@dataclass(frozen=True)
class JobRun:
    """The CPU time of a run, and what must be equal in runs that are compared: results of query 0, shards."""

    seconds: float
    results: int
    shards: int


def run_job(
    spark: SparkSession,
    folder: Path,
    count: int,
    text: Callable[[int], str] = windowed,
    sink: Sink | None = None,
    **more: Any,
) -> JobRun:
    """Run a job of so many queries to the end of the data; without a sink, each writes to a folder."""
    options = headrace.spark.SparkOptions(**{"bounds": bounds("s"), "timer": None, **more})
    checkpoint = Path(tempfile.mkdtemp(prefix="spark_bench"))
    job = headrace.spark.job({"s": dataframe(spark, folder)}, options, checkpoint=checkpoint)
    for number in range(count):
        query = headrace.query(text(number), [definition("s")], name=f"q{number}")
        job.add(query.name, query, sink=sink or checkpoint.with_name(f"{checkpoint.name}_{query.name}"))
    before = cpu_seconds()
    running = job.start(trigger={"availableNow": True})
    running.awaitTermination()
    seconds = cpu_seconds() - before
    progress = [read(each) for each in running.recentProgress]
    return JobRun(seconds, sum(each.queries.get("q0", 0) for each in progress), progress[-1].shards)


def in_turns(runs: Mapping[str, Callable[[], JobRun]]) -> dict[str, list[JobRun]]:
    """Each run in each turn. Who is first changes with every turn, and the first turn only warms up."""
    found: dict[str, list[JobRun]] = {who: [] for who in runs}
    for turn in range(TURNS + 1):
        for who, make in runs.items() if turn % 2 else reversed(runs.items()):
            made = make()
            if turn:
                found[who].append(made)
    return found


def cpu_of(name: str, *compared: Sequence[JobRun]) -> list[float]:
    """The median CPU time of each of the runs that are compared; they must have the same results."""
    same = {(made.results, made.shards) for runs in compared for made in runs}
    if len(same) != 1 or not min(same)[0]:
        raise SystemExit(f"{name}: results of the first query, and shards, are not the same: {same}")
    return [statistics.median(made.seconds for made in runs) for runs in compared]


def cpu_ratio(name: str, one: Callable[[], JobRun], other: Callable[[], JobRun]) -> float:
    """CPU time of `one` over that of `other`."""
    found = in_turns({"one": one, "other": other})
    first, second = cpu_of(name, found["one"], found["other"])
    print(f"  {name}: {first:.1f} s and {second:.1f} s of CPU: {first / second:.2f}", flush=True)
    return first / second


def queries(spark: SparkSession, folder: Path, rows: int) -> list[Result]:
    """A job of 20 queries that share a window, over a job of one of them."""
    shared = folder / "shared"
    write_files(shared, FILES + 1, rows // FILES, 1000, 150, 7, FIRST)
    found: list[Result] = []
    for to, sink in (("", None), ("_with_functions", no_output)):
        ratio = cpu_ratio(
            f"{MANY} queries and 1{to.replace('_', ' ')}",
            partial(run_job, spark, shared, MANY, sink=sink),
            partial(run_job, spark, shared, 1, sink=sink),
        )
        found.append({"name": f"spark.queries.cpu_{MANY}_over_1{to}", "value": ratio, "unit": "x"})
    found[0]["ceiling"] = 2.0
    return found


def order(spark: SparkSession, folder: Path, rows: int) -> list[Result]:
    """Results of two shards in time order, over those of each shard apart."""
    ordered = folder / "ordered"
    write_files(ordered, FILES + 1, rows // FILES, 1000, 150, 8, FIRST)
    ratio = cpu_ratio(
        "in time order and not",
        lambda: run_job(spark, ordered, 1, shards=2),
        lambda: run_job(spark, ordered, 1, shards=2, ordered=False),
    )
    return [{"name": "spark.order.cost", "value": ratio, "unit": "x"}]


def by_class(number: int) -> str:
    """A query with few groups over many devices: the cost is that of taking rows in."""
    size, slide = WINDOW["tumbling"]
    return f"""
        SELECT k % 100 AS c, count(*) AS n, sum(v) AS s, window_start AS w
        FROM s [RANGE {size} SECONDS SLIDE {slide} SECONDS] GROUP BY k % 100
    """


def devices_sent(folder: Path, rows: int) -> Path:
    """Files with rows of all devices in any order; in the last one each device speaks once, so none waits."""
    write_files(folder, FILES + 1, rows // (FILES + 1), DEVICES, 150, 9)
    last = max(folder.glob("*.parquet"))
    begin = BASE + (FILES + 1) * 150 * SECOND + LONG_AFTER
    times = pa.array(np.full(DEVICES, begin), pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table([times, np.arange(DEVICES), np.zeros(DEVICES)], names=SCHEMA.names), last)
    os.utime(last, (FILES + 2, FILES + 2))
    return folder


def groups(spark: SparkSession, folder: Path, rows: int) -> list[Result]:
    """The cost per row of a stream with bounds for each group of its sources, over that with one bound.

    The cost per row is what `rows` more rows cost in the same number of micro-batches, so that starting a job
    and a micro-batch, which cost the same for both, do not hide it.
    """
    by = {"s": {**bounds("s")["s"], "sources": {"column": "k", "groups": GROUPS}}}
    name = f"{DEVICES:,} sources in {GROUPS} groups, and one bound"
    counts = {"few": rows // 10, "many": rows + rows // 10}
    runs: dict[str, Callable[[], JobRun]] = {}
    for size, count in counts.items():
        sent = devices_sent(folder / f"devices_{size}", count)
        runs[f"{size} in groups"] = partial(run_job, spark, sent, 1, by_class, bounds=by)
        runs[f"{size} plain"] = partial(run_job, spark, sent, 1, by_class)
    found = in_turns(runs)
    spent = {}
    for size, count in counts.items():
        grouped, plain = cpu_of(name, found[f"{size} in groups"], found[f"{size} plain"])
        print(f"  {name}, {count:,} rows: {grouped:.1f} s and {plain:.1f} s of CPU", flush=True)
        spent[size] = np.array([grouped, plain])
    grouped, plain = 1e9 * (spent["many"] - spent["few"]) / rows
    print(f"  CPU per row: {grouped:.0f} ns and {plain:.0f} ns: {grouped / plain:.2f}", flush=True)
    whole = float(np.divide(*spent["many"]))
    return [
        {"name": "spark.groups.vs_plain", "value": float(grouped / plain), "unit": "x", "ceiling": 1.25},
        {"name": "spark.groups.run_vs_plain", "value": whole, "unit": "x"},
        {"name": "spark.groups.cpu_per_row", "value": float(grouped), "unit": "ns"},
    ]


PARTS: dict[str, Callable[[SparkSession, Path, int], list[Result]]] = {
    "queries": queries,
    "order": order,
    "groups": groups,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all if none")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument(
        "--add", action="store_true", help="replace these figures in spark.json, keep the others"
    )
    parser.add_argument("--out", type=Path, help="the file for the results")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    spark = session()
    found: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="spark_jobs") as name:
        folder, tempfile.tempdir = Path(name), name  # answers and checkpoints of all runs go with it
        for part in asked.parts or PARTS:
            found += PARTS[part](spark, folder, asked.rows)
    spark.stop()
    out = asked.out or OUT / ("spark.json" if asked.add else "spark_jobs.json")
    new = {each["name"] for each in found}
    before = [each for each in (measured_before(out) if asked.add else []) if each["name"] not in new]
    return 0 if write(out, [*before, *found]) else 1


if __name__ == "__main__":
    sys.exit(main())
