"""By default, an answer can be seen in the files of a job within a second."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runtimes.embedded.test_visible import MOST, TRIES, prepared, waits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_an_answer_is_in_its_file_within_a_second(spark: SparkSession, tmp_path: Path) -> None:
    from headrace.runtimes.spark.driver.pipeline import Runner

    assert min(waits(tmp_path, 2 * TRIES, Runner(prepared(tmp_path), spark))) < MOST
