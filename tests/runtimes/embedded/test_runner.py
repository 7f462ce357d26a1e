"""Runs by every clock; stopping and going on; open sources; progress; back-pressure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Progress, Runner, replay
from headrace.time.clock import ManualClock
from tests.runtimes.embedded.pipelines import PIPELINES, bags
from tests.runtimes.embedded.running import run_small

T = 1_700_000_000_000_000


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("steps", [1, 5])
def test_stopping_and_going_on_changes_nothing(name: str, steps: int, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for root in (whole, parts):
        root.mkdir()
        PIPELINES[name](root, rows=150 * steps)
    Runner(load(whole / "pipeline.toml")).run()
    runs = 0
    while Runner(load(parts / "pipeline.toml")).run(max_steps=steps).state != "finished":
        runs += 1
    assert runs > 1
    assert bags(parts) == bags(whole)


def open_pipeline(root: Path, more: str = "") -> Runner:
    text = f"""
    [pipeline]
    name = "open"
    runtime = "embedded"
    checkpoint = "state"

    [streams.a]
    source = {{ path = "a.jsonl", follow = true }}
    schema = "v BIGINT, at BIGINT"
    time = {{ column = "at" }}
    bounds = {{ disorder = 5, latency = 100 }}

    [streams.b]
    source = {{ path = "b.jsonl", follow = true }}
    schema = "v BIGINT, at BIGINT"
    time = {{ column = "at" }}
    bounds = {{ latency = 100 }}
    {more}

    [[queries]]
    name = "both"
    sql = "SELECT v FROM a UNION ALL SELECT v FROM b"
    sink = "both.jsonl"
    late = "late.jsonl"
    """
    clock = ManualClock(1_000)
    lines = {1: ("a", 10, 1_000), 3: ("a", 11, 1_001), 6: ("b", 20, 1_100), 9: ("a", 12, 50)}
    polls = 0

    def wait(_: float) -> None:
        nonlocal polls
        polls += 1
        clock.advance(20)
        if polls in lines:
            stream, v, at = lines[polls]
            with (root / f"{stream}.jsonl").open("a") as file:
                file.write(json.dumps({"v": v, "at": at}) + "\n")
        if polls == 30:
            runner.stop()

    text = "\n".join(line.strip() for line in text.splitlines())
    runner = Runner(parse(text, root=root), clock=clock, wait=wait)
    return runner


def test_a_silent_stream_holds_no_answer_back_longer_than_its_latency(tmp_path: Path) -> None:
    result = open_pipeline(tmp_path).run()
    assert result.state == "stopped"
    assert result.progress.clock == "system"
    rows = [json.loads(line)["v"] for line in (tmp_path / "both.jsonl").read_text().splitlines()]
    assert rows == [10, 11, 20]
    (late,) = (tmp_path / "late.jsonl").read_text().splitlines()
    assert json.loads(late)["stream"] == "a"
    account = result.progress.streams["a"]
    assert (account.rows_in, account.rows_processed, account.rows_late) == (3, 2, 1)


def test_a_stopped_run_goes_on_with_what_came_meanwhile(tmp_path: Path) -> None:
    open_pipeline(tmp_path).run()
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write(json.dumps({"v": 21, "at": 5_000}) + "\n")
    clock = ManualClock(5_000)

    def wait(_: float) -> None:
        if clock.advance(50) > 6_000:
            again.stop()

    again = Runner(open_pipeline(tmp_path).pipeline, clock=clock, wait=wait)
    again.run()
    rows = [json.loads(line)["v"] for line in (tmp_path / "both.jsonl").read_text().splitlines()]
    assert rows == [10, 11, 20, 21]


def test_keep_open_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(f'{{"k": 1, "v": "x", "at": {T}}}\n')
    sql = "SELECT count(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"
    ended = run_small(tmp_path, '{ path = "in.jsonl" }', sql=sql)
    assert [row["n"] for row in ended.rows] == [1]
    opened = run_small(tmp_path, '{ path = "in.jsonl", keep_open = true }', sql=sql, wait=Runner.stop)
    assert opened.state == "stopped"
    assert opened.rows == []


def test_generated_rows_are_the_same_on_every_run(tmp_path: Path) -> None:
    source = '{ type = "poisson", rate = 500, rows = 3000, seed = 4, disorder = "100 ms" }'
    stream = 'bounds = { disorder = "100 ms" }'
    sql = "SELECT k, count(*) AS n, window_end FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"
    first = run_small(tmp_path, source, sql=sql, stream=stream)
    again = run_small(tmp_path, source, sql=sql, stream=stream)
    assert first.rows == again.rows
    assert sum(row["n"] for row in first.rows) == 3000
    assert first.progress.clock == "arrival"
    assert not first.late


def test_recorded_arrivals_decide_who_is_late(tmp_path: Path) -> None:
    rows = [(1, 100, 100), (2, 90, 110), (3, 130, 130), (4, 95, 140), (5, 128, 140)]
    lines = [json.dumps({"k": k, "v": "x", "at": at, "came": came}) for k, at, came in rows]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    stream = 'bounds = { latency = 30 }\narrival = "came"'
    out = run_small(tmp_path, '"in.jsonl"', stream=stream)
    assert sorted(row["k"] for row in out.rows) == [1, 2, 3, 5]
    assert [(json.loads(row["row"])["k"], row["heartbeat"]) for row in out.late] == [(4, 109)]


def test_streams_are_read_side_by_side_by_their_own_time(tmp_path: Path) -> None:
    """A stream of few rows and one of many: neither is read ahead of the other, so little is held."""
    for name, step in (("a", 1_000), ("b", 100_000)):
        lines = (json.dumps({"v": i, "at": T + t}) for i, t in enumerate(range(0, 20_000_000, step)))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    streams = "".join(
        f'[streams.{name}]\nsource = {{ path = "{name}.jsonl", block_bytes = 2000 }}\n'
        'schema = "v BIGINT, at BIGINT"\ntime = "at"\n'
        for name in "ab"
    )
    text = f"""
[pipeline]
name = "two"
runtime = "embedded"
{streams}
[[queries]]
name = "both"
sql = "SELECT v FROM a UNION ALL SELECT v FROM b"
sink = {{ path = "both.jsonl", time = "at" }}
"""
    held = []
    runner = Runner(parse(text, root=tmp_path))
    runner.run(on_progress=lambda p: held.append(sum(s.held_rows for s in p.streams.values())), every=0.0)
    rows = [json.loads(line) for line in (tmp_path / "both.jsonl").read_text().splitlines()]
    assert len(rows) == 20_200
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert max(held) < 500


def test_a_slow_sink_slows_the_source(tmp_path: Path) -> None:
    """While a sink is at work, nothing is pushed; so no more than a block is ever in between."""
    lines = (json.dumps({"k": k, "v": "x", "at": T + k}) for k in range(5_000))
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    text = """
[pipeline]
name = "slow"
runtime = "embedded"
[streams.s]
source = { path = "in.jsonl", block_bytes = 1000 }
schema = "k BIGINT, v STRING, at BIGINT"
time = "at"
[[queries]]
name = "all"
sql = "SELECT k FROM s"
sink = "all.jsonl"
"""
    runner = Runner(parse(text, root=tmp_path))
    ahead: list[int] = []
    written = 0
    opened = runner._open

    def watching() -> None:
        opened()
        sink: Any = runner.outputs.queries["all"].sink
        write = sink.write

        def slow(rows: pa.RecordBatch) -> None:
            nonlocal written
            ahead.append(runner.engine.metrics().sources["s"].rows_in - written)
            write(rows)
            written += rows.num_rows

        sink.write = slow

    runner._open = watching  # type: ignore[method-assign]
    runner.run()
    assert written == 5_000
    assert max(ahead) < 60


def test_progress_tells_of_streams_queries_and_waiting(tmp_path: Path) -> None:
    seen: list[Progress] = []
    pipeline = PIPELINES["joined"](tmp_path, rows=900)
    result = Runner(load(pipeline)).run(on_progress=seen.append, every=0.0)
    assert len(seen) > 5
    assert seen[-1] == result.progress
    assert seen[-1].state == "finished"
    assert seen[-1].checkpoints > 3
    assert seen[-1].checkpoint_bytes > 0
    assert seen[-1].streams["paid"].ended
    middle = seen[len(seen) // 2]
    assert middle.state == "running"
    assert middle.streams["paid"].lag is not None
    held_by = {name for waiting in middle.waiting for name in waiting.streams}
    assert held_by
    assert held_by <= middle.streams.keys()
    assert middle.state_bytes > 0


def test_sources_and_sinks_of_spark_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="HR-F017"):
        run_small(tmp_path, '{ type = "spark", format = "kafka" }')


def test_streams_are_joined_with_tables_from_files_across_restarts(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("id,name\n1,one\n2,two\n")
    lines = (json.dumps({"k": k % 3, "at": T + k}) for k in range(300))
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    text = """
[pipeline]
name = "tables"
runtime = "embedded"
checkpoint = "state"
record = "record"
[tables]
names = "names.csv"
[streams.s]
source = { path = "in.jsonl", block_bytes = 500 }
schema = "k BIGINT, at BIGINT"
time = "at"
[[queries]]
name = "named"
sql = "SELECT n.name FROM s [NOW] AS s JOIN names AS n ON s.k = n.id"
sink = "named.jsonl"
"""
    while Runner(parse(text, root=tmp_path)).run(max_steps=5).state != "finished":
        pass
    names = [json.loads(line)["name"] for line in (tmp_path / "named.jsonl").read_text().splitlines()]
    assert names == ["one", "two"] * 100
    replay(tmp_path / "record", tmp_path / "again")
    assert (tmp_path / "again" / "named.jsonl").read_bytes() == (tmp_path / "named.jsonl").read_bytes()


def test_arrival_columns_have_the_type_of_the_time(tmp_path: Path) -> None:
    rows = [
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"),
    ]
    lines = (json.dumps({"k": 1, "v": "x", "at": at, "came": came}) for at, came in rows)
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    out = run_small(
        tmp_path,
        '"in.jsonl"',
        schema="k BIGINT, v STRING, at TIMESTAMP",
        time='"at"',
        stream='bounds = { latency = "5 s" }\narrival = "came"',
    )
    assert (len(out.rows), len(out.late), len(out.rejected)) == (1, 1, 0)
