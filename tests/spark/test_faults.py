"""kill -9 of a driver, an executor, a Python worker in mid-batch: no row is lost, none is there twice.

Real processes run `tests.spark.killed`. HEADRACE_SPARK_KILLS says how often the driver is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from headrace.errors import SparkError
from headrace.runtimes.spark.driver import java
from tests.spark.killed import COLUMNS, INPUTS, QUERY, arrivals, write
from tests.spark.simulated import Outcome, embedded

KILLS = int(os.environ.get("HEADRACE_SPARK_KILLS", "3"))
ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 300
CRASHED = "Python worker exited unexpectedly"
"""What Spark says when a worker is gone in the middle of a task."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600 + 120 * KILLS)]


@pytest.fixture(autouse=True)
def needs_java() -> None:
    try:
        java.find()
    except SparkError as error:
        pytest.skip(str(error))


@dataclass
class Driver:
    """The process of a driver, and its checkpoint."""

    process: subprocess.Popen[str]
    folder: Path

    def middle(self, batch: int) -> bool:
        """Whether a micro-batch from `batch` on has begun and not ended; False when there is none to come."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            offsets, commits = (_numbers(self.folder / "checkpoint" / d) for d in ("offsets", "commits"))
            if any(number >= batch for number in offsets - commits):
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.01)
        raise AssertionError("the driver does not get on")

    def kill(self) -> None:
        """All of it: the JVM is in the group of the driver's Python; the workers leave with the JVM."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def log(self) -> str:
        """What it wrote so far."""
        return (self.folder / "log").read_text()

    def end(self) -> None:
        """Wait until it has come to its end, which is to be a good one."""
        self.process.wait(PATIENCE)
        assert self.process.returncode == 0, self.log()[-4000:]

    def below(self, word: str) -> list[psutil.Process]:
        """Processes that it started, by a word of their command."""
        found = []
        for each in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(word in part for part in each.cmdline()):
                    found.append(each)
        return found

    def workers(self) -> list[psutil.Process]:
        """The Python workers: what their daemon forked."""
        daemons = self.below("headrace.runtimes.spark.worker.daemon")
        numbers = {each.pid for each in daemons}
        with contextlib.suppress(psutil.Error):
            return [each for each in daemons if each.ppid() in numbers]
        return []

    def busy(self) -> list[psutil.Process]:
        """The workers that are at work on something."""
        before = {each: _work(each) for each in self.workers()}
        time.sleep(0.02)
        return [each for each, work in before.items() if _work(each) > work]


@contextlib.contextmanager
def driver(folder: Path, master: str = "local[2]", sink: str = "outputs") -> Iterator[Driver]:
    command = [sys.executable, "-m", "tests.spark.killed", str(folder), master, sink]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(folder / "log", "a") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=log, stderr=log, text=True, start_new_session=True
        )
    made = Driver(process, folder)
    try:
        yield made
    finally:
        if process.poll() is None:
            made.kill()


def _work(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.Error:
        return 0.0


def _numbers(folder: Path) -> set[int]:
    return {int(p.name) for p in folder.iterdir() if p.name.isdigit()} if folder.exists() else set()


def expected(batches: int) -> Outcome:
    """What one engine gives that nobody kills."""
    instants: Any = []
    for number, rows in enumerate(arrivals(batches)):
        times = np.array([np.nan if row["t"] is None else row["t"] for row in rows], object)
        instants.append((number + 1, {"s": (pa.RecordBatch.from_pylist(rows, schema=COLUMNS), times)}))
    return embedded(QUERY.plan, INPUTS, instants, {})


def in_folder(folder: Path) -> Counter[str]:
    """The rows of the files of `Files`: one folder a micro-batch."""
    files = list(folder.glob("batch=*/*.parquet"))
    return _bag(files)


def by_sparks_log(folder: Path) -> Counter[str]:
    """The rows of the files that Spark's own sink says are there."""
    names: set[str] = set()
    for log in (folder / "_spark_metadata").iterdir():
        if log.name.split(".")[0].isdigit():
            names |= {json.loads(line)["path"].split("/")[-1] for line in log.read_text().splitlines()[1:]}
    return _bag([folder / name for name in names])


def _bag(files: list[Path]) -> Counter[str]:
    rows = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    return Counter(repr(tuple(row.values())) for row in rows)


def bag(rows: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(map(repr, rows))


def check_outputs(folder: Path, batches: int) -> None:
    whole = expected(batches)
    assert whole.answers
    assert whole.late
    assert whole.rejected
    assert in_folder(folder / "out" / "result") == bag(whole.answers)
    assert in_folder(folder / "out" / "late") == bag(whole.late)
    assert in_folder(folder / "out" / "rejected") == bag(whole.rejected)


def check_sparks_own(folder: Path, batches: int) -> None:
    assert by_sparks_log(folder / "out" / "result") == bag(expected(batches).answers)


CHECKS: dict[str, Callable[[Path, int], None]] = {"outputs": check_outputs, "parquet": check_sparks_own}


@pytest.mark.parametrize("sink", CHECKS)
def test_a_driver_that_is_killed_goes_on_where_it_was(sink: str, tmp_path: Path) -> None:
    kills = -(-KILLS // len(CHECKS))
    batches = 2 * kills + 2
    write(tmp_path / "in", batches)
    rng = random.Random(kills)
    for number in range(kills):
        with driver(tmp_path, sink=sink) as running:
            assert running.middle(2 * number + rng.randint(0, 1))
            time.sleep(rng.random() * 0.3)
            running.kill()
    with driver(tmp_path, sink=sink) as running:
        running.end()
    CHECKS[sink](tmp_path, batches)


def test_a_python_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    batches = 6
    write(tmp_path / "in", batches)
    with driver(tmp_path, "local[2,8]") as running:  # a task is tried eight times
        assert running.middle(1)
        while running.process.poll() is None and running.log().count(CRASHED) < 2:
            for worker in running.busy()[:1]:
                worker.kill()
        running.end()
    assert CRASHED in running.log()
    check_outputs(tmp_path, batches)


def test_an_executor_that_is_killed_is_replaced(tmp_path: Path) -> None:
    batches = 6
    write(tmp_path / "in", batches)
    with driver(tmp_path, "local-cluster[2,1,1024]") as running:
        assert running.middle(2)
        executor = running.below("CoarseGrainedExecutorBackend")[0]
        executor.kill()
        running.end()
    log = running.log()
    assert "Lost executor" in log
    check_outputs(tmp_path, batches)
    application = next(line for line in log.splitlines() if line.startswith("app-"))
    # local-cluster knows no other place for its executors than Spark's own folder.
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)
