"""Spark's own operators go on when a source is silent; with a native watermark they do not.

Each test writes the micro-batches of its sources beforehand, one file each, and plays them twice: with
`withWatermark` and with `punctuate` on a timer that is a source like the others. No clock is read.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 1, 1)
BOUND = "10 seconds"


def at(second: float, start: datetime = START) -> str:
    return (start + timedelta(seconds=second)).isoformat()


@dataclass(frozen=True)
class Batch:
    """What one micro-batch did."""

    rows: list[tuple[Any, ...]]
    watermark: str
    held: int
    dropped: int


@dataclass
class Stage:
    """The sources of a test, and the queries that it plays over them."""

    spark: SparkSession
    feed: Callable[..., Any]
    folder: Path

    def __post_init__(self) -> None:
        self.feeds: dict[str, Any] = {}
        self.checkpoints = itertools.count()

    def source(self, name: str, schema: str, *batches: list[dict[str, Any]]) -> None:
        self.feeds[name] = self.feed(name, schema)
        self.put(name, *batches)

    def put(self, name: str, *batches: list[dict[str, Any]]) -> None:
        for rows in batches:
            self.feeds[name].put(*rows)

    def timer(self, *seconds: float | None, start: datetime = START) -> None:
        """One micro-batch each: the instant of the timer, or none."""
        self.source(
            "timer", "now timestamp", *([] if s is None else [{"now": at(s, start)}] for s in seconds)
        )

    def read(self, name: str) -> DataFrame:
        found: DataFrame = self.feeds[name].read(self.spark)
        return found

    def native(self, name: str) -> DataFrame:
        return self.read(name).withWatermark("ts", BOUND)

    def punctuated(self, name: str) -> DataFrame:
        return headrace.spark.punctuate(self.read(name), time="ts", bounds=BOUND, timer=self.read("timer"))

    def play(self, out: DataFrame, checkpoint: str | None = None) -> list[Batch]:
        """Every micro-batch that there is, to the end."""
        return self.start(out, checkpoint)()

    def play_both(self, query: Callable[[Callable[[str], DataFrame]], DataFrame]) -> list[list[Batch]]:
        """The same query over native and over punctuated sources, side by side."""
        started = [self.start(query(mark)) for mark in (self.native, self.punctuated)]
        return [ended() for ended in started]

    def start(self, out: DataFrame, checkpoint: str | None = None) -> Callable[[], list[Batch]]:
        rows: dict[int, list[tuple[Any, ...]]] = {}

        def keep(batch: DataFrame, number: int) -> None:
            rows[number] = [tuple(row) for row in batch.collect()]

        checkpoint = checkpoint or f"unnamed-{next(self.checkpoints)}"
        writer = out.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(self.folder / checkpoint)
        )
        query = writer.trigger(availableNow=True).start()

        def ended() -> list[Batch]:
            assert query.awaitTermination(120), "the query did not end"
            execution = query._jsq.streamingQuery().lastExecution()
            self.plan = execution.optimizedPlan().toString() if execution else ""
            return [
                Batch(
                    rows[progress.batchId],
                    progress.eventTime["watermark"],
                    sum(state.numRowsTotal for state in progress.stateOperators),
                    sum(state.numRowsDroppedByWatermark for state in progress.stateOperators),
                )
                for progress in query.recentProgress
                if progress.batchId in rows
            ]

        return ended


@pytest.fixture
def stage(spark: SparkSession, feed: Callable[..., Any], tmp_path: Path) -> Stage:
    return Stage(spark, feed, tmp_path)


def all_rows(batches: list[Batch]) -> list[tuple[Any, ...]]:
    return sorted((row for batch in batches for row in batch.rows), key=str)


def row(second: float, value: Any = 1, **more: Any) -> dict[str, Any]:
    return {"ts": at(second), "v": value, **more}


def sums(df: DataFrame) -> DataFrame:
    """Native sums over windows of ten seconds, by the second at which each starts."""
    from pyspark.sql import functions as F

    totals = df.groupBy(F.window("ts", "10 seconds")).agg(F.sum("v").alias("v"))
    return totals.select((F.unix_timestamp("window.start") - int(START.timestamp())).alias("second"), "v")


# --- windows ----------------------------------------------------------------------------------------------


def test_windows_are_answered_while_the_source_is_silent(stage: Stage) -> None:
    stage.source("a", "ts timestamp, v int", [row(1), row(12, 2)], [row(3, 4)], [])
    stage.timer(None, 13, 30)
    native, punctuated = stage.play_both(lambda mark: sums(mark("a")))
    assert all_rows(native) == []
    assert all_rows(punctuated) == [(0, 5), (10, 2)]
    assert punctuated[-1].held == 0


# Spark judges lateness by the watermark of one micro-batch earlier than the one by which it answers; hence an
# empty micro-batch before each row that is to be late.


def test_data_ahead_of_time_does_not_push_the_watermark(stage: Stage) -> None:
    stage.source("a", "ts timestamp, v int", [row(1), row(500)], [], [row(2)])
    stage.timer(5, 6, 20)
    native, punctuated = stage.play_both(lambda mark: sums(mark("a")))
    assert all_rows(native) == [(0, 1)]  # one clock gone wild, and a good row is late
    assert sum(batch.dropped for batch in native) == 1
    assert all_rows(punctuated) == [(0, 2)]
    assert sum(batch.dropped for batch in punctuated) == 0


def test_a_restart_goes_on_from_the_heartbeat_that_it_had(stage: Stage) -> None:
    """And rows that break the bound are dropped, before it and after it, and counted."""
    stage.source("a", "ts timestamp, v int", [row(1), row(12, 2)], [], [row(9.999, 4), row(10, 8)])
    stage.timer(20, None, None)
    before = stage.play(sums(stage.punctuated("a")), "restarted")
    assert all_rows(before) == [(0, 1)]
    assert sum(batch.dropped for batch in before) == 1
    stage.put("a", [row(5, 100), row(13, 16)])
    stage.put("timer", [{"now": at(30)}])
    after = stage.play(sums(stage.punctuated("a")), "restarted")
    assert after[0].watermark == before[-1].watermark == "2026-01-01T00:00:10.000Z"
    assert all_rows(after) == [(10, 26)]
    assert sum(batch.dropped for batch in after) == 1


def test_a_second_stateful_operator_gets_the_heartbeat_too(stage: Stage) -> None:
    from pyspark.sql import functions as F

    def chain(df: DataFrame) -> DataFrame:
        distinct = df.dropDuplicates(["ts", "v"])
        small = distinct.groupBy(F.window("ts", "5 seconds")).agg(F.sum("v").alias("v"))
        large = small.groupBy(F.window("window", "10 seconds")).agg(F.max("v").alias("v"))
        return large.select("v")

    stage.source("a", "ts timestamp, v int", [row(1, 3), row(1, 3), row(6, 4)], [])
    stage.timer(None, 25)
    native, punctuated = stage.play_both(lambda mark: chain(mark("a")))
    assert all_rows(native) == []
    assert all_rows(punctuated) == [(4,)]


def test_sparks_watermark_never_lies_before_1970(stage: Stage) -> None:
    """Not ours to change: rows of windows that end by 1970 are late from the start, native or punctuated."""
    moon = datetime(1969, 7, 20)
    stage.source("a", "ts timestamp, v int", [{"ts": at(1, moon), "v": 1}], [])
    stage.timer(None, 20, start=moon)
    for batches in stage.play_both(lambda mark: sums(mark("a"))):
        assert all_rows(batches) == []
        assert sum(batch.dropped for batch in batches) == 1
        assert {batch.watermark for batch in batches} == {"1970-01-01T00:00:00.000Z"}


# --- joins ------------------------------------------------------------------------------------------------


def joined(left: DataFrame, right: DataFrame, how: str) -> DataFrame:
    """A right row belongs to a left one if it comes within five seconds of it."""
    from pyspark.sql import functions as F

    a, b = left.select("ts", "v").alias("a"), right.select("ts", F.col("v").alias("w")).alias("b")
    near = F.expr("v = w AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS")
    return a.join(b, near, how).select("v", "w")


def two_streams(stage: Stage) -> None:
    """The right one falls silent after its first batch."""
    stage.source("a", "ts timestamp, v int", [row(1, 1), row(2, 2)], [row(15, 3)], [row(40, 4)])
    stage.source("b", "ts timestamp, v int", [row(3, 1), row(4, 9)], [], [])
    stage.timer(3, 15, 60)


UNMATCHED_LEFT = [(2, None), (3, None), (4, None)]


@pytest.mark.parametrize(
    ("how", "unmatched"),
    [("inner", []), ("left_outer", UNMATCHED_LEFT), ("full_outer", [*UNMATCHED_LEFT, (None, 9)])],
)
def test_joins_give_unmatched_rows_and_free_their_state(stage: Stage, how: str, unmatched: list[Any]) -> None:
    two_streams(stage)
    native, punctuated = stage.play_both(lambda mark: joined(mark("a"), mark("b"), how))
    assert all_rows(native) == [(1, 1)]
    assert native[-1].held == 6  # all that ever came
    assert all_rows(punctuated) == [(1, 1), *unmatched]
    assert punctuated[-1].held == 0


def test_a_native_watermark_on_the_other_side_still_holds_back(stage: Stage) -> None:
    two_streams(stage)
    batches = stage.play(joined(stage.punctuated("a"), stage.native("b"), "inner"))
    assert batches[-1].held == 6


# --- deduplication ----------------------------------------------------------------------------------------


def test_duplicates_within_the_bound_are_dropped_and_state_is_freed(stage: Stage) -> None:
    # The repeat at 8 is within the bound of the row at 1, though the heartbeat (5) has passed that row.
    stage.source("a", "ts timestamp, v int", [row(1, 7)], [], [row(8, 7), row(9, 5)], [])
    stage.timer(None, 15, None, 40)
    native, punctuated = stage.play_both(
        lambda mark: mark("a").dropDuplicatesWithinWatermark(["v"]).select("v")
    )
    assert all_rows(native) == all_rows(punctuated) == [(5,), (7,)]
    assert (native[-1].held, punctuated[-1].held) == (2, 0)


# --- the plan ---------------------------------------------------------------------------------------------


def test_the_optimizer_leaves_the_timer_in_the_plan(stage: Stage) -> None:
    """A filter on the data must neither sink below the watermark nor fold the timer's branch away."""
    from pyspark.sql import functions as F

    stage.source("a", "ts timestamp, v int", [row(1, 4)])
    stage.timer(1)
    stage.play(stage.punctuated("a").filter((F.col("v") > 3) & F.col("ts").isNotNull()).select("v"))
    plan = [line.lstrip(" :+-~") for line in stage.plan.splitlines()]
    (union,) = (number for number, line in enumerate(plan) if line.startswith("Union"))
    (watermark,) = (number for number, line in enumerate(plan) if line.startswith("EventTimeWatermark"))
    barrier, columns = plan[watermark - 1], plan[watermark - 2]
    assert "__headrace_now" in plan[watermark]
    assert barrier.startswith("Filter (SPARK_PARTITION_ID() < 0)")
    assert columns.startswith("Project")
    assert "SPARK_PARTITION_ID()" in columns
    below = plan[watermark + 1 :]
    assert not any(line.startswith("Filter") for line in below)
    data = plan[union + 1 : watermark - 3]  # its own filter, and no barrier
    assert any(line.startswith("Filter") and "> 3" in line for line in data)
    assert not any("SPARK_PARTITION_ID" in line for line in data)


# --- the timer and the arguments --------------------------------------------------------------------------


def test_the_clock_of_the_machine_moves_the_watermark_with_no_data_at_all(stage: Stage) -> None:
    stage.source("a", "ts timestamp, v int")
    df = headrace.spark.punctuate(stage.read("a"), time="ts", bounds=timedelta(days=1))
    writer = sums(df).writeStream.format("noop").option("checkpointLocation", str(stage.folder / "clock"))
    query = writer.start()
    try:
        deadline = time.monotonic() + 200
        moved = False
        while not moved and time.monotonic() < deadline and query.exception() is None:
            moved = any(p.eventTime.get("watermark", "1970") > "2000" for p in query.recentProgress)
            time.sleep(0.2)
    finally:
        query.stop()
    assert moved


def test_a_batch_dataframe_is_returned_as_it_is(spark: SparkSession) -> None:
    df = spark.sql("SELECT timestamp '2026-01-01' AS ts")
    assert headrace.spark.punctuate(df, time="ts", bounds=BOUND) is df


def test_schema_and_column_names_stay(stage: Stage) -> None:
    stage.source("a", "ts timestamp, `a.b` struct<x: array<int>>, `q``r` map<string, int>, ntz timestamp_ntz")
    stage.timer()
    assert stage.punctuated("a").schema.simpleString() == stage.read("a").schema.simpleString()


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("HR-SP04", {"time": "v"}),
        ("HR-SP04", {"time": "missing"}),
        ("HR-SP06", {"bounds": "soon"}),
        ("HR-SP06", {"bounds": "-1 seconds"}),
        ("HR-SP08", {"timer": "200 milliseconds"}),
        ("HR-SP08", {"timer": "0 seconds"}),
    ],
)
def test_wrong_arguments_end_in_words(stage: Stage, code: str, arguments: dict[str, Any]) -> None:
    stage.source("a", "ts timestamp, v int")
    with pytest.raises(SparkError, match=code) as raised:
        headrace.spark.punctuate(stage.read("a"), **{"time": "ts", "bounds": BOUND, **arguments})
    assert raised.value.hint


def test_a_watermark_that_is_there_already_is_refused(stage: Stage) -> None:
    stage.source("a", "ts timestamp, v int")
    with pytest.raises(SparkError, match="HR-SP05"):
        headrace.spark.punctuate(stage.native("a"), time="ts", bounds=BOUND)


def test_a_timer_has_one_timestamp_column(stage: Stage) -> None:
    stage.source("a", "ts timestamp, v int")
    with pytest.raises(SparkError, match="HR-SP07"):
        headrace.spark.punctuate(stage.read("a"), time="ts", bounds=BOUND, timer=stage.read("a"))
