"""Commands of the control log on Spark: every shard applies them in the same micro-batch, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, OrderedDict, deque
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.control import (
    AddQuery,
    Command,
    Entry,
    Heartbeat,
    Log,
    Punctuate,
    RemoveQuery,
    Resize,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    apply,
    changed,
    log_of,
    submit,
)
from headrace.control.apply import add_queries
from headrace.engine import Engine
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceError, HeadraceWarning
from headrace.flow.batch import concat
from headrace.pipeline import Pipeline, load, parse
from headrace.plan.nodes.core import Plan
from headrace.runtimes.sending import send
from headrace.runtimes.spark.driver.continuing import added_again, with_added
from headrace.runtimes.spark.driver.control_log import ControlLog
from headrace.runtimes.spark.driver.record import LOG, Record
from headrace.runtimes.spark.driver.topology import HomeOf, Level, Placed, World, topology
from headrace.runtimes.spark.worker.answers import Outlet
from headrace.runtimes.spark.worker.controlling import ControlSpec, in_band
from headrace.time.timestamp import MIN_TIME
from tests.laws import effort
from tests.spark.simulated import Cluster, MicroBatch, clocks, run_levels
from tests.spark.test_pipeline import lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
[pipeline]
name = "changing"
checkpoint = "state"
[streams.s]
source = "s.jsonl"
schema = "k BIGINT, j BIGINT, v BIGINT, t BIGINT"
time = { column = "t", unit = "tick" }
bounds = { disorder = 2 }
[streams.u]
source = "u.jsonl"
schema = "k BIGINT, w BIGINT, t BIGINT"
time = { column = "t", unit = "tick" }
bounds = { disorder = 2 }
[[queries]]
name = "counted"
sql = "SELECT k, count(*) AS n FROM s [RANGE 10 TICKS SLIDE 10 TICKS] GROUP BY k"
sink = "counted.jsonl"
late = "late.jsonl"
[[queries]]
name = "pairs"
sql = "SELECT s.k, s.v, u.w FROM s [RANGE MIN 2 TICKS, MAX 8 TICKS], u [RANGE 5 TICKS] WHERE s.k = u.k"
sink = "pairs.jsonl"
[[queries]]
name = "all"
sql = "SELECT count(*) AS n FROM u [RANGE 7 TICKS SLIDE 7 TICKS]"
sink = "all.jsonl"
"""

TEXTS = (
    "SELECT k, sum(v) AS v FROM s [RANGE 6 TICKS SLIDE 6 TICKS] GROUP BY k",
    "SELECT k, v FROM s WHERE v > 2",
    "SELECT k, max(w) AS w FROM u [RANGE 4 TICKS] GROUP BY k",
    "SELECT count(*) AS n FROM u [RANGE 9 TICKS SLIDE 3 TICKS]",
    "SELECT s.k, u.w FROM s [RANGE 3 TICKS], u [RANGE 3 TICKS] WHERE s.k = u.k",
)
"""Queries that have a home among the hosts of the file."""


BOUNDS: list[dict[str, Any]] = [
    {"disorder": 0},
    {"disorder": 5},
    {"latency": 4},
    {"disorder": None, "latency": 8},
    {"disorder": 6, "latency": None},
    {"transit": 3},
    {"guard": None},
]
"""Bounds that shards can take over while they run."""


def inputs_of(pipeline: Pipeline) -> Inputs:
    rules = {name: stream.rules for name, stream in pipeline.read.items()}
    return Inputs(pipeline.heartbeats(), pipeline.promises(), rules=rules)


def told(now: int) -> st.SearchStrategy[Command]:
    """A command that changes only the state."""
    return st.one_of(
        st.builds(Resize, st.just("pairs"), st.integers(1, 9), st.just("s")),
        st.builds(Heartbeat, st.sampled_from("su"), st.integers(max(now - 5, 0), now + 3)),
        st.builds(
            Punctuate,
            st.just("s"),
            st.builds(lambda k: {"k": {"is": k}}, st.integers(0, 3)),
            st.none() | st.integers(now, now + 9),
        ),
    )


@st.composite
def commands(draw: st.DrawFn, number: int, now: int) -> Command:
    """A command that shards apply while they run; some of them cannot be applied."""
    name = st.sampled_from(["counted", "pairs", "all", *(f"new{i}" for i in range(number + 1))])
    return draw(
        st.one_of(
            st.builds(AddQuery, st.just(f"new{number}"), st.sampled_from(TEXTS), st.just(f"{number}.jsonl")),
            st.builds(RemoveQuery, name),
            told(now),
            st.builds(SetBounds, st.sampled_from("su"), st.sampled_from(BOUNDS)),
            st.builds(SetStrategy, st.sampled_from(["dfs", "bfs", "rr", "unknown"])),
            st.builds(SetLevel, st.sampled_from(["query", "operator", "memory"])),
        )
    )


def rows_of(rng: random.Random, now: int) -> dict[str, Any]:
    found = {}
    for name, columns in (("s", ("k", "j", "v", "t")), ("u", ("k", "w", "t"))):
        times = [max(0, now - rng.choice((0, 0, 1, 2, 2, 6))) for _ in range(rng.randint(0, 5))]
        values = {c: times if c == "t" else [rng.randint(0, 3) for _ in times] for c in columns}
        if times:
            schema = pa.schema([(c, pa.int64()) for c in columns])
            found[name] = (pa.RecordBatch.from_pydict(values, schema=schema), np.array(times, object))
    return found


@pytest.mark.timeout(900)
@effort(4, "Spark itself is too slow to try so many: 200 sequences")
@given(st.data())
def test_commands_change_a_job_as_they_change_an_engine(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    batches: list[MicroBatch] = []
    now = 0
    for _ in range(data.draw(st.integers(2, 8))):
        now += rng.choice((1, 3, 9))
        batches.append((now, rows_of(rng, now)))
    batches.append((now + 30, {}))
    with TemporaryDirectory() as folder:
        pipeline = parse(FILE, root=Path(folder))
        log, texts, entries = Log(Path(folder) / "log"), dict[int, list[str]](), dict[int, list[Entry]]()
        for number in range(data.draw(st.integers(1, 6))):
            at = data.draw(st.integers(min(texts, default=0) if not texts else max(texts), len(batches) - 1))
            entry = log.append(data.draw(commands(number, batches[at][0])))
            entries.setdefault(at, []).append(entry)
            texts.setdefault(at, []).append((log.path / f"{entry.number:08d}.json").read_text())
    event(f"{sum(map(len, entries.values()))} commands")
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    spread = on_spark(pipeline, batches, texts, data.draw(st.integers(1, 3)), cluster)
    answers = in_one_engine(pipeline, batches, entries, ends=True)
    for name in {**spread, **answers}:
        assert spread.get(name, Counter()) == answers.get(name, Counter()), name


def on_spark(
    pipeline: Pipeline, batches: list[MicroBatch], texts: dict[int, list[str]], shards: int, cluster: Cluster
) -> dict[str, Counter[str]]:
    """The answers of each query in the simulated hosts."""
    outcome = run_levels(
        levels_of(pipeline, shards, 0),
        batches,
        cluster,
        pa.schema([]),
        ends=True,  # with level `query` an engine waits for the streams of other queries too
        commands=texts,
    )
    return {name: Counter(map(repr, rows)) for name, rows in outcome.by_query.items()}


def levels_of(
    pipeline: Pipeline, shards: int, position: int, plans: dict[str, Plan] | None = None
) -> list[Level]:
    """The hosts of a start that contains the commands up to `position`; `plans` if queries share them."""
    return start_of(pipeline, shards, position, plans)[0]


def start_of(
    pipeline: Pipeline,
    shards: int,
    position: int,
    plans: dict[str, Plan] | None = None,
    placed: tuple[Placed, ...] = (),
) -> tuple[list[Level], tuple[Placed, ...]]:
    """The hosts of a start, and where they are; `placed` are those of an earlier one."""
    inputs = inputs_of(pipeline)
    plans = plans or {query.name: query.query.plan for query in pipeline.queries}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        made = topology(plans, World(inputs, shards, placed=placed), Outlet(packed=True))
    homes = tuple(each.home for each in made.placed if each.level == 0)
    control = ControlSpec(pipeline, position, homes, HomeOf(inputs, shards))
    levels = [tuple(replace(host, control=control) for host in level) for level in made.levels]
    return levels, made.placed


def test_a_query_of_a_command_shares_nothing_with_queries_of_a_start_of_the_same_number() -> None:
    """Starts and commands are both counted. Workers that begin again must build the graph that was there."""
    text = "SELECT k, max(v) AS v FROM s [RANGE 20 TICKS SLIDE 20 TICKS] GROUP BY k"
    more = f'[[queries]]\nname = "most"\nsql = "{text}"\nsink = "most.jsonl"\n'
    rng = random.Random(5)
    batches: list[MicroBatch] = [(now, rows_of(rng, now)) for now in range(3, 60, 4)]
    with TemporaryDirectory() as folder:
        pipeline, log = parse(FILE + more, root=Path(folder)), Log(Path(folder) / "log")
        entry = log.append(AddQuery("same", text, "same.jsonl"))
        written = (log.path / f"{entry.number:08d}.json").read_text()
    second = [
        tuple(replace(host, since=dict.fromkeys(host.queries, entry.number)) for host in level)
        for level in levels_of(pipeline, 2, 0)
    ]
    cluster = Cluster(random.Random(1), mishaps=0)
    found, said = dict[str, Counter[str]](), clocks(batches)
    for begin, stop in pairwise(range(0, len(batches) + 1, 3)):
        last = stop == len(batches)
        some = {0: [written]} if begin == 3 else {}
        outcome = run_levels(
            second, batches[begin:stop], cluster, pa.schema([]), last, said[begin:stop], commands=some
        )
        for name, rows in outcome.by_query.items():
            found.setdefault(name, Counter()).update(map(repr, rows))
        cluster.restart()
    answers = in_one_engine(pipeline, batches, {3: [entry]}, ends=True)
    assert answers["same"] != answers["most"]
    for name in {**found, **answers}:
        assert found.get(name, Counter()) == answers.get(name, Counter()), name


def test_the_strategy_of_one_query_changes_while_its_shards_run(tmp_path: Path) -> None:
    """It changes no answer; one that does not exist, or of a query that is not here, changes nothing."""
    rng = random.Random(3)
    batches: list[MicroBatch] = [(now, rows_of(rng, now)) for now in (3, 6, 9, 39)]
    pipeline, log = parse(FILE, root=tmp_path), Log(tmp_path / "log")
    commands = (SetStrategy("bfs", "pairs"), SetStrategy("unknown", "counted"), SetStrategy("rr", "gone"))
    entries = {at: [log.append(command)] for at, command in enumerate(commands, start=1)}
    texts = {at: [(log.path / f"{at:08d}.json").read_text()] for at in entries}
    cluster = Cluster(random.Random(1), mishaps=0)
    found = on_spark(pipeline, batches, texts, 1, cluster)
    answers = in_one_engine(pipeline, batches, {1: entries[1]}, ends=True)
    assert answers["pairs"]
    for name in {**found, **answers}:
        assert found.get(name, Counter()) == answers.get(name, Counter()), name


def test_a_query_that_was_added_to_a_single_shard_is_known_to_the_next_start(tmp_path: Path) -> None:
    """It began again, and its output was taken for that of another run."""
    head, *_, alone = FILE.split("[[queries]]")
    pipeline = parse(f"{head}[[queries]]{alone}", root=tmp_path)
    inputs, (_, placed) = inputs_of(pipeline), start_of(pipeline, 3, 0)
    after = changed(pipeline, Entry(1, AddQuery("more", TEXTS[3], "more.jsonl")))
    assert HomeOf(inputs, 3)(after.queries[-1], tuple(each.home for each in placed)) == 0
    record = Record(partitions=3, shards=3, placed=placed)
    assert with_added(record, after, inputs).queries == {"all", "more"}


@pytest.mark.parametrize("read", [True, False])
def test_a_query_that_comes_back_under_its_name_begins_empty(tmp_path: Path, read: bool) -> None:
    """Its sink and columns may differ: shards leave it to the next start, whether they read of it or not."""
    pipeline, log = parse(FILE, root=tmp_path), Log(tmp_path / "log")
    gone, back = RemoveQuery("counted"), AddQuery("counted", TEXTS[0], "again.jsonl")
    entries = [log.append(gone), log.append(back)]
    texts = [(log.path / f"{entry.number:08d}.json").read_text() for entry in entries]
    rng, cut = random.Random(7), 6
    batches: list[MicroBatch] = [(now, rows_of(rng, now)) for now in range(3, 60, 3)]
    cluster, said = Cluster(random.Random(1), mishaps=0), clocks(batches)
    levels, placed = start_of(pipeline, 2, 0)
    found = run_levels(
        levels, batches[:cut], cluster, pa.schema([]), False, said[:cut], commands={5: texts} if read else {}
    ).by_query
    after, inputs = changed(changed(pipeline, entries[0]), entries[1]), inputs_of(pipeline)
    record = Record(partitions=2, shards=2, placed=placed, sources=(LOG,))
    known = with_added(record, after, inputs)
    assert added_again(record, known, [query.name for query in after.queries]) == {"counted"}
    levels, _ = start_of(after, 2, 2, placed=known.placed)
    levels = [
        tuple(
            replace(
                host,
                generation=1,
                since={name: int(name == "counted") for name in host.queries},
                reset=frozenset({"counted"}).intersection(host.queries),
            )
            for host in level
        )
        for level in levels
    ]
    later = run_levels(levels, batches[cut:], cluster, pa.schema([]), True, said[cut:]).by_query
    at = {5: entries[:1], 6: entries[1:]} if read else {6: entries}
    for name, rows in in_one_engine(pipeline, batches, at, ends=True).items():
        assert Counter(map(repr, [*found.get(name, []), *later[name]])) == rows, name


def test_a_name_that_was_there_before_needs_another_start(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(FILE)
    pipeline = load(tmp_path / "p.toml")
    log, run = log_of(pipeline), ControlLog(pipeline, str)
    run.start()
    log.append(AddQuery("new", TEXTS[0], "new.jsonl"))
    run.look(lambda query: True)
    assert not run.must_start_again
    for command in (RemoveQuery("new"), AddQuery("new", TEXTS[1], "another.jsonl")):
        log.append(command)
    assert run.look(lambda query: True).queries[-1].spec.sql == TEXTS[1]
    assert run.must_start_again


def test_a_worker_that_missed_other_bounds_does_not_catch_up_under_the_old_ones(tmp_path: Path) -> None:
    """Each micro-batch runs on another worker: its engine is of before the command, with the old bounds."""
    rng = random.Random(11)
    batches: list[MicroBatch] = [(now, rows_of(rng, now)) for now in range(3, 90, 3)]
    pipeline, log = parse(FILE, root=tmp_path), Log(tmp_path / "log")
    entries, texts = dict[int, list[Entry]](), dict[int, list[str]]()
    for at, bounds in ((4, {"disorder": 9}), (9, {"disorder": 0}), (13, {"disorder": None, "latency": 5})):
        entry = log.append(SetBounds("s", bounds))
        entries[at], texts[at] = [entry], [(log.path / f"{entry.number:08d}.json").read_text()]
    cluster = Cluster(random.Random(1), mishaps=0)
    cluster.workers = [OrderedDict() for _ in range(7)]
    found, answers = (
        on_spark(pipeline, batches, texts, 2, cluster),
        in_one_engine(pipeline, batches, entries, ends=True),
    )
    assert answers["counted"] != in_one_engine(pipeline, batches, {}, ends=True)["counted"]
    for name in {**found, **answers}:
        assert found.get(name, Counter()) == answers.get(name, Counter()), name


@pytest.mark.parametrize(
    ("bounds", "live"),
    [
        *(({**each}, True) for each in BOUNDS),
        ({"guard": 5}, False),
        ({"slack": "3 rows"}, False),
        ({"disorder": None, "slack": "1 row"}, False),
    ],
)
def test_bounds_that_change_how_rows_are_sent_need_another_start(
    tmp_path: Path, bounds: dict[str, Any], live: bool
) -> None:
    pipeline, command = parse(FILE, root=tmp_path), SetBounds("s", bounds)
    assert in_band(command, pipeline, changed(pipeline, Entry(1, command))) is live


PIPED = """
[streams.piped]
source = "stdin"
schema = "k BIGINT, t BIGINT"
time = { column = "t", unit = "tick" }
"""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (SetBounds("s", {"latency": 5}), "the clock runs in real time"),
        (SetBounds("s", {"guard": 5}), "the clock runs in real time"),
        (AddQuery("x", TEXTS[1], "x.arrow"), "cannot write Arrow files"),
        (AddQuery("x", TEXTS[1], {"path": "x.jsonl", "existing": "append"}), "cannot append"),
        (AddQuery("x", TEXTS[1], "x.jsonl", late="late.arrow"), "cannot write Arrow files"),
        (AddQuery("x", "SELECT k FROM piped", "x.jsonl"), "'stdin' is not available on Spark"),
    ],
)
def test_what_spark_does_not_have_is_refused_and_stops_nothing(
    tmp_path: Path, command: Command, said: str
) -> None:
    """Before it is written; and by the run, if someone else has written it. The run ended with an error."""
    (tmp_path / "p.toml").write_text(FILE + PIPED)
    pipeline, notes = load(tmp_path / "p.toml"), list[str]()
    with pytest.raises(HeadraceError, match="HR-F017") as refused:
        send(pipeline, command)
    assert said in str(refused.value)
    assert log_of(pipeline).read() == []
    run = ControlLog(pipeline, notes.append)
    run.start()
    log_of(pipeline).append(command)
    assert run.look(lambda query: True) == pipeline
    assert not run.must_start_again
    assert said in notes[0]
    (entry,) = log_of(pipeline).read()
    assert entry.refused is not None
    assert said in entry.refused


@given(st.data())
def test_commands_that_a_killed_driver_left_are_applied_by_the_next(data: st.DataObject) -> None:
    """The next start knows them, but its first micro-batch is the one that brings them to the shards."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    batches: list[MicroBatch] = [(now, rows_of(rng, now)) for now in range(3, 30, 5)]
    batches.append((60, {}))
    killed = data.draw(st.integers(0, len(batches) - 2))
    with TemporaryDirectory() as folder:
        pipeline = parse(FILE, root=Path(folder))
        log, texts, entries = Log(Path(folder) / "log"), dict[int, list[str]](), dict[int, list[Entry]]()
        for at in sorted(data.draw(st.lists(st.integers(0, killed), min_size=1, max_size=4))):
            entry = log.append(data.draw(told(batches[at][0])))
            entries.setdefault(at, []).append(entry)
            texts.setdefault(at, []).append((log.path / f"{entry.number:08d}.json").read_text())
    cluster, shards = Cluster(random.Random(data.draw(st.integers(0, 2**32)))), data.draw(st.integers(1, 3))
    said, found = clocks(batches), dict[str, Counter[str]]()
    for begin, stop, position in ((0, killed, 0), (killed, None, entry.number)):
        outcome = run_levels(
            levels_of(pipeline, shards, position),
            batches[begin:stop],
            cluster,
            pa.schema([]),
            ends=stop is None,
            said=said[begin:stop],
            commands={at - begin: each for at, each in texts.items()},
        )
        for name, rows in outcome.by_query.items():
            found.setdefault(name, Counter()).update(map(repr, rows))
    answers = in_one_engine(pipeline, batches, entries, ends=True)
    for name in {**found, **answers}:
        assert found.get(name, Counter()) == answers.get(name, Counter()), name


def in_one_engine(
    pipeline: Pipeline, batches: list[MicroBatch], entries: dict[int, list[Entry]], ends: bool = False
) -> dict[str, Counter[str]]:
    """The answers of each query in an engine that received the same commands at the same instants."""
    engine = Engine()
    add_queries(engine, pipeline)
    for name in pipeline.read:
        engine.streams.read_until(name, MIN_TIME)
    answers: dict[str, Counter[str]] = {}
    said = clocks(batches)
    for number, (now, arrived) in enumerate(batches):
        for entry in entries.get(number, ()):
            try:
                after = changed(pipeline, entry)
                apply(entry, engine, after)
                pipeline = after
            except HeadraceError:
                event("a command that cannot be applied")
        for name, (rows, times) in arrived.items():
            engine.push(name, rows, pa.array(times, pa.int64()), now=now)
        for name in pipeline.read if said[number] is not None else ():
            engine.streams.read_until(name, said[number])
        engine.advance(now)
        for name in pipeline.read if ends and number == len(batches) - 1 else ():
            engine.streams.end(name)
        engine.advance(now)
        for name, found in engine.drain_all().items():
            for batch in [concat(found)] if found else []:
                rows = zip(batch.data.to_pylist(), batch.start.tolist(), strict=True)
                answers.setdefault(name, Counter()).update(repr((*r.values(), t)) for r, t in rows)
        engine.drain_late()
        engine.drain_rejected()
    return answers


# --- on Spark ---------------------------------------------------------------------------------------------

FOLLOWED = '{ path = "NAME", format = "json", follow = true }'
SCHEMA = pa.schema([(c, pa.int64()) for c in ("k", "j", "v", "t")])
LAST = {
    "s": (pa.RecordBatch.from_pylist([{"k": 9, "j": 9, "v": 9, "t": 1000}], SCHEMA), np.array([1000], object))
}
"""A row after all others: they are answered."""


class Live:
    """A pipeline that runs on Spark in a thread, rows that are put before it, and commands that it gets."""

    def __init__(self, root: Path, spark: SparkSession | None, text: str = FILE) -> None:
        for name in "su":
            (root / name).mkdir(parents=True)
            text = text.replace(f'"{name}.jsonl"', FOLLOWED.replace("NAME", name))
        (root / "p.toml").write_text(text)
        self.root, self.spark = root, spark
        self.batches: list[MicroBatch] = []
        self.entries: dict[int, list[Entry]] = {}
        self.notes: list[str] = []
        self._done = threading.Semaphore(0)

    def __enter__(self) -> Live:
        from headrace.runtimes.spark.driver.pipeline import Runner

        self.runner = Runner(load(self.root / "p.toml"), self.spark, say=self.notes.append)
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.wait()
        return self

    def _run(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", HeadraceWarning)
                self.runner.run(on_progress=lambda progress: self._done.release())
        except BaseException as error:
            self._failed.append(error)
            self._done.release()

    def __exit__(self, *error: object) -> None:
        self.runner.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()
        assert not self._failed, self._failed

    def wait(self, count: int = 1) -> None:
        """Wait for as many micro-batches to end."""
        for _ in range(count):
            assert self._done.acquire(timeout=240), "no micro-batch in 240 s"
        assert not self._failed, self._failed

    def put(self, rows: dict[str, Any]) -> None:
        """Rows, which the next micro-batches read."""
        number = len(self.batches)
        for name, (data, _) in rows.items():
            draft = self.root / name / f".{number}.json"
            draft.write_text("".join(json.dumps(row) + "\n" for row in data.to_pylist()))
            draft.rename(self.root / name / f"{number}.json")
        self.batches.append((number, rows))
        self._settle()

    def tell(self, command: Command) -> Entry:
        """A command, which the next micro-batch reads."""
        entry = submit(load(self.root / "p.toml"), command)
        self.entries.setdefault(len(self.batches), []).append(entry)
        self._settle()
        return entry

    def _settle(self) -> None:
        """Everything that is there now is read: by a micro-batch that begins after the one that runs."""
        while self._done.acquire(blocking=False):
            pass
        self.wait(3)

    def answers(self) -> dict[str, Counter[str]]:
        """The rows of each output."""
        found = {}
        for path in self.root.glob("*.jsonl"):
            rows = [json.loads(line) for line in lines(path)]
            found[path.stem] = Counter(repr(tuple(row.values())) for row in rows)
        return found


def expected(live: Live) -> dict[str, Counter[str]]:
    """What one engine gives that gets the same rows and commands, without the times of the answers."""
    whole = in_one_engine(load(live.root / "p.toml"), live.batches, live.entries)
    return {
        name: sum((Counter({repr(eval(row)[:-1]): n}) for row, n in found.items()), Counter[str]())
        for name, found in whole.items()
    }


BY_ANOTHER_KEY = "SELECT j, count(*) AS n FROM s [RANGE 5 TICKS SLIDE 5 TICKS] GROUP BY j"
CHANGES: list[Command] = [
    AddQuery("sums", TEXTS[0], "sums.jsonl"),
    RemoveQuery("counted"),
    Resize("pairs", 3, "s"),
    AddQuery("more", TEXTS[3], "more.jsonl"),
    Punctuate("s", {"k": {"is": 1}}),
    Heartbeat("u", 12),
    SetStrategy("bfs"),
    SetBounds("s", {"disorder": 6}),
]
"""What shards apply while the job runs."""
RESTARTING: list[Command] = [
    AddQuery("keyed", BY_ANOTHER_KEY, "keyed.jsonl"),
    SetBudget("1 GB"),
]
"""What shards cannot apply: the driver starts the job again."""


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 9))])
def test_a_running_pipeline_changes_as_an_engine_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    chosen = [*rng.sample(CHANGES, 3), *rng.sample(RESTARTING, seed % 2)]
    rng.shuffle(chosen)
    # A query that gets shards of its own does not know what was promised before (docs/control.md).
    chosen.sort(key=lambda command: isinstance(command, Punctuate))
    with Live(tmp_path, spark) as live:
        for number, command in enumerate([*chosen, None]):
            live.put(rows_of(rng, 10 * number + 5))
            live.put(rows_of(rng, 10 * number + 9))
            if command is not None:
                live.tell(command)
        live.put(LAST)
    found, wanted = live.answers(), expected(live)
    for name in wanted:
        assert found.get(name, Counter()) == wanted[name], name


@pytest.mark.spark
def test_queries_that_were_added_one_by_one_keep_their_state_at_a_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They could share an aggregate if they had started together, but the state of one began later."""
    window = "FROM s [RANGE 20 TICKS SLIDE 20 TICKS] GROUP BY k"
    rng = random.Random(3)
    with Live(tmp_path, spark) as live:
        live.tell(AddQuery("most", f"SELECT k, max(v) AS v {window}", "most.jsonl"))
        live.put(rows_of(rng, 5))
        live.tell(AddQuery("total", f"SELECT k, sum(v) AS v {window}", "total.jsonl"))
        live.put(rows_of(rng, 9))
        live.tell(SetBudget("1 GB"))
        live.put(LAST)
    assert "this start keeps counted, pairs, most, total, all" in live.notes
    found, wanted = live.answers(), expected(live)
    assert wanted["most"]
    assert wanted["total"]
    for name in wanted:
        assert found.get(name, Counter()) == wanted[name], name


@pytest.mark.spark
def test_other_bounds_hold_from_the_next_micro_batch_on(spark: SparkSession, tmp_path: Path) -> None:
    """Without another start of the Spark query; rows that were late under the old bounds count."""
    rng = random.Random(5)
    with Live(tmp_path, spark) as live:
        live.put(rows_of(rng, 5))
        live.tell(SetBounds("s", {"disorder": 9}))
        for now in (14, 23, 17, 32):
            live.put(rows_of(rng, now))
        live.put(LAST)
        assert live.runner.pipeline.streams["s"].lateness.disorder == 9
    assert [note for note in live.notes if note.startswith("this start")] == [
        "this start begins counted, pairs, all"
    ]
    found, wanted = live.answers(), expected(live)
    live.entries.clear()
    assert expected(live)["counted"] != wanted["counted"]
    for name in wanted:
        assert found.get(name, Counter()) == wanted[name], name


@pytest.mark.spark
def test_a_command_that_cannot_be_applied_stops_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Two people remove a query at the same time: the second command is refused with its reason."""
    with Live(tmp_path, spark) as live:
        log = live.root / "state" / "control"
        live.tell(RemoveQuery("all"))
        Log(log).append(RemoveQuery("all"))
        live.put(rows_of(random.Random(1), 5))
        assert (log / "00000002.refused").exists()
        assert any("was refused" in note for note in live.notes)
        with pytest.raises(HeadraceError):
            submit(load(live.root / "p.toml"), AddQuery("bad", "SELECT nothing FROM s", "bad.jsonl"))


class Killed(Live):
    """The same in processes of its own, which are killed without warning."""

    def start(self) -> None:
        words = [sys.executable, "-m", "headrace.cli", "run", "p.toml", "--runtime", "spark", "--json"]
        where = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(
            words, cwd=self.root, env=where, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def until(self, rows: dict[str, int]) -> None:
        """Wait until as many rows of each stream are processed."""
        assert self._process.stderr is not None
        last: deque[str] = deque(maxlen=20)
        for line in self._process.stderr:
            last.append(line)
            if line.startswith("{"):
                read = {name: each["rows"] for name, each in json.loads(line)["streams"].items()}
                if all(read.get(name, 0) >= count for name, count in rows.items()):
                    return
        ended = self._process.wait()
        self._process.communicate()
        raise AssertionError(f"the process ended with {ended}: {''.join(last)}")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _settle(self) -> None:
        """Nothing waits: the next process reads what is there."""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_driver_killed_after_a_command_applies_it_once(tmp_path: Path, seed: int) -> None:
    """Commands are between two sets of rows, so the answers do not depend on when the driver dies."""
    rng, live = random.Random(seed), Killed(tmp_path, None)
    rows: Counter[str] = Counter()
    added, closed = AddQuery("sums", TEXTS[0], "sums.jsonl"), Punctuate("s", {"k": {"is": 1}})
    changes: list[Command] = [added, closed, RemoveQuery("counted")]
    for number, command in enumerate([*changes, None]):
        made = rows_of(rng, 10 * number + 5)
        rows += Counter({name: data.num_rows for name, (data, _) in made.items()})
        live.put(made)
        live.start()
        try:
            live.until(rows)
            if command is not None:
                live.tell(command)
                time.sleep(rng.choice((0, 0.3, 2)))  # before, during or after the micro-batch that reads it
        finally:
            live.kill()
    found, wanted = live.answers(), expected(live)
    for name in wanted:
        assert found.get(name, Counter()) == wanted[name], name
