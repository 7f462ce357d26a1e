"""Figures 7 and 8 on Spark in a tiny size: a sparse stream holds native windows back, a clock does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from experiments import on_spark
from experiments.result import Conditions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_claim_holds_with_micro_batches_of_half_a_second(spark: SparkSession) -> None:
    """Whatever they take: the delays are the same on every machine, but for how Spark cuts a file's rows."""
    result = on_spark.run(Conditions("tiny", service=500_000_000))
    found = {measure.name: measure.value for measure in result.measures}
    assert result.holds, found
    # A clock that is one micro-batch old, the bound, and the micro-batch that answers: under two seconds.
    assert found["spark.fig7.apply_0s_ms"] < 2_000
    # A gap of ten seconds is five on average, and the watermark counts one micro-batch later.
    assert found["spark.fig7.native_0s_ms"] > 5_000


def test_every_window_that_has_ended_counts() -> None:
    expected = on_spark.arrivals(10_000, 13_000).answers(9_000)
    assert len(expected) > 80
    assert {end for end, _ in expected} == set(range(1_000, 10_000, 1_000))


def test_a_micro_batch_starts_at_its_trigger_and_takes_its_time() -> None:
    clock = on_spark.BatchClock(400_000_000)
    clock.begin(2_000.0)
    assert clock.now == 2_400.0
    rows = on_spark.arrivals(10_000, 20_000)
    halves = [rows.between(0.0, 500.0), rows.between(500.0, 1_000.0)]
    assert halves[0].stop == halves[1].start
    assert (rows.came[halves[0]] <= 500).all()
