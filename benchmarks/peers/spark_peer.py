"""Spark Structured Streaming with Spark's own operators, in the session that Headrace would use: `local[2]`.

Files of Parquet are read one a micro-batch, as fast as they are taken; the first micro-batch, which starts
workers and compiles, is not counted. Spark does not order a union. A window comes out when the watermark has
passed it, at the end of the data by a file of one row far ahead.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace
from benchmarks.peers.peer import COLUMNS, Asked, asked, write
from benchmarks.peers.tasks import BASE, KEPT, SECOND

FILES = 6
DDL = "t bigint, k bigint, v bigint"
FAR = 3600 * SECOND


def read(spark: SparkSession, asked: Asked, stream: str, folder: Path) -> DataFrame:
    """The stream in files of equal size, then the row that ends the windows."""
    table = asked.read(stream)
    size = -(-table.num_rows // FILES)
    end = pa.table({"t": [int(table["t"][-1].as_py()) + FAR], "k": [-1], "v": [KEPT]})
    first = min(1000, size // 2)
    parts = [table.slice(0, first), table.slice(first, size - first)]
    parts += [table.slice(i * size, size) for i in range(1, FILES)]
    where = folder / stream
    where.mkdir()
    for i, part in enumerate([*parts, end]):
        path = where / f"{i}.parquet"
        pq.write_table(part, path)
        os.utime(path, (i + 1, i + 1))
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(where))


def answer(spark: SparkSession, asked: Asked, folder: Path) -> DataFrame:
    task = asked.task
    streams = [read(spark, asked, name, folder) for name in task.streams]
    if task.name == "union":
        kept = [each.filter(F.col("v") < KEPT) for each in streams]
        return kept[0].union(kept[1])
    timed = [
        each.withColumn("ts", F.timestamp_micros("t")).withWatermark("ts", "0 seconds") for each in streams
    ]
    if task.name == "join":
        near = F.expr(
            f"a.k = b.k AND a.t div {task.window * SECOND} = b.t div {task.window * SECOND} AND "
            f"a.ts > b.ts - INTERVAL {task.window} SECONDS AND b.ts > a.ts - INTERVAL {task.window} SECONDS"
        )
        pairs = timed[0].alias("a").join(timed[1].alias("b"), near)
        return pairs.select(F.col("a.k").alias("k"), F.col("a.t").alias("ta"), F.col("b.t").alias("tb"))
    window = F.window("ts", f"{task.window} seconds", f"{task.slide} seconds")
    found = timed[0].groupBy(window, "k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    return found.select("k", F.unix_micros("window.end").alias("e"), "n", "s")


def main() -> None:
    run = asked()
    quiet = {"spark.ui.enabled": False, "spark.ui.showConsoleProgress": False, "spark.log.level": "ERROR"}
    spark = headrace.spark.session("peer", "local[2]", **{**quiet, "spark.driver.memory": "4g"})
    folder = Path(tempfile.mkdtemp(prefix="spark_peer"))
    try:
        df = answer(spark, run, folder)
        writer = df.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.option("path", str(folder / "out")).trigger(availableNow=True).start()
        query.awaitTermination()
        counted = [p for p in query.recentProgress if p.numInputRows > 2][1:]
        milliseconds = sum(p.durationMs["triggerExecution"] for p in counted)
        share = sum(p.numInputRows for p in counted) / sum(
            run.read(name).num_rows for name in run.task.streams
        )
        rows = spark.read.parquet(str(folder / "out")).filter("k >= 0").select(*COLUMNS[run.task.name])
        write(run, rows.toArrow(), milliseconds / 1000 / share, begin=BASE)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
