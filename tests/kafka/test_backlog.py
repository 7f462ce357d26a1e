"""A real Kafka broker, and a limit on what a micro-batch reads: a backlog in pieces, none of it late."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")
pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from examples.kafka.broker import Broker
from tests.kafka.rows import Feed, feeding, read_back
from tests.kafka.supervised import Job, check

SECONDS = 45
FEW = 150
"""Rows of a topic that a micro-batch reads."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_a_backlog_that_is_read_in_pieces_is_answered_in_pieces(
    broker: Broker, jobs: list[Job], tmp_path: Path
) -> None:
    with feeding(Feed(broker.address)):
        time.sleep(SECONDS)
    rows = read_back(broker.address)
    job = Job(tmp_path / "limited", broker, FEW)
    jobs.append(job)
    job.start()
    job.until(lambda: job.total() > 0)
    early = job.total()
    job.kill()
    assert early < len(rows), "answers come while there is a backlog"
    job.start()
    check(job, rows)
    print(
        f"\n{len(rows)} rows, {early} of them answered when killed, {job.pieces()} micro-batches with answers"
    )
    assert job.pieces() > 2
