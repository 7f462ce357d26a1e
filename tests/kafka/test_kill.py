"""Runs that are killed, and a broker that is down: readers see each committed answer once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from examples.kafka.broker import Broker
from tests.faults.killing import CONTEXT, start
from tests.kafka.embedded import (
    BASE,
    answers,
    counted,
    counting,
    new_topic,
    pipeline_text,
    produce,
    row,
    rows_in,
)
from tests.kafka.guide import rows as written

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # `make soak`

ROOT = Path(__file__).resolve().parent.parent.parent
KILLS = int(os.environ.get("HEADRACE_KAFKA_KILLS", "5"))
SPARK_KILLS = -(-KILLS // 10)
"""A driver of Spark starts so slowly that it is killed a tenth as often."""
PATIENCE = 1800
"""Seconds after which a test gives up; a busy machine may need many of them."""
LAST = 3_600
"""The time of a last row, which ends all windows."""


@pytest.mark.parametrize("to", ["kafka", "delta"])
@pytest.mark.timeout(14_400)
def test_killed_runs_lose_and_repeat_nothing(to: str, shared: Broker, tmp_path: Path) -> None:
    sink: Sink = TopicSink(shared.address) if to == "kafka" else DeltaSink(tmp_path / "table")
    killed(shared, tmp_path, sink, kills=KILLS, count=4_000 * KILLS)


class Sink(Protocol):
    """Where answers go: as a table of a pipeline file, and read back as they are there."""

    toml: str

    def rows(self) -> list[dict[str, Any]]: ...


class TopicSink:
    def __init__(self, address: str) -> None:
        self.address, self.topic = address, new_topic(address, 2)
        self.toml = f'{{ type = "kafka", servers = "{address}", topic = "{self.topic}", key = "k" }}'

    def rows(self) -> list[dict[str, Any]]:
        return rows_in(self.address, self.topic)


class DeltaSink:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.toml = f'{{ type = "delta", path = "{path}" }}'

    def rows(self) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        found: list[dict[str, Any]] = DeltaTable(str(self.path)).to_pyarrow_table().to_pylist()
        return found


def killed(shared: Broker, folder: Path, sink: Sink, kills: int, count: int) -> None:
    """Kill a run again and again while it writes, then let it finish."""
    CONTEXT.set_forkserver_preload(["headrace.runtimes.embedded", "confluent_kafka.admin", "deltalake"])
    topic = new_topic(shared.address)
    messages = [row(i // 20, i % 5, i % 2) for i in range(count)]
    produce(shared.address, topic, messages)
    (folder / "pipeline.toml").write_text(counting(shared.address, topic, sink.toml, 25))
    rng = random.Random(21)
    died = 0
    for _ in range(kills):
        with running(folder) as run:
            wait_for_commit(run.is_alive, folder)
            time.sleep(rng.uniform(0, 0.4))  # any moment will do: nothing is asserted about it
        died += run.exitcode == -signal.SIGKILL
    with running(folder) as run:
        run.join(PATIENCE)
    assert run.exitcode == 0
    assert answers(sink.rows()) == counted(messages)
    print(f"\n{died} runs killed; {len(counted(messages))} answers, each of them once")
    assert died == kills, f"only {died} of {kills} runs were still running when they were killed"
    assert (folder / "late.jsonl").read_text() == ""


@contextmanager
def running(folder: Path) -> Iterator[BaseProcess]:
    """A run in a process that is killed at the end, with what it needs imported already."""
    process = start(folder / "pipeline.toml")
    try:
        yield process
    finally:
        process.kill()
        process.join()


@contextmanager
def session(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run in a process group of its own, all of which is killed at the end."""
    with open(folder / "log", "ab") as log:
        command = [sys.executable, "-m", "headrace.cli", "run", str(folder / "pipeline.toml")]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_commit(runs: Callable[[], bool], folder: Path) -> None:
    """Until the run has written a checkpoint of its own, or has ended."""
    before, deadline = newest(folder), time.monotonic() + PATIENCE
    while newest(folder) == before and runs():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def newest(folder: Path) -> str:
    return max((path.name for path in (folder / "checkpoint").glob("commit-*")), default="")


@pytest.mark.timeout(4000)
def test_a_broker_that_is_down_for_half_a_minute_is_waited_for(broker: Broker, tmp_path: Path) -> None:
    topic, to = new_topic(broker.address), TopicSink(broker.address)
    messages = [row(i // 20, i % 5, i % 2) for i in range(50_000)]
    produce(broker.address, topic, messages)
    (tmp_path / "pipeline.toml").write_text(counting(broker.address, topic, to.toml, 100))
    with session(tmp_path) as process:
        wait_for_commit(lambda: process.poll() is None, tmp_path)
        broker.kill()
        time.sleep(30)  # how long it is down
        assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        broker.start()
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()[-3000:]
    assert answers(to.rows()) == counted(messages)


@pytest.mark.timeout(4000)
def test_a_live_run_goes_on_after_the_broker_was_down_for_half_a_minute(
    broker: Broker, tmp_path: Path
) -> None:
    """From topic to topic, with a bound by the clock: rows before and after it are counted, none late."""
    topic, to = new_topic(broker.address, 2), TopicSink(broker.address)
    text = pipeline_text(
        broker.address,
        topic,
        stream='bounds = { latency = "1 minute" }',
        sink=to.toml,
        interval='"200 ms"',
        sql=BY_SECOND,
    )
    (tmp_path / "pipeline.toml").write_text(text)
    with session(tmp_path) as process:
        for number in range(2):
            if number:
                broker.kill()
                time.sleep(30)  # how long it is down
                broker.start()
            now = int(time.time()) - BASE // 1_000_000
            produce(broker.address, topic, [row(now - 50, i % 3, 1) for i in range(30)])
            wait_until(process, tmp_path, lambda number=number: len(to.rows()) == 3 * (number + 1))
    assert [each["n"] for each in to.rows()] == [10] * 6
    assert written(tmp_path, "late.jsonl") == []


BY_SECOND = "SELECT k, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"


@pytest.mark.timeout(14_400)
def test_killed_drivers_of_spark_lose_and_repeat_nothing(shared: Broker, tmp_path: Path) -> None:
    """From Kafka to Delta, in many micro-batches; the whole process group dies, with Java and all workers."""
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    topic, sink = new_topic(shared.address), DeltaSink(tmp_path / "table")
    messages = [row(i // 20, i % 5, i % 2) for i in range(10_000)]
    produce(shared.address, topic, [*messages, row(LAST, 0, 0)])
    text = pipeline_text(
        shared.address, topic, stream='bounds = { disorder = "1 minute" }', sink=sink.toml, interval='"1 s"'
    )
    text = (
        text.replace('runtime = "embedded"', 'runtime = "spark"')
        + f"""
[spark]
jars = "{shared.jars}/connector/*.jar"
sources.s = {{ maxOffsetsPerTrigger = 250 }}
settings = {{ "spark.sql.shuffle.partitions" = 2, "spark.ui.enabled" = false }}
"""
    )
    (tmp_path / "pipeline.toml").write_text(text)
    rng, expected = random.Random(21), counted(messages)
    log = tmp_path / "checkpoint/spark/job/commits"
    for _ in range(SPARK_KILLS):
        before = batches(log)
        with session(tmp_path) as process:
            wait_until(process, tmp_path, lambda before=before: batches(log) > before)
            time.sleep(rng.uniform(0, 2))  # any moment will do: nothing is asserted about it
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
    with session(tmp_path) as process:
        wait_until(process, tmp_path, lambda: len(sink.rows()) >= len(expected))
    assert answers(sink.rows()) == expected
    assert written(tmp_path, "late.jsonl") == []


def batches(log: Path) -> int:
    """The newest micro-batch that is committed."""
    return max((int(path.name) for path in log.glob("[0-9]*")), default=-1)


def wait_until(
    process: subprocess.Popen[bytes], folder: Path, holds: Callable[[], bool], every: float = 0.2
) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        assert time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
        time.sleep(every)
