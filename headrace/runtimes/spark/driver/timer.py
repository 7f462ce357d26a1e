"""The clock of a query: a source that ticks, and reports up to when Spark has polled all sources.

A bound on latency covers rows that have not reached their source. Spark polls its sources one after the
other, in any order, and takes the timestamp of the micro-batch after all of them. A row may reach a source
in between, and is then read in the next micro-batch. So a tick carries the instant of the tick before it:
Spark has polled every source since then, and the rows it found are in this micro-batch or an earlier one.
This also holds with `Trigger.AvailableNow`, where Spark polls once and then reads several micro-batches.

The instants come from the offsets of the source, so a micro-batch that runs again has the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import TimestampType

from headrace.errors import SparkError
from headrace.runtimes.spark.driver.source_names import OWN, reader
from headrace.time.durations import Duration
from headrace.time.durations import ticks as in_ticks

SECOND: Final = 1_000_000


def clock_of(spark: SparkSession, timer: Duration | DataFrame) -> tuple[DataFrame, Column]:
    """A streaming DataFrame with a row for each tick, and the instant it carries, in microseconds."""
    if isinstance(timer, DataFrame):
        return timer, F.unix_micros(timer[_only_timestamp(timer)])
    interval = interval_of(timer)
    if interval == SECOND:
        rate = reader(spark, f"{OWN}timer").format("rate").option("numPartitions", 1)
        ticks = rate.option("rowsPerSecond", 1).load()
        return ticks, F.unix_micros("timestamp")
    spark.dataSource.register(Timer)
    ticks = reader(spark, f"{OWN}timer").format(Timer.name()).option(MICROS, interval).load()
    return ticks, F.col("since")


def interval_of(timer: Duration) -> int:
    """The time between two ticks in microseconds; an error if it is not a duration, or too short."""
    interval = in_ticks(timer, SECOND, "timer")
    if interval < 1:
        raise SparkError(
            "HR-SP08", f"the timer interval {timer!r} is too short", hint='write timer="1 second", or longer'
        )
    return interval


def _only_timestamp(timer: DataFrame) -> str:
    """The name of the timer's one column; raises HR-SP07 if the DataFrame is not a timer."""
    found = timer.schema.fields
    if not timer.isStreaming or len(found) != 1 or not isinstance(found[0].dataType, TimestampType):
        raise SparkError(
            "HR-SP07",
            "a timer must be a streaming DataFrame with one column of type timestamp",
            place=timer.schema.simpleString(),
            hint='select only that column, or write timer="1 second"',
        )
    return str(found[0].name)


# A source that ticks at any interval; Spark's `rate` source ticks each second.
#
# Spark runs it in a separate process next to the driver. That process does not need the engine, so nothing of
# it is imported here.


MICROS: Final = "micros"
"""The option that sets the interval."""


class Timer(DataSource):
    """One row for each micro-batch with a tick: the instants of the previous tick and of this one."""

    @classmethod
    def name(cls) -> str:
        return "headrace_timer"

    def schema(self) -> str:
        return "since bigint, until bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Ticks(int(self.options[MICROS]))


class _Span(InputPartition):
    """From one tick to the next."""

    def __init__(self, since: int, until: int) -> None:
        super().__init__(None)
        self.since, self.until = since, until


class _Ticks(DataSourceStreamReader):
    """An offset is the instant of a tick."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"at": _now()}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """The instant of the last tick, which advances once per interval."""
        now = _now()
        if self._last is None or now >= self._last + self._interval:
            self._last = now
        return {"at": self._last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._last = max(end["at"], self._last or end["at"])
        return [_Span(start["at"], end["at"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        assert isinstance(partition, _Span)
        yield partition.since, partition.until


def _now() -> int:
    """The system time in microseconds."""
    return time.time_ns() // 1000
