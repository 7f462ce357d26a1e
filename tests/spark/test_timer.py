"""The clock of a query on Spark: how often it ticks, what it tells, and what a rate limit makes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import itertools

import headrace
from headrace.errors import SparkError
from headrace.runtimes.spark.driver import timer
from headrace.runtimes.spark.driver.reading import (
    ALL,
    FILES,
    LIMITED,
    WITHHELD,
    _takes,
    modified,
    sources,
    takes,
)
from headrace.runtimes.spark.driver.timer import Timer, _Ticks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Feed

TEXT = "SELECT k, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"


def test_a_tick_tells_the_instant_of_the_tick_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((100, 105, 109, 110, 131))
    monkeypatch.setattr(timer, "_now", lambda: next(clock))
    source = _Ticks(10)
    first = source.initialOffset()
    asked = [source.latestOffset() for _ in range(4)]
    assert [first["at"], *(each["at"] for each in asked)] == [100, 105, 105, 105, 131]
    (span,) = source.partitions({"at": 105}, {"at": 131})
    assert list(source.read(span)) == [(105, 131)]


def test_a_replayed_tick_is_the_same_and_the_next_one_comes_an_interval_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter((203, 212))
    monkeypatch.setattr(timer, "_now", lambda: next(clock))
    again = _Ticks(10)  # a driver that starts again, with a micro-batch to repeat
    (span,) = again.partitions({"at": 190}, {"at": 200})
    assert list(again.read(span)) == [(190, 200)]
    assert [again.latestOffset()["at"], again.latestOffset()["at"]] == [200, 212]


@pytest.mark.parametrize(
    ("form", "options", "expected"),
    [
        ("json", {}, ALL),
        ("kafka", {"subscribe": "bids", "startingoffsets": "earliest"}, ALL),
        ("json", {"maxfilespertrigger": "1"}, LIMITED),
        ("text", {"maxbytespertrigger": "1g"}, LIMITED),
        ("kafka", {"maxoffsetspertrigger": "1000"}, LIMITED),
        ("kafka", {"minoffsetspertrigger": "1000"}, WITHHELD),
        ("iceberg", {"streaming-max-rows-per-micro-batch": "10"}, LIMITED),
        ("delta", {}, LIMITED),
    ],
)
def test_a_limit_is_found_in_the_options(form: str, options: dict[str, str], expected: str) -> None:
    assert _takes(form, options) == expected


def test_a_limit_is_found_below_whatever_is_done_to_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.readStream.schema("ts TIMESTAMP, k INT")
    plain = reader.json(str(tmp_path))
    limited = reader.option("maxFilesPerTrigger", 2).json(str(tmp_path)).where("k > 1").select("k")
    rate = spark.readStream.format("rate").load()
    assert [takes(df) for df in (plain, limited, rate, plain.select("k").union(limited))] == [
        *(ALL, FILES, ALL),
        LIMITED,
    ]
    assert takes(limited, reached=True) == LIMITED
    assert modified(limited) is not None
    assert modified(rate) is None
    newest = reader.option("maxFilesPerTrigger", 2).option("latestFirst", True).json(str(tmp_path))
    assert modified(newest) is None
    assert takes(newest) == LIMITED


def test_latency_without_a_timer_is_refused(spark: SparkSession, feed: Callable[..., Feed]) -> None:
    rows = feed("s", "ts TIMESTAMP, k INT").read(spark)
    asked = headrace.query(TEXT, [headrace.spark.stream("s", rows, time="ts")])
    options = headrace.spark.SparkOptions(bounds={"s": {"latency": "1 second"}}, timer=None)
    with pytest.raises(SparkError, match="HR-SP19"):
        headrace.spark.apply(asked, {"s": rows}, options)


def test_a_slow_timer_ticks_slowly_and_the_heartbeat_goes_on(
    spark: SparkSession, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """Regression: any timer ticked each second, and the heartbeat in the progress was none or stood still."""
    rows = feed("s", "ts TIMESTAMP, k INT").read(spark)
    asked = headrace.query(TEXT, [headrace.spark.stream("s", rows, time="ts")])
    options = headrace.spark.SparkOptions(bounds={"s": {"latency": "10 seconds"}}, timer="4 seconds")
    answers = headrace.spark.apply(asked, {"s": rows}, options)
    writer = answers.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    running = writer.start()
    try:
        told = _progress(running, 4)
    finally:
        running.stop()
    ticks = [_tick(each) for each in told]
    assert all(later - earlier >= 4e6 for earlier, later in itertools.pairwise(ticks)), ticks
    begun = [_seconds(each["timestamp"]) for each in told]
    beats = [_heartbeat(each) for each in told]
    assert None not in beats[1:]
    assert beats[1:] == sorted(set(beats[1:]))  # silence, and yet it rises
    assert all(beat / 1e6 + 10 < at for at, beat in zip(begun[2:], beats[2:], strict=True))


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"disorder": "1 second"}, ["filesource"]),
        ({"disorder": "1 second", "latency": "1 minute"}, ["filesource", "rate"]),
        ({"latency": "1 minute"}, ["filesource", "rate"]),
    ],
)
def test_nothing_ticks_where_the_clock_can_release_nothing(
    spark: SparkSession, feed: Callable[..., Feed], bounds: dict[str, str], expected: list[str]
) -> None:
    rows = feed("s", "ts TIMESTAMP, k INT").read(spark)
    asked = headrace.query(TEXT, [headrace.spark.stream("s", rows, time="ts")])
    answers = headrace.spark.apply(asked, {"s": rows}, headrace.spark.SparkOptions(bounds={"s": bounds}))
    found = (name.partition("[")[0].lower() for name, _ in sources(answers))
    assert sorted(found) == expected


def _progress(running: Any, batches: int) -> list[Any]:
    deadline = time.time() + 200
    while len(running.recentProgress) < batches:
        assert time.time() < deadline
        assert running.exception() is None
        time.sleep(0.5)
    return list(running.recentProgress)


def _seconds(written: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(written).timestamp()


def _tick(progress: Any) -> int:
    """The instant of the last tick that a micro-batch read. When the batch began depends on the machine."""
    offsets = [json.loads(each["endOffset"] or "null") or {} for each in progress["sources"]]
    (at,) = (each["at"] for each in offsets if "at" in each)
    return int(at)


def _heartbeat(progress: Any) -> Any:
    from headrace.runtimes.spark.driver.progress import read

    return read(progress).heartbeat


def test_the_timer_names_itself() -> None:
    assert Timer.name() == "headrace_timer"
