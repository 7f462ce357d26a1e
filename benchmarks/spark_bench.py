"""Headrace on Spark against Spark's own operators: same session, data and query, equal answers, one run.

    python -m benchmarks.spark_bench [--rows N] [--only throughput|floor|growth]

Throughput and the floor are taken in turns with Spark's own, of micro-batches after the first, which start
workers; those of the aggregates have 5 M rows each. `admit` judges lateness by the window, as Spark does.
Growth is the time of a micro-batch of 10,000 rows while the join state grows from nothing to 10 M rows: last
tenth over first tenth.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace
from benchmarks.report import OUT, Result, write

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
    rows = stream_of(spark, folder)
    return headrace.spark.apply(query, s=rows, bounds=bounds("s"), enforce="admit", timer=None)


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
    return headrace.spark.apply(query, streams=frames, bounds=bounds("a", "b"), timer=None)


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
    batches, _ = run(
        headrace.spark.apply(query, streams=frames, bounds=bounds("a", "b"), timer=None), least_rows=1000
    )
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--held", type=int, default=10_000_000)
    parser.add_argument("--only", choices=("throughput", "floor", "growth"))
    asked = parser.parse_args()
    spark = session()
    found: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="spark_bench") as name:
        folder, tempfile.tempdir = Path(name), name  # answers and checkpoints of all runs go with it
        parts: dict[str, Callable[[], list[Result]]] = {
            "throughput": lambda: throughput(spark, folder, asked.rows),
            "floor": lambda: floor(spark, folder),
            "growth": lambda: growth(spark, folder, asked.held),
        }
        for part, measure in parts.items():
            if asked.only in (None, part):
                found += measure()
    spark.stop()
    return 0 if write(OUT / "spark.json", found) else 1


if __name__ == "__main__":
    sys.exit(main())
