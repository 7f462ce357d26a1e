"""`[RANGE T SLIDE S]` has the windows of Spark's own `window`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.testing.asking import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = [-11, -1, 0, 1, 4, 4, 9, 20]


@pytest.mark.spark
@pytest.mark.parametrize(("size", "slide"), [(4, 4), (6, 2), (3, 2), (5, 3), (8, 5)])
def test_windows_are_those_of_spark(spark: SparkSession, size: int, slide: int) -> None:
    times = ", ".join(f"(timestamp_seconds({time}))" for time in TIMES)
    window = f"window(ts, '{size} seconds', '{slide} seconds')"
    native = spark.sql(
        f"SELECT count(*), unix_seconds(w.start), unix_seconds(w.end) "
        f"FROM (SELECT {window} AS w FROM VALUES {times} AS s(ts)) GROUP BY w"
    )
    text = (
        f"SELECT count(*) AS n, window_start, window_end FROM s [RANGE {size} SECONDS SLIDE {slide} SECONDS]"
    )
    found = ask("CREATE STREAM s (v BIGINT); " + text, s=[(time, 0) for time in TIMES])
    assert sorted(row[1:] for row in found) == sorted(map(tuple, native.collect()))
