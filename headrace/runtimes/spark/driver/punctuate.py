"""Heartbeats for Spark's own operators: a watermark that follows a timer and not the data.

Spark's watermark on a column is the largest time seen minus a delay, so an idle stream holds it back, and
with it every window, join and deduplication. Here the largest time seen is the timer's, so the watermark is
now − bound, which is right for a stream whose rows arrive within `bound` of their time.

    data  ─ time column carries the timer's mark ───────────────────────────────┐
    timer ─ withWatermark(now, bound) ─ barrier: lets no row through ───────────┴─ union

Spark's optimizer must not remove the timer as useless. Therefore the barrier and the columns above it look
non-deterministic to it, so that it moves or folds no filter past them. A test checks the optimized plan.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, TimestampType

from headrace.errors import SparkError, TimeError
from headrace.runtimes.spark.driver.timer import SECOND, clock_of
from headrace.time.durations import Duration
from headrace.time.durations import ticks as in_ticks

_NOW = "__headrace_now"


def punctuate(
    df: DataFrame,
    *,
    time: str,
    bounds: Duration,
    timer: Duration | DataFrame = "1 second",
) -> DataFrame:
    """The same stream with a watermark of now − `bounds` on the column `time`, even while no rows come.

    Use it in place of `withWatermark(time, bounds)`; everything after it stays the same. `bounds` says how
    long after its time a row may arrive. Spark may drop rows that arrive later: it counts them, but does not
    keep them. `timer` says how often the watermark advances, in whole seconds, or is a streaming DataFrame
    with one timestamp column, which is then the clock. A DataFrame that is not streaming is returned as it
    is.
    """
    field = _time_field(df, time)
    if not df.isStreaming:
        return df
    marked = _clock(df.sparkSession, timer).withWatermark(_NOW, _interval(bounds))
    mark = marked.schema[_NOW].metadata
    silent = marked.filter(_never()).select(*(_opaque(each) for each in df.schema.fields))
    tagged = F.col(_quoted(time)).alias(time, metadata={**field.metadata, **mark})
    kept = (tagged if name == time else F.col(_quoted(name)) for name in df.columns)
    return df.select(*kept).union(silent)


# --- the barrier ------------------------------------------------------------------------------------------


def _never() -> Column:
    """False in every row, but not to the optimizer."""
    return F.spark_partition_id() < 0


def _opaque(field: StructField) -> Column:
    """A NULL that the optimizer does not recognise, so that it folds no filter above it."""
    return F.when(_never(), F.lit(None).cast(field.dataType)).alias(field.name)


# --- the timer --------------------------------------------------------------------------------------------


def _clock(spark: SparkSession, timer: Duration | DataFrame) -> DataFrame:
    """The timer as a DataFrame with one timestamp column."""
    if not isinstance(timer, DataFrame):
        return _ticks(spark, timer)
    columns = timer.schema.fields
    if not timer.isStreaming or len(columns) != 1 or not isinstance(columns[0].dataType, TimestampType):
        raise SparkError(
            "HR-SP07",
            "a timer must be a streaming DataFrame with one column of type timestamp",
            place=timer.schema.simpleString(),
            hint='select only that column, or write timer="1 second"',
        )
    return timer.toDF(_NOW)


def _ticks(spark: SparkSession, period: Duration) -> DataFrame:
    """For one second, Spark's rate source: its times come from its offsets, so a replay has the same ones.

    Its newest row is at least one second older than the moment at which Spark polls the sources. That second
    is needed: a heartbeat must not run ahead of a source that was polled just before the timer.
    """
    seconds = _whole_seconds(period)
    if seconds > 1:
        clock, instant = clock_of(spark, f"{seconds} seconds")
        return clock.select(F.timestamp_micros(instant).alias(_NOW))
    rate = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    return rate.select(F.col("timestamp").alias(_NOW))


def _whole_seconds(period: Duration) -> int:
    """The period in seconds; raises HR-SP08 if it is not a whole number of them."""
    seconds, rest = divmod(in_ticks(period, SECOND, "timer"), SECOND)
    if seconds < 1 or rest:
        raise SparkError(
            "HR-SP08",
            f"timer {period!r} is not a whole number of seconds",
            hint='write "1 second", "30 seconds" or "5 minutes": Spark\'s rate source counts in seconds',
        )
    return seconds


# --- arguments --------------------------------------------------------------------------------------------


def _time_field(df: DataFrame, time: str) -> StructField:
    """The time column of the DataFrame; raises if it is not a timestamp or already has a watermark."""
    fields = {field.name: field for field in df.schema.fields}
    field = fields.get(time)
    if field is None or not isinstance(field.dataType, TimestampType):
        raise SparkError(
            "HR-SP04",
            f"{time!r} is not a column of type timestamp",
            place=df.schema.simpleString(),
            hint="name a top-level column; cast it to timestamp first if it is not one",
        )
    marked = [name for name, each in fields.items() if _has_watermark(each)]
    if marked:
        raise SparkError(
            "HR-SP05",
            f"this DataFrame already has a watermark on {marked[0]!r}, which would hold back the timer's",
            hint="replace withWatermark with punctuate",
        )
    return field


def _has_watermark(field: StructField) -> bool:
    return any("watermark" in key.lower() for key in field.metadata)


def _interval(bounds: Duration) -> str:
    """A duration as Spark writes it."""
    try:
        return f"{in_ticks(bounds, SECOND)} microseconds"
    except TimeError as error:
        raise SparkError("HR-SP06", error.message, place="bounds", hint=error.hint) from None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
