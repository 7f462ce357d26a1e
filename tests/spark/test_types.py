"""A DataFrame's columns as the engine knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import headrace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_has_the_columns_of_its_dataframe(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'x' AS item, 1.0D AS price, timestamp '2026-01-01' AS ts")
    made = headrace.spark.stream("bids", df, time="ts")
    columns = [("item", pa.string()), ("price", pa.float64()), ("ts", pa.timestamp("us"))]
    assert (made.schema, made.time_column) == (pa.schema(columns), "ts")


def test_the_clock_counts_the_ticks_of_the_query(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from headrace.runtimes.spark.apply import clock_ticks

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
