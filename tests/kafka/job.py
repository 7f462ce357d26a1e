"""A job that others kill: counts the rows of two topics in windows until it is ended.

python -m tests.kafka.job FOLDER ADDRESS JARS [MAX_OFFSETS]

With MAX_OFFSETS a micro-batch reads at most so many rows of a topic, and rows say when they reached it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace
from tests.kafka.rows import TOPICS, WINDOW
from tests.spark.conftest import QUICK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXT = f"""
    WITH both AS (SELECT k FROM bids UNION ALL SELECT k FROM asks)
    SELECT k, count(*) AS n, window_end AS until
    FROM   both [RANGE {WINDOW} SECONDS SLIDE {WINDOW} SECONDS]
    GROUP  BY k"""
LATENCY = "5 seconds"


def read(spark: SparkSession, address: str, topic: str, limit: str | None) -> DataFrame:
    from pyspark.sql import functions as F

    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    if limit is not None:
        options["maxOffsetsPerTrigger"] = limit
    rows = spark.readStream.format("kafka").options(**options).load()
    parsed = F.from_json(F.col("value").cast("string"), "ts timestamp, k int")
    return rows.select(parsed.alias("row"), "timestamp").select("row.*", "timestamp")


def main(folder: str, address: str, jars: str, limit: str | None = None) -> None:
    connector = ",".join(map(str, sorted(Path(jars, "connector").glob("*.jar"))))
    spark = headrace.spark.session("kafka", "local[2]", **{**QUICK, "spark.jars": connector})
    frames = {topic: read(spark, address, topic, limit) for topic in TOPICS}
    streams = [headrace.spark.stream(topic, df, time="ts") for topic, df in frames.items()]
    more: dict[str, Any] = {} if limit is None else {"reached": dict.fromkeys(TOPICS, "timestamp")}
    out = headrace.spark.outputs(
        headrace.query(TEXT, streams),
        frames,
        headrace.spark.SparkOptions(bounds={topic: {"latency": LATENCY} for topic in TOPICS}, **more),
    )
    sinks = {
        kind: headrace.spark.Files(f"{folder}/{kind}", "json") for kind in ("result", "late", "rejected")
    }
    out.start(checkpoint=f"{folder}/checkpoint", **sinks).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
