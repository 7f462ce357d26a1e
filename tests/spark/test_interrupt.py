"""Ctrl-C while a pipeline runs on Spark: it stops with a checkpoint, and the next start goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from headrace.errors import SparkError
from headrace.runtimes.spark.driver import java
from headrace.runtimes.spark.driver.session import keeping_interrupts
from tests.spark.test_lock import commits, pipeline, started, until


def test_the_handler_of_ctrl_c_is_kept() -> None:
    """A SparkContext that starts inside installs another one, in the main thread."""
    before = signal.getsignal(signal.SIGINT)
    with keeping_interrupts():
        signal.signal(signal.SIGINT, lambda number, frame: None)
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_has_no_handlers_to_keep() -> None:
    done = []

    def run() -> None:
        with keeping_interrupts():
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_ctrl_c_stops_a_run_on_spark_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """The signal reaches the process while it waits for Java, which is where it is nearly always."""
    try:
        java.find()
    except SparkError as error:
        pytest.skip(str(error))
    file, running = pipeline(tmp_path), list[subprocess.Popen[Any]]()

    def answers() -> list[int]:
        parts = (tmp_path / "all.jsonl").glob("batch=*/part-*")
        return sorted(json.loads(line)["k"] for part in parts for line in part.read_text().splitlines())

    def stopped_after(log: Path, done: Callable[[], bool]) -> None:
        running.append(started(file, log))
        until(lambda: done() or running[-1].poll() is not None, log)
        os.killpg(running[-1].pid, signal.SIGINT)  # as a terminal does
        assert running[-1].wait(120) == 0, log.read_text()[-3000:]
        assert "Traceback" not in log.read_text()

    try:
        stopped_after(tmp_path / "0.log", lambda: commits(tmp_path) > 0)
        (tmp_path / "in" / "1.json").write_text('{"k": 4, "at": 20000000}\n{"k": 5, "at": 40000000}\n')
        stopped_after(tmp_path / "1.log", lambda: answers() == [1, 2, 3, 4])
        assert answers() == [1, 2, 3, 4]
    finally:
        for each in running:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
