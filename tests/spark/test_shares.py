"""A budget that is a share of a Spark executor, without Spark: what its settings come to."""

from __future__ import annotations

import os

import pytest

from headrace.memory.budget import budget_bytes
from headrace.runtimes.spark.shares import spark_bytes, task_bytes

GIB = 1024**3


@pytest.mark.parametrize(
    ("written", "bytes"),
    [("1g", GIB), ("512m", GIB // 2), ("2GB", 2 * GIB), ("64k", 65536), ("1024", GIB), ("4096b", 4096)],
)
def test_sizes_are_read_as_spark_writes_them(written: str, bytes: int) -> None:
    assert spark_bytes(written) == bytes


@pytest.mark.parametrize(
    ("settings", "bytes"),
    [
        ({"spark.master": "spark://host:7077", "spark.executor.memory": "8g"}, 8 * GIB),
        ({"spark.master": "yarn", "spark.executor.memory": "8g", "spark.executor.cores": "4"}, 2 * GIB),
        (
            {"spark.executor.memory": "8g", "spark.executor.cores": "4", "spark.task.cpus": "2"},
            4 * GIB,
        ),
        (
            {
                "spark.executor.memory": "8g",
                "spark.executor.pyspark.memory": "2g",
                "spark.executor.cores": "2",
            },
            GIB,
        ),
        ({"spark.master": "local[2]", "spark.driver.memory": "2g", "spark.executor.memory": "9g"}, GIB),
        ({"spark.master": "local[2, 3]", "spark.driver.memory": "2g"}, GIB),
        ({"spark.master": "local"}, GIB),
        ({"spark.master": "local[*]", "spark.driver.memory": "4g"}, 4 * GIB // (os.cpu_count() or 1)),
        ({}, GIB),
    ],
)
def test_a_task_has_its_part_of_an_executor(settings: dict[str, str], bytes: int) -> None:
    assert task_bytes(settings.get) == bytes
    assert budget_bytes("25 %", lambda: task_bytes(settings.get)) == bytes // 4
