"""Embedded, too, a row that reached its source within its bound is not late because it was read late."""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from headrace.time.clock import ManualClock

SECOND = 1_000_000
BOUND = 5

FILE = """
[pipeline]
name = "live"
runtime = "embedded"
checkpoint = "state"
clock = "system"
[streams.s]
source = { path = "rows.jsonl", follow = true }
schema = "at TIMESTAMP, k BIGINT"
time = "at"
bounds = { latency = "5 seconds" }
enforcement = "ENFORCE"
[[queries]]
name = "q"
sql = "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
sink = "answers.jsonl"
late = "late.jsonl"
"""


BETWEEN = '''
[pipeline]
name = "live"
runtime = "embedded"
checkpoint = "state"
clock = "system"
[streams.s]
source = { path = "rows.jsonl", follow = true }
schema = "at TIMESTAMP, k BIGINT"
time = "at"
enforcement = "ENFORCE"
[streams.other]
source = { path = "other.jsonl", follow = true }
schema = "at TIMESTAMP, k BIGINT"
time = "at"
enforcement = "ENFORCE"
[skew]
bounds = [
    { of = "s", on = "s", pairs = [["0 s", "6 s"], ["6 s", 0]] },
    { of = "s", on = "other", pairs = [["0 s", "6 s"], ["6 s", 0]] },
    { of = "other", on = "s", pairs = [["0 s", "6 s"], ["6 s", 0]] },
    { of = "other", on = "other", pairs = [["0 s", "6 s"], ["6 s", 0]] },
]
[[queries]]
name = "q"
sql = """
SELECT k, count(*) AS n
FROM (SELECT * FROM s UNION ALL SELECT * FROM other) [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"""
sink = "answers.jsonl"
late = "late.jsonl"
'''


@dataclass
class World:
    """Files that others write to, and a run that reads them when it is up."""

    home: Path
    clock: int = 1_000

    def write(self, times: list[int], stream: str = "rows") -> None:
        """Rows reach a file now."""
        rows = ({"at": datetime.fromtimestamp(t, UTC).isoformat(), "k": t % 2} for t in times)
        with (self.home / f"{stream}.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def run(self, seconds: int) -> Any:
        """The run is up for a while: it looks each second."""
        clock = ManualClock(self.clock * SECOND)
        runner = Runner(load(self.home / "pipeline.toml"), clock=clock, wait=lambda _: None)
        until = self.clock + seconds

        def tick(progress: Any) -> None:
            self.clock += 1
            clock.advance_to(self.clock * SECOND)
            if self.clock >= until:
                runner.stop()

        return runner.run(on_progress=tick, every=0.0)

    def counted(self) -> int:
        lines = (self.home / "answers.jsonl").read_text().splitlines()
        return sum(json.loads(line)["n"] for line in lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@given(st.integers(0, 2**32), st.sampled_from(["strict", "admit"]))
def test_rows_that_wait_while_nobody_reads_are_not_late(folder: Path, seed: int, enforce: str) -> None:
    rng = random.Random(seed)
    home = Path(tempfile.mkdtemp(dir=folder))
    (home / "pipeline.toml").write_text(FILE.replace("ENFORCE", enforce))
    (home / "rows.jsonl").touch()
    world, written = World(home), 0
    for _ in range(rng.randint(1, 4)):
        for _ in range(rng.randint(0, 40)):  # nobody reads, rows keep coming
            world.clock += rng.choice((0, 0, 1))
            world.write([world.clock - rng.randint(0, BOUND)])
            written += 1
        result = world.run(rng.randint(2, 25))
        assert result.progress.streams["s"].rows_late == 0
    result = world.run(60)
    assert result.progress.streams["s"].rows_late == 0
    assert world.counted() == written


@given(st.integers(0, 2**32), st.sampled_from(["strict", "admit"]))
def test_rows_of_one_stream_do_not_judge_those_of_another_that_wait(
    folder: Path, seed: int, enforce: str
) -> None:
    """Of two streams that vouch for each other one is silent for a while, and nobody reads now and then."""
    rng = random.Random(seed)
    home = Path(tempfile.mkdtemp(dir=folder))
    (home / "pipeline.toml").write_text(BETWEEN.replace("ENFORCE", enforce))
    for name in ("rows", "other"):
        (home / f"{name}.jsonl").touch()
    world, written = World(home), 0
    for _ in range(rng.randint(1, 3)):
        silent = rng.choice(["rows", "other", ""])
        for _ in range(rng.randint(0, 30)):
            world.clock += rng.choice((0, 0, 1))
            for name in ("rows", "other"):
                if name != silent:
                    world.write([world.clock - rng.randint(0, BOUND)], name)
                    written += 1
        result = world.run(rng.randint(2, 25))
        assert {each.rows_late for each in result.progress.streams.values()} == {0}
    world.clock += 1
    world.write([world.clock + 60, world.clock + 60])  # two rows, that come out with nothing
    result = world.run(30)
    assert {each.rows_late for each in result.progress.streams.values()} == {0}
    assert world.counted() == written


def test_a_row_beyond_its_bound_is_late_once_the_clock_has_spoken(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(FILE.replace("ENFORCE", "strict"))
    world = World(tmp_path)
    world.write([world.clock])
    assert world.run(30).progress.streams["s"].rows_late == 0
    world.write([world.clock - BOUND - 2])
    assert world.run(5).progress.streams["s"].rows_late == 1
