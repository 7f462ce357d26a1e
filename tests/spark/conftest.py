"""One Spark session for all tests, small and quick; no Java or no PySpark: skipped, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": 2,
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    try:
        made = headrace.spark.session("headrace tests", "local[2]", **QUICK)
    except SparkError as error:
        pytest.skip(str(error))
    yield made
    made.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for the session is marked so, for `-m "not spark"`."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
