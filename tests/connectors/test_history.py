"""A finite past and then a live source: the answers are those of one stream, wherever it is cut."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Progress, Runner
from headrace.time.clock import ManualClock
from tests.laws import effort
from tests.runtimes.embedded.running import break_down

FILE = """
[pipeline]
name = "seam"
runtime = "embedded"
checkpoint = "state"
interval = "1 hour"
every_rows = {every}
[streams.s]
source = {source}
schema = "id BIGINT, k BIGINT, at BIGINT"
time = {{ column = "at", unit = "tick" }}
bounds = {{ disorder = 4 }}
[[queries]]
name = "rows"
sql = "SELECT id, at FROM s"
sink = "rows.jsonl"
late = "late.jsonl"
rejected = "rejected.jsonl"
[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n, sum(id) AS s FROM s [RANGE 6 TICKS SLIDE 3 TICKS] GROUP BY k"
sink = "counts.jsonl"
"""
OUTPUTS = ("rows", "counts", "late", "rejected")
Row = dict[str, Any]


def write(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def outputs(root: Path) -> dict[str, str]:
    return {name: (root / f"{name}.jsonl").read_text() for name in OUTPUTS}


def run(root: Path, source: str, stops: list[int], every: int = 3) -> dict[str, str]:
    """All outputs; the run breaks down after these numbers of steps, without a commit, and continues."""
    (root / "pipeline.toml").write_text(FILE.format(source=source, every=every))
    break_down(root / "pipeline.toml", stops)
    result = Runner(load(root / "pipeline.toml")).run()
    assert result.state == "finished"
    return outputs(root)


@effort(0.5, "each example is two runs with checkpoints, of which one is stopped several times")
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 1)), max_size=20),
    st.integers(0, 40),
    st.lists(st.integers(1, 6), max_size=3),
    st.sampled_from((8, 60, 4096)),
    st.booleans(),
)
def test_a_cut_anywhere_gives_the_answers_of_one_stream(
    steps: list[tuple[int, int, int]], cut: int, stops: list[int], block: int, overlap: bool
) -> None:
    """Rows around the cut are out of order; both sources may have rows of the other side too."""
    now, rows = 0, list[Row]()
    for i, (pause, behind, k) in enumerate(steps):
        now += pause
        rows.append({"id": i, "k": k, "at": max(0, now - behind)})
    past = [row for row in rows if row["at"] < cut]
    live = [row for row in rows if row["at"] >= cut]
    event(f"past and live: {bool(past) and bool(live)}")
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        write(Path(one) / "all.jsonl", [*past, *live])
        whole = run(Path(one), f'{{ path = "all.jsonl", block_bytes = {block} }}', [])
        write(Path(two) / "past.jsonl", rows if overlap else past)
        write(Path(two) / "live.jsonl", rows if overlap else live)
        source = (
            f'{{ history = {{ path = "past.jsonl", block_bytes = {block} }}, '
            f'live = {{ path = "live.jsonl", block_bytes = {block} }}, until = {cut} }}'
        )
        found = run(Path(two), source, stops)
    assert found["late"] == whole["late"] == ""
    assert sorted(found["rows"].splitlines()) == sorted(whole["rows"].splitlines())
    assert sorted(found["counts"].splitlines()) == sorted(whole["counts"].splitlines())


def test_a_row_without_a_time_is_rejected_in_each_part(tmp_path: Path) -> None:
    write(tmp_path / "past.jsonl", [{"id": 1, "k": 0, "at": 1}, {"id": 2, "k": 0, "at": None}])
    write(tmp_path / "live.jsonl", [{"id": 3, "k": 0, "at": None}, {"id": 4, "k": 0, "at": 9}])
    found = run(tmp_path, '{ history = "past.jsonl", live = "live.jsonl", until = 5 }', [])
    assert len(found["rejected"].splitlines()) == 2
    assert [json.loads(line)["id"] for line in found["rows"].splitlines()] == [1, 4]


LIVE = """
[pipeline]
name = "seam"
runtime = "embedded"
checkpoint = "state"
every_rows = 1
[streams.s]
source = { history = { path = "past", block_bytes = 64 }, live = { path = "live", follow = true } }
schema = "id BIGINT, at BIGINT"
time = { column = "at", unit = "s" }
bounds = { latency = "10 s", disorder = "5 s" }
[[queries]]
name = "counts"
sql = "SELECT count(*) AS n, window_end FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
sink = "counts.jsonl"
late = "late.jsonl"
"""


def test_old_rows_are_not_late_and_the_clock_answers_once_the_past_is_read(tmp_path: Path) -> None:
    """All rows are hours older than `latency` allows; the last window is answered by the clock alone."""
    for name, times in (("past", range(40)), ("live", range(40, 55))):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "1.jsonl", [{"id": t, "at": t} for t in times if t % 7])
    (tmp_path / "pipeline.toml").write_text(LIVE)
    clock = ManualClock(10_000_000_000)

    def until(runner: Runner, answers: int) -> None:
        def stop(progress: Progress) -> None:
            out = tmp_path / "counts.jsonl"
            if out.exists() and len(out.read_text().splitlines()) == answers:
                runner.stop()

        runner.run(on_progress=stop, every=0)

    until(Runner(load(tmp_path / "pipeline.toml"), clock=clock, wait=lambda seconds: None), 6)
    answers = [json.loads(line)["n"] for line in (tmp_path / "counts.jsonl").read_text().splitlines()]
    assert answers == [sum(bool(t % 7) for t in range(a, min(a + 10, 55))) for a in range(0, 60, 10)]
    assert (tmp_path / "late.jsonl").read_text() == ""
    clock.advance_to(10_060_000_000)
    write(tmp_path / "live" / "2.jsonl", [{"id": 1, "at": 10_055}])
    later = Runner(
        load(tmp_path / "pipeline.toml"), clock=clock, wait=lambda seconds: clock.advance(1_000_000) and None
    )
    until(later, 7)
    assert (tmp_path / "late.jsonl").read_text() == ""


@pytest.mark.parametrize(
    "source",
    [
        '{ history = { path = "past", follow = true }, live = "live" }',
        '{ history = { type = "tcp", host = "h", port = 1 }, live = "live" }',
        '{ history = "past" }',
    ],
)
def test_a_past_without_an_end_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(PipelineError):
        parse(FILE.format(source=source, every=1), root=tmp_path)


RECORDED = """
[pipeline]
name = "recorded"
runtime = "embedded"
checkpoint = "state"
every_rows = 1
[streams.s]
source.history = { path = "past.jsonl", block_bytes = 8 }
source.live = { path = "live", format = "json", follow = true }
schema = "id BIGINT, at BIGINT, came BIGINT"
time = { column = "at", unit = "s" }
arrival = "came"
bounds = { latency = "5 s" }
[[queries]]
name = "counts"
sql = "SELECT count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
sink = "counts.jsonl"
late = "late.jsonl"
"""


def test_recorded_arrivals_answer_while_the_past_is_read_and_the_clock_after_it(tmp_path: Path) -> None:
    """Rows come up to 5 s after their time, which `came` says; there is no other bound."""
    write(tmp_path / "past.jsonl", [{"id": t, "at": t - t % 5, "came": t} for t in range(47)])
    (tmp_path / "live").mkdir()
    write(tmp_path / "live" / "1.jsonl", [{"id": t, "at": t, "came": None} for t in (48, 61)])
    (tmp_path / "pipeline.toml").write_text(RECORDED)
    clock = ManualClock(10_000_000_000)
    runner = Runner(load(tmp_path / "pipeline.toml"), clock=clock, wait=lambda seconds: None)
    runner.run(max_steps=38)
    assert answered(tmp_path) == [10, 10, 10]  # came = 37: no row up to 31 comes any more
    later = Runner(load(tmp_path / "pipeline.toml"), clock=clock, wait=lambda seconds: None)
    later.run(on_progress=lambda _: later.stop() if sum(answered(tmp_path)) == 49 else None, every=0)
    assert [n for n in answered(tmp_path) if n] == [10, 10, 10, 10, 8, 1]
    assert (tmp_path / "late.jsonl").read_text() == ""


def answered(root: Path) -> list[int]:
    out = root / "counts.jsonl"
    return [json.loads(line)["n"] for line in out.read_text().splitlines()] if out.exists() else []
