"""One of two streams is silent for a time: in which micro-batch do answers come, with Headrace and without?

Two streams of a row a second, counted together in windows; a micro-batch is a second, recorded, so that the
run is the same whatever the machine. Headrace is told that rows come at most `LATENCY` seconds after their
time; Spark's watermark, which takes no clock, that they are at most so far out of order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace
from benchmarks.report import Result
from headrace.sql import StreamDef, query

SECONDS = 26
QUIET = range(7, 22)
WINDOW = 5
LATENCY = 2
SCHEMA = pa.schema([("t", pa.int64())])
DDL = "t bigint, arrival bigint"


def put(folder: Path) -> None:
    """A file for each stream and second: the row, or nothing; and one for the clock."""
    for stream in ("a", "b", "timer"):
        (folder / stream).mkdir(parents=True)
        for second in range(1, SECONDS + 1):
            says = stream != "b" or second not in QUIET
            path = folder / stream / f"{second}.json"
            path.write_text(json.dumps({"t": second - 1, "arrival": second}) if says else "")
            os.utime(path, (second, second))


def read(spark: SparkSession, folder: Path, stream: str) -> DataFrame:
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(folder / stream))


def ours(spark: SparkSession, folder: Path) -> DataFrame:
    streams = [StreamDef(name, SCHEMA, time_column="t", ticks_per_second=None) for name in ("a", "b")]
    text = f"""SELECT count(*) AS n, window_end AS e
               FROM (SELECT t FROM a UNION ALL SELECT t FROM b) [RANGE {WINDOW} SLIDE {WINDOW}]"""
    asking = query(text, streams, ticks_per_second=None)
    bounds: Any = {name: {"disorder": LATENCY, "latency": LATENCY} for name in ("a", "b")}
    frames = {name: read(spark, folder, name) for name in ("a", "b")}
    timer = read(spark, folder, "timer")
    options = headrace.spark.SparkOptions(bounds=bounds, timer=timer, arrival="arrival")
    return headrace.spark.apply(asking, frames, options)


def native(spark: SparkSession, folder: Path) -> DataFrame:
    timed = [
        read(spark, folder, name)
        .select(F.timestamp_seconds("t").alias("ts"))
        .withWatermark("ts", f"{LATENCY} seconds")
        for name in ("a", "b")
    ]
    found = timed[0].union(timed[1]).groupBy(F.window("ts", f"{WINDOW} seconds")).count()
    return found.select(F.col("count").alias("n"), F.unix_seconds("window.end").alias("e"))


def played(out: DataFrame, checkpoint: Path) -> dict[int, int]:
    """The second in which each window came."""
    came: dict[int, int] = {}

    def keep(rows: DataFrame, number: int) -> None:
        came.update({row["e"]: number + 1 for row in rows.collect()})

    writer = out.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    return came


def provable() -> Iterator[tuple[int, int]]:
    """Each window that ends in the silence, and the first second in which no row of it can come any more."""
    for end in range(WINDOW, SECONDS, WINDOW):
        certain = end - 1 + LATENCY
        if certain in QUIET:
            yield end, certain


def silent(spark: SparkSession, folder: Path) -> list[Result]:
    """How many micro-batches after it was certain the latest answer came; none at all counts as after the
    last."""
    put(folder)
    late = {}
    for name, make in (("ours", ours), ("native", native)):
        came = played(make(spark, folder), folder / f"{name}.checkpoint")
        late[name] = max(came.get(end, SECONDS + 1) - certain for end, certain in provable())
    print(f"  silent: ours {late['ours']} micro-batches late, native {late['native']}", flush=True)
    return [
        {
            "name": "spark.silent.triggers_late",
            "value": float(late["ours"]),
            "unit": "triggers",
            "ceiling": 1.0,
        },
        {"name": "spark.silent.native_triggers_late", "value": float(late["native"]), "unit": "triggers"},
    ]
