"""Observed metrics add up over shards, and the listener says them in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def metric(
    shard: int, stream: str | None, heartbeat: int | None, waiting: int, bytes_: int
) -> dict[str, Any]:
    figures = {"heartbeat": heartbeat, "waiting": waiting, "rows": 10, "state_bytes": bytes_}
    return note("metric", shard=shard, stream=stream, **figures)


def note(kind: str | None, **fields: Any) -> dict[str, Any]:
    return {f"__headrace_{name}": value for name, value in {"kind": kind, **fields}.items()}


BATCHES = [
    [
        metric(0, "bids", 5, 1, None),
        metric(1, "bids", 7, 2, None),
        metric(0, "auctions", None, 4, None),
        metric(1, "auctions", 9, 4, None),
        metric(0, None, None, 0, 100),
        metric(1, None, None, 0, 11),
        *[note("result", rows=5)] * 3,
        *[note(None)] * 4,
        *[note("late", rows=1)] * 2,
        note("rejected", rows=1),
    ],
    [metric(0, "bids", 8, 0, None), metric(0, "auctions", 9, 0, None), metric(0, None, None, 0, 7)],
]


@pytest.fixture
def wide(spark: SparkSession, feed: Callable[..., Any]) -> DataFrame:
    from headrace.runtimes.spark.notes import NARROW
    from headrace.runtimes.spark.types import spark_schema

    source = feed("wide", ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in spark_schema(NARROW)))
    for rows in BATCHES:
        source.put(*rows)
    read: DataFrame = source.read(spark)
    return read


def test_the_listener_has_what_the_shards_wrote(spark: SparkSession, wide: DataFrame, tmp_path: Path) -> None:
    from headrace.runtimes.spark.progress import StreamProgress, observed

    told: list[str] = []
    listener = headrace.spark.listener(each=lambda progress: told.append(str(progress)))
    spark.streams.addListener(listener)
    try:
        out = observed(wide, ["bids", "auctions"])
        query = (
            out.writeStream.format("noop").queryName("seen").option("checkpointLocation", str(tmp_path / "c"))
        )
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    first, second = listener.history("seen")
    assert (first.results, first.late, first.rejected, first.rows) == (19, 2, 1, 16)
    assert (first.shards, first.engine_bytes) == (2, 111)
    assert first.streams == {
        "bids": StreamProgress(heartbeat=5, waiting=3, rows=20),
        "auctions": StreamProgress(heartbeat=None, waiting=8, rows=20),
    }
    assert first.heartbeat is None
    assert second.heartbeat == 8
    assert listener.latest("seen") == second
    assert "2 late, 1 rejected; bids: heartbeat 5, 3 waiting; auctions: no heartbeat yet" in told[0]


def test_a_query_without_a_host_tells_sparks_own_figures(wide: DataFrame, tmp_path: Path) -> None:
    from headrace.runtimes.spark.progress import read

    query = wide.groupBy("__headrace_kind").count().writeStream.format("noop")
    running = query.outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    started = running.trigger(availableNow=True).start()
    started.awaitTermination()
    progress = read(started.recentProgress[0])
    assert (progress.hosted, progress.rows, progress.state_rows, progress.streams) == (False, 16, 5, {})
    assert "state 5 rows" in str(progress)


def test_figures_are_read_in_the_form_of_spark_connect_too() -> None:
    pytest.importorskip("pyspark")
    from headrace.runtimes.spark.progress import _figures

    schema = {"type": "struct", "fields": [{"name": "late"}, {"name": "heartbeat:bids"}]}
    assert _figures({"values": [2, None], "schema": schema}) == {"late": 2, "heartbeat:bids": None}
    assert _figures({"late": 2}) == {"late": 2}


def test_a_listener_survives_its_users_error() -> None:
    pytest.importorskip("pyspark")
    from headrace.runtimes.spark.progress import listener

    class Bad:
        progress = None

    heard = listener(each=lambda progress: 1 / 0)
    heard.onQueryProgress(Bad())  # type: ignore[arg-type]
    assert heard.latest("x") is None


def test_two_results_of_apply_are_one_spark_query(
    spark: SparkSession, feed: Callable[..., Any], tmp_path: Path
) -> None:
    """Regression: DUPLICATED_METRICS_NAME, for all metrics had one name."""
    source = feed("s", "k STRING, v BIGINT, ts BIGINT")
    source.put(*({"k": "ab"[i % 2], "v": i, "ts": i} for i in range(10)))
    rows = source.read(spark)
    streams = [headrace.StreamDef("s", headrace.spark.stream("s", rows).schema, time_column="ts")]

    def result(text: str) -> DataFrame:
        asked = headrace.query(text, streams, ticks_per_second=None)
        out: DataFrame = headrace.spark.apply(asked, s=rows, bounds={"s": {"disorder": 0}}, timer=None)
        return out

    listener = headrace.spark.listener(each=lambda progress: None)
    spark.streams.addListener(listener)
    try:
        both = result("SELECT k, v FROM s").union(result("SELECT k, v + 100 AS v FROM s WHERE v < 4"))
        writer = both.writeStream.format("memory").queryName("both_applied")
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        writer.start().awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    found = [row.v for row in spark.table("both_applied").collect()]
    assert sorted(found) == [*range(10), *range(100, 104)]
    told = listener.latest("both_applied")
    assert told is not None
    assert sorted(each.results for each in told.engines.values()) == [4, 10]
    assert (told.results, told.hosted, set(told.streams)) == (14, True, {"s"})
    assert told.streams["s"].rows == sum(each.streams["s"].rows for each in told.engines.values())


def test_figures_of_several_engines_add_up() -> None:
    pytest.importorskip("pyspark")
    from headrace.runtimes.spark.progress import EngineProgress, StreamProgress, _hosted

    def engine(results: int, heartbeat: int | None, rows: int) -> EngineProgress:
        return EngineProgress(results, 1, 2, 2, 100, {"s": StreamProgress(heartbeat, 3, rows)})

    engines = {"headrace": engine(5, 7, 10), "headrace_2": engine(6, -1, 20)}
    together = _hosted(engines)
    assert (together["results"], together["late"], together["rejected"]) == (11, 2, 4)
    assert together["streams"] == {"s": StreamProgress(-1, 6, 30)}
    assert _hosted({**engines, "headrace_3": engine(1, None, 0)})["streams"]["s"].heartbeat is None
    assert _hosted({}) == {}
