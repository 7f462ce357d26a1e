"""One driver at a time on a checkpoint, and words for the second one."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.errors import StreamingQueryException

import headrace
from headrace import tuning
from headrace.errors import SparkError
from headrace.pipeline import load
from headrace.runtimes.spark.driver import java
from headrace.runtimes.spark.driver.lock import NAME, hold
from tests.spark.conftest import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHO = {"application": "local-7", "host": "elsewhere", "process": 7, "since": "2026-11-17T20:00:00+00:00"}


def is_free(checkpoint: Path) -> bool:
    """Asked by this Python, which is another process than the JVM."""
    with (checkpoint / NAME).open("r+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
file.write(sys.argv[2])
file.flush()
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_driver(checkpoint: Path) -> Iterator[None]:
    """A process of its own: a process that closes a file loses its locks on it, whoever opened it."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-S", "-c", HOLDER, str(checkpoint / NAME), json.dumps(WHO)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate()


@pytest.fixture(autouse=True)
def no_patience() -> Iterator[None]:
    with tuning.using(lock_seconds=0.0):
        yield


def test_a_driver_holds_a_checkpoint_until_its_last_query_has_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, other = hold(spark, str(tmp_path / "c")), hold(spark, f"file://{tmp_path}/c")
    assert one is not None
    assert other is not None
    assert not is_free(tmp_path / "c")
    one.release()
    one.release()
    assert not is_free(tmp_path / "c")
    other.release()
    assert is_free(tmp_path / "c")


def test_it_is_free_when_the_query_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    class Ended:
        isActive = False

    held = hold(spark, str(tmp_path))
    assert held is not None
    held.until_ended(Ended()).join(60)  # type: ignore[arg-type]
    assert is_free(tmp_path)


def test_a_second_driver_is_told_who_holds_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    with another_driver(tmp_path / "c"), pytest.raises(SparkError) as refused:
        hold(spark, str(tmp_path / "c"))
    assert refused.value.code == "HR-SP22"
    assert "application local-7, process 7 on elsewhere, since 2026-11-17T20:00:00+00:00" in str(
        refused.value
    )
    held = hold(spark, str(tmp_path / "c"))  # once the other has gone
    assert held is not None
    held.release()


def test_outputs_are_not_started_on_a_checkpoint_that_is_in_use(
    spark: SparkSession, feed: Callable[[str, str], Feed], tmp_path: Path
) -> None:
    rows = feed("s", "ts TIMESTAMP, k INT").read(spark)
    asked = headrace.query("SELECT k FROM s", [headrace.spark.stream("s", rows, time="ts")])
    options = headrace.spark.SparkOptions(bounds={"s": {"disorder": "1 second"}})
    made = headrace.spark.outputs(asked, {"s": rows}, options)
    with another_driver(tmp_path / "c"), pytest.raises(SparkError, match="HR-SP22"):
        made.start(checkpoint=str(tmp_path / "c"), result=str(tmp_path / "out"))
    assert [each.name for each in (tmp_path / "c").iterdir()] == [NAME]
    assert not spark.streams.active


PIPELINE = """
[pipeline]
name = "twice"
runtime = "spark"
checkpoint = "state"
[streams.s]
source = { type = "files", path = "in", format = "json", follow = true }
schema = "k BIGINT, at BIGINT"
time = { column = "at", unit = "us" }
bounds = { disorder = "1 s" }
[[queries]]
name = "all"
sql = "SELECT k FROM s"
sink = { path = "all.jsonl", existing = "replace" }
"""


def pipeline(root: Path) -> Path:
    (root / "in").mkdir()
    (root / "in" / "0.json").write_text(
        '{"k": 1, "at": 1}\n{"k": 2, "at": 2000000}\n{"k": 3, "at": 9000000}\n'
    )
    (root / "p.toml").write_text(PIPELINE)
    return root / "p.toml"


def test_a_run_leaves_the_outputs_of_another_driver_alone(spark: SparkSession, tmp_path: Path) -> None:
    """`existing = "replace"` would clear them."""
    file = pipeline(tmp_path)
    (tmp_path / "all.jsonl" / "batch=0").mkdir(parents=True)
    (tmp_path / "all.jsonl" / "batch=0" / "part-0.json").write_text('{"k": 1}\n')
    with another_driver(tmp_path / "state" / "spark"), pytest.raises(SparkError, match="HR-SP22"):
        headrace.spark.Runner(load(file), spark).run()
    assert (tmp_path / "all.jsonl" / "batch=0" / "part-0.json").exists()


@pytest.mark.parametrize(
    "says",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
        "Race while writing batch 0: another writer already committed this batch.",
    ],
)
def test_what_spark_says_of_two_drivers_is_said_in_words(
    spark: SparkSession, tmp_path: Path, says: str
) -> None:
    with pytest.raises(SparkError, match="HR-SP22"), headrace.spark.lock(tmp_path, spark):
        raise StreamingQueryException(says)
    assert is_free(tmp_path)
    with headrace.spark.lock(tmp_path):  # in the session there is
        assert not is_free(tmp_path)
    with pytest.raises(StreamingQueryException), headrace.spark.lock(tmp_path, spark):
        raise StreamingQueryException("another reason")


def test_a_link_is_no_lock_and_what_is_not_local_has_none(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "c" / NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(SparkError, match="HR-SP23"):
        hold(spark, str(tmp_path / "c"))
    assert (tmp_path / "precious").read_text() == "kept"
    assert hold(spark, "s3a://bucket/checkpoint") is None


# --- two real drivers ---------------------------------------------------------------------------------------


def started(file: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as to:
        command = [sys.executable, "-m", "headrace.cli", "run", str(file), "--quiet"]
        return subprocess.Popen(command, stdout=to, stderr=to, start_new_session=True)


def until(done: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + 240
    while not done():
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.1)


def commits(root: Path) -> int:
    return len(list((root / "state/spark/job/commits").glob("[0-9]*")))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_two_drivers_of_one_pipeline(tmp_path: Path) -> None:
    """The second is refused in words; when the first is killed, a third goes on where it was."""
    try:
        java.find()
    except SparkError as error:
        pytest.skip(str(error))
    file, logs = pipeline(tmp_path), [tmp_path / f"{i}.log" for i in range(3)]
    running: list[subprocess.Popen[Any]] = [started(file, logs[0])]
    try:
        until(lambda: commits(tmp_path) > 0 or running[0].poll() is not None, logs[0])
        running.append(started(file, logs[1]))
        until(lambda: running[1].poll() is not None, logs[1])
        said = logs[1].read_text()
        assert running[1].returncode != 0
        assert f"process {running[0].pid} on" in said
        assert "HR-SP22" in said
        assert "Traceback" not in said
        assert "at org.apache" not in said
        assert running[0].poll() is None
        running[0].kill()  # Python alone: its JVM ends by itself, a moment later
        running.append(started(file, logs[2]))
        before = commits(tmp_path)
        (tmp_path / "in" / "1.json").write_text('{"k": 4, "at": 20000000}\n{"k": 5, "at": 40000000}\n')
        until(lambda: commits(tmp_path) > before + 1 or running[2].poll() is not None, logs[2])
        running[2].send_signal(signal.SIGTERM)
        assert running[2].wait(120) == 0, logs[2].read_text()[-3000:]
        parts = (tmp_path / "all.jsonl").glob("batch=*/part-*")
        answers = [json.loads(line)["k"] for part in parts for line in part.read_text().splitlines()]
        assert sorted(answers) == [1, 2, 3, 4]
    finally:
        for each in running:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
