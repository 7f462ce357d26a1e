"""Observed metrics add up over shards, and the listener says them in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.time.ets import DisorderPromise

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
        *[note("result", query="best", rows=5)] * 3,
        *[note(None)] * 4,
        *[note("late", stream="bids", rows=1)] * 2,
        note("rejected", stream="auctions", rows=1),
    ],
    [metric(0, "bids", 8, 0, None), metric(0, "auctions", 9, 0, None), metric(0, None, None, 0, 7)],
]


@pytest.fixture
def wide(spark: SparkSession, feed: Callable[..., Any]) -> DataFrame:
    from headrace.runtimes.spark.types import spark_schema
    from headrace.runtimes.spark.worker.answers import SIDE_OUTPUT

    columns = spark_schema(SIDE_OUTPUT)
    source = feed("wide", ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in columns))
    for rows in BATCHES:
        source.put(*rows)
    read: DataFrame = source.read(spark)
    return read


def test_the_listener_has_what_the_shards_wrote(spark: SparkSession, wide: DataFrame, tmp_path: Path) -> None:
    from headrace.runtimes.spark.driver.progress import StreamProgress, observed

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
    assert (first.shards, first.engine_bytes, first.queries) == (2, 111, {"best": 15})
    assert first.streams == {
        "bids": StreamProgress(heartbeat=5, waiting=3, rows=20, late=2),
        "auctions": StreamProgress(heartbeat=None, waiting=8, rows=20, rejected=1),
    }
    assert first.heartbeat is None
    assert second.heartbeat == 8
    assert listener.latest("seen") == second
    assert "2 late, 1 rejected; bids: heartbeat 5, 3 waiting; auctions: no heartbeat yet" in told[0]


def test_a_query_without_a_host_tells_sparks_own_figures(wide: DataFrame, tmp_path: Path) -> None:
    from headrace.runtimes.spark.driver.progress import read

    query = wide.groupBy("__headrace_kind").count().writeStream.format("noop")
    running = query.outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    started = running.trigger(availableNow=True).start()
    started.awaitTermination()
    progress = read(started.recentProgress[0])
    assert (progress.hosted, progress.rows, progress.state_rows, progress.streams) == (False, 16, 5, {})
    assert "state 5 rows" in str(progress)


def test_figures_are_read_in_the_form_of_spark_connect_too() -> None:
    pytest.importorskip("pyspark")
    from headrace.runtimes.spark.driver.progress import _figures

    schema = {"type": "struct", "fields": [{"name": "late"}, {"name": "heartbeat:bids"}]}
    assert _figures({"values": [2, None], "schema": schema}) == {"late": 2, "heartbeat:bids": None}
    assert _figures({"late": 2}) == {"late": 2}


def test_a_listener_survives_its_users_error() -> None:
    pytest.importorskip("pyspark")
    from headrace.runtimes.spark.driver.progress import listener

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
        options = headrace.spark.SparkOptions(bounds={"s": DisorderPromise(0)}, timer=None)
        return headrace.spark.apply(asked, {"s": rows}, options)

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
    from headrace.runtimes.spark.driver.progress import EngineProgress, StreamProgress, _hosted

    def engine(results: int, heartbeat: int | None, rows: int) -> EngineProgress:
        return EngineProgress(results, 1, 2, 2, 100, {"s": StreamProgress(heartbeat, 3, rows)})

    engines = {"headrace": engine(5, 7, 10), "headrace_2": engine(6, -1, 20)}
    together = _hosted(engines)
    assert (together["results"], together["late"], together["rejected"]) == (11, 2, 4)
    assert together["streams"] == {"s": StreamProgress(-1, 6, 30)}
    assert _hosted({**engines, "headrace_3": engine(1, None, 0)})["streams"]["s"].heartbeat is None
    assert _hosted({}) == {}


def test_progress_is_plain_data() -> None:
    """Regression: `headrace run --json` on Spark ended with a traceback."""
    pytest.importorskip("pyspark")
    from headrace.runtimes.spark.driver.progress import Progress, _engine, _hosted

    row = {"results": 1, "queries": "best\t2\nbest\t3", "shards": 2, "state_bytes": 10, "reasons": ""}
    figures = {"heartbeat:s": 7, "waiting:s": 0, "rows:s": 5, "late:s": 1, "rejected:s": 0}
    hosted = _hosted({"headrace": _engine({**row, **figures})})
    plain = json.loads(json.dumps(asdict(Progress("q", 1, "now", 5, 5, **hosted))))
    assert (plain["results"], plain["late"], plain["queries"]) == (6, 1, {"best": 5})
