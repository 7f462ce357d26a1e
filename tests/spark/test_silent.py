"""Two streams, of which one stops: answers go on, each in the first micro-batch in which it can be proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace
from headrace.sql import StreamDef, query
from tests.spark.conftest import played

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="the spark extra is not installed")

INSTANTS = (4, 9, 11, 12, 21, 22)
LATENCY = 3
LENGTH = 10
SPEAKS = {"a": len(INSTANTS), "b": 1}
"""Micro-batches after which a stream is silent."""

SCHEMA = pa.schema([("t", pa.int64())])
QUERY = query(
    "SELECT count(*) AS n, window_end FROM (SELECT t FROM a UNION ALL SELECT t FROM b) [RANGE 10 SLIDE 10]",
    [StreamDef(name, SCHEMA, time_column="t", ticks_per_second=None) for name in SPEAKS],
    ticks_per_second=None,
)


@pytest.fixture
def streams(spark: SparkSession, feed: Callable[..., Any]) -> dict[str, DataFrame]:
    """`a`, `b` and the timer: at each instant one row of each, of a stream that is silent none."""
    read = {}
    for name in (*SPEAKS, "timer"):
        source = feed(name, "t bigint, arrival bigint")
        for number, now in enumerate(INSTANTS):
            row = {"t": now - 1, "arrival": now}
            source.put(*([row] if number < SPEAKS.get(name, len(INSTANTS)) else []))
        read[name] = source.read(spark)
    return read


def play(out: DataFrame, checkpoint: Path) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of each micro-batch that has any."""
    found: dict[int, list[tuple[Any, ...]]] = {}

    def keep(rows: DataFrame, number: int) -> None:
        if given := [tuple(row) for row in rows.collect()]:
            found[number] = given

    writer = out.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    played(writer.trigger(availableNow=True).start)
    return found


@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")  # one shard: there is no key
def test_answers_go_on_when_a_stream_is_silent(streams: dict[str, DataFrame], tmp_path: Path) -> None:
    bounds = {key: {"disorder": 2, "latency": LATENCY} for key in SPEAKS}
    timer = streams.pop("timer")
    options = headrace.spark.SparkOptions(bounds=bounds, timer=timer, arrival="arrival")
    out = headrace.spark.apply(QUERY, streams, options)
    # A window that ends at e is answered at its last tick, which the silent stream has passed at e − 1 + 3.
    provable = {
        end: next(i for i, now in enumerate(INSTANTS) if now >= end - 1 + LATENCY) for end in (10, 20)
    }
    assert provable == {10: 3, 20: 5}
    assert play(out, tmp_path / "checkpoint") == {3: [(3, 10)], 5: [(2, 20)]}


def test_native_spark_waits_for_the_silent_stream(streams: dict[str, DataFrame], tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    timed = [
        streams[name].select(F.timestamp_seconds("t").alias("ts")).withWatermark("ts", "2 seconds")
        for name in SPEAKS
    ]
    out = timed[0].union(timed[1]).groupBy(F.window("ts", f"{LENGTH} seconds")).count()
    assert play(out, tmp_path / "checkpoint") == {}
