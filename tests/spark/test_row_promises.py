"""Rows that are punctuations and heartbeats, on Spark as in one process."""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.engine.inputs import Inputs
from headrace.errors import SparkError
from headrace.expressions import col
from headrace.graph.admission import Rules
from headrace.pipeline import load
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    IStream,
    Join,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    Union,
    Window,
)
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.trees import sources_of
from headrace.plan.nodes.windows import Range, Sliding, Unbounded
from headrace.runtimes.embedded import Runner as EmbeddedRunner
from headrace.runtimes.spark.driver.apply import apply, refuse_speakers_without_timer
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner
from headrace.runtimes.spark.driver.reading import ALL, FILES, LIMITED
from headrace.runtimes.spark.worker.answers import LATE
from headrace.sql import StreamDef, query
from headrace.testing import oracle
from headrace.time.ets import DisorderPromise, Promise, TimerPromise
from headrace.time.row_promises import HeartbeatRows, PunctuationRows, RowPromises
from headrace.time.sources import SourceGroups, SourcesPromise
from tests.laws import effort
from tests.spark.conftest import played
from tests.spark.schedule import SOUND_CLOCKS, SPAN, Limit, reaching, schedule
from tests.spark.simulated import QUERY, Cluster, MicroBatch, embedded, on_spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("closed", pa.bool_()), ("until", pa.int64())])
CLOSINGS = pa.schema([("id", pa.int32()), ("done", pa.bool_())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
C = Source("closings", CLOSINGS)
CALLS = (AggregateCall("n", "count"), AggregateCall("m", "max", "v"))
OTHER = Project(B, (("k2", col("k")), ("v2", col("v"))))
BY_K = SlidingAggregate(A, ("k",), CALLS, Sliding(10, 10), ("w0", "w1"))
PASSING: Plan = query(
    """SELECT k, max(best) AS best FROM (
         SELECT k, max(n) OVER (ROWS 3 PRECEDING) AS best
         FROM ISTREAM(SELECT k, count(*) AS n FROM a [UNBOUNDED] GROUP BY k)
       ) [UNBOUNDED] GROUP BY k""",
    {"a": SCHEMA},
    ticks_per_second=None,
).plan
"""Two stages, by k and in one shard; what closes a group below closes one above."""
ONE_SHARD_ABOVE = pytest.mark.filterwarnings("ignore:one shard, on one core:headrace.errors.HeadraceWarning")
PLANS: dict[str, Plan] = {
    "passing": PASSING,
    "windows": RStream(BY_K, 10),
    "groups": IStream(Aggregate(Window(Union((A, B)), Unbounded()), ("k",), CALLS)),
    "expiring": IStream(Aggregate(Window(Select(A, col("v") > 2), Range(7)), ("k",), CALLS)),
    "join": IStream(Join(Window(A, Unbounded()), Window(OTHER, Unbounded()), ("k",), ("k2",))),
    "by another key": IStream(Aggregate(Window(A, Range(6)), ("v",), (AggregateCall("n", "count"),))),
    "two stages": RStream(
        SlidingAggregate(
            RStream(BY_K, 10), ("n",), (AggregateCall("times", "count"),), Sliding(20, 20), ("x0", "x1")
        ),
        20,
    ),
    "one shard": Select(A, col("v") > 1),
}
OWN = PunctuationRows("a", (("k", "k"),), "closed")
SAID = {
    "own": RowPromises({"a": (OWN,)}),
    "own, data": RowPromises({"a": (replace(OWN, data=True),)}),
    "pairs": RowPromises({"a": (PunctuationRows("a", (("k", "k"), ("v", "v")), "closed"),)}),
    "closings": RowPromises({name: (PunctuationRows("closings", (("k", "id"),)),) for name in "ab"}),
    "marked": RowPromises({"a": (PunctuationRows("closings", (("k", "id"),), "done"),)}),
    "beats": RowPromises(heartbeats={"a": HeartbeatRows("until")}),
    "all": RowPromises(
        {"a": (OWN, PunctuationRows("closings", (("k", "id"),), "done"))},
        {"a": HeartbeatRows("until", data=True), "b": HeartbeatRows("until")},
    ),
}


def inputs_of(
    said: RowPromises, enforce: str = "strict", guard: int | None = None, by: SourceGroups | None = None
) -> Inputs:
    rules = Rules(disordered=True, enforce=enforce, **({} if guard is None else {"guard": guard}))
    promises: dict[str, Promise] = {name: DisorderPromise(8) for name in ("a", "b", "closings")}
    if by is not None:
        promises |= {name: SourcesPromise(by, 4) for name in ("a", "b")}
    return Inputs(promises=promises, rules=dict.fromkeys(promises, rules), row_promises=said)


def drawn(rng: random.Random, names: list[str], said: RowPromises, obeys: bool) -> list[MicroBatch]:
    """Micro-batches in which rows may be promises; `obeys`: no row breaks one that was read before it."""
    batches: list[MicroBatch] = []
    closed: dict[str, set[Any]] = {"a": set(), "b": set()}
    beats = {"a": -1, "b": -1}
    now = 0
    for _ in range(rng.randint(1, 7)):
        now += rng.randint(1, 9)
        arrived = {}
        closing = [
            {"id": rng.randrange(6), "done": rng.choice((True, False, None))}
            for _ in range(rng.randint(0, 2))
        ]
        arrived["closings"] = rows_of(closing, [now] * len(closing), CLOSINGS)
        spoken = {name: (set(closed[name]), beats[name]) for name in names}
        for name in names:
            rows, times = [], []
            for _ in range(rng.randint(0, 6)):
                row: dict[str, Any] = {
                    "k": rng.randrange(6),
                    "v": rng.randrange(6),
                    "closed": rng.random() < 0.2,
                }
                row["until"] = now - rng.randint(2, 6) if rng.random() < 0.1 else None
                time = now - rng.randint(0, 8)
                breaks = row["k"] in spoken[name][0] or time <= spoken[name][1]
                if obeys and breaks:
                    continue
                rows.append(row)
                times.append(time)
                if row["closed"]:
                    closed[name].add(row["k"])
                if row["until"] is not None:
                    beats[name] = max(beats[name], row["until"])
            arrived[name] = rows_of(rows, times, SCHEMA)
        for name in names:
            closed[name] |= {each["id"] for each in closing}
        batches.append((now, {name: each for name, each in arrived.items() if len(each[1])}))
    return [*batches, (now + 1, {}), (now + 30, {})]


def rows_of(rows: list[dict[str, Any]], times: list[int], schema: pa.Schema) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=schema), np.array(times, object)


def is_data(said: RowPromises, stream: str, row: dict[str, Any]) -> bool:
    """Whether a row is data, and not only a promise."""
    beats = said.heartbeats.get(stream)
    if beats is not None and not beats.data and row["until"] is not None:
        return False
    own = [each for each in said.punctuations.get(stream, ()) if each.stream == stream]
    return not any(row["closed"] for each in own if not each.data)


@ONE_SHARD_ABOVE
@effort(0.3, "each is two runs of many micro-batches")
@given(st.data())
def test_rows_that_promise_have_the_same_effect_in_shards(data: st.DataObject) -> None:
    name, said = data.draw(st.sampled_from(sorted(PLANS))), data.draw(st.sampled_from(sorted(SAID)))
    enforce = data.draw(st.sampled_from(["strict", "admit"]))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    plan, guard = PLANS[name], data.draw(st.sampled_from([None, 4]))
    names = list(dict.fromkeys(source.name for source in sources_of(plan)))
    batches = drawn(rng, names, SAID[said], obeys=False)
    inputs = inputs_of(SAID[said], enforce, guard)
    expected = embedded(plan, inputs, batches, {}, True, (C,))
    found = on_spark(plan, inputs, batches, {}, data.draw(st.integers(1, 3)), Cluster(rng), ends=True)
    event(f"{said}, late {bool(expected.late)}")
    late = [row for row in expected.late if row[0] != "closings"]
    assert found.sorted() == replace(expected, late=late).sorted()


@ONE_SHARD_ABOVE
@effort(0.3, "each is two runs of many micro-batches")
@given(st.data())
def test_rows_that_promise_and_sources_by_a_column_agree_in_shards(data: st.DataObject) -> None:
    """A row that is only a promise does not advance its group, and the group may still become idle."""
    name, said = data.draw(st.sampled_from(sorted(PLANS))), data.draw(st.sampled_from(sorted(SAID)))
    idle, choose = data.draw(st.none() | st.integers(1, 12)), data.draw(st.none() | st.integers(1, 3))
    by = SourceGroups(data.draw(st.sampled_from("kv")), data.draw(st.integers(1, 4)), idle, choose)
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    enforce, guard = data.draw(st.sampled_from(["strict", "admit"])), data.draw(st.sampled_from([None, 4]))
    plan, inputs = PLANS[name], inputs_of(SAID[said], enforce, guard, by)
    names = list(dict.fromkeys(source.name for source in sources_of(plan)))
    batches = drawn(rng, names, SAID[said], obeys=False)
    expected = embedded(plan, inputs, batches, {}, True, (C,))
    found = on_spark(plan, inputs, batches, {}, data.draw(st.integers(1, 3)), Cluster(rng), ends=True)
    event(f"{said}, late {bool(expected.late)}")
    late = [row for row in expected.late if row[0] != "closings"]
    assert found.sorted() == replace(expected, late=late).sorted()


@ONE_SHARD_ABOVE
@effort(0.3, "each is two runs of many micro-batches")
@given(st.data())
def test_promises_that_hold_change_no_answer(data: st.DataObject) -> None:
    """The bag of answers is that of the oracle, which knows nothing of promises; no row is late."""
    name, said = (
        data.draw(st.sampled_from(sorted(PLANS))),
        data.draw(st.sampled_from(["own", "closings", "all"])),
    )
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    plan = PLANS[name]
    names = list(dict.fromkeys(source.name for source in sources_of(plan)))
    batches = drawn(rng, names, SAID[said], obeys=True)
    found = on_spark(
        plan, inputs_of(SAID[said]), batches, {}, data.draw(st.integers(1, 3)), Cluster(rng), ends=True
    )
    came: dict[str, list[tuple[int, dict[str, Any]]]] = {each: [] for each in names}
    for _, arrived in batches:
        for stream in names:
            rows, times = arrived.get(stream, rows_of([], [], SCHEMA))
            for row, time in zip(rows.to_pylist(), times, strict=True):
                if is_data(SAID[said], stream, row):
                    came[stream].append((int(time), row))
    assert found.numbers[LATE] == 0
    expected = Counter((*row, time) for time, row in oracle.stream(plan, came))
    assert Counter(found.answers) == expected


EARLY: dict[str, Plan] = {
    "tumbling": RStream(BY_K, 10, once=True),
    "sliding": RStream(replace(BY_K, window=Sliding(10, 4)), 4, 2, once=True),
    "sessions": RStream(SessionAggregate(A, ("k",), CALLS, 5, ("w0", "w1")), 1, once=True),
}
LOOSE: dict[str, Plan] = EARLY | {
    "long": RStream(replace(BY_K, window=Sliding(100, 4)), 4, once=True),
    "at once": Select(A, col("v") > 0),
}
"""Queries whose results need no order; the last two answer no group early."""


@effort(0.3, "each is two runs of many micro-batches")
@given(st.data())
def test_closed_groups_are_answered_early_with_the_same_rows(data: st.DataObject) -> None:
    """Shards that may answer closed groups early, against one engine that answers in order."""
    name, said = data.draw(st.sampled_from(sorted(LOOSE))), data.draw(st.sampled_from(sorted(SAID)))
    enforce = "strict" if name == "at once" else data.draw(st.sampled_from(["strict", "admit"]))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    plan, inputs = LOOSE[name], inputs_of(SAID[said], enforce)
    batches = drawn(rng, ["a"], SAID[said], obeys=data.draw(st.booleans()))
    expected = embedded(plan, inputs, batches, {}, True, (C,))
    shards, early = data.draw(st.integers(1, 3)), frozenset((QUERY,))
    found = on_spark(plan, inputs, batches, {}, shards, Cluster(rng), ends=True, early=early)
    late = [row for row in expected.late if row[0] != "closings"]
    assert found.sorted() == replace(expected, late=late).sorted()


@pytest.mark.parametrize("name", sorted(EARLY))
def test_a_closed_auction_is_answered_in_the_micro_batch_that_closes_it(name: str) -> None:
    bids = rows_of([{"k": 7, "v": 1}, {"k": 8, "v": 1}], [12, 13], SCHEMA)
    closing = rows_of([{"k": 7, "closed": True}], [13], SCHEMA)
    for early, keys in ((frozenset((QUERY,)), {7}), (frozenset[str](), set[int]())):
        batches: list[MicroBatch] = [(20, {"a": bids}), (21, {"a": closing}), (22, {})]
        cluster = Cluster(random.Random(1), mishaps=0)
        found = on_spark(EARLY[name], inputs_of(SAID["own"]), batches, {}, 2, cluster, early=early)
        assert {row[0] for row in found.answers} == keys


# ------------------------------------------------------------------------------------------- rows that wait


LIMITS = {ALL: None, LIMITED: Limit("rows", 3), FILES: Limit("files", 2)}


@effort(0.3, "each is a run of many micro-batches")
@given(st.data())
def test_no_row_is_late_that_reached_its_source_before_the_punctuation(data: st.DataObject) -> None:
    """Sources are asked one after the other, late, or for a few rows at a time, by a clock that may stop."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    takes = {name: data.draw(st.sampled_from(sorted(LIMITS))) for name in ("a", "closings")}
    rows = {name: reaching(rng, rng.choice((1, 30)), in_files=takes[name] == FILES) for name in takes}
    closed_at = dict(enumerate(rows["closings"].at))
    keys = [
        rng.choice([i for i, at in closed_at.items() if at > reached] or [-1]) for reached in rows["a"].at
    ]

    def bids(numbers: list[int]) -> Any:
        made = [{"k": keys[n], "v": n} for n in numbers]
        return rows_of(made, [rows["a"].at[n] for n in numbers], SCHEMA)

    def closings(numbers: list[int]) -> Any:
        made = [{"id": n} for n in numbers]
        return rows_of(made, [rows["closings"].at[n] for n in numbers], CLOSINGS)

    clock = SOUND_CLOCKS[data.draw(st.sampled_from(sorted(SOUND_CLOCKS)))](rng)
    limits = {name: LIMITS[each] for name, each in takes.items()}
    found = schedule(rng, rows, {"a": bids, "closings": closings}, limits, data.draw(st.booleans()), clock)
    rules = Rules(disordered=True, enforce="strict")
    inputs = Inputs(promises={"a": TimerPromise(SPAN)}, rules={"a": rules}, row_promises=SAID["closings"])
    plan, cluster = PLANS["windows"], Cluster(random.Random(rng.random()))
    outcome = on_spark(
        *(plan, inputs, found.batches, {}, data.draw(st.integers(1, 3)), cluster),
        ends=True,
        said=found.said,
        takes=takes,
    )
    assert outcome.numbers[LATE] == 0
    assert sum(row[1] for row in outcome.answers) == len(keys)


def test_a_punctuation_of_another_stream_holds_once_both_have_been_read() -> None:
    closing = rows_of([{"id": 7}], [1], CLOSINGS)
    bid = rows_of([{"k": 7, "v": 1}], [5], SCHEMA)
    batches: list[MicroBatch] = [
        *((10, {"closings": closing}), (20, {"a": bid}), (30, {"a": bid}), (40, {"a": bid}))
    ]
    for said, late in (("closings", 1), ("own", 0)):
        inputs = inputs_of(SAID[said])
        found = on_spark(PLANS["windows"], inputs, batches, {}, 2, Cluster(random.Random(1)), ends=True)
        assert [row[-1] for row in found.late] == ["breaks the punctuation k = 7"] * late


# -------------------------------------------------------------------------------------------------- state


@pytest.mark.parametrize("said", ["own", "closings"])
def test_closed_groups_leave_the_state_of_every_shard(said: str) -> None:
    keys = range(600)
    rows = rows_of([{"k": k, "v": 1, "closed": False} for k in keys], [5] * len(keys), SCHEMA)
    closed = keys[:-10]
    if said == "own":
        closing = {"a": rows_of([{"k": k, "closed": True} for k in closed], [6] * len(closed), SCHEMA)}
    else:
        closing = {"closings": rows_of([{"id": k} for k in closed], [6] * len(closed), CLOSINGS)}
    last = {"a": rows_of([{"k": 599, "v": 1, "closed": False}] * 400, [40] * 400, SCHEMA)}
    later: list[MicroBatch] = [(50 + 10 * i, last) for i in range(3)]
    plan = IStream(Aggregate(Window(A, Unbounded()), ("k",), CALLS))
    sizes = {}
    for name, arrived in (("open", {}), ("closed", closing)):
        batches: list[MicroBatch] = [(10, {"a": rows}), (20, last), (30, arrived), *later]
        sizes[name] = bytes_of(plan, SAID[said], batches)
    for open_bytes, closed_bytes in zip(sizes["open"], sizes["closed"], strict=True):
        assert closed_bytes < open_bytes / 2, sizes


def bytes_of(plan: Plan, said: RowPromises, batches: list[MicroBatch]) -> tuple[int, int]:
    """Bytes of state at the end: of one engine, and of all shards together."""
    inputs = inputs_of(said)
    engine = Engine()
    inputs.install(engine, [A, C])
    engine.streams.recognise(said)
    engine.add("q", plan)
    for now, arrived in batches:
        for name, (rows, times) in arrived.items():
            engine.push(name, rows, pa.array(times, pa.int64()), now=now)
        engine.advance(now)
        engine.drain()
    cluster = Cluster(random.Random(1), [OrderedDict()], mishaps=0)
    on_spark(plan, inputs, batches, {}, 3, cluster)
    shards = [each.engine.metrics().state_bytes for each in cluster.workers[0].values()]
    assert len(shards) == 3
    return engine.metrics().state_bytes, sum(shards)


@ONE_SHARD_ABOVE
def test_a_group_that_is_closed_below_leaves_the_state_of_the_stage_above() -> None:
    """What the lower stage promises about its results reaches the upper one, from all of its shards."""
    keys = range(600)
    rows = rows_of([{"k": k, "v": 1, "closed": False} for k in keys], [5] * len(keys), SCHEMA)
    closing = rows_of([{"k": k, "closed": True} for k in keys[:-10]], [6] * (len(keys) - 10), SCHEMA)
    sizes = {}
    for name, arrived in (("open", {}), ("closed", {"a": closing})):
        batches: list[MicroBatch] = [(10, {"a": rows}), (20, arrived), (30, {}), (40, {})]
        cluster = Cluster(random.Random(1), mishaps=0)
        found = on_spark(PASSING, inputs_of(SAID["own"]), batches, {}, 3, cluster)
        last = rows_of([{"k": 599, "v": 1}], [90], SCHEMA)
        found = on_spark(PASSING, inputs_of(SAID["own"]), [(100, {"a": last}), (110, {})], {}, 3, cluster)
        operators = [json.loads(each)["operators"] for each in found.reports]
        (above,) = (each for each in operators if any("over" in operator for operator in each))
        sizes[name] = next(size for operator, size in above.items() if "aggregate" in operator)
    assert sizes["closed"] < sizes["open"] / 4, sizes


# ------------------------------------------------------------------------------------------------ on Spark

FILE = """
[pipeline]
name = "auction"
runtime = "RUNTIME"
clock = "arrival"

[streams.bids]
source = { path = "bids.jsonl", missing = "null" }
schema = "auction BIGINT, at BIGINT, came BIGINT, closed BOOLEAN, until BIGINT"
time = { column = "at", unit = "s" }
arrival = "came"
bounds = { disorder = "1 hour" }
punctuations = [
    { column = "closed", pattern = ["auction"] },
    { stream = "closings", pattern = { auction = "id" } },
]
heartbeats = { column = "until" }

[streams.closings]
source = "closings.jsonl"
schema = "id INT, at BIGINT, came BIGINT"
time = { column = "at", unit = "s" }
arrival = "came"

[[queries]]
name = "q"
sql = "SELECT auction, count(*) AS n FROM bids [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY auction"
sink = "q.jsonl"
late = "late.jsonl"
rejected = "rejected.jsonl"

[[queries]]
name = "early"
sql = "SELECT auction, count(*) AS n FROM bids [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY auction"
sink = "early.jsonl"
ordered = false
"""


@pytest.mark.timeout(900)
def test_a_pipeline_file_gives_the_same_on_spark(spark: Any, tmp_path: Path) -> None:
    """No query reads `closings`. Two rows break a punctuation, one the heartbeat."""
    bids: list[dict[str, Any]] = [
        {"auction": 7, "at": 1, "came": 1},
        {"auction": 8, "at": 2, "came": 2},
        {"auction": 9, "at": 3, "came": 3},
        {"auction": 7, "at": 3, "came": 3, "closed": True},
        {"auction": 7, "at": 4, "came": 4},
        {"auction": 8, "at": 5, "came": 5},
        {"came": 6, "until": 10},
        {"auction": 9, "at": 9, "came": 7},
        {"auction": 9, "at": 11, "came": 8},
    ]
    found = {}
    for runtime in ("embedded", "spark"):
        home = tmp_path / runtime
        home.mkdir()
        (home / "pipeline.toml").write_text(FILE.replace("RUNTIME", runtime))
        (home / "bids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bids))
        (home / "closings.jsonl").write_text('{"id": 8, "at": 4, "came": 4}\n')
        pipeline = load(home / "pipeline.toml")
        if runtime == "embedded":
            EmbeddedRunner(pipeline).run()
        else:
            SparkRunner(pipeline, spark).run()
        found[runtime] = {name: written(home / f"{name}.jsonl") for name in OUTPUTS}
        first = next(iter(lines(home / "early.jsonl")))
        assert json.loads(first)["auction"] == 7, "it is closed first"
    assert found["spark"] == found["embedded"]
    assert found["spark"]["early"] == found["spark"]["q"]
    late = {row["time"]: row["reason"] for row in map(json.loads, found["spark"]["late"])}
    assert late == {
        4_000_000: "breaks the punctuation auction = 7",
        5_000_000: "breaks the punctuation auction = 8",
        9_000_000: None,
    }


OUTPUTS = ("q", "early", "late", "rejected")


def lines(path: Path) -> list[str]:
    """The lines of an output, in order; Spark writes a folder of files."""
    files = [path] if path.is_file() else sorted(path.glob("batch=*/part-*"))
    return [line for each in files for line in each.read_text().splitlines()]


def written(path: Path) -> list[str]:
    """The lines of an output, in any order."""
    return sorted(lines(path))


@pytest.mark.timeout(900)
def test_a_dataframe_of_punctuations(spark: Any, tmp_path: Path) -> None:
    """`apply` with a DataFrame that the query does not read."""
    rows = {
        "bids": [{"auction": 7, "t": t, "arrival": t} for t in (1, 3)]
        + [{"auction": 8, "t": 4, "arrival": 4}],
        "closings": [{"id": 7, "arrival": 2}],
    }
    for name, each in rows.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text("\n".join(map(json.dumps, each)))
    bids = spark.readStream.schema("auction bigint, t bigint, arrival bigint").json(str(tmp_path / "bids"))
    closings = spark.readStream.schema("id int, arrival bigint").json(str(tmp_path / "closings"))
    schema = pa.schema([("auction", pa.int64()), ("t", pa.int64())])
    stream = StreamDef("bids", schema, time_column="t", ticks_per_second=None)
    options = SparkOptions(
        bounds={"bids": DisorderPromise(0)},
        arrival="arrival",
        punctuations={"bids": {"stream": closings, "pattern": {"auction": "id"}}},
        shards=2,
    )
    found: list[tuple[int, int]] = []

    def keep(df: Any, number: int) -> None:
        found.extend((row.auction, row.n) for row in df.collect())

    text = "SELECT auction, count(*) AS n FROM bids [RANGE 10] GROUP BY auction"
    out = apply(query(text, [stream], ticks_per_second=None), {"bids": bids}, options)
    writer = out.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
    played(lambda: writer.trigger(availableNow=True).start())
    assert sorted(found) == [(7, 1), (8, 1)], "the second bid for 7 is late"


BIDS = Source("bids", SCHEMA)


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        (
            {"punctuations": {"bid": {"column": "closed", "pattern": ["k"]}}},
            "'bid', which the query",
        ),
        ({"punctuations": {"bids": {"pattern": ["k"]}}}, "column is missing"),
        ({"punctuations": {"bids": {"column": "closed", "pattern": ["x"]}}}, "no column 'x'"),
        ({"punctuations": {"bids": {"stream": "closings", "pattern": ["k"]}}}, "no stream 'closings'"),
        ({"punctuations": {"bids": {"column": "closed", "patern": ["k"]}}}, "pattern: field required"),
        ({"punctuations": {"bids": {"column": "v", "pattern": ["k"]}}}, "'v' is not boolean"),
        ({"heartbeats": {"bids": {"column": "til"}}}, "no column 'til'"),
        ({"heartbeats": {"bids": {"column": "closed"}}}, "not a time"),
    ],
)
def test_a_mistake_in_the_options_is_named(given_options: dict[str, Any], message: str) -> None:
    options = SparkOptions(bounds={"bids": DisorderPromise(0)}, **given_options)
    with pytest.raises(SparkError, match=message) as found:
        options.inputs_for([BIDS], None)
    assert found.value.code == "HR-SP45"


def test_a_stream_of_punctuations_needs_a_timer() -> None:
    inputs = inputs_of(SAID["closings"])
    refuse_speakers_without_timer(SparkOptions(inputs=inputs), inputs, ["a"])
    with pytest.raises(SparkError, match="need a timer"):
        refuse_speakers_without_timer(SparkOptions(inputs=inputs, timer=None), inputs, ["a"])
