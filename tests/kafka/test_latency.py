"""A real Kafka broker: no row is late because the job or the broker stood still.

Rows happen up to 4 s before they are produced, and the bound is 5 s. What is true is counted in plain Python
from what the broker has. HEADRACE_KAFKA_DOWN: how many seconds the job, and then the broker, is down.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")
pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from examples.kafka.broker import Broker
from tests.kafka.rows import TOPICS, Feed, Row, counted, feeding, read_back
from tests.kafka.supervised import Job, check

DOWN = int(os.environ.get("HEADRACE_KAFKA_DOWN", "60"))
BOUND = 5.0

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800 + 4 * DOWN)]


def test_no_row_is_late_because_the_job_or_the_broker_stood_still(
    broker: Broker, jobs: list[Job], tmp_path: Path
) -> None:
    stopped, whole = Job(tmp_path / "stopped", broker), Job(tmp_path / "whole", broker)
    jobs += [stopped, whole]
    stopped.start()
    with feeding(Feed(broker.address)) as feed:
        stopped.until(lambda: stopped.total() > 0)
        feed.silent = {"asks"}  # from here on one topic says nothing: the other's windows must not wait
        before = stopped.total()
        stopped.until(lambda: stopped.total() > before)
        stopped.kill()
        time.sleep(DOWN)
        stopped.start()
        stopped.stay(20)
        broker.kill()
        stopped.stay(DOWN)
        broker.start()
        stopped.stay(10)
        feed.silent = set()
        stopped.stay(10)
    rows = read_back(broker.address)
    assert feed.oldest < BOUND, "the broker was too slow: rows took longer to it than the bound"
    check(stopped, rows)
    stopped.kill()
    whole.start()  # one run over the same rows, which finds all of them waiting
    check(whole, rows)
    report(rows, feed, jobs)
    assert whole.died == 0
    assert stopped.answers() == whole.answers()


def report(rows: list[Row], feed: Feed, jobs: list[Job]) -> None:
    topics = Counter(row.topic for row in rows)
    age = max(row.reached - row.at for row in rows) / 1e6
    print(f"\n{len(rows)} rows {dict(topics)}, {len(counted(rows))} answers, {feed.given_up} rows given up")
    print(f"oldest row: {feed.oldest:.3f} s when acknowledged, {age:.3f} s by Kafka's timestamp")
    for job in jobs:
        print(f"{job.folder.name}: {job.pieces()} micro-batches with answers, died {job.died} times")
    assert topics.keys() == TOPICS.keys()
