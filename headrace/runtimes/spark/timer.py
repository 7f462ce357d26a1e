"""The clock of a query: a source that ticks, and tells up to when all sources have been asked.

A promise by the clock speaks of rows that have not reached their source. Spark asks its sources for what is
new one after the other, in any order, and takes the timestamp of the micro-batch after all of them: a row may
reach a source in between, and is read in the next micro-batch. So a tick tells the instant of the tick before
it. Every source has been asked since then, and what it had is in this micro-batch or an earlier one; with
`Trigger.AvailableNow`, where sources are asked once and then read in several micro-batches, too.

The instants come from the offsets of the source, so a micro-batch that is run again has the same ones.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from headrace.errors import SparkError
from headrace.runtimes.spark.ticks import MICROS, Timer
from headrace.time.durations import Duration
from headrace.time.durations import ticks as in_ticks

SECOND: Final = 1_000_000


def clock_of(spark: SparkSession, timer: Duration | DataFrame) -> tuple[DataFrame, Column]:
    """A streaming DataFrame that has rows when the timer ticks, and the instant they tell in microseconds."""
    if isinstance(timer, DataFrame):
        return timer, F.unix_micros(timer[_only_timestamp(timer)])
    interval = in_ticks(timer, SECOND, "timer")
    if interval < 1:
        raise SparkError(
            "HR-SP08", f"a timer of {timer!r} never stops ticking", hint='write timer="1 second", or longer'
        )
    if interval == SECOND:
        ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
        return ticks, F.unix_micros("timestamp")
    spark.dataSource.register(Timer)
    ticks = spark.readStream.format(Timer.name()).option(MICROS, interval).load()
    return ticks, F.col("since")


def _only_timestamp(timer: DataFrame) -> str:
    found = timer.schema.fields
    if not timer.isStreaming or len(found) != 1 or not isinstance(found[0].dataType, TimestampType):
        raise SparkError(
            "HR-SP07",
            "a timer is a streaming DataFrame with one column of type timestamp",
            place=timer.schema.simpleString(),
            hint='select that column alone, or write timer="1 second"',
        )
    return str(found[0].name)
