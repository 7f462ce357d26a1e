"""Headrace on Spark against Spark's own operators: same session, data and query, equal answers, one run.

    python -m benchmarks.spark_bench [--rows N] [--out FILE] [--only PART ...]

Throughput and the floor are taken in turns with Spark's own, of micro-batches after the first, which start
workers; those of the aggregates have 5 M rows each. `admit` judges lateness by the window, as Spark does.
Growth is the time of a micro-batch of 10,000 rows while the join state grows from nothing to 10 M rows: last
tenth over first tenth.

`queries` and `order` compare jobs with each other, by the CPU time of whole runs over the same rows: 20
queries that share a window with one of them, and results in time order with `ordered=False`. All processes
count: the driver, its JVM and the Python workers. `--only queries order --rows 2000000` takes some minutes.
`groups` compares a stream with 100,000 sources in 100 groups with the same stream without groups, likewise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace
from benchmarks.report import OUT, Result, write
from headrace.runtimes.spark.driver.progress import read

SECOND = 1_000_000
BASE = 1_700_000_000 * SECOND
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.float64())])
DDL = "ts timestamp, k bigint, v double"
DISORDER = 2
WINDOW = {"sliding": (60, 10), "tumbling": (10, 10)}
RANGE = 10
LONG_AFTER = 600 * SECOND
TURNS = 3
FILES = 2
FIRST = 100_000
"""Rows of the first file of those: its micro-batch starts the workers, and is not counted."""

MANY = 20
DEVICES, GROUPS = 100_000, 100
"""Sources of one stream, and the groups that they are judged in."""
AGGREGATES = ("sum", "max", "min", "avg")

Made = Callable[[], DataFrame]


def session() -> SparkSession:
    quiet = {"spark.ui.enabled": False, "spark.ui.showConsoleProgress": False, "spark.log.level": "ERROR"}
    return headrace.spark.session("spark_bench", "local[2]", **{**quiet, "spark.driver.memory": "4g"})


# --- data -------------------------------------------------------------------------------------------------


def write_files(
    folder: Path, files: int, rows: int, keys: int, seconds: int, seed: int, first: int | None = None
) -> None:
    """Files in order of time, each `seconds` long, rows up to DISORDER seconds late; then a row long after.

    The first may have another number of rows.

    With the last row all that came before it is proven complete, for Spark and for us.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for i in range(files + 1):
        begin = BASE + i * seconds * SECOND
        n = rows if i or first is None else first
        times = np.sort(rng.integers(begin, begin + seconds * SECOND, n))
        columns = [times - rng.integers(0, DISORDER * SECOND, n), rng.integers(0, keys, n)]
        if i == files:
            columns = [np.array([begin + LONG_AFTER]), np.array([-seed])]  # a key that no other file has
        columns = [pa.array(columns[0], pa.timestamp("us", tz="UTC")), columns[1]]
        columns.append(rng.integers(0, 400, len(columns[1])) / 4.0)
        path = folder / f"{i:05d}.parquet"
        # Row groups as wide as a core takes them: a file with a single one is read by a single task.
        pq.write_table(pa.table(columns, names=SCHEMA.names), path, row_group_size=max(1, rows // 8))
        os.utime(path, (i + 1, i + 1))


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))


# --- queries ----------------------------------------------------------------------------------------------


def definition(name: str) -> headrace.StreamDef:
    return headrace.StreamDef(name, SCHEMA, time_column="ts")


def bounds(*names: str) -> dict[str, dict[str, str]]:
    return {name: {"disorder": f"{DISORDER} seconds"} for name in names}


def our_windows(spark: SparkSession, folder: Path, size: int, slide: int) -> DataFrame:
    text = f"""
        SELECT k, count(*) AS n, sum(v) AS s, window_start AS w
        FROM s [RANGE {size} SECONDS SLIDE {slide} SECONDS] GROUP BY k
    """
    query = headrace.query(text, [definition("s")])
    options = headrace.spark.SparkOptions(bounds=bounds("s"), enforce="admit", timer=None)
    return headrace.spark.apply(query, {"s": stream_of(spark, folder)}, options)


def native_windows(spark: SparkSession, folder: Path, size: int, slide: int) -> DataFrame:
    rows = stream_of(spark, folder).withWatermark("ts", f"{DISORDER} seconds")
    window = F.window("ts", f"{size} seconds", f"{slide} seconds")
    found = rows.groupBy(window, "k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    return found.select("k", "n", "s", F.unix_micros("window.start").alias("w"))


def our_join(spark: SparkSession, left: Path, right: Path) -> DataFrame:
    text = f"""
        SELECT a.k AS k, a.v AS n, b.v AS s
        FROM a [RANGE {RANGE} SECONDS], b [RANGE {RANGE} SECONDS] WHERE a.k = b.k
    """
    query = headrace.query(text, [definition("a"), definition("b")])
    frames = {"a": stream_of(spark, left), "b": stream_of(spark, right)}
    options = headrace.spark.SparkOptions(bounds=bounds("a", "b"), timer=None)
    return headrace.spark.apply(query, frames, options)


def native_join(spark: SparkSession, left: Path, right: Path) -> DataFrame:
    a = stream_of(spark, left).withWatermark("ts", f"{DISORDER} seconds").alias("a")
    b = stream_of(spark, right).withWatermark("ts", f"{DISORDER} seconds").alias("b")
    near = F.expr(
        f"a.k = b.k AND a.ts > b.ts - INTERVAL {RANGE} SECONDS AND b.ts > a.ts - INTERVAL {RANGE} SECONDS"
    )
    return a.join(b, near).select(F.col("a.k").alias("k"), F.col("a.v").alias("n"), F.col("b.v").alias("s"))


# --- measuring --------------------------------------------------------------------------------------------


def run(df: DataFrame, least_rows: int = 1) -> tuple[list[tuple[int, int]], Path]:
    """Run to the end of the data: (rows, ms) of each micro-batch that has rows, and where the answers are."""
    folder = Path(tempfile.mkdtemp(prefix="spark_bench"))
    writer = df.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.option("path", str(folder / "out")).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [(p.numInputRows, p.durationMs["triggerExecution"]) for p in query.recentProgress]
    return [each for each in progress if each[0] >= least_rows], folder / "out"


def fingerprint(spark: SparkSession, out: Path) -> tuple[Any, ...]:
    rows = spark.read.parquet(str(out))
    return tuple(rows.agg(F.count("*"), F.sum("n"), F.sum("s"), F.sum(F.hash("k"))).first() or ())


def rate(batches: list[tuple[int, int]]) -> float:
    """Rows a second, of all micro-batches but the first."""
    rest = batches[1:]
    return 1000 * sum(rows for rows, _ in rest) / sum(ms for _, ms in rest)


def compared(name: str, spark: SparkSession, ours: Made, native: Made, turns: int = TURNS) -> list[Result]:
    """The ratio of the rates, by medians over turns; the answers must be equal."""
    found: dict[str, list[float]] = {"ours": [], "native": []}
    prints = set()
    for turn in range(turns + 1):
        for who, make in (("native", native), ("ours", ours)):
            batches, out = run(make(), least_rows=1000)
            prints.add(fingerprint(spark, out))
            if turn:  # the first warms up
                found[who].append(rate(batches))
    if len(prints) != 1:
        raise SystemExit(f"{name}: different answers: {prints}")
    mine, its = statistics.median(found["ours"]), statistics.median(found["native"])
    print(f"  {name}: ours {mine / 1e6:.3f} M rows/s, native {its / 1e6:.3f}: {mine / its:.2f}", flush=True)
    return [
        {"name": f"spark.{name}.vs_native", "value": mine / its, "unit": "x", "floor": 1.0},
        {"name": f"spark.{name}.rows_per_s", "value": mine, "unit": "rows/s"},
    ]


def throughput(spark: SparkSession, folder: Path, rows: int, windows: Iterable[str] = WINDOW) -> list[Result]:
    one = folder / "one"
    write_files(one, FILES + 1, rows // FILES, 1000, 150, 1, FIRST)
    found: list[Result] = []
    for name in windows:
        size, slide = WINDOW[name]
        ours = lambda size=size, slide=slide: our_windows(spark, one, size, slide)  # noqa: E731
        native = lambda size=size, slide=slide: native_windows(spark, one, size, slide)  # noqa: E731
        found += compared(name, spark, ours, native)
    left, right = folder / "left", folder / "right"
    a_side = rows // 100  # Spark's own join does some thousand rows a second: all would take an hour
    write_files(left, 4, a_side, 100_000, 60, 2)
    write_files(right, 4, a_side, 100_000, 60, 3)
    return found + compared(
        "join", spark, lambda: our_join(spark, left, right), lambda: native_join(spark, left, right), turns=1
    )


def floor(spark: SparkSession, folder: Path) -> list[Result]:
    """The median micro-batch of 200 rows, of a warm session: Java compiles for the first hundred or so."""
    small = folder / "small"
    write_files(small, 60, 200, 100, 5, 4)
    found: dict[str, list[int]] = {"ours": [], "native": []}
    size, slide = WINDOW["tumbling"]
    for turn in range(TURNS + 1):
        for who, make in (("native", native_windows), ("ours", our_windows)):
            batches, _ = run(make(spark, small, size, slide), least_rows=100)
            if turn:  # the first warms up
                found[who] += [ms for _, ms in batches[10:]]
    mine, its = statistics.median(found["ours"]), statistics.median(found["native"])
    print(f"  200 rows: ours {mine:.0f} ms, native {its:.0f} ms", flush=True)
    return [
        {"name": "spark.batch_floor.vs_native", "value": mine / its, "unit": "x", "ceiling": 1.5},
        {"name": "spark.batch_floor.ms", "value": mine, "unit": "ms"},
    ]


def growth(spark: SparkSession, folder: Path, rows: int) -> list[Result]:
    """Rows that stay in the state of a join, 10,000 a micro-batch."""
    files = rows // 10_000
    held, few = folder / "held", folder / "few"
    write_files(held, files, 10_000, 1_000_000, 5, 5)
    write_files(few, files, 10, 1_000_000, 5, 6)
    text = "SELECT a.k AS k, a.v AS n, b.v AS s FROM a [RANGE 100 DAYS], b [NOW] WHERE a.k = b.k"
    query = headrace.query(text, [definition("a"), definition("b")])
    frames = {"a": stream_of(spark, held), "b": stream_of(spark, few)}
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", files + 10)
    options = headrace.spark.SparkOptions(bounds=bounds("a", "b"), timer=None)
    batches, _ = run(headrace.spark.apply(query, frames, options), least_rows=1000)
    taken = [ms for _, ms in batches[5:]]
    tenth = len(taken) // 10
    first, last = statistics.mean(taken[:tenth]), statistics.mean(taken[-tenth:])
    print(
        f"  {rows} rows held: {first:.0f} ms at first, {last:.0f} ms at last, worst {max(taken)} ms",
        flush=True,
    )
    return [
        {"name": "spark.growth", "value": last / first, "unit": "x", "ceiling": 1.3},
        {"name": "spark.growth.rows_held", "value": float(rows), "unit": "rows"},
    ]


# --- jobs -------------------------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """CPU time of this process and all below it: the JVM, Python workers, and those that have ended."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


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
    spark: SparkSession, folder: Path, count: int, text: Callable[[int], str] = windowed, **more: Any
) -> JobRun:
    """Run a job of so many queries to the end of the data."""
    options = headrace.spark.SparkOptions(**{"bounds": bounds("s"), "timer": None, **more})
    checkpoint = Path(tempfile.mkdtemp(prefix="spark_bench"))
    job = headrace.spark.job({"s": stream_of(spark, folder)}, options, checkpoint=checkpoint)
    for number in range(count):
        query = headrace.query(text(number), [definition("s")], name=f"q{number}")
        job.add(query.name, query, sink=no_output)
    before = cpu_seconds()
    running = job.start(trigger={"availableNow": True})
    running.awaitTermination()
    seconds = cpu_seconds() - before
    progress = [read(each) for each in running.recentProgress]
    return JobRun(seconds, sum(each.queries.get("q0", 0) for each in progress), progress[-1].shards)


def cpu_ratio(name: str, one: Callable[[], JobRun], other: Callable[[], JobRun]) -> float:
    """CPU time of `one` over that of `other`, by medians; who is first changes with every turn."""
    found: dict[str, list[float]] = {"one": [], "other": []}
    same = set()
    for turn in range(TURNS + 1):
        pair = [("one", one), ("other", other)]
        for who, make in pair if turn % 2 else reversed(pair):
            made = make()
            same.add((made.results, made.shards))
            if turn:  # the first warms up
                found[who].append(made.seconds)
    if len(same) != 1 or not min(same)[0]:
        raise SystemExit(f"{name}: results of the first query, and shards, are not the same: {same}")
    first, second = statistics.median(found["one"]), statistics.median(found["other"])
    print(f"  {name}: {first:.1f} s and {second:.1f} s of CPU: {first / second:.2f}", flush=True)
    return first / second


def queries(spark: SparkSession, folder: Path, rows: int) -> list[Result]:
    """A job of 20 queries that share a window, over a job of one of them."""
    shared = folder / "shared"
    write_files(shared, FILES + 1, rows // FILES, 1000, 150, 7, FIRST)
    name = f"{MANY} queries and 1"
    ratio = cpu_ratio(name, lambda: run_job(spark, shared, MANY), lambda: run_job(spark, shared, 1))
    return [{"name": f"spark.queries.cpu_{MANY}_over_1", "value": ratio, "unit": "x", "ceiling": 2.0}]


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


def groups(spark: SparkSession, folder: Path, rows: int) -> list[Result]:
    """A stream with bounds for each group of its sources, over the same stream with one bound."""
    devices = folder / "devices"
    write_files(devices, FILES + 1, rows // FILES, DEVICES, 150, 9, FIRST)
    last = max(devices.glob("*.parquet"))
    begin = BASE + (FILES + 1) * 150 * SECOND + LONG_AFTER
    times = pa.array(np.full(DEVICES, begin), pa.timestamp("us", tz="UTC"))  # of every device: none waits
    pq.write_table(pa.table([times, np.arange(DEVICES), np.zeros(DEVICES)], names=SCHEMA.names), last)
    os.utime(last, (FILES + 2, FILES + 2))
    by = {"s": {**bounds("s")["s"], "sources": {"column": "k", "groups": GROUPS}}}
    ratio = cpu_ratio(
        f"{DEVICES:,} sources in {GROUPS} groups, and one bound",
        lambda: run_job(spark, devices, 1, by_class, bounds=by),
        lambda: run_job(spark, devices, 1, by_class),
    )
    return [{"name": "spark.groups.vs_plain", "value": ratio, "unit": "x", "ceiling": 1.25}]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--held", type=int, default=10_000_000)
    names = ("throughput", "floor", "growth", "queries", "order", "groups")
    parser.add_argument("--only", nargs="+", choices=names)
    parser.add_argument("--out", type=Path, default=OUT / "spark.json", help="the file for the results")
    asked = parser.parse_args()
    spark = session()
    found: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="spark_bench") as name:
        folder, tempfile.tempdir = Path(name), name  # answers and checkpoints of all runs go with it
        parts: dict[str, Callable[[], list[Result]]] = {
            "throughput": lambda: throughput(spark, folder, asked.rows),
            "floor": lambda: floor(spark, folder),
            "growth": lambda: growth(spark, folder, asked.held),
            "queries": lambda: queries(spark, folder, asked.rows),
            "order": lambda: order(spark, folder, asked.rows),
            "groups": lambda: groups(spark, folder, asked.rows),
        }
        for part, measure in parts.items():
            if asked.only is None or part in asked.only:
                found += measure()
    spark.stop()
    return 0 if write(asked.out, found) else 1


if __name__ == "__main__":
    sys.exit(main())
