"""`why` names the cause of each injected stall of a Spark job, within one micro-batch."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import headrace
from headrace import tuning
from headrace.cli.app import app
from headrace.engine.inputs import Inputs
from headrace.errors import SparkError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.status import LostExecutor, Status
from headrace.runtimes.status_file import write_status
from headrace.runtimes.why import Why
from tests.laws import effort
from tests.runtimes.embedded.pipelines import sliding
from tests.stalls import BASE, BOTH, CLICKS, JOIN, SECOND, STALLS, Stall, Step

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from headrace.runtimes.spark.driver.reading import LIMITED
from headrace.runtimes.spark.driver.status import Described, Seen, StatusKeeper
from headrace.runtimes.spark.driver.topology import World, levels
from headrace.runtimes.spark.worker.answers import Outlet
from tests.spark.conftest import played
from tests.spark.simulated import Batch, Cluster, Outcome
from tests.spark.test_pipeline import on_both

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = pa.schema([("item", pa.int64()), ("at", pa.int64())])


@dataclass
class Play:
    """Micro-batches of a stalled pipeline in simulated hosts, and the status that the driver makes."""

    stall: Stall
    root: Path
    takes: Mapping[str, str] = field(default_factory=dict)
    reached: float | None = None
    """How long ago the rows of limited streams reached their source, in seconds."""
    shards: int = 2
    budget: int | None = None

    def __post_init__(self) -> None:
        pipeline = self.stall.pipeline(self.root)
        rules = {name: stream.rules for name, stream in pipeline.read.items()}
        inputs = Inputs(pipeline.heartbeats(), pipeline.promises(), rules=rules)
        plans = {each.name: each.query.plan for each in pipeline.queries}
        world = World(inputs, self.shards, None, False, {}, (), self.takes)
        made = levels(plans, world, Outlet(packed=True))
        more = {"budget": self.budget, "policy": "spill"}
        self.levels = [tuple(replace(host, **more) for host in level) for level in made]
        streams = {each.name: tuple(sorted(set(each.streams))) for each in pipeline.queries}
        described = Described("stalls", ticks_per_second=pipeline.ticks_per_second, queries=streams)
        self.keeper = StatusKeeper(described, "nowhere", begun=BASE / SECOND)
        self.cluster = Cluster(random.Random(7))
        self.before: int | None = None
        self.now, self.number = BASE, 0

    def statuses(self) -> Iterator[Status]:
        for step in self.stall.steps:
            yield self.step(step)

    def step(self, step: Step, sinks: Mapping[str, float] | None = None) -> Status:
        seen = self.computed(step)
        return self.keeper.written(seen, self.number, sinks or {}, now=self.now / SECOND)

    def computed(self, step: Step) -> Seen:
        self.now += int(step.seconds * SECOND)
        self.number += 1
        arrived = {name: self._rows(times) for name, times in step.rows.items()}
        since = {
            name: np.full(len(times), self.now - int((self.reached or 0) * SECOND))
            for name, times in step.rows.items()
            if name in self.takes
        }
        batch = Batch(self.now, arrived, self.before, since, last=False)
        self.before = self.now
        outcome: Outcome = batch.run(self.levels, self.cluster, pa.schema([]))
        results = {query: len(rows) for query, rows in outcome.by_query.items()}
        return Seen(tuple(outcome.reports), tuple(outcome.reasons), results)

    def _rows(self, times: list[float]) -> tuple[pa.RecordBatch, np.ndarray]:
        ticks = [self.now + int(at * SECOND) for at in times]
        items = [i % 5 for i in range(len(times))]
        rows = pa.RecordBatch.from_pydict({"item": items, "at": ticks}, schema=ROWS)
        return rows, np.array(ticks, object)


def first(status: Status) -> Any:
    return Why.of(status, now=status.written).found[0]


@pytest.mark.parametrize("name", STALLS)
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")  # one shard: there is no key
def test_the_cause_is_named(tmp_path: Path, name: str) -> None:
    stall = STALLS[name]
    found = first(list(Play(stall, tmp_path).statuses())[-1])
    assert (found.cause.name, found.stream or None) == (stall.cause, stall.stream)
    for words in stall.says:
        assert words in str(found)


def test_a_slow_sink_is_named(tmp_path: Path) -> None:
    play = Play(STALLS["silent stream"], tmp_path)
    play.step(BOTH)
    found = first(play.step(Step(5.0, {"clicks": [0.0]}), sinks={"q": 4.0}))
    assert (found.cause.name, found.queries) == ("slow sink", ("q",))
    assert "took 4.0 s of the last 5.0 s" in found.sentence


def test_a_sink_that_does_not_return_is_named(tmp_path: Path) -> None:
    play = Play(STALLS["silent stream"], tmp_path)
    play.step(BOTH)
    status = play.keeper.computed(play.computed(BOTH), play.number, ["q"], now=play.now / SECOND)
    found = Why.of(status, now=status.written + 60).found[0]
    assert found.cause.name == "slow sink"
    assert found.sentence == "The sink of query q has been writing micro-batch 2 for 60 s."


def test_a_backlog_is_named(tmp_path: Path) -> None:
    """A rate limit leaves rows at the source: what is read reached it long ago."""
    stall = replace(
        STALLS["silent stream"], streams=dict.fromkeys(("clicks", "buys"), 'bounds = { latency = "2 s" }')
    )
    play = Play(stall, tmp_path, {"buys": LIMITED}, reached=60.0)
    old = Step(1.0, {"clicks": [0.0], "buys": [-60.0]})
    status = [play.step(old) for _ in range(3)][-1]
    found = first(status)
    assert (found.cause.name, found.stream) == ("backlog", "buys")
    assert "maxOffsetsPerTrigger" in found.hint


def test_a_lost_executor_is_named(tmp_path: Path) -> None:
    play = Play(STALLS["silent stream"], tmp_path)
    status = [play.step(BOTH) for _ in range(3)][-1]
    found = Why.of(status, now=status.written + 60).found[0]
    assert found.cause.name == "stalled"
    assert found.sentence.startswith("No micro-batch has ended for 60 s; the one before took 1.0 s")
    assert not [each for each in Why.of(status, now=status.written + 5).found if each.cause.name == "stalled"]
    idle = replace(status, ticking=False)  # without a timer, no rows mean no micro-batch
    assert not [each for each in Why.of(idle, now=status.written + 60).found if each.cause.name == "stalled"]


def test_an_executor_that_spark_lost_is_named(tmp_path: Path) -> None:
    play = Play(STALLS["silent stream"], tmp_path)
    lost = (LostExecutor("0", play.now / SECOND, "Command exited with code 137.\nMore", 1),)
    seen = replace(play.computed(BOTH), lost=lost)
    status = Status.read(play.keeper.text(play.keeper.written(seen, 1, {}, now=play.now / SECOND)))
    found = first(status)
    assert (found.cause.name, status.lost) == ("executor lost", lost)
    assert found.sentence == (
        "Executor 0 was lost at 22:13:20: Command exited with code 137. 1 is left; its tasks run again, "
        "which takes longer."
    )
    assert first(play.step(BOTH)).cause.name != "executor lost"


def test_a_budget_that_is_too_small_is_named(tmp_path: Path) -> None:
    many = Step(1.0, {name: [-0.001 * i for i in range(300)] for name in ("clicks", "buys")})
    streams = dict.fromkeys(("clicks", "buys"), 'bounds = { disorder = "0 s", latency = "1 s" }')
    play = Play(replace(STALLS["silent stream"], streams=streams), tmp_path, budget=20_000)
    play.cluster.mishaps = 0.0
    with tuning.using(spill_file_bytes=0):
        statuses = [play.step(many) for _ in range(4)]
    assert "budget too small" in [each.cause.name for each in Why.of(statuses[-1]).found]


def test_a_micro_batch_that_runs_again_is_counted_once(tmp_path: Path) -> None:
    play = Play(STALLS["a flood of late rows"], tmp_path)
    statuses = list(play.statuses())
    keeper = play.keeper
    seen = Seen((json.dumps(_empty_report(statuses[-1])).encode(),), (), {"q": 5})
    one = keeper.written(seen, 7, {}, now=1.0)
    text = keeper.text(one)
    again = keeper.written(seen, 7, {}, now=2.0)
    restarted = StatusKeeper(keeper.described, "nowhere")
    restarted.resume(text)
    after_crash = restarted.written(seen, 7, {}, now=3.0)
    following = restarted.written(seen, 8, {}, now=4.0)
    base = statuses[-1].queries["q"].rows_out
    counted = [each.queries["q"].rows_out - base for each in (one, again, after_crash, following)]
    assert counted == [5, 5, 5, 10]
    assert one.reasons == again.reasons == after_crash.reasons == statuses[-1].reasons


def test_a_status_that_cannot_be_made_or_written_does_not_stop_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play = Play(STALLS["silent stream"], tmp_path)
    damaged = Seen((b"{",))
    play.keeper.write(None, lambda: play.keeper.computed(damaged, 1))  # type: ignore[arg-type]
    assert "cannot write the status of the job" in caplog.text


def _empty_report(status: Status) -> dict[str, Any]:
    kinds: dict[str, Any] = {"streams": {}, "queries": {}, "operators": {}, "waiting": [], "dropping": []}
    sizes = {"state_bytes": 0, "bytes": 0, "spilled_bytes": 0}
    return {
        "now": status.now,
        **kinds,
        "quality": {},
        "memory": {"host": 0, "shards": 1, "settings": {}},
        "orders": {},
        "conditions": {},
        **sizes,
    }


SENT = st.lists(st.integers(-40, 40).map(lambda tenths: tenths / 10), max_size=6)


@effort(0.2, "each example runs two jobs")
@given(
    st.lists(st.builds(lambda c, b: Step(1.0, {"clicks": c, "buys": b}), SENT, SENT), min_size=1, max_size=3),
    st.integers(2, 3),
)
def test_shards_put_together_are_what_one_shard_says(steps: list[Step], shards: int) -> None:
    """Rows of all shards, the lowest heartbeats, and the streams that lack them."""
    stall = replace(STALLS["rows of the future"], steps=tuple(steps))
    one = list(Play(stall, Path(), shards=1).statuses())[-1]
    many = list(Play(stall, Path(), shards=shards).statuses())[-1]
    figures = ("rows_in", "rows_processed", "rows_late", "rows_rejected", "heartbeat", "arrived", "recent")
    for stream, whole in one.streams.items():
        assert [getattr(many.streams[stream], f) for f in figures] == [getattr(whole, f) for f in figures]
    assert _waits(many) == _waits(one)
    assert set(many.reasons) == set(one.reasons)  # equal counts have no order
    assert {n: q.rows_out for n, q in many.queries.items()} == {n: q.rows_out for n, q in one.queries.items()}


def _waits(status: Status) -> dict[Any, Any]:
    return {wait.place: (wait.streams, wait.wanted, wait.rows) for wait in status.waiting}


def test_the_heartbeat_advances_although_no_operator_asks(tmp_path: Path) -> None:
    """One can alert on the age of a heartbeat, also of a query that never waits."""
    streams = {"clicks": 'bounds = { latency = "2 s" }'}
    stall = Stall("", (), (CLICKS, *[Step()] * 4), streams, "SELECT item FROM clicks")
    beats = [status.streams["clicks"].heartbeat for status in Play(stall, tmp_path).statuses()]
    assert beats[1:] == [BASE + (number - 2) * SECOND for number in range(1, 5)]


def test_a_report_does_not_follow_the_state(tmp_path: Path) -> None:
    play = Play(STALLS["a bound that is never proven"], tmp_path)
    few = play.computed(Step(1.0, {"clicks": [-0.1] * 10, "buys": [-0.1] * 10})).reports
    many = play.computed(Step(1.0, {"clicks": [-0.1] * 20_000, "buys": [-0.1] * 20_000})).reports
    assert max(map(len, many)) < 1.2 * max(map(len, few)) < 4000


def test_a_directory_without_a_status_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["why", str(tmp_path)])
    assert done.exit_code
    assert "HR-F020" in done.output
    assert "there is no status in this directory" in done.output


# --- on Spark ---------------------------------------------------------------------------------------------


@pytest.fixture
def job(spark: SparkSession, feed: Callable[..., Any], tmp_path: Path) -> Any:
    """A join of two streams at recorded instants, of which one falls silent after the first."""
    read: dict[str, DataFrame] = {}
    for name, speaks in (("clicks", 4), ("buys", 1), ("timer", 4)):
        source = feed(name, "item bigint, t bigint, arrival bigint")
        for number in range(4):
            now = 1_000 + 10 * number
            row = {"item": 1, "t": now, "arrival": now}
            source.put(*([row] if number < speaks else []))
        read[name] = source.read(spark)
    timer = read.pop("timer")
    columns = pa.schema([("item", pa.int64()), ("t", pa.int64())])
    streams = [headrace.StreamDef(n, columns, time_column="t", ticks_per_second=1) for n in read]
    joined = headrace.query(JOIN, streams)
    options = headrace.spark.SparkOptions(
        bounds={"clicks": {"disorder": 2}, "buys": {"disorder": 5}}, timer=timer, arrival="arrival"
    )
    return headrace.spark.job(read, options, checkpoint=tmp_path / "c"), joined


def test_a_silent_stream_and_a_sink_that_hangs_on_spark(job: Any) -> None:
    made, joined = job
    inside: list[Why] = []

    def sink(rows: DataFrame, batch: int) -> None:
        status = made.status()
        inside.append(Why.of(status, now=status.written + 60))

    with pytest.raises(SparkError, match="HR-SP60"):
        made.why()
    made.add("joined", joined, sink=sink)
    played(lambda: made.start(trigger={"availableNow": True}))
    assert [inside[0].found[0].cause.name, inside[0].found[0].queries] == ["slow sink", ("joined",)]
    status, why = made.status(), made.why()
    assert (status.state, status.runtime, status.batch) == ("stopped", "spark", 3)
    assert (status.streams["clicks"].rows_in, status.streams["buys"].rows_in) == (4, 1)
    (stopped, silent, *_) = why.found
    assert (stopped.cause.name, silent.cause.name, silent.stream) == ("stopped", "bound not proven", "buys")
    assert silent.sentence.startswith("Query joined has waited 30 s for stream buys, silent since 1000")
    assert "bound not proven" in why._repr_html_()
    assert "stream buys: 1 rows" in str(status)
    checkpoint = Path(made.checkpoint)
    patience = 100  # the lock is released within a second
    while json.loads(_said("status", checkpoint, "--json"))["state"] != "stopped" and patience:
        patience -= 1
        time.sleep(0.1)
    assert _said("why", checkpoint) == f"{why}\n"
    assert "clicks" in _said("top", checkpoint, "--once")


def test_the_command_line_reads_the_status_of_both_runtimes_alike(
    spark: SparkSession, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    pipeline = sliding(here, rows=300)
    pipeline.write_text(pipeline.read_text().replace("500 ms", "1 s"))  # no row is late, however it is read
    there = on_both(here, pipeline, spark) / pipeline.name
    write_status(load(pipeline), Runner(load(pipeline)).run().progress)
    found = {file: json.loads(_said("status", file, "--json")) for file in (pipeline, there)}
    ours, sparks = found[pipeline], found[there]
    assert (ours["runtime"], sparks["runtime"], sparks["state"]) == ("embedded", "spark", "finished")
    for figure in ("rows_in", "rows_processed", "rows_rejected"):
        assert sparks["streams"]["bids"][figure] == ours["streams"]["bids"][figure]
    assert sparks["queries"]["hot"]["rows_out"] == ours["queries"]["hot"]["rows_out"]
    assert _said("why", there) == _said("why", pipeline)
    assert "bids" in _said("top", there, "--once")


def _said(*words: Any) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout
