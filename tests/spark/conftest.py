"""One Spark session for all tests, small and quick; no Java or no PySpark: skipped, with the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUICK = {
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": 2,
    "spark.log.level": "ERROR",
    # A machine that is busy with other things starts a Python worker slowly.
    "spark.python.authenticate.socketTimeout": "120s",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    connect = bool(os.environ.get("HEADRACE_SPARK_CONNECT"))  # tests.spark.versions
    where = {"remote": "local[2]"} if connect else {"master": "local[2]"}
    try:
        made = headrace.spark.session("headrace tests", **where, **QUICK)
    except SparkError as error:
        pytest.skip(str(error))
    yield made
    made.stop()


@dataclass
class Feed:
    """A streaming source under the test's control: one file, one micro-batch."""

    folder: Path
    schema: str
    files: int = 0

    def put(self, *rows: dict[str, Any]) -> None:
        """The rows of the next micro-batch."""
        self.files += 1
        draft = self.folder / f".{self.files}"
        draft.write_text("\n".join(json.dumps(row) for row in rows))
        os.utime(draft, (self.files, self.files))  # Spark reads files in the order of their times
        draft.rename(self.folder / f"{self.files}.json")

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).json(str(self.folder))


@pytest.fixture
def feed(tmp_path: Path) -> Callable[[str, str], Feed]:
    """`feed("bids", "ts timestamp, price int")` makes a source whose micro-batches are `put` one by one."""

    def make(name: str, schema: str) -> Feed:
        folder = tmp_path / "feeds" / name
        folder.mkdir(parents=True)
        return Feed(folder, schema)

    return make


TRIES = 5
TOO_BUSY = "Python worker failed to connect back"
"""Spark starts a Python process with each query and gives it ten seconds: too few on a busy machine."""


def played(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has come to its end; one that could not begin is started again, on its checkpoint."""
    from pyspark.errors import StreamingQueryException

    for left in reversed(range(TRIES)):
        query = start()
        try:
            assert query.awaitTermination(240), "the query did not end"
            break
        except StreamingQueryException as error:
            if TOO_BUSY not in str(error) or not left:
                raise
        finally:
            query.stop()
    return query


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for the session is marked so, for `-m "not spark"`.

    It may take longer than others: `played` alone waits for 240 seconds, and the first test starts Spark.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))
