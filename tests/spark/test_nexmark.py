"""NEXMark on Spark gives the rows of the embedded engine; `headrace bench nexmark --runtime spark` runs
them all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import nexmark_runs as runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 3_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")  # one shard: the maximum has no key
@pytest.mark.parametrize("name", ["q5", "q20"])
def test_a_query_of_nexmark_gives_the_same_rows_on_spark(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    house = runs.house(EVENTS)
    runs.write_files(tmp_path, house, EVENTS)
    expected = runs.embedded(name, house, EVENTS).answers
    assert expected.num_rows
    assert runs.rows_of(runs.on_spark(spark, name, tmp_path, house).answers) == runs.rows_of(expected)
