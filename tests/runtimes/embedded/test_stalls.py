"""`why` names the cause of each injected stall in an embedded run, within one step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import tuning
from headrace.errors import HeadraceError
from headrace.runtimes.embedded import Runner
from headrace.runtimes.status import Status
from headrace.runtimes.why import Why
from headrace.runtimes.why.table import CAUSES
from headrace.time.clock import ManualClock, seconds
from tests.runtimes.embedded.playing import Play
from tests.stalls import BASE, BOTH, CLICKS, SECOND, STALLS, Stall, Step


def first(status: Status, **more: Any) -> Any:
    """The cause that `why` names first, of a run that runs."""
    return Why.of(replace(status, state="running"), **more or {"now": status.written}).found[0]


@pytest.mark.parametrize("name", STALLS)
def test_the_cause_is_named(tmp_path: Path, name: str) -> None:
    stall = STALLS[name]
    play = Play(tmp_path, stall)
    play.run()
    found = first(play.statuses[-2])
    assert (found.cause.name, found.stream or None) == (stall.cause, stall.stream)
    for words in stall.says:
        assert words in str(found)
    assert json.loads(json.dumps(found.plain()))["cause"] == stall.cause


def test_a_run_without_a_stall_says_so(tmp_path: Path) -> None:
    play = Play(tmp_path, Stall("", (), (BOTH,) * 4, stream=None))
    play.run()
    assert not [f for f in Why.of(replace(play.statuses[-2], state="running")).found if not f.cause.normal]


def test_before_anyone_has_connected(tmp_path: Path) -> None:
    play = Play(tmp_path, Stall("", (), (Step(),)))
    play.run()
    found = first(play.statuses[1])
    assert found.cause.name == "never connected"
    assert "no stream has sent one. It reads clicks (files clicks) and buys (files buys)" in found.sentence


class SlowSink:
    """Takes four times as long as everything else."""

    def __init__(self, sink: Any) -> None:
        self._sink, self._since = sink, seconds()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def write(self, rows: pa.RecordBatch) -> None:
        begun = seconds()
        until = begun + 4 * (begun - self._since) + 0.001
        while seconds() < until:
            pass
        self._sink.write(rows)


@tuning.using(slow_sink_seconds=0.0005)
def test_a_slow_sink_is_named(tmp_path: Path) -> None:
    def slow(play: Play) -> None:
        query = play.runner.outputs.queries["q"]
        query.sink = SlowSink(getattr(query.sink, "_sink", query.sink))

    stall = Stall(
        "", (), (CLICKS,) * 4, {"clicks": 'bounds = { latency = "0 s" }'}, "SELECT item FROM clicks"
    )
    play = Play(tmp_path, stall, slow)
    play.run()
    judged = (Why.of(replace(status, state="running"), now=status.written) for status in play.statuses)
    slow_ones = [each for why in judged for each in why.found if each.cause.name == "slow sink"]
    assert slow_ones[0].sentence.startswith("The sink of query q took")


def test_a_budget_that_is_too_small_is_named(tmp_path: Path) -> None:
    times = [-0.001 * i for i in range(2000)]
    steps = (Step(1.0, {"clicks": times, "buys": times}),) * 3
    stall = replace(STALLS["a bound that is never proven"], steps=steps, more='[memory]\nbudget = "20 kB"')
    play = Play(tmp_path, stall)
    with pytest.raises(HeadraceError, match="HR-M001"):
        play.run()
    found = Why.of(play.statuses[-1]).found
    assert [each.cause.name for each in found] == ["budget too small"]
    assert "HR-M001" in str(found[0])


class Hurrying(ManualClock):
    """A clock that passes while rows are read: they come faster than that."""

    def now(self) -> int:
        return self.advance(SECOND // 4)


def test_a_backlog_is_named(tmp_path: Path) -> None:
    stall = replace(STALLS["a bound that is never proven"], steps=())
    play = Play(tmp_path, stall)
    for _ in range(60):
        play.put(BOTH)
    runner = Runner(stall.pipeline(tmp_path), clock=Hurrying(BASE), wait=lambda _: runner.stop())
    runner.run(on_progress=play.statuses.append, every=0.0)
    causes = [first(status) for status in play.statuses[:-1] if Why.of(status).found]
    behind = next(each for each in causes if each.cause.name == "backlog")
    assert "its rows come faster than they are read" in behind.sentence
    assert behind.stream in ("clicks", "buys")


def test_a_run_that_hangs_is_named(tmp_path: Path) -> None:
    play = Play(tmp_path, Stall("", (), (BOTH,) * 2))
    play.run()
    status = play.statuses[-2]
    assert "stalled" not in [each.cause.name for each in Why.of(status, now=status.written + 5).found]
    found = Why.of(replace(status, state="running"), now=status.written + 60).found[0]
    assert found.cause.name == "stalled"
    assert "has not finished a step for 60 s" in found.sentence


def test_a_machine_whose_clock_stands_still_is_named(tmp_path: Path) -> None:
    play = Play(tmp_path, Stall("", (), (BOTH,) * 2))
    play.run()
    status = replace(play.statuses[-2], state="running")
    later = replace(status, written=status.written + 20).after(status)
    assert first(later).cause.name == "clock stands still"


def test_a_wait_goes_on_and_a_stream_is_silent_since_its_last_row(tmp_path: Path) -> None:
    play = Play(tmp_path, STALLS["a bound that is never proven"])
    play.run()
    found = first(play.statuses[-2])
    assert found.read.arrived == BASE + SECOND
    assert found.waited is not None
    assert 7 <= found.waited <= 9
    assert found.rows >= 2


def test_two_queries_that_wait_for_one_stream_share_a_sentence(tmp_path: Path) -> None:
    more = f'[[queries]]\nname = "r"\nsql = "{STALLS["silent stream"].sql}"\nsink = "r.jsonl"'
    play = Play(tmp_path, replace(STALLS["a bound that is never proven"], more=more))
    play.run()
    found = first(play.statuses[-2])
    assert str(found).startswith("Queries q and r have waited")


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    play = Play(tmp_path, STALLS["a flood of late rows"])
    status = play.run()
    assert Status.read(status.text()) == status
    assert "stream buys: 7 rows" in str(status)
    assert "<td>buys</td>" in status._repr_html_()
    assert "late rows" in Why.of(status)._repr_html_()


def test_the_heartbeat_advances_although_no_operator_asks(tmp_path: Path) -> None:
    """Regression: the heartbeat in the status stood still if no operator waited for it."""
    streams = {"clicks": 'bounds = { latency = "2 s" }'}
    play = Play(tmp_path, Stall("", (), (CLICKS, Step(), Step()), streams, "SELECT item FROM clicks"))
    play.run()
    beats = [status.streams["clicks"].heartbeat for status in play.statuses[1:-1]]
    assert beats == sorted(set(beats))


def test_the_documentation_lists_every_cause() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    assert [cause.name for cause in CAUSES if f"`{cause.name}`" not in page] == []
