"""`why` names each injected stall on real Spark, in real time: the whole table takes minutes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

import headrace
from headrace.errors import HeadraceWarning, SparkError
from headrace.pipeline import load
from headrace.runtimes.status import SPARK_FILE, Status
from headrace.runtimes.why import Why
from tests.stalls import SECOND, STALLS, Stall, Step

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import pyspark

from headrace.runtimes.spark.driver import java
from headrace.runtimes.spark.driver.pipeline import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 300.0
ROWS = pa.schema([("item", pa.int64()), ("at", pa.int64())])

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


def put(folder: Path, number: int, times: list[float]) -> None:
    """Rows in a file, at these seconds from now."""
    now = time.time_ns() // 1000
    rows = [{"item": i % 5, "at": now + int(at * SECOND)} for i, at in enumerate(times)]
    draft = folder.parent / f"{folder.name}.draft"
    draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
    draft.rename(folder / f"{number:05}.json")


class Playing:
    """A stalled pipeline that runs on Spark in a thread, with rows that come step by step."""

    def __init__(self, stall: Stall, root: Path, spark: SparkSession) -> None:
        self.stall, self.root, self.spark, self.steps = stall, root, spark, 0
        text = stall.text.replace('runtime = "embedded"', 'runtime = "spark"\ncheckpoint = "state"')
        (root / "p.toml").write_text(text.replace(", block_bytes = 50", ""))
        for name in stall.streams:
            (root / name).mkdir()

    def __enter__(self) -> Playing:
        self.runner = Runner(load(self.root / "p.toml"), self.spark)
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", HeadraceWarning)  # one shard: there is no key
                self.runner.run()
        except BaseException as error:
            self._failed.append(error)

    def __exit__(self, *error: object) -> None:
        self.runner.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert not self._failed, self._failed

    def step(self, step: Step) -> None:
        """Some seconds pass, then rows come."""
        time.sleep(step.seconds)
        self.steps += 1
        for name, times in step.rows.items():
            put(self.root / name, self.steps, times)

    def status(self) -> Status | None:
        """The status that the job wrote last, as another process sees it."""
        found = list((self.root / "state").rglob(SPARK_FILE))
        return Status.read(found[0].read_text()) if found else None

    def until(self, holds: Callable[[Status], bool]) -> Status:
        """Wait for a status."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert not self._failed, self._failed
            status = self.status()
            if status is not None and holds(status):
                return status
            time.sleep(0.2)
        raise AssertionError(f"not within {PATIENCE:.0f} s; the last status: {self.status()}")


def causes(status: Status) -> list[tuple[str, str | None]]:
    return [(each.cause.name, each.stream or None) for each in Why.of(status).found]


@pytest.mark.parametrize("name", STALLS)
def test_the_cause_is_named(spark: SparkSession, tmp_path: Path, name: str) -> None:
    stall = STALLS[name]
    with Playing(stall, tmp_path, spark) as playing:
        playing.until(lambda status: status.batch is not None)
        for step in stall.steps:
            playing.step(step)
        status = playing.until(lambda each: causes(each)[:1] == [(stall.cause, stall.stream)])
    assert status.runtime == "spark"


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Callable[..., Any]:
    """A job of one query over a folder of files."""

    def make(limit: int | None = None, **options: Any) -> Any:
        (tmp_path / "s").mkdir(exist_ok=True)
        source = spark.readStream.schema("item bigint, at bigint")
        if limit is not None:
            source = source.option("maxFilesPerTrigger", limit)
        rows = source.json(str(tmp_path / "s"))
        streams = [headrace.StreamDef("s", ROWS, time_column="at")]
        given = headrace.spark.SparkOptions(bounds={"s": {"latency": "2 seconds"}}, **options)
        made = headrace.spark.job({"s": rows}, given, checkpoint=tmp_path / "c")
        return made, headrace.query("SELECT item, at FROM s [RANGE 1 MINUTE]", streams)

    return make


def named(made: Any, cause: str) -> Any:
    """Wait until `why` of a job names a cause."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert made.running.exception() is None
        found = [each for each in made.why().found if each.cause.name == cause]
        if found:
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"{cause} not within {PATIENCE:.0f} s: {made.why()}")


def test_a_slow_sink_is_named(job: Callable[..., Any], tmp_path: Path) -> None:
    made, asked = job()

    def slow(rows: DataFrame, batch: int) -> None:
        time.sleep(3 if batch else 0)

    made.add("q", asked, sink=slow)
    running = made.start()
    try:
        for number in range(3):
            put(tmp_path / "s", number, [0.0])
            time.sleep(1)
        found = named(made, "slow sink")
    finally:
        running.stop()
    assert found.queries == ("q",)


def test_a_backlog_is_named(job: Callable[..., Any], tmp_path: Path) -> None:
    made, asked = job(limit=1)
    for number in range(200):
        put(tmp_path / "s", number, [-60.0])
        os.utime(tmp_path / "s" / f"{number:05}.json", (time.time() - 60, time.time() - 60 + number / 10))
    made.add("q", asked, sink=tmp_path / "q")
    running = made.start(trigger={"processingTime": "1 second"})
    try:
        found = named(made, "backlog")
    finally:
        running.stop()
    assert found.stream == "s"
    assert "maxFilesPerTrigger" in found.hint


def test_a_budget_that_is_too_small_is_named(job: Callable[..., Any], tmp_path: Path) -> None:
    made, asked = job(memory=20_000, policy="spill")
    made.add("q", replace(asked), sink=tmp_path / "q")
    running = made.start()
    try:
        for number in range(3):
            put(tmp_path / "s", number, [-0.0001 * i for i in range(3000)])
            time.sleep(1)
        found = named(made, "budget too small")
    finally:
        running.stop()
    assert "Raise memory= in SparkOptions" in found.hint


# --- an executor that is killed ---------------------------------------------------------------------------


@pytest.fixture
def losing(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver with two executors, in a process of its own."""
    try:
        java.find()
    except SparkError as error:
        pytest.skip(str(error))
    (tmp_path / "in").mkdir()
    command = [sys.executable, "-m", "tests.spark.losing", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    assert process.stdout is not None
    application = process.stdout.readline().strip()
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        # local-cluster knows no other place for its executors than Spark's own folder.
        shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)


def said(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What the driver says about its query."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def executors(process: subprocess.Popen[str]) -> list[psutil.Process]:
    below = psutil.Process(process.pid).children(recursive=True)
    found = []
    for each in below:
        command = each.cmdline()
        if any("CoarseGrainedExecutorBackend" in word for word in command) and "java" in command[0]:
            found.append(each)
    return found


def test_a_dead_executor_is_named(losing: subprocess.Popen[str], tmp_path: Path) -> None:
    """SIGKILL to one of two executors: named while the micro-batch runs, and in its status; it goes on."""
    put(tmp_path / "in", 0, [0.0])
    before = next(each for each in said(losing) if each["state"] == "running" and (each["batch"] or 0) >= 3)
    assert "executor lost" not in [cause["cause"] for cause in before["causes"]]
    executors(losing)[0].kill()
    seen = next(
        each for each in said(losing) if "executor lost" in [cause["cause"] for cause in each["causes"]]
    )
    assert seen["batch"] <= before["batch"] + 3, "named while the next micro-batch runs, or after it"
    sentence = next(each for each in seen["causes"] if each["cause"] == "executor lost")["sentence"]
    assert "was lost at" in sentence
    after = next(each for each in said(losing) if each["batch"] >= seen["batch"] + 3)
    assert after["state"] == "running"
    assert "executor lost" not in [cause["cause"] for cause in after["causes"]]
