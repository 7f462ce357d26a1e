"""From files to Kafka, killed on the way, on both runtimes: the answers of one run that nobody killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from examples.kafka.broker import Broker
from tests.kafka.embedded import answers, counted, new_topic, produce
from tests.kafka.guide import rows as written
from tests.kafka.test_kill import LAST, batches, session, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # `make soak`

ROWS = 3_000
FILES = 6
PER_SECOND = 20
OVERLAP = 9
"""Seconds around the cut that both the files and the topic have."""

FILE = """
[pipeline]
name = "handover"
runtime = "{runtime}"
checkpoint = "checkpoint"
every_rows = 10
[streams.s]
schema = "id BIGINT, k BIGINT, ts BIGINT"
time = {{ column = "ts", unit = "us" }}
bounds = {{ disorder = "5 s" }}
[streams.s.source]
history = {{ path = "past", format = "json"{small} }}
live = {{ type = "kafka", servers = "{address}", topic = "{topic}"{few} }}
until = {cut}
[[queries]]
name = "ids"
sql = "SELECT id FROM s"
sink = "ids.jsonl"
late = "late.jsonl"
[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n, window_end AS until FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
sink = "counts.jsonl"
"""
SPARK = """
[spark]
jars = "{jars}/connector/*.jar"
sources.s = {{ maxOffsetsPerTrigger = 500 }}
sources."s.history" = {{ maxFilesPerTrigger = 2 }}
settings = {{ "spark.sql.shuffle.partitions" = 2, "spark.ui.enabled" = false }}
"""
Moment = Callable[[], bool]


def stream(rng: random.Random) -> list[dict[str, int]]:
    """Rows that are up to four seconds out of order, and one that ends all windows."""
    rows = [
        {"id": i, "k": i % 5, "ts": max(0, i // PER_SECOND - rng.randint(0, 4)) * 1_000_000}
        for i in range(ROWS)
    ]
    return [*rows, {"id": ROWS, "k": 0, "ts": LAST * 1_000_000}]


@dataclass(frozen=True)
class Prepared:
    """The rows of the whole stream as messages, how many of them are the past, and the topic of the rest."""

    messages: list[dict[str, Any]]
    past: int
    topic: str


def prepared(folder: Path, broker: Broker, runtime: str, rng: random.Random) -> Prepared:
    """Write the files, the topic and the pipeline."""
    rows, cut = stream(rng), rng.randint(50, 100) * 1_000_000
    past = [row for row in rows if row["ts"] < cut + OVERLAP * 1_000_000]
    live = [row for row in rows if row["ts"] >= cut - OVERLAP * 1_000_000]
    (folder / "past").mkdir()
    share = -(-len(past) // FILES)
    for number in range(FILES):
        path = folder / "past" / f"{number}.jsonl"
        each = past[number * share : (number + 1) * share]
        path.write_text("".join(json.dumps(row) + "\n" for row in each))
        os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their times
    topic = new_topic(broker.address, 2)
    produce(broker.address, topic, ({"value": json.dumps(row), "partition": 1} for row in live))
    here = runtime == "embedded"
    text = FILE.format(
        runtime=runtime,
        address=broker.address,
        topic=topic,
        cut=cut,
        small=", block_bytes = 500" if here else "",
        few=", block_rows = 10" if here else "",
    )
    (folder / "pipeline.toml").write_text(text + ("" if here else SPARK.format(jars=broker.jars)))
    messages = [{"value": json.dumps(row)} for row in rows]
    return Prepared(messages, sum(row["ts"] < cut for row in rows), topic)


def moments(folder: Path, given: Prepared, rng: random.Random) -> list[Moment]:
    """When an embedded run is killed: after so many rows, around the last one of the past."""
    return [
        lambda after=after: len(written(folder, "ids.jsonl")) > after
        for after in sorted(given.past + rng.randint(-60, 60) for _ in range(6))
    ]


def moments_on_spark(folder: Path, given: Prepared, rng: random.Random) -> list[Moment]:
    """In the past, when it has been read, and when the topic is read."""
    log = folder / "checkpoint/spark/job"

    def reads_the_topic() -> bool:
        newest = log / "offsets" / str(batches(log / "offsets"))
        return newest.exists() and given.topic in newest.read_text()

    return [
        lambda: batches(log / "commits") >= 0,
        (folder / "checkpoint/spark/history/s.read").exists,
        reads_the_topic,
    ]


WHEN = {"embedded": (moments, 0.01, 0.05), "spark": (moments_on_spark, 0.05, 2.0)}
"""The moments to kill a run at, the seconds between two looks, and the most to wait after a moment."""


@pytest.mark.parametrize("runtime", ["embedded", "spark"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.timeout(7_200)
def test_runs_that_are_killed_between_the_past_and_kafka_lose_and_repeat_nothing(
    shared: Broker, tmp_path: Path, runtime: str, seed: int
) -> None:
    if runtime == "spark":
        pytest.importorskip("pyspark", reason="the spark extra is not installed")
    rng = random.Random(seed)
    given = prepared(tmp_path, shared, runtime, rng)
    found, every, most = WHEN[runtime]
    for moment in found(tmp_path, given, rng):
        with session(tmp_path) as process:
            wait_until(process, tmp_path, moment, every)
            time.sleep(rng.uniform(0, most))
            kill(process, tmp_path)
    expected = counted(given.messages[:-1])
    with session(tmp_path) as process:
        wait_until(process, tmp_path, lambda: len(written(tmp_path, "counts.jsonl")) >= len(expected))
    assert sorted(row["id"] for row in written(tmp_path, "ids.jsonl")) == list(range(ROWS + 1))
    assert answers(written(tmp_path, "counts.jsonl")) == expected
    assert written(tmp_path, "late.jsonl") == []


def kill(process: subprocess.Popen[bytes], folder: Path) -> None:
    assert process.poll() is None, (folder / "log").read_text()[-3000:]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
