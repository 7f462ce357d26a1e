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
