"""kill -9 between a command and its commit: no command is lost, none is applied twice."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from headrace.control import AddQuery, Command, RemoveQuery, SetBounds, SetStrategy, log_of, submit
from headrace.pipeline import load
from headrace.runtimes.embedded.record import Recorded
from headrace.runtimes.embedded.runner import replay
from tests.faults.killing import commits, start
from tests.runtimes.embedded.pipelines import sliding

KILLS = int(os.environ.get("HEADRACE_KILLS", "12"))
ALL = "SELECT auction, price, at FROM bids"
COUNT = "SELECT auction, count(*) AS n FROM bids [RANGE 3 SECONDS] GROUP BY auction"


def commands() -> list[Command]:
    """Queries that come and go, each with outputs of its own."""
    found: list[Command] = []
    for i in range(KILLS):
        found.append(AddQuery(f"all{i}", ALL if i % 2 else COUNT, f"all{i}.jsonl", late=f"late{i}.jsonl"))
        found.append(SetStrategy(("bfs", "rr", "auto")[i % 3]))
        found.append(SetBounds("bids", {"disorder": f"{(i * 37) % 700} ms"}))
        if i > 1:
            found.append(RemoveQuery(f"all{i - 2}"))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_of_killed_runs_are_applied_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(KILLS)
    file = sliding(tmp_path, rows=600 * KILLS, more='record = "record"')
    left, kills, written = commands(), 0, 0
    while True:
        process = start(file)
        if kills < KILLS:
            wanted = commits(tmp_path) + int(rng.integers(1, 5))
            while process.is_alive() and commits(tmp_path) < wanted:
                process.join(0.002)
        for _ in range(int(rng.integers(1, 5)) if kills < KILLS else len(left)):
            if left and process.is_alive():
                submit(load(file), left.pop(0))
                written += 1
        process.join(float(rng.random()) * 0.4 if kills < KILLS else None)
        hit = process.is_alive()
        process.kill()
        process.join()
        kills += hit
        if not hit:
            assert process.exitcode == 0
            break
    entries = log_of(load(file)).read()
    assert [entry.refused for entry in entries] == [None] * written
    steps = [step for commit in Recorded(tmp_path / "record").commits() for step in commit]
    applied = [entry.number for step in steps for entry in step.commands]
    assert applied == list(range(1, len(applied) + 1))
    assert len(applied) >= min(written, kills)
    replay(tmp_path / "record", tmp_path / "again")
    found = sorted(path.name for path in (tmp_path / "again").iterdir())
    assert any(name.startswith("all") for name in found)
    for name in found:
        assert rows(tmp_path / name) == rows(tmp_path / "again" / name), name


def rows(path: Path) -> Counter[str]:
    """The rows of an output; a restored engine may give simultaneous answers in another order."""
    return Counter(path.read_text().splitlines())
