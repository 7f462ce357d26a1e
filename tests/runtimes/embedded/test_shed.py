"""Load that cannot be worked off: what can be slowed is, what cannot is shed as declared; all is counted."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import PipelineError
from headrace.pipeline import parse
from headrace.runtimes.embedded import Progress, Runner, replay
from headrace.runtimes.embedded.shedding import drawn
from headrace.runtimes.status import Status
from headrace.runtimes.why import Why
from headrace.time.clock import ManualClock
from tests.runtimes.embedded.running import run_small

PACED = """
[pipeline]
name = "paced"
runtime = "embedded"
clock = "system"
record = "record"
checkpoint = "state"

[streams.s]
source = { type = "poisson", rate = 1000, rows = 30_000, seed = 5, pace = "real", start = 1 }
schema = "k BIGINT, at BIGINT"
time = "at"
bounds = { disorder = "1 s" }
shed = { above = "ABOVE", keep = 0.1, seed = 3 }

[[queries]]
name = "all"
sql = "SELECT k, at FROM s"
sink = { path = "all.jsonl", existing = "replace" }
"""


def run_paced(root: Path, above: str = "500 rows", stop: int | None = None) -> tuple[Progress, str]:
    """A source of 1000 rows a second, asked for every second, then for every five."""
    root.mkdir(exist_ok=True)
    clock = ManualClock(1)
    pauses = iter([1] * 4 + [5] * 20)

    def wait(_: float) -> None:
        clock.advance(next(pauses, 1) * 1_000_000)

    runner = Runner(parse(PACED.replace("ABOVE", above), root=root), clock=clock, wait=wait)
    return runner.run(max_steps=stop).progress, (root / "all.jsonl").read_text()


def account(progress: Progress) -> tuple[int, int]:
    s = progress.streams["s"]
    assert s.rows_in == s.rows_processed + s.rows_late + s.rows_rejected + s.rows_shed
    return s.rows_in, s.rows_shed


def test_what_is_beyond_the_backlog_is_shed_and_counted(tmp_path: Path) -> None:
    progress, out = run_paced(tmp_path)
    came, shed = account(progress)
    assert came == 30_000
    room = 500 * 10
    assert 0.85 * (came - room) < shed < 0.92 * (came - room) + 1000
    assert len(out.splitlines()) == came - shed


@pytest.mark.parametrize("above", ["1000000 rows", "1 GB"])
def test_nothing_is_shed_while_there_is_room(tmp_path: Path, above: str) -> None:
    progress, out = run_paced(tmp_path, above)
    assert account(progress) == (30_000, 0)
    assert len(out.splitlines()) == 30_000


def test_a_backlog_may_be_said_in_bytes(tmp_path: Path) -> None:
    came, shed = account(run_paced(tmp_path, "8 kB")[0])
    assert 0.5 * came < shed < 0.9 * came


def test_a_recorded_run_replays_what_was_shed(tmp_path: Path) -> None:
    progress, out = run_paced(tmp_path / "run")
    again = replay(tmp_path / "run" / "record", tmp_path / "again").progress
    assert account(again) == account(progress)
    assert (tmp_path / "again" / "all.jsonl").read_text() == out
    assert account(run_paced(tmp_path / "twin")[0]) == account(progress)


def test_which_rows_are_kept_follows_from_seed_and_number_alone() -> None:
    numbers = np.arange(100_000, dtype=np.uint64)
    kept = drawn(numbers, 3) < 0.1
    assert abs(kept.mean() - 0.1) < 0.005
    assert (drawn(numbers[500:], 3) < 0.1).tolist() == kept[500:].tolist()
    assert ((drawn(numbers, 4) < 0.1) != kept).mean() > 0.1


def test_why_tells_what_was_shed(tmp_path: Path) -> None:
    progress, _ = run_paced(tmp_path)
    assert "load shedding" in str(Why.of(Status.read(progress.text())))


def sender(rows: int) -> tuple[int, threading.Thread, list[bool]]:
    """Something that sends rows as fast as it may; says when it is done."""
    server = socket.create_server(("127.0.0.1", 0))
    done: list[bool] = []

    def send() -> None:
        client, _ = server.accept()
        with client, server:
            lines = (json.dumps({"k": k, "v": "x" * 100, "at": 10**15 + k}) for k in range(rows))
            client.sendall("".join(f"{line}\n" for line in lines).encode())
        done.append(True)

    thread = threading.Thread(target=send)
    thread.start()
    return server.getsockname()[1], thread, done


@pytest.mark.parametrize("shed", ["", "shed = { above = '500 rows', keep = 0.01 }"])
def test_a_sender_is_slowed_unless_its_stream_says_shed(tmp_path: Path, shed: str) -> None:
    port, thread, done = sender(40_000)
    waited: list[int] = []
    opened = Runner.apply

    def apply(runner: Runner, step: Any) -> None:
        waited.append(step.rows)
        opened(runner, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "apply", apply)
        source = f"{{ type = 'tcp', port = {port} }}"
        outcome = run_small(tmp_path, source, stream=f"bounds = {{ disorder = '1 hour' }}\n{shed}")
    thread.join()
    assert done
    came, lost = account(outcome.progress)
    assert came == 40_000
    assert (lost > 0) == bool(shed)
    assert len(outcome.rows) == came - lost
    if not shed:
        assert max(waited) < 12_000, "a block at a time"


def test_a_source_that_can_be_slowed_is_not_shed(tmp_path: Path) -> None:
    text = PACED.replace('pace = "real"', 'pace = "fast"').replace("ABOVE", "10 rows")
    with pytest.raises(PipelineError, match="HR-F022"):
        parse(text, root=tmp_path)
    with pytest.raises(PipelineError, match="HR-F004"):
        parse(PACED.replace("ABOVE", "a lot"), root=tmp_path)
