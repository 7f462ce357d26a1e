"""A job for a cluster: a Headrace query over a stream of files, its engine in the executors' Python.

Submitted by `examples/cluster/run.py`; prints one line of JSON: the answers, and where the executors have
Headrace from.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = "SELECT item, max(price) AS price FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"


def bids(spark: SparkSession, folder: Path) -> None:
    """Two files: the bids of a minute, and one of two minutes later, which closes that minute."""
    start = "timestamp '2026-01-01 00:00:00'"
    minute = spark.range(4000).selectExpr(
        "concat('item', id % 2) AS item",
        "CAST(id % 1000 AS double) AS price",
        f"{start} + make_interval(0, 0, 0, 0, 0, 0, id % 60) AS ts",
    )
    later = spark.range(1).selectExpr(
        "'item0' AS item", "1.0D AS price", f"{start} + INTERVAL 3 MINUTES AS ts"
    )
    for rows in (minute, later):
        rows.coalesce(1).write.mode("append").parquet(str(folder))


def best(spark: SparkSession, folder: Path) -> list[tuple[str, float]]:
    """The highest bid per item and minute, by a streaming query from files to files."""
    import headrace

    bids(spark, folder / "bids")
    reader = spark.readStream.schema("item string, price double, ts timestamp").option(
        "maxFilesPerTrigger", 1
    )
    rows = reader.parquet(str(folder / "bids"))
    query = headrace.query(TEXT, [headrace.spark.stream("bids", rows, time="ts")])
    options = headrace.spark.SparkOptions(bounds={"bids": {"disorder": "1 minute"}})
    answers = headrace.spark.apply(query, {"bids": rows}, options)
    writer = answers.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "best")).awaitTermination()
    return sorted((row.item, row.price) for row in spark.read.parquet(str(folder / "best")).collect())


def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In an executor: where it has Headrace from."""
    import headrace

    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"place": headrace.__file__}])


def main() -> None:
    import headrace

    spark = headrace.spark.session("Headrace on a cluster")
    with tempfile.TemporaryDirectory(prefix="headrace-job-") as folder:
        told = {
            "master": spark.sparkContext.master,
            "application": spark.sparkContext.applicationId,
            "answers": best(spark, Path(folder)),
            "imported": sorted(
                {
                    row.place
                    for row in spark.range(4, numPartitions=4).mapInArrow(imported, "place string").collect()
                }
            ),
        }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main()
