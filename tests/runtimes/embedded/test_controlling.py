"""A run that follows the control log: outputs of queries that come and go, refusals, restarts."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace import tuning
from headrace.control import (
    AddQuery,
    Command,
    Pause,
    RemoveQuery,
    Resume,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    log_of,
    submit,
)
from headrace.errors import ControlError
from headrace.pipeline import load
from headrace.runtimes.embedded import Progress, Runner
from headrace.runtimes.embedded.record import Recorded
from headrace.runtimes.embedded.runner import replay
from headrace.runtimes.why import Why
from headrace.spill.directory import DirectorySpillStore
from tests.runtimes.embedded.pipelines import joined, sliding

ALL = "SELECT auction, price, at FROM bids"


@pytest.fixture(autouse=True)
def _always_looking() -> Iterator[None]:
    with tuning.using(control_seconds=0):
        yield


def run(file: Path, commands: dict[int, list[Command]] | None = None, most: int | None = None) -> Runner:
    """Run; commands are written after that many steps of this run."""
    left, steps = commands or {}, 0
    for command in left.get(0, ()):
        submit(load(file), command)

    def write(progress: Progress) -> None:
        nonlocal steps
        steps += 1
        for command in left.get(steps, ()):
            submit(load(file), command)

    runner = Runner(load(file))
    runner.run(on_progress=write, every=0, max_steps=most)
    return runner


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def refusals(runner: Runner) -> list[str]:
    return [each for each in runner.progress().messages if "was refused" in each]


def test_a_query_has_its_own_outputs_from_its_first_commit_on(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=1_000)
    add = AddQuery("all", ALL, {"path": "all.parquet", "time": "t"}, late="al.jsonl", rejected="ar.csv")
    run(file, {5: [add]})
    parts = sorted((tmp_path / "all.parquet").glob("part-*"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    whole = [json.loads(line) for line in lines(tmp_path / "bids.jsonl") if line.endswith("}")]
    assert len(parts) > 1
    assert 0 < len(rows) < len(whole)
    late, hot_late = lines(tmp_path / "al.jsonl"), lines(tmp_path / "late.jsonl")
    assert 0 < len(late) <= len(hot_late)
    assert hot_late[-len(late) :] == late
    assert len(lines(tmp_path / "ar.csv")) > 1


def test_a_removed_query_keeps_what_it_has_written(tmp_path: Path) -> None:
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    for root in (whole, ended):
        root.mkdir()
    run(sliding(whole, rows=2_000))
    runner = run(
        sliding(ended, rows=2_000), {0: [AddQuery("all", ALL, "all.jsonl")], 20: [RemoveQuery("hot")]}
    )
    before, after = lines(ended / "hot.jsonl"), lines(whole / "hot.jsonl")
    assert 0 < len(before) < len(after)
    assert after[: len(before)] == before
    assert list(runner.outputs.queries) == ["all"]
    assert runner.progress().streams["bids"].rows_in == 2_000


def test_a_paused_query_writes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    for root in (whole, paused):
        root.mkdir()
    run(sliding(whole, rows=2_000))
    file, out = sliding(paused, rows=2_000), paused / "hot.jsonl"
    run(file, {6: [Pause("hot")]}, most=9)
    before = lines(out)
    runner = run(file, most=4)  # the pause lasts through a restart
    assert lines(out) == before
    status = runner.progress()
    assert status.queries["hot"].paused
    assert status.queries["hot"].held > 0
    (note,) = [each for each in Why.of(status).sentences if "paused" in each]
    assert f"holds {status.queries['hot'].held} answers" in note
    assert f"query resume {file} hot" in note
    run(file, {3: [Resume("hot")]}, most=6)
    assert lines(out)[: len(before)] == before
    assert len(lines(out)) > len(before)
    run(file)
    assert Counter(lines(out)) == Counter(lines(whole / "hot.jsonl"))
    times = [json.loads(line)["at"] for line in lines(out)]
    assert times == sorted(times)
    assert len(before) > 0


def test_the_end_of_the_input_ends_a_pause(tmp_path: Path) -> None:
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    for root in (whole, paused):
        root.mkdir()
    run(sliding(whole, rows=1_000))
    runner = run(sliding(paused, rows=1_000, more='record = "record"'), {4: [Pause("hot")]})
    assert Counter(lines(paused / "hot.jsonl")) == Counter(lines(whole / "hot.jsonl"))
    assert not runner.progress().queries["hot"].paused
    replay(paused / "record", tmp_path / "again")
    assert (tmp_path / "again" / "hot.jsonl").read_bytes() == (paused / "hot.jsonl").read_bytes()


def test_a_query_may_come_back_and_append_to_its_output(tmp_path: Path) -> None:
    add = AddQuery("all", ALL, {"path": "all.jsonl", "existing": "append"})
    run(sliding(tmp_path, rows=1_000), {2: [add], 5: [RemoveQuery("all"), add]})
    once = tmp_path / "once"
    once.mkdir()
    run(sliding(once, rows=1_000), {2: [add]})
    again, through = Counter(lines(tmp_path / "all.jsonl")), Counter(lines(once / "all.jsonl"))
    assert not again - through
    waiting = through - again  # rows that waited for others when the query was removed
    assert 0 < waiting.total() < 60


def test_a_new_query_may_read_a_stream_that_nobody_read(tmp_path: Path) -> None:
    file = joined(tmp_path, rows=600)
    text = file.read_text()
    begin = text.index('[[queries]]\nname = "pairs"')
    file.write_text(text[:begin] + text[text.index('[[queries]]\nname = "totals"') :])
    runner = run(file, {3: [AddQuery("orders", "SELECT item FROM orders", "orders.jsonl")]})
    assert len(lines(tmp_path / "orders.jsonl")) == 600
    assert runner.progress().streams["orders"].rows_in == 600


def test_a_stream_that_needs_another_clock_is_refused(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=500)
    stream = '[streams.live]\nsource = "stdin"\nschema = "v BIGINT"\ntime = "internal"\n\n[[queries]]'
    file.write_text(file.read_text().replace("[[queries]]", stream))
    runner = run(file, {3: [AddQuery("live", "SELECT v FROM live", "live.jsonl")]})
    (note,) = refusals(runner)
    assert "[HR-L010] query 'live' reads a stream that needs the system clock" in note
    assert not (tmp_path / "live.jsonl").exists()
    assert (tmp_path / "hot.jsonl").exists()


def test_a_command_that_was_overtaken_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=800)
    log = log_of(load(file))
    for command in (RemoveQuery("hot"), RemoveQuery("hot"), AddQuery("all", ALL, "all.jsonl"), SetLevel("x")):
        log.append(command)
    runner = run(file, most=5)
    first, second = refusals(runner)
    assert "command 2 (remove query: name = 'hot') was refused: [HR-L006]" in first
    assert "command 4 (level: level = 'x') was refused: [HR-S003]" in second
    assert [bool(each.refused) for each in log.read()] == [False, True, False, True]
    assert runner.progress().commands == 4
    again = run(file)
    assert refusals(again) == []
    assert list(again.outputs.queries) == ["all"]


def test_what_was_refused_once_is_not_tried_again(tmp_path: Path) -> None:
    """The run was killed after the refusal, and before the commit that contains it."""
    file = sliding(tmp_path, rows=300)
    submit(load(file), AddQuery("all", ALL, "all.jsonl"))
    log = log_of(load(file))
    log.refuse(log.read()[0], ControlError("HR-L010", "another clock"))
    runner = run(file)
    assert list(runner.outputs.queries) == ["hot"]
    assert runner.progress().commands == 1


def test_a_damaged_log_does_not_stop_the_run(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=500)
    log = log_of(load(file))
    for command in (AddQuery("all", ALL, "all.jsonl"), SetStrategy("bfs"), RemoveQuery("hot")):
        log.append(command)
    (log.path / "00000002.json").write_text("{}")
    runner = run(file)
    assert list(runner.outputs.queries) == ["hot", "all"]
    assert any("commands are not followed: [HR-L002]" in each for each in runner.progress().messages)


def test_a_restart_needs_the_commands_that_its_state_is_made_of(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=800)
    run(file, {1: [AddQuery("all", ALL, "all.jsonl")]}, most=5)
    log = log_of(load(file))
    whole = (log.path / "00000001.json").read_text()
    (log.path / "00000001.json").write_text(whole.replace("price", "proce"))
    with pytest.raises(ControlError, match="HR-L002") as damaged:
        run(file)
    assert damaged.value.place.endswith("00000001.json")
    shutil.rmtree(log.path)
    with pytest.raises(ControlError, match=r"HR-L005.*command 1 is missing"):
        run(file)


def test_settings_are_in_force_again_after_a_restart(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=1_500)
    commands: list[Command] = [
        SetLevel("query"),
        SetBudget("1 GB", "spill"),
        SetStrategy("bfs"),
        SetStrategy("chain", "hot"),
        SetBounds("bids", {"disorder": "900 ms"}),
    ]
    run(file, {1: commands}, most=6)
    runner = run(file)
    assert runner.engine.scheduling.level == "query"
    assert runner.engine.memory.budget == 10**9
    assert isinstance(runner.engine.memory.store, DirectorySpillStore)
    assert runner.pipeline.spec.pipeline.strategy == "bfs"
    assert runner.engine.graph.services["hot"].strategy == "chain"
    assert runner.pipeline.streams["bids"].lateness.disorder == 900_000
    assert 0 < len(lines(tmp_path / "late.jsonl")) < 50


def test_a_replay_repeats_the_commands(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=2_000, more='record = "record"')
    more = {
        4: [AddQuery("all", ALL, "all.parquet", late="al.jsonl")],
        9: [SetBounds("bids", {"disorder": 0})],
    }
    run(file, {**more, 15: [RemoveQuery("hot"), AddQuery("hot", ALL, "hotter.csv")]})
    replay(tmp_path / "record", tmp_path / "again")
    names = ("hot.jsonl", "late.jsonl", "rejected.jsonl", "al.jsonl", "hotter.csv")
    for name in (*names, *(f"all.parquet/{each.name}" for each in (tmp_path / "all.parquet").iterdir())):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()
    steps = [step for commit in Recorded(tmp_path / "record").commits() for step in commit]
    assert [entry.number for step in steps for entry in step.commands] == [1, 2, 3, 4]


def test_without_a_checkpoint_there_is_no_log(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=300)
    file.write_text(file.read_text().replace('checkpoint = "state"', ""))
    assert run(file).progress().commands == 0
    with pytest.raises(ControlError, match="HR-L001"):
        submit(load(file), RemoveQuery("hot"))
