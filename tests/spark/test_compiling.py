"""What differs in each micro-batch is not part of the Java code that Spark compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.runtimes.spark.driver.stream_rows import by_reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_another_instant_compiles_nothing(spark: SparkSession) -> None:
    """Regression: Spark compiled a projection twice in each micro-batch, for the instant in its code."""
    assert spark._jvm is not None
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
    compiled = []
    for instant in (1_795_056_221_400_000, -(1 << 63), (1 << 63) - 1, 7):
        rows = spark.range(3, numPartitions=1).select(by_reference(F.lit(instant), F.col("id")).alias("now"))
        assert [row.now for row in rows.collect()] == [instant] * 3
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount())
    assert len(set(compiled)) == 1, compiled
