"""Heartbeats for Spark's own operators: a watermark that follows a timer and not the data.

Spark's watermark on a column is "the largest time seen, less a delay", so a silent stream stands still, and
with it every window, join and deduplication. Here the largest time seen is the timer's: the watermark is
now − bound, the heartbeat of a stream whose rows arrive within `bound` of their time (`001` §2).

    data  ─ time column carries the timer's mark ───────────────────────────────┐
    timer ─ withWatermark(now, bound) ─ barrier: lets no row through ───────────┴─ union

Two things keep Spark's optimizer from taking the timer away as useless, and a test looks at the optimized
plan: the barrier and the columns above it are not deterministic in its eyes, so that no filter is moved or
folded past them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, TimestampType

from headrace.errors import SparkError, TimeError
from headrace.runtimes.spark.timer import SECOND, clock_of
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
    """The same stream with a watermark on `time` of now − `bounds`, whether rows come or not.

    Stands where `withWatermark(time, bounds)` stood; what follows stays as it is. `bounds` says how long
    after its time a row may arrive; one that arrives later may be dropped by Spark, which counts such rows
    and does not keep them. `timer` is how often now is looked at, in whole seconds, or a streaming DataFrame
    with one timestamp column, which then is the clock. A DataFrame that is not streaming stays as it is.
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
    """A NULL that the optimizer does not know to be one, so that no filter above is folded because of it."""
    return F.when(_never(), F.lit(None).cast(field.dataType)).alias(field.name)


# --- the timer --------------------------------------------------------------------------------------------


def _clock(spark: SparkSession, timer: Duration | DataFrame) -> DataFrame:
    if not isinstance(timer, DataFrame):
        return _ticks(spark, timer)
    columns = timer.schema.fields
    if not timer.isStreaming or len(columns) != 1 or not isinstance(columns[0].dataType, TimestampType):
        raise SparkError(
            "HR-SP07",
            "a timer is a streaming DataFrame with one column of type timestamp",
            place=timer.schema.simpleString(),
            hint='select that column alone, or write timer="1 second"',
        )
    return timer.toDF(_NOW)


def _ticks(spark: SparkSession, period: Duration) -> DataFrame:
    """Each second Spark's rate source: its times come from its offsets, so a replayed batch has the same.

    Its newest row is at least a second older than the moment at which Spark asks the sources what is new.
    That second is needed: a heartbeat must not run ahead of a source that was asked just before the timer.
    """
    seconds = _whole_seconds(period)
    if seconds > 1:
        clock, instant = clock_of(spark, f"{seconds} seconds")
        return clock.select(F.timestamp_micros(instant).alias(_NOW))
    rate = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    return rate.select(F.col("timestamp").alias(_NOW))


def _whole_seconds(period: Duration) -> int:
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
            f"this DataFrame already has a watermark on {marked[0]!r}, which would hold the timer's back",
            hint="put punctuate in the place of withWatermark",
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
