"""A DataFrame's columns as the engine knows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import headrace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_has_the_columns_of_its_dataframe(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'x' AS item, 1.0D AS price, timestamp '2026-01-01' AS ts")
    made = headrace.spark.stream("bids", df, time="ts")
    columns = [("item", pa.string()), ("price", pa.float64()), ("ts", pa.timestamp("us", "UTC"))]
    assert (made.schema, made.time_column) == (pa.schema(columns), "ts")


def test_the_clock_counts_the_ticks_of_the_query(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from headrace.runtimes.spark.driver.stream_rows import clock_ticks

    micros = 1_700_000_000_123_456
    asked = {
        None: micros,
        1: 1_700_000_000,
        1_000: 1_700_000_000_123,
        1_000_000: micros,
        10**9: micros * 1000,
    }
    columns = [clock_ticks(F.lit(micros), each) for each in asked]
    assert list(spark.range(1).select(*columns).first() or ()) == list(asked.values())


@pytest.mark.parametrize("of", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_no_row_is_rejected_in_another_time_zone(spark: SparkSession, tmp_path: Path, of: str) -> None:
    """Regression: the engine compared times, made in the session's zone, with the column's own value."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(
        """{"k": 1, "ts": "2026-01-01T00:00:01"}\n{"k": 2, "ts": "2026-01-01T00:00:02"}"""
    )
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = spark.readStream.schema(f"k BIGINT, ts {of}").json(str(tmp_path / "in"))
        stream = headrace.spark.stream("s", rows, time="ts")
        asked = headrace.query("SELECT ts, k FROM s [RANGE 1 SECOND]", [stream], name="q")
        options = headrace.spark.SparkOptions(bounds={"s": {"disorder": "999 ms"}}, timer=None)
        answers = headrace.spark.apply(asked, {"s": rows}, options)
        name = f"zone_{of.lower()}"
        writer = answers.writeStream.format("memory").queryName(name).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        found = [row.k for row in spark.table(name).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert 1 in found
