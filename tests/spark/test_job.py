"""A job: many queries in one Spark query give what they give in one engine, in the order of time."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import headrace
from headrace import tuning
from headrace.control import (
    Command,
    Heartbeat,
    Log,
    RemoveQuery,
    Resize,
    SetBounds,
    SetStrategy,
    Stop,
)
from headrace.engine import Engine
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceError, HeadraceWarning, SparkError
from headrace.flow.batch import concat
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import AggregateCall, Plan, RStream, SlidingAggregate, Source
from headrace.plan.nodes.windows import Sliding
from headrace.runtimes.spark.driver.job import Job
from headrace.runtimes.spark.driver.topology import Topology, World, levels, targets, topology
from headrace.runtimes.spark.worker.answers import RESULT, Outlet
from headrace.runtimes.spark.worker.packing import to_ipc
from headrace.time.ets import DisorderPromise, TimerPromise
from headrace.time.timestamp import MIN_TIME
from tests.laws import effort
from tests.spark.simulated import Cluster, MicroBatch, clocks, job_on_spark, run_levels
from tests.spark.test_pipeline import lines, on_both
from tests.spark.test_simulated import GUARDS, assert_in_order, micro_batches, promises
from tests.strategies.plans import TOPS, Case, source_lists, sources_of, stamped, tables_of
from tests.strategies.schemas import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Several(Plan):
    """The plans of several queries as one, to find their streams and tables."""

    plans: tuple[Plan, ...]

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return self.plans


@st.composite
def workloads(draw: st.DrawFn) -> tuple[dict[str, Plan], Case]:
    """Up to four queries over the same streams; some are equal."""
    sources = draw(source_lists())
    plans = [draw(st.sampled_from(TOPS))(draw, sources, 3) for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        plans.append(draw(st.sampled_from(plans)))
    every = Several(tuple(plans))
    leaves = {leaf.name: leaf.columns for leaf in (*sources_of(every), *tables_of(every))}
    drawn = {name: draw(rows(leaves[name], 16)) for name in sorted(leaves)}
    return {f"q{i}": plan for i, plan in enumerate(plans)}, Case(every, stamped(every, drawn))


Change = tuple[int, dict[str, Plan]]
"""From which micro-batch on, and the queries that run then."""


def in_one_engine(
    plans: dict[str, Plan],
    inputs: Inputs,
    batches: list[MicroBatch],
    tables: dict[str, pa.Table],
    ends: bool,
    change: Change | None = None,
    said: list[int | None] | None = None,
) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """The answers of each query of one engine in this process, and its late rows."""
    engine = Engine()
    after = {} if change is None else change[1]
    sources = dict.fromkeys(s for plan in (*plans.values(), *after.values()) for s in sources_of(plan))
    inputs.install(engine, sources)
    for name, plan in plans.items():
        engine.add(name, plan)
    for name, data in tables.items():
        engine.load(name, data)
    for source in sources:
        engine.streams.read_until(source.name, MIN_TIME)
    answers: dict[str, Counter[str]] = {name: Counter() for name in (*plans, *after)}
    late: Counter[str] = Counter()
    said = said or clocks(batches)
    for number, (now, arrived) in enumerate(batches):
        if change is not None and number == change[0]:
            for name in plans.keys() - after:
                engine.remove(name)
            for name in after.keys() - plans:
                engine.add(name, after[name], since=1)
        for name, (data, times) in arrived.items():
            engine.push(name, data, pa.array(times, pa.int64(), from_pandas=True), now=now)
        for source in sources:
            if said[number] is not None:
                engine.streams.read_until(source.name, said[number])
        engine.advance(now)
        if ends and number == len(batches) - 1:
            for source in sources:
                engine.streams.end(source.name)
            engine.advance(now)
        for name, found in engine.drain_all().items():
            answers[name].update(_rows(concat(found)) if found else ())
        late.update(f"{each.stream} {time}" for each in engine.drain_late() for time in each.times.tolist())
        engine.drain_rejected()
    return answers, late


def _rows(batch: Any) -> list[str]:
    return [repr((*r.values(), int(t))) for r, t in zip(batch.data.to_pylist(), batch.start, strict=True)]


@effort(2, "Spark itself is too slow to try so many")
@given(st.data())
def test_queries_of_a_job_answer_as_in_one_engine(data: st.DataObject) -> None:
    plans, case = data.draw(workloads())
    names = sorted({s.name for s in sources_of(case.plan)})
    rule = Rules(disordered=True, enforce="strict", guard=data.draw(GUARDS))
    inputs = Inputs(
        promises={name: data.draw(promises()) for name in names}, rules=dict.fromkeys(names, rule)
    )
    batches = data.draw(micro_batches(case))
    ends = data.draw(st.booleans())
    if ends:
        batches = batches[:-2] or batches
    tables = {
        t.name: pa.Table.from_pylist([r for _, r in case.sources[t.name]], schema=t.columns)
        for t in tables_of(case.plan)
    }
    partitions = data.draw(st.integers(1, 3))
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        made = levels(plans, World(inputs, partitions), Outlet(packed=True))
        event(f"{len(plans)} queries, hosts by level: {[len(level) for level in made]}")
        spread = job_on_spark(plans, inputs, batches, tables, partitions, cluster, ends=ends)
    answers, late = in_one_engine(plans, inputs, batches, tables, ends)
    for name in plans:
        assert Counter(map(repr, spread.by_query[name])) == answers[name]
    assert Counter(f"{row[0]} {row[1]}" for row in spread.late) == late
    for found in spread.by_query_and_batch.values():
        assert_in_order(found)


@effort(2, "Spark itself is too slow to try so many")
@given(st.data())
def test_a_changed_job_keeps_what_it_can(data: st.DataObject) -> None:
    """Queries come and go at a restart: those that stay answer as if nothing had happened."""
    plans, case = data.draw(workloads())
    names = sorted({s.name for s in sources_of(case.plan)})
    rule = Rules(disordered=True, enforce="strict")
    inputs = Inputs(
        promises={name: data.draw(promises()) for name in names}, rules=dict.fromkeys(names, rule)
    )
    batches = data.draw(micro_batches(case))
    cut = data.draw(st.integers(1, len(batches) - 1))
    chosen = st.lists(st.sampled_from(sorted(plans)), min_size=1, unique=True)
    first, second = ({name: plans[name] for name in data.draw(chosen)} for _ in range(2))
    tables = {
        t.name: pa.Table.from_pylist([r for _, r in case.sources[t.name]], schema=t.columns)
        for t in tables_of(case.plan)
    }
    event(f"{len(first.keys() & second)} kept, {len(second.keys() - first)} begun")
    partitions, outlet = data.draw(st.integers(1, 3)), Outlet(packed=True)
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    world = World(inputs, partitions, tables={name: to_ipc(rows) for name, rows in tables.items()})
    said = clocks(batches)
    # A stream that nobody reads at first has no state: what came before the change is not there.
    read = {s.name for plan in first.values() for s in sources_of(plan)}
    early = [(now, {n: rows for n, rows in arrived.items() if n in read}) for now, arrived in batches[:cut]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        before = topology(first, world, outlet)
        outcome = run_levels([*before.levels], early, cluster, pa.schema([]), said=said[:cut])
        cluster.restart()
        after = topology(second, replace(world, placed=before.placed), outlet)
        since = {name: 0 if name in first else 1 for name in second}
        made = [tuple(replace(h, generation=1, since=since) for h in level) for level in after.levels]
        outcome.add(run_levels(made, batches[cut:], cluster, pa.schema([]), said=said[cut:]))
    whole = early + [(now, _of(arrived, {**first, **second})) for now, arrived in batches[cut:]]
    answers, _ = in_one_engine(first, inputs, whole, tables, False, (cut, second))
    for name in second:
        if name not in first and not _promised(name, before, after):
            # Its shards are new: they do not know what others promised about the streams before.
            later = [(now, _of(arrived, {name: second[name]})) for now, arrived in batches[cut:]]
            answers[name] = in_one_engine(
                {name: second[name]}, inputs, later, tables, False, None, said[cut:]
            )[0][name]
        assert Counter(map(repr, outcome.by_query[name])) == answers[name]


def _of(arrived: dict[str, Any], plans: dict[str, Plan]) -> dict[str, Any]:
    """What arrived on the streams that these plans read."""
    read = {source.name for plan in plans.values() for source in sources_of(plan)}
    return {name: rows for name, rows in arrived.items() if name in read}


def _promised(query: str, before: Topology, after: Topology) -> bool:
    """Whether the hosts of a query had read all its streams before."""
    known = {host.shard_keys: {s.source.name for s in host.streams} for host in before.hosts}
    own = [host for host in after.hosts if query in host.queries]
    return all({s.source.name for s in host.streams} <= known.get(host.shard_keys, set()) for host in own)


def test_a_host_without_queries_frees_its_state() -> None:
    plans, cluster = {"a": counted("auction"), "c": counted("bidder")}, Cluster(random.Random(1), mishaps=0)
    world = World(INPUTS, 2)
    before = topology(plans, world, Outlet(packed=True))
    batches = [(5, {"bids": _bids([4, 5])}), (20, {})]
    run_levels([*before.levels], batches, cluster, pa.schema([]))
    gone = before.placed[1].shard_keys
    assert all(cluster.states[0, key].chunks for key in gone)
    after = topology({"a": plans["a"]}, replace(world, placed=before.placed), Outlet(packed=True))
    made = [tuple(replace(h, generation=1) for h in level) for level in after.levels]
    outcome = run_levels(made, [(30, {})], cluster, pa.schema([]), said=[20])
    assert not any(cluster.states[0, key].chunks for key in gone)
    assert outcome.by_query["a"] == [(1, 2, 0, 10, 9)]


def _bids(times: list[int]) -> Any:
    columns = {"auction": [1] * len(times), "bidder": [2] * len(times), "price": [3] * len(times)}
    return pa.RecordBatch.from_pydict(columns, schema=BIDS.schema), np.array(times, object)


def test_a_query_with_another_key_is_named() -> None:
    before = topology({"a": counted("auction")}, World(INPUTS, 2), Outlet(packed=True))
    with pytest.raises(SparkError, match="HR-SP33") as refused:
        topology({"a": counted("bidder")}, World(INPUTS, 2, placed=before.placed), Outlet(packed=True))
    assert "it was bids by auction, and is bids by bidder now" in str(refused.value)
    assert "--reset a" in str(refused.value)


# --- how queries are put into hosts -----------------------------------------------------------------------

BIDS = Source("bids", pa.schema([("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64())]))
INPUTS = Inputs(promises={"bids": TimerPromise(5)}, rules={"bids": Rules(disordered=True, enforce="strict")})


def counted(*keys: str, size: int = 10) -> Plan:
    calls = (AggregateCall("n", "count"),)
    return RStream(SlidingAggregate(BIDS, keys, calls, Sliding(size, size), ("w0", "w1")), size)


def hosts_of(plans: dict[str, Plan], **more: Any) -> list[list[tuple[tuple[str, ...], int]]]:
    """By level, the queries of each host and the number of its shards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        made = levels(plans, World(INPUTS, 3), Outlet(packed=True, **more))
    return [[(tuple(host.queries), len(host.shard_keys)) for host in level] for level in made]


def test_queries_with_one_key_share_a_host() -> None:
    plans = {"a": counted("auction"), "b": counted("auction", size=20), "c": counted("bidder")}
    assert hosts_of(plans) == [[(("a", "b"), 3), (("c",), 3)]]


def test_the_query_with_fewer_choices_decides_the_key() -> None:
    """`a` alone would be divided by both columns."""
    assert hosts_of({"a": counted("auction", "bidder"), "b": counted("bidder")}) == [[(("a", "b"), 3)]]


def test_a_query_of_all_rows_has_a_host_of_its_own() -> None:
    plans = {"all": counted(), "every": counted(size=20), "by": counted("auction")}
    assert hosts_of(plans) == [[(("all", "every"), 1), (("by",), 3)]]


def test_a_row_goes_to_a_shard_once_per_key_not_per_query() -> None:
    plans = {f"q{i}": counted("auction", size=10 * i) for i in range(1, 11)}
    plans |= {f"p{i}": counted("bidder", size=10 * i) for i in range(1, 11)}
    made = levels(plans, World(INPUTS, 2), Outlet(packed=True))
    assert len(targets(made)["bids"]) == 2


def test_partial_rows_and_rows_as_they_came_are_apart() -> None:
    """Late rows are wanted of the stream, so rows are sent one by one; else as partial rows."""
    plans = {"a": counted("auction"), "b": RStream(counted_rows(), 10)}
    only_results = frozenset((RESULT,))
    assert hosts_of(plans) == [[(("a", "b"), 3)]]
    assert hosts_of(plans, kinds=only_results) == [[(("a",), 3), (("b",), 3)]]


def counted_rows() -> Plan:
    """An aggregate that has no form in two steps."""
    calls = (AggregateCall("n", "count_distinct", "price"),)
    return SlidingAggregate(BIDS, ("auction",), calls, Sliding(10, 10), ("w0", "w1"))


def test_a_removed_query_keeps_its_sink_for_rows_that_are_on_their_way() -> None:
    """The command may be written while a micro-batch runs that has rows of the query."""
    job = Job({}, headrace.spark.SparkOptions(), "checkpoint")
    job.follow(cast(Any, "the control log of a pipeline"))
    source = headrace.StreamDef("s", pa.schema([("k", pa.int64())]))
    job.add("gone", headrace.query("SELECT k FROM s", [source]), sink="gone")
    job.running = cast(Any, "a Spark query")
    job.remove("gone")
    assert not job.queries
    assert job.with_sinks["gone"].removed


# --- on Spark ---------------------------------------------------------------------------------------------

STREAMS_OF_A_FILE = """
[pipeline]
name = "many"
[streams.s]
source = { type = "poisson", rate = 100, rows = 2000, disorder = "1 s" }
schema = "k BIGINT, v DOUBLE, at TIMESTAMP"
time = "at"
bounds = { disorder = "300 ms" }
[streams.u]
source = { type = "poisson", rate = 20, rows = 400, seed = 7 }
schema = "k BIGINT, v DOUBLE, at TIMESTAMP"
time = "at"
"""

TEXTS = (
    "SELECT k, count(*) AS n, max(v) AS v FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k",
    "SELECT count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]",
    "SELECT s.k, s.v, u.v AS w FROM s [RANGE 1 SECOND], u [RANGE 1 SECOND] WHERE s.k = u.k",
    "SELECT k, v FROM s WHERE v > 0.5",
    "SELECT k, sum(v) AS v FROM u [RANGE 3 SECONDS] GROUP BY k",
)
"""Several keys, no key, and none that is needed; two of them share a window with others."""


def pipeline_of(root: Path, count: int) -> Path:
    """A pipeline of so many queries: the texts, and variants of them that share their windows."""
    parts = [STREAMS_OF_A_FILE]
    for i in range(count):
        text = TEXTS[i % len(TEXTS)]
        if i >= len(TEXTS):
            text = f"SELECT * FROM ({text}) AS t WHERE t.{'n' if 'AS n' in text else 'v'} > {i / 40}"
        parts.append(f"""
[[queries]]
name = "q{i}"
sql = "{text}"
sink = {{ path = "q{i}.jsonl", time = "__at" }}
late = "late{i}.jsonl"
""")
    file = root / "many.toml"
    file.write_text("".join(parts))
    return file


@pytest.mark.parametrize(("count", "in_driver"), [(1, True), (3, True), (3, False), (20, True)])
def test_a_file_of_many_queries_gives_the_same_rows_in_the_same_order(
    spark: SparkSession, tmp_path: Path, count: int, in_driver: bool
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with warnings.catch_warnings(), tuning.using(driver_bytes=1 << 20 if in_driver else 0):
        warnings.simplefilter("ignore", HeadraceWarning)
        there = on_both(here, pipeline_of(here, count), spark)
    for i in range(count):
        expected, found = lines(here / f"q{i}.jsonl"), lines(there / f"q{i}.jsonl")
        assert Counter(found) == Counter(expected)
        assert len(expected) > 0
        times = [json.loads(line)["__at"] for line in found]
        assert times == sorted(times)
        assert Counter(lines(there / f"late{i}.jsonl")) == Counter(lines(here / f"late{i}.jsonl"))
    assert len(lines(here / "late0.jsonl")) > 0


def scans(query: Any) -> int:
    """The number of scans in the plan of the last micro-batch, without sources that have nothing new.

    These are empty tables in the plan: the control log, if there are no commands.
    """
    leaves = query._jsq.streamingQuery().lastExecution().executedPlan().collectLeaves()
    names = [leaves.apply(i).nodeName() for i in range(leaves.size())]
    return sum("Scan" in name and name != "LocalTableScan" for name in names)


def test_each_source_is_scanned_once(spark: SparkSession, feed: Callable[..., Any], tmp_path: Path) -> None:
    """Also where a query needs two keys, one after the other, and reads a stream in both stages."""
    frames, streams = {}, []
    for name in ("s", "u"):
        source = feed(name, "k STRING, j STRING, v BIGINT, ts BIGINT")
        source.put(*({"k": "ab"[i % 2], "j": "xyz"[i % 3], "v": i, "ts": i} for i in range(40)))
        frames[name] = source.read(spark)
        columns = headrace.spark.stream(name, frames[name]).schema
        streams.append(headrace.StreamDef(name, columns, time_column="ts", ticks_per_second=None))
    texts = {
        "by_k": "SELECT k, count(*) AS n FROM s [RANGE 10 TICKS SLIDE 10 TICKS] GROUP BY k",
        "by_j": "SELECT j, count(*) AS n FROM s [RANGE 10 TICKS SLIDE 10 TICKS] GROUP BY j",
        "rows": "SELECT k, v FROM u WHERE v % 2 = 0",
        "two": """
            SELECT n, count(*) AS m FROM (
                SELECT j, count(*) AS n FROM u [RANGE 10 TICKS SLIDE 10 TICKS] GROUP BY j
            ) AS t GROUP BY n
        """,
    }
    options = headrace.spark.SparkOptions(bounds={name: DisorderPromise(0) for name in frames}, timer=None)
    job = headrace.spark.job(frames, options, checkpoint=tmp_path / "checkpoint", name="scans")
    got: dict[str, list[Any]] = {name: [] for name in texts}
    for name, text in texts.items():
        query = headrace.query(text, streams, name=name)
        job.add(name, query, sink=lambda rows, batch, name=name: got[name].extend(rows.collect()))
    job.add("files", headrace.query(texts["by_k"], streams, name="files"), sink=tmp_path / "files")
    running = job.start(trigger={"availableNow": True})
    running.awaitTermination()
    assert running.exception() is None
    assert scans(running) == len(frames)
    # The folder is written by Arrow in a session that sets no codec, and Spark reads it.
    (written,) = {pq.read_metadata(each).created_by for each in (tmp_path / "files").rglob("*.parquet")}
    assert written.startswith("parquet-cpp-arrow")
    assert spark.read.parquet(str(tmp_path / "files")).count() == len(got["by_k"]) == 8
    assert Counter((row.k, row.n) for row in got["by_k"]) == {("a", 5): 4, ("b", 5): 4}
    assert sum(row.n for row in got["by_j"]) == 40
    assert [row.v for row in got["rows"]] == [v for v in range(40) if v % 2 == 0]
    assert sum(row.m for row in got["two"]) == 12


# --- a job that changes between two starts ----------------------------------------------------------------

COUNTED = "SELECT k, count(*) AS n FROM s [RANGE 10 TICKS SLIDE 10 TICKS] GROUP BY k"


def _asked(text: str, rows: Any) -> headrace.Query:
    columns = headrace.spark.stream("s", rows).schema
    streams = [headrace.StreamDef("s", columns, time_column="ts", ticks_per_second=None)]
    return headrace.query(text, streams)


def test_a_changed_job_goes_on(spark: SparkSession, feed: Callable[..., Any], tmp_path: Path) -> None:
    """A query stays, one is changed above its state, one goes, one comes, and the partitions are others."""
    source, got = feed("s", "k STRING, v BIGINT, ts BIGINT"), dict[str, list[Row]]()
    options = headrace.spark.SparkOptions(bounds={"s": DisorderPromise(0)}, timer=None)

    def run(texts: dict[str, str], rows: range, **more: Any) -> headrace.spark.Job:
        source.put(*({"k": "ab"[i % 2], "v": i, "ts": i} for i in rows))
        read = source.read(spark)
        job = headrace.spark.job({"s": read}, options, checkpoint=tmp_path / "c", name="changing")
        for name, text in texts.items():
            kept = got.setdefault(name, [])
            job.add(name, _asked(text, read), sink=lambda df, n, to=kept: to.extend(map(tuple, df.collect())))
        running = job.start(trigger={"availableNow": True}, **more)
        running.awaitTermination()
        assert running.exception() is None
        return job

    first = {
        "stays": COUNTED,
        "filtered": f"{COUNTED} HAVING count(*) > 100",
        "goes": "SELECT k, max(v) AS v FROM s [RANGE 5 TICKS SLIDE 5 TICKS] GROUP BY k",
    }
    run(first, range(15))
    assert sorted(got["stays"]) == [("a", 5), ("b", 5)]
    second = {"stays": COUNTED, "filtered": f"{COUNTED} HAVING count(*) > 1", "comes": COUNTED}
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 5)
    try:
        job = run(second, range(15, 30))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert (job.changes.kept, job.changes.begun) == (("stays", "filtered"), ("comes",))
    assert job.changes.freed == ("goes",)
    assert Counter(got["stays"]) == Counter({("a", 5): 3, ("b", 5): 3})
    assert Counter(got["filtered"]) == Counter({("a", 5): 2, ("b", 5): 2})
    assert Counter(got["comes"]) == Counter({("a", 2): 1, ("b", 3): 1, ("a", 5): 1, ("b", 5): 1})

    other = {**second, "stays": COUNTED.replace("10 TICKS", "20 TICKS")}
    with pytest.raises(HeadraceError, match="HR-G022") as refused:
        run(other, range(0))
    assert "stays" in str(refused.value)
    assert "--reset stays" in str(refused.value)
    job = run(other, range(30, 41), reset=["stays"])
    assert (set(job.changes.kept), job.changes.reset) == ({"filtered", "comes"}, ("stays",))
    assert Counter(got["filtered"])[("a", 5)] == 3
    assert Counter(got["stays"])[("a", 5)] == 4  # three before, and those of 20 ticks that came since


def test_queries_come_and_go_in_a_running_job(
    spark: SparkSession, feed: Callable[..., Any], tmp_path: Path
) -> None:
    source, got = feed("s", "k STRING, v BIGINT, ts BIGINT"), dict[str, list[Row]]()
    options = headrace.spark.SparkOptions(bounds={"s": DisorderPromise(0)}, timer=None)
    read = source.read(spark)
    job = headrace.spark.job({"s": read}, options, checkpoint=tmp_path / "c", name="live")

    def sink(name: str) -> Any:
        kept = got.setdefault(name, [])
        return lambda rows, number: kept.extend(map(tuple, rows.collect()))

    def put(rows: range) -> None:
        source.put(*({"k": "ab"[i % 2], "v": i, "ts": i} for i in rows))
        assert job.running is not None
        job.running.processAllAvailable()

    put_first = range(15)
    source.put(*({"k": "ab"[i % 2], "v": i, "ts": i} for i in put_first))
    first = job.add("stays", _asked(COUNTED, read), sink=sink("stays")).start()
    first.processAllAvailable()
    other = headrace.StreamDef("s", pa.schema([("k", pa.string()), ("ts", pa.int64())]), time_column="ts")
    odd = headrace.query("SELECT k FROM s", [other], ticks_per_second=None)
    with pytest.raises(HeadraceError, match="HR-SP31"):
        job.add("odd", odd, sink=sink("odd"))
    assert first.isActive
    job.add("comes", _asked(COUNTED, read), sink=sink("comes"))
    assert first.isActive  # shards have its rows: a command is enough
    put(range(15, 30))
    job.remove("stays")
    put(range(30, 40))
    assert first.isActive
    assert Counter(got["stays"]) == Counter({("a", 5): 3, ("b", 5): 3})
    expected = Counter({("a", 2): 1, ("b", 3): 1, ("a", 5): 2, ("b", 5): 2})
    assert Counter(got["comes"]) == expected

    by_value = "SELECT v % 2 AS odd, count(*) AS n FROM s [RANGE 10 TICKS SLIDE 10 TICKS] GROUP BY v % 2"
    job.add("keyed", _asked(by_value, read), sink=sink("keyed"))
    assert not first.isActive  # no shard gets rows by this key
    assert (set(job.changes.kept), job.changes.begun) == ({"comes"}, ("keyed",))
    put(range(40, 50))
    job.send(Heartbeat("s", 59))
    put(range(58, 59))  # late
    job.send(SetBounds("s", {"disorder": 5}))
    put(range(60, 71))
    assert job.running is not None
    job.running.stop()
    assert Counter(got["comes"]) == expected + Counter({("a", 5): 1, ("b", 5): 1})
    assert Counter(got["keyed"]) == Counter({(0, 5): 1, (1, 5): 1})
    assert len(got["stays"]) == 6


def test_a_command_for_a_job_is_refused_before_it_is_written(
    spark: SparkSession, feed: Callable[..., Any], tmp_path: Path
) -> None:
    source = feed("s", "k STRING, v BIGINT, ts BIGINT")
    source.put({"k": "a", "v": 1, "ts": 1})
    options = headrace.spark.SparkOptions(bounds={"s": DisorderPromise(0)}, timer=None)
    read = source.read(spark)
    job = headrace.spark.job({"s": read}, options, checkpoint=tmp_path / "c", name="refusing")
    job.add("counted", _asked(COUNTED, read), sink=lambda rows, number: None)
    with pytest.raises(SparkError, match="HR-SP38"):
        job.send(SetStrategy("bfs"))
    running = job.start()
    running.processAllAvailable()
    refused: dict[str, Command] = {
        "HR-L009": Resize("counted", 3),
        "HR-L006": Resize("missing", 3),
        "HR-L008": Heartbeat("u", 3),
        "HR-SP38": RemoveQuery("counted"),
        "HR-S001": SetStrategy("fastest"),
    }
    for code, command in refused.items():
        with pytest.raises(HeadraceError, match=code):
            job.send(command)
    assert Log(tmp_path / "c" / "control").read() == []
    assert running.isActive
    job.send(Stop())
    assert not running.isActive


def test_sources_without_names_stay_the_same(
    spark: SparkSession, feed: Callable[..., Any], tmp_path: Path
) -> None:
    """Spark would continue one source at the position of another."""
    frames, streams = {}, []
    for name in ("s", "a"):
        source = feed(name, "k STRING, v BIGINT, ts BIGINT")
        source.put({"k": "a", "v": 1, "ts": 1})
        frames[name] = source.read(spark)
        columns = headrace.spark.stream(name, frames[name]).schema
        streams.append(headrace.StreamDef(name, columns, time_column="ts", ticks_per_second=None))
    bounds = {name: DisorderPromise(0) for name in frames}

    def start(*names: str) -> Any:
        options = headrace.spark.SparkOptions(bounds={name: bounds[name] for name in names}, timer=None)
        job = headrace.spark.job(frames, options, checkpoint=tmp_path / "c", name="unnamed")
        for name in names:
            text = COUNTED.replace("FROM s", f"FROM {name}")
            job.add(name, headrace.query(text, streams), sink=lambda df, n: None)
        return job.start(trigger={"availableNow": True})

    start("s").awaitTermination()
    record = (tmp_path / "c" / "_headrace.job.json").read_text()
    with pytest.raises(SparkError, match="HR-SP35") as refused:
        start("s", "a")
    assert "the job adds a, and its sources have no names" in str(refused.value)
    assert (tmp_path / "c" / "_headrace.job.json").read_text() == record
