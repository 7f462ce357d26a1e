"""State of shards on the disk of their executor, on real Spark: answers as in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace
from headrace.sql import StreamDef, query
from headrace.time.ets import DisorderPromise
from tests.spark.conftest import played

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="the spark extra is not installed")

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
QUERY = query(
    "SELECT a.k, a.t, b.t AS u FROM a [RANGE 100000] AS a, b [RANGE 100000] AS b WHERE a.k = b.k",
    [StreamDef(name, SCHEMA, time_column="t", ticks_per_second=None) for name in "ab"],
    ticks_per_second=None,
)
ROWS, BATCHES = 1500, 3


def test_shards_spill_and_answer_the_same(
    spark: SparkSession, feed: Callable[..., Any], tmp_path: Path
) -> None:
    """Each row of b meets the row of a that came a micro-batch before, and has been put away."""
    read: dict[str, DataFrame] = {}
    for name, behind in (("a", 0), ("b", ROWS)):
        source = feed(name, "k bigint, t bigint")
        for number in range(BATCHES):
            times = range(number * ROWS, (number + 1) * ROWS)
            source.put(*({"k": t - behind, "t": t} for t in times))
        read[name] = source.read(spark)
    local = Path(spark.conf.get("spark.local.dir", None) or "/tmp")
    found: list[tuple[Any, ...]] = []
    files: set[Path] = set()

    def keep(rows: DataFrame, number: int) -> None:
        found.extend(tuple(row) for row in rows.collect())
        files.update(local.glob("blockmgr-*/headrace/headrace-spill-*/*.arrow"))

    bounds = {name: DisorderPromise(0) for name in "ab"}
    options = headrace.spark.SparkOptions(bounds=bounds, timer=None, memory=60_000, policy="spill")
    out = headrace.spark.apply(QUERY, read, options)
    writer = out.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
    played(writer.trigger(availableNow=True).start)
    expected = {(k, k, k + ROWS) for k in range((BATCHES - 1) * ROWS)}
    assert len(found) == len(set(found))
    assert set(found) <= expected
    assert len(found) >= len(expected) - 1, "the last instant is not over"
    assert files
