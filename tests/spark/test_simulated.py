"""Partitioners and hosts give what one engine gives, whatever becomes of their tasks and workers."""

from __future__ import annotations

import gc
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import headrace
from headrace import tuning
from headrace.engine.inputs import STRICT, Inputs
from headrace.errors import HeadraceWarning, SparkError
from headrace.expressions import col, lit
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import (
    AggregateCall,
    Distinct,
    IStream,
    Join,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    Table,
    Union,
    Window,
)
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN, descending
from headrace.plan.nodes.trees import sources_of
from headrace.plan.nodes.windows import Range, Sliding
from headrace.runtimes.spark.driver.bounds import inputs_of
from headrace.runtimes.spark.driver.topology import hosts
from headrace.runtimes.spark.worker.answers import LATE, REJECTED, RESULT, Outlet
from headrace.runtimes.spark.worker.state_store import Layout, Store
from headrace.spill.directory import DirectorySpillStore
from headrace.time.bounds import NEVER, Bounds
from headrace.time.ets import DisorderPromise, Promise, SkewPromise, TimerPromise
from headrace.time.grouping import group_bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix
from headrace.time.timestamp import MAX_TIME
from tests.engine.test_groups import SCHEMA, counted
from tests.laws import effort
from tests.spark.simulated import Cells, Cluster, MicroBatch, embedded, on_spark
from tests.strategies.plans import Case, cases, slidings, tables_of
from tests.strategies.schemas import rows as random_rows
from tests.time.simulation import bounds, emit, pairs, seeds
from tests.time.test_grouping import grouping

GUARDS = st.sampled_from([100, MAX_TIME])

SOURCE = Source("s", pa.schema([("a", pa.int64()), ("b", pa.string()), ("f", pa.float64())]))
CALLS = (
    AggregateCall("n", "count"),
    AggregateCall("nb", "count", "b"),
    AggregateCall("sa", "sum", "a"),
    AggregateCall("sf", "sum", "f"),
    AggregateCall("la", "min", "a"),
    AggregateCall("gf", "max", "f"),
    AggregateCall("mf", "avg", "f"),
)


@st.composite
def micro_batches(draw: st.DrawFn, case: Case) -> list[MicroBatch]:
    """The rows of a case in micro-batches: mostly in order, some late, some too far ahead, some timeless."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    arrivals: list[tuple[int, str, int | None, dict[str, Any]]] = []
    stamps = {source.name: source.stamp for source in sources_of(case.plan)}
    for name, rows in case.sources.items():
        for time, row in rows if name in stamps else ():
            delay = rng.choice((0, 0, 0, 1, 3, 12))
            wild = rng.choice((time,) * 20 + (time + 500, None))
            stamp = stamps[name]
            arrivals.append((time + delay, name, wild, row if stamp is None else {**row, stamp: wild}))
    arrivals.sort(key=lambda a: a[0])
    # An engine's clock begins at 0 and never goes back: instants before that would all be the same one.
    now, batches = max(arrivals[0][0] if arrivals else 0, 0) - 1, list[MicroBatch]()
    schemas = {s.name: s.columns for s in sources_of(case.plan)}
    while arrivals:
        now = max(now + 1, arrivals[0][0]) + rng.choice((0, 0, 2, 9))
        here = [a for a in arrivals if a[0] <= now]
        arrivals = [a for a in arrivals if a[0] > now]
        batches.append(
            (now, {n: _rows(here, n, s) for n, s in schemas.items() if any(a[1] == n for a in here)})
        )
    return [*batches, (now + 40, {}), (now + 1000, {})]


def _rows(arrivals: list[tuple[int, str, int | None, Any]], name: str, schema: pa.Schema) -> Any:
    mine = [a for a in arrivals if a[1] == name]
    data = pa.RecordBatch.from_pylist([a[3] for a in mine], schema=schema)
    times = np.array([np.nan if a[2] is None else a[2] for a in mine], object)
    return data, times


def promises() -> st.SearchStrategy[Promise]:
    small = st.integers(0, 8)
    return st.one_of(
        st.builds(TimerPromise, small),
        st.builds(SkewPromise, small),
        st.builds(DisorderPromise, small, st.integers(0, 30)),
    )


@effort(2, "Spark itself is too slow to try so many")
@given(st.data())
def test_shards_workers_and_retries_change_nothing(data: st.DataObject) -> None:
    case = data.draw(cases())
    names = sorted({s.name for s in sources_of(case.plan)})
    rule = Rules(disordered=True, enforce="strict", guard=data.draw(GUARDS))
    inputs = Inputs(
        promises={name: data.draw(promises()) for name in names}, rules=dict.fromkeys(names, rule)
    )
    batches = data.draw(micro_batches(case))
    ends = data.draw(st.booleans())  # the last rows come with word that they are the last
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
        chain = hosts(case.plan, inputs, partitions, Outlet())
        event(f"{len(chain)} hosts, {len(chain[-1].shard_keys)} shards")
        spread = on_spark(case.plan, inputs, batches, tables, partitions, cluster, ends=ends)
    whole = embedded(case.plan, inputs, batches, tables, ends)
    for found, expected in zip(spread.sorted(), whole.sorted(), strict=True):
        assert Counter(map(repr, found)) == Counter(map(repr, expected))
    assert_in_order(spread.by_batch)


def assert_in_order(batches: list[list[tuple[Any, ...]]]) -> None:
    """No answer is earlier than one of a micro-batch before: sorted within each, all are in order of time."""
    times = [[row[-1] for row in answers] for answers in batches if answers]
    for before, after in pairwise(times):
        assert max(before) <= min(after)


@st.composite
def between(draw: st.DrawFn, names: list[str]) -> HeartbeatGenerator:
    """Bounds between some streams, with or without a timeout.

    By time: bounds that count rows depend on the order in which streams are read at one instant.
    """
    entries = {(a, b): draw(st.lists(pairs, max_size=2)) for a in names for b in names if draw(st.booleans())}
    timeout = draw(st.sampled_from([NEVER, 20]))
    return HeartbeatGenerator(Bounds.of(SkewMatrix.of(names, entries), 0, timeout), close=draw(st.booleans()))


@effort(2, "Spark itself is too slow to try so many")
@given(st.data())
def test_a_stream_that_is_not_read_vouches_as_it_does_in_one_engine(data: st.DataObject) -> None:
    """A stream of another query, or of another stage: its times reach every host, its rows none."""
    case = data.draw(cases())
    names = sorted({s.name for s in sources_of(case.plan)})
    others = tuple(
        Source(f"w{i}", pa.schema([("a", pa.int64())])) for i in range(data.draw(st.integers(0, 2)))
    )
    everyone = [*names, *(other.name for other in others)]
    heartbeats = data.draw(between(data.draw(st.permutations(everyone))))
    rule = Rules(disordered=True, enforce="strict", guard=data.draw(GUARDS))
    inputs = Inputs(heartbeats, rules=dict.fromkeys(everyone, rule))
    batches: list[MicroBatch] = []
    for now, arrived in data.draw(micro_batches(case)):
        here = [other for other in others if data.draw(st.booleans())]
        times = {other.name: data.draw(st.lists(st.integers(now - 9, now + 9), max_size=3)) for other in here}
        batches.append((now, {**arrived, **{name: _numbered(each) for name, each in times.items()}}))
    tables = {
        t.name: pa.Table.from_pylist([r for _, r in case.sources[t.name]], schema=t.columns)
        for t in tables_of(case.plan)
    }
    cluster, partitions = (
        Cluster(random.Random(data.draw(st.integers(0, 2**32)))),
        data.draw(st.integers(1, 3)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        heard = tuple(inputs.heard_by(names))
        spread = on_spark(case.plan, inputs, batches, tables, partitions, cluster, witnesses=heard)
    whole = embedded(case.plan, inputs, batches, tables, witnesses=others)
    event(f"{len(heard)} witnesses, {'some' if whole.late else 'none'} late")
    kept = [row for row in whole.late if row[0] in names]
    assert Counter(map(repr, spread.answers)) == Counter(map(repr, whole.answers))
    assert Counter(map(repr, spread.late)) == Counter(map(repr, kept))


def _numbered(times: list[int]) -> Any:
    return pa.RecordBatch.from_pydict({"a": pa.array(range(len(times)), pa.int64())}), np.array(times, object)


@given(bounds(), seeds, st.integers(1, 3))
def test_rows_that_keep_their_bounds_are_never_late_in_a_group(
    declared: Bounds, rng: np.random.Generator, partitions: int
) -> None:
    """Streams that share a heartbeat, in shards and retried, as in one engine (Srivastava & Widom, §5.2)."""
    closed, names = declared.closed(), declared.streams
    plan, group = counted(names), rng.permutation(grouping(rng, len(names)))
    batches: list[MicroBatch] = []
    for clock, rows in groupby(emit(closed, rng, 20).rows(), key=lambda each: each[2]):
        arrived: dict[str, list[int]] = {}
        for stream, time, _ in rows:
            arrived.setdefault(names[stream], []).append(time)
        batches.append((clock, {name: _keyed(times, rng) for name, times in arrived.items()}))
    inputs = Inputs(
        HeartbeatGenerator(group_bounds(closed, group), close=False, ordered=False),
        rules=dict.fromkeys(names, STRICT),
    )
    cluster = Cluster(random.Random(int(rng.integers(0, 2**32))))
    spread = on_spark(plan, inputs, batches, {}, partitions, cluster, ends=True)
    whole = embedded(plan, inputs, batches, {}, ends=True)
    assert spread.late == whole.late == []
    assert Counter(map(repr, spread.answers)) == Counter(map(repr, whole.answers))


def _keyed(times: list[int], rng: np.random.Generator) -> Any:
    rows = [{"k": int(rng.integers(0, 2))} for _ in times]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA), np.array(times, object)


def test_a_table_may_be_empty() -> None:
    table, side = Table("d", pa.schema([("id", pa.int64())])), Source("a", pa.schema([("k", pa.int64())]))
    plan = IStream(Join(Window(side, Range(3)), table, ("k",), ("id",)))
    inputs = Inputs(promises={"a": TimerPromise(0)})
    batches: list[MicroBatch] = [
        (1, {"a": (pa.RecordBatch.from_pydict({"k": [1]}, schema=side.schema), np.array([1]))}),
        (9, {}),
    ]
    tables = {"d": pa.Table.from_pylist([], schema=table.schema)}
    found = on_spark(plan, inputs, batches, tables, 2, Cluster(random.Random(0)))
    assert not found.answers


@effort(2, "Spark itself is too slow to try so many")
@given(st.data())
def test_partial_rows_made_before_the_shuffle_change_nothing(data: st.DataObject) -> None:
    calls = data.draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=4, unique_by=lambda c: c.name))
    size, slide = data.draw(st.sampled_from([(4, 4), (6, 2), (5, 3), (2, 5)]))
    keys = data.draw(st.sampled_from([("a",), ("a", "b")]))
    below = data.draw(st.sampled_from([SOURCE, Select(SOURCE, col("a") > lit(1))]))
    window = Sliding(size, slide)
    counted = SlidingAggregate(below, keys, tuple(calls), window, ("w0", "w1"))
    plan = RStream(counted, slide, window.ticks.phase)
    case = Case(plan, {"s": data.draw(random_rows(SOURCE.columns, 40))})
    enforce, promise = data.draw(
        st.one_of(
            st.tuples(st.just("admit"), promises()),
            st.tuples(st.just("strict"), st.builds(TimerPromise, st.integers(0, 8))),
        )
    )
    rule = Rules(disordered=True, enforce=enforce, guard=data.draw(GUARDS))
    inputs = Inputs(promises={"s": promise}, rules={"s": rule})
    batches = data.draw(micro_batches(case))
    outlet = Outlet("__t", kinds=frozenset((RESULT,)))
    chain = hosts(plan, inputs, 2, outlet)
    assert chain[0].streams[0].partials is not None
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    spread = on_spark(plan, inputs, batches, {}, data.draw(st.integers(1, 3)), cluster, outlet)
    whole = embedded(plan, inputs, batches, {})
    assert Counter(map(repr, spread.answers)) == Counter(map(repr, whole.answers))
    if below is SOURCE:
        assert spread.numbers[LATE] == sum(not row[5] for row in whole.late)
    assert spread.numbers[REJECTED] == len(whole.rejected)


WINDOWED: dict[str, Callable[[Plan], Plan]] = {
    "row by row": lambda held: held,
    "distinct": lambda held: Distinct(Project(held, (("a", col("a")),))),
    "ranked": lambda held: TopN(held, ("a",), (descending("b"),), 1),
}


@given(st.data())
def test_late_rows_come_to_open_windows_on_every_shard(data: st.DataObject) -> None:
    window = data.draw(slidings(6, 4))
    held = WINDOWED[data.draw(st.sampled_from(sorted(WINDOWED)))](Window(SOURCE, window))
    plan = data.draw(st.sampled_from([RStream(held, window.slide, window.ticks.phase), IStream(held)]))
    case = Case(plan, {"s": data.draw(random_rows(SOURCE.columns, 40))})
    rule = Rules(disordered=True, enforce="admit", guard=100)
    inputs = Inputs(promises={"s": data.draw(promises())}, rules={"s": rule})
    batches = data.draw(micro_batches(case))
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    spread = on_spark(plan, inputs, batches, {}, data.draw(st.integers(1, 3)), cluster)
    whole = embedded(plan, inputs, batches, {})
    assert Counter(map(repr, spread.answers)) == Counter(map(repr, whole.answers))
    assert Counter(map(repr, spread.late)) == Counter(map(repr, whole.late))


@given(st.data())
def test_late_rows_come_to_open_sessions_on_every_shard(data: st.DataObject) -> None:
    keys, partition = data.draw(st.sampled_from([(("a",), None), (("a", "b"), ("b",)), (("a", "b"), ())]))
    below = data.draw(st.sampled_from([SOURCE, Select(SOURCE, col("a") > lit(1))]))
    gap = data.draw(st.integers(1, 8))
    plan = RStream(SessionAggregate(below, keys, CALLS, gap, ("w0", "w1"), partition), 1)
    case = Case(plan, {"s": data.draw(random_rows(SOURCE.columns, 40))})
    rule = Rules(disordered=True, enforce="admit", guard=100)
    inputs = Inputs(promises={"s": data.draw(promises())}, rules={"s": rule})
    batches = data.draw(micro_batches(case))
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        spread = on_spark(plan, inputs, batches, {}, data.draw(st.integers(1, 3)), cluster)
    whole = embedded(plan, inputs, batches, {})
    assert Counter(map(repr, spread.answers)) == Counter(map(repr, whole.answers))
    if below is SOURCE:
        assert Counter(map(repr, spread.late)) == Counter(map(repr, whole.late))


def _few(*rows: tuple[int, int]) -> Any:
    """Rows (a, time) of the source, as they come in a micro-batch."""
    data = pa.RecordBatch.from_pylist([{"a": a, "b": None, "f": 0.0} for a, _ in rows], schema=SOURCE.columns)
    return data, np.array([time for _, time in rows], object)


SESSIONS = RStream(SessionAggregate(SOURCE, ("a",), CALLS[:1], 2, ("w0", "w1"), ()), 1)


def test_sessions_under_admit_do_not_depend_on_how_rows_are_split_into_tasks() -> None:
    """The row at 0 would be late by itself; one of the same micro-batch, at 2, keeps its session open."""
    inputs = Inputs(promises={"s": DisorderPromise(0)}, rules={"s": Rules(True, "admit")})
    batches: list[MicroBatch] = [(0, {"s": _few((1, 3))}), (5, {}), (45, {})]
    for seed in range(30):
        for rows in (_few((1, 0), (0, 2)), _few((0, 2), (1, 0))):
            batches[1] = (5, {"s": rows})
            spread = on_spark(SESSIONS, inputs, batches, {}, 1, Cluster(random.Random(seed)))
            assert sorted(spread.answers) == sorted(embedded(SESSIONS, inputs, batches, {}).answers)
            assert spread.late == []


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 4), st.sampled_from([None, ()]))
def test_tasks_and_the_order_of_rows_and_streams_change_no_session(
    seed: int, partitions: int, gap: int, partition: tuple[str, ...] | None
) -> None:
    """Whether a row is late for its session depends on all rows of its instant, in any order."""
    rng, names = random.Random(seed), ["s", "u"]
    below = Union(tuple(Source(name, SOURCE.columns) for name in names))
    plan = RStream(SessionAggregate(below, ("a",), CALLS[:1], gap, ("w0", "w1"), partition), 1)
    inputs = Inputs(
        promises={name: TimerPromise(rng.randint(0, 3)) for name in names},
        rules=dict.fromkeys(names, Rules(True, "admit")),
    )
    batches, shuffled = list[MicroBatch](), list[MicroBatch]()
    for now in range(4, 32, 4):
        rows = {
            name: [(rng.randint(0, 1), rng.randint(now - 14, now)) for _ in range(rng.randint(1, 5))]
            for name in names
        }
        batches.append((now, {name: _few(*rows[name]) for name in names}))
        mixed = {name: rng.sample(rows[name], len(rows[name])) for name in rng.sample(names, 2)}
        shuffled.append((now, {name: _few(*each) for name, each in mixed.items()}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        spread = on_spark(plan, inputs, [*shuffled, (100, {})], {}, partitions, Cluster(rng))
    whole = embedded(plan, inputs, [*batches, (100, {})], {})
    assert sorted(spread.answers) == sorted(whole.answers)
    assert sorted(spread.late) == sorted(whole.late)


def steady(
    sources: dict[str, Source], batches: int, rows: int, columns: Callable[[str], list[pa.Array]]
) -> tuple[Inputs, list[MicroBatch]]:
    """Streams in order that are never late: a row of each at every tick, `rows` in each micro-batch."""
    inputs = Inputs(
        promises=dict.fromkeys(sources, TimerPromise(0)),
        rules=dict.fromkeys(sources, Rules(disordered=False)),
    )
    made = list[MicroBatch]()
    for begin in range(0, batches * rows, rows):
        times = np.arange(begin, begin + rows)
        arrived = {
            name: (pa.RecordBatch.from_arrays(columns(name), schema=source.columns), times)
            for name, source in sources.items()
        }
        made.append((begin + rows - 1, arrived))
    return inputs, made


def test_joins_of_shards_change_their_order_and_retries_change_nothing() -> None:
    """Looks and orders live in the snapshots: engines catch up with a change, and answer alike."""
    names = "abc"
    sources = {n: Source(n, pa.schema([(f"{n}k", pa.int64()), (f"{n}l", pa.int64())])) for n in names}
    a, b, c = (Window(sources[n], Range(300)) for n in names)
    plan = IStream(Join(Join(a, b, ("ak",), ("bk",)), c, ("bk",), ("ck",)))
    rng = np.random.default_rng(1)

    def columns(name: str) -> list[pa.Array]:
        keys = rng.integers(0, 1000 if name == "c" else 10, 40)
        return [pa.array(keys), pa.array(rng.integers(0, 9, 40))]

    inputs, batches = steady(sources, 7, 40, columns)

    def run(mishaps: float, reoptimize: int | bool) -> tuple[list[tuple[Any, ...]], bool]:
        cluster = Cluster(random.Random(1), mishaps=mishaps)
        spread = on_spark(plan, inputs, batches, {}, 2, cluster, ends=True, reoptimize=reoptimize)
        engines = [each.engine for worker in cluster.workers for each in worker.values()]
        return spread.sorted()[0], any(engine.metrics().orders for engine in engines)

    expected, changed = run(0.0, False)
    assert not changed
    for mishaps in (0.0, 0.5):
        answers, changed = run(mishaps, 40)
        assert answers == expected
        assert changed


@tuning.using(spill_file_bytes=1 << 12, mapped_array_bytes=1 << 10)
def test_shards_spill_to_the_disk_of_their_executor_and_retries_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuilt engine starts from the state store; a piece is read for a snapshot once, and never again."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    counted: Counter[str] = Counter()
    _count(monkeypatch, DirectorySpillStore, "put", counted)
    _count(monkeypatch, DirectorySpillStore, "get", counted)
    _count(monkeypatch, Store, "write", counted)
    names, schema = "ab", pa.schema([("k", pa.int64()), ("s", pa.string())])
    sources = {n: Source(n, pa.schema([(f"{n}{f.name}", f.type) for f in schema])) for n in names}
    a, b = (Window(sources[n], Range(4000)) for n in names)
    plan = IStream(Join(a, b, ("ak",), ("bk",)))
    rng = np.random.default_rng(1)

    def columns(name: str) -> list[pa.Array]:
        return [pa.array(rng.integers(0, 3000, 400)), pa.array([f"a name {i}" for i in range(400)])]

    inputs, batches = steady(sources, 10, 400, columns)

    def run(mishaps: float, **more: Any) -> list[tuple[Any, ...]]:
        cluster = Cluster(random.Random(1), mishaps=mishaps)
        answers = on_spark(plan, inputs, batches, {}, 2, cluster, **more).sorted()[0]
        cluster.restart()
        return answers

    expected = run(0.0)
    assert not counted["put"]
    budget = {"budget": 60_000, "policy": "spill"}
    assert run(0.0, **budget) == expected
    assert 0 < counted["get in write"] <= counted["put"]
    assert run(0.4, **budget) == expected
    gc.collect()
    assert list(tmp_path.rglob("*.arrow")) == [], "files go with the engines"


def _count(patch: pytest.MonkeyPatch, owner: type, name: str, counted: Counter[str]) -> None:
    """Count calls, those within a `write` also apart."""
    plain = getattr(owner, name)

    def call(*args: Any) -> Any:
        counted[name] += 1
        counted[f"{name} in write"] += counted["writing"] > 0
        counted["writing"] += name == "write"
        try:
            return plain(*args)
        finally:
            counted["writing"] -= name == "write"

    patch.setattr(owner, name, call)


# --- wider columns ------------------------------------------------------------------------------------------

WIDER = {
    "rows": "SELECT k, v FROM s",
    "panes": "SELECT k, sum(v) AS t, max(v) AS m FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "instants": "SELECT k, min(v) AS t, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k",
    "join": "SELECT a.k, a.v, b.v AS w FROM s [RANGE 9 SECONDS] AS a, s [NOW] AS b WHERE a.k = b.k",
    "stages": """SELECT n, max(v) AS v FROM (SELECT k, max(v) AS v, count(*) AS n FROM s [RANGE 10 SECONDS]
                 GROUP BY k) GROUP BY n""",
}


def played_under(
    text: str, of: tuple[pa.DataType, pa.DataType], batches: list[MicroBatch], cluster: Cluster, ends: bool
) -> Any:
    schema = pa.schema([("k", of[0]), ("v", of[1])])
    plan = headrace.query(text, [headrace.StreamDef("s", schema)]).plan
    inputs = inputs_of({"s": {"disorder": "3 seconds"}}, ["s"], "strict", None, 1_000_000)
    typed = [
        (now, {"s": (pa.RecordBatch.from_pylist(rows, schema), times)}) for now, (rows, times) in batches
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        return on_spark(plan, inputs, typed, {}, 2, cluster, ends=ends)


def some_rows(begin: int, stop: int) -> list[MicroBatch]:
    rows = [{"k": i % 3, "v": i * 10} for i in range(begin, stop)]
    return [(stop, (rows, np.array([i * 1_000_000 for i in range(begin, stop)], object)))]


@pytest.mark.parametrize("text", WIDER.values(), ids=WIDER)
@pytest.mark.parametrize("wide", [(pa.int32(), pa.int64()), (pa.int64(), pa.int64())], ids=["value", "key"])
def test_a_checkpoint_goes_on_under_wider_columns(text: str, wide: tuple[pa.DataType, pa.DataType]) -> None:
    """Regression: INT → BIGINT after a restart was a raw ArrowInvalid."""
    narrow, cluster = (pa.int32(), pa.int32()), Cluster(random.Random(1))
    found = played_under(text, narrow, some_rows(0, 25), cluster, ends=False)
    cluster.restart()
    found.add(played_under(text, wide, some_rows(25, 50), cluster, ends=True))
    whole = [*some_rows(0, 25), *some_rows(25, 50)]
    assert found.sorted() == played_under(text, wide, whole, Cluster(random.Random(2)), ends=True).sorted()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (pa.int64(), pa.int32(), "column v is INT, but BIGINT in the checkpoint (at s)"),
        (pa.int32(), pa.float64(), "column v is DOUBLE, but INT in the checkpoint (at s)"),
        (pa.float32(), pa.decimal128(9, 2), "column v is DECIMAL(9,2), but FLOAT in the checkpoint (at s)"),
    ],
)
@pytest.mark.parametrize("text", WIDER.values(), ids=WIDER)
def test_a_checkpoint_under_other_columns_is_refused(
    text: str, old: pa.DataType, new: pa.DataType, says: str
) -> None:
    """State would be read as other values: the error names the stream, the column and both types."""
    cluster = Cluster(random.Random(3))
    played_under(text, (pa.int32(), old), some_rows(0, 25), cluster, ends=False)
    cluster.restart()
    with pytest.raises(SparkError, match=re.escape(f"[HR-SP20] {says}")):
        played_under(text, (pa.int32(), new), some_rows(25, 50), cluster, ends=True)


def test_columns_may_come_and_go() -> None:
    """What the state needs is decided by the plan: `Engine.adopt` refuses what cannot go on."""
    cells, before = Cells(), pa.schema([("k", pa.int32())])
    store = Store(cells, Layout())
    store.take_up({"s": before})
    store.take_up({"s": before.append(pa.field("w", pa.int32()))})
    with pytest.raises(SparkError, match=r"column w is TEXT|column w is STRING"):
        store.take_up({"s": before.append(pa.field("w", pa.string()))})
    store.take_up({"s": pa.schema([])})
