"""The job of a test, as its supervisor sees it: started, killed, started again, and read from its files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from examples.kafka.broker import Broker
from tests.kafka.rows import Counts, Row, counted

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 420


class Job:
    """`tests.kafka.job` in a process of its own: killed and started again on its checkpoint."""

    def __init__(self, folder: Path, broker: Broker, *limit: int) -> None:
        self.folder = folder
        self.command = [sys.executable, "-m", "tests.kafka.job", folder, broker.address, broker.jars, *limit]
        self.process: subprocess.Popen[bytes] | None = None
        self.died = 0

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command)),
                cwd=ROOT,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End it at once, and the Java below it."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def watch(self) -> None:
        """Start it again if it ended by itself, as a supervisor does."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.died += 1
            assert self.died < 5, f"the job ends by itself:\n{self.log()}"
            self.start()

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not _now(done):
            self.watch()
            assert time.monotonic() < deadline, f"{self.total()} rows counted:\n{self.log()}"
            time.sleep(0.5)

    def stay(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= ends)

    def answers(self) -> Counts:
        """What it has answered, each window and key once."""
        rows = self.written("result")
        found = {(row["k"], row["until"] // 1_000_000): row["n"] for row in rows}
        assert len(found) == len(rows), "a window was answered twice"
        return Counter(found)

    def total(self) -> int:
        """Rows that have come out: counted, late or rejected."""
        return self.answers().total() + len(self.written("late")) + len(self.written("rejected"))

    def pieces(self) -> int:
        """The micro-batches that gave answers."""
        return sum(any(f.stat().st_size for f in b.glob("part-*")) for b in self._batches("result"))

    def written(self, kind: str) -> list[dict[str, int]]:
        files = (f for batch in self._batches(kind) for f in batch.glob("part-*"))
        return [json.loads(line) for f in files for line in f.read_text().splitlines()]

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-5000:]

    def _batches(self, kind: str) -> list[Path]:
        """The micro-batches whose rows are all there."""
        return [done.parent for done in (self.folder / kind).glob("batch=*/_SUCCESS")]


def _now(done: Callable[[], bool]) -> bool:
    try:
        return done()
    except FileNotFoundError:  # a micro-batch is run again, and its files are being replaced
        return False


def check(job: Job, rows: list[Row]) -> None:
    """All rows come out in the right windows, none of them late."""
    job.until(lambda: job.total() >= len(rows))
    assert job.written("late") == []
    assert job.written("rejected") == []
    assert job.answers() == counted(rows)
