"""Sources by a column on Spark: every shard derives what one engine does, however tasks divide the rows."""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import headrace
from headrace.engine.inputs import STRICT, Inputs
from headrace.errors import HeadraceError, HeadraceWarning, PipelineError
from headrace.expressions import col
from headrace.graph.admission import Rules
from headrace.pipeline import parse
from headrace.plan.nodes.core import AggregateCall, Plan, RStream, Select, SlidingAggregate, Source
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.trees import sources_of
from headrace.plan.nodes.windows import Sliding
from headrace.runtimes.spark.driver.bounds import inputs_of
from headrace.runtimes.spark.driver.sources import check_stream
from headrace.runtimes.spark.driver.topology import hosts
from headrace.runtimes.spark.worker.answers import RESULT, Outlet
from headrace.runtimes.spark.worker.source_column import SourceColumn
from headrace.state.source_cells import cells_of
from headrace.time.quantile import Confidence
from headrace.time.sources import SourceGroups, SourcesPromise
from tests.engine.test_sources import Arrival, arrivals
from tests.laws import effort
from tests.spark.conftest import Feed, played
from tests.spark.simulated import QUERY, Cluster, MicroBatch, embedded, embedded_instants, on_spark
from tests.spark.test_simulated import GUARDS, micro_batches
from tests.strategies.plans import cases, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("device", pa.string()), ("k", pa.int64())])
SOURCE = Source("s", SCHEMA)
PLAN: Plan = RStream(SlidingAggregate(SOURCE, ("k",), (AggregateCall("n", "count"),), Sliding(10, 5)), 5)


@st.composite
def by_source(draw: st.DrawFn, source: Source) -> SourcesPromise:
    column = draw(st.sampled_from(source.columns.names))
    idle, choose = draw(st.none() | st.integers(1, 20)), draw(st.none() | st.integers(1, 3))
    by = SourceGroups(column, draw(st.integers(1, 4)), idle, choose)
    if draw(st.integers(0, 3)) == 0:
        return SourcesPromise(by, confidence=Confidence(0.1, ceiling=20), latency=draw(st.integers(0, 30)))
    return SourcesPromise(by, draw(st.integers(0, 8)), draw(st.none() | st.integers(0, 30)))


@effort(0.5, "one example takes long")
@given(st.data())
def test_shards_judge_rows_by_their_group_as_one_engine_does(data: st.DataObject) -> None:
    case = data.draw(cases())
    sources = {s.name: s for s in sources_of(case.plan)}
    rule = Rules(disordered=True, enforce="strict", guard=data.draw(GUARDS))
    inputs = Inputs(
        promises={name: data.draw(by_source(each)) for name, each in sorted(sources.items())},
        rules=dict.fromkeys(sources, rule),
    )
    batches = data.draw(micro_batches(case))
    tables = {
        t.name: pa.Table.from_pylist([r for _, r in case.sources[t.name]], schema=t.columns)
        for t in tables_of(case.plan)
    }
    partitions = data.draw(st.integers(1, 3))
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    ends = data.draw(st.booleans())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        chain = hosts(case.plan, inputs, partitions, Outlet())
        event(f"{len(chain)} hosts, {len(chain[-1].shard_keys)} shards")
        spread = on_spark(case.plan, inputs, batches, tables, partitions, cluster, ends=ends)
    whole = embedded(case.plan, inputs, batches, tables, ends)
    event("late rows" if whole.late else "no late rows")
    for found, expected in zip(spread.sorted(), whole.sorted(), strict=True):
        assert Counter(map(repr, found)) == Counter(map(repr, expected))


@effort(0.5, "one example takes long")
@given(arrivals(), by_source(SOURCE), st.integers(1, 3), st.integers(0, 2**32))
def test_rows_that_are_admitted_late_count_as_in_one_engine(
    rows: list[Arrival], promise: SourcesPromise, partitions: int, seed: int
) -> None:
    """Rows become partial rows before the shuffle: their times still advance the heartbeats by source."""
    inputs = Inputs(promises={"s": promise}, rules={"s": Rules(disordered=True, enforce="admit")})
    outlet = Outlet("__t", kinds=frozenset({RESULT}))
    assert hosts(PLAN, inputs, partitions, outlet)[0].streams[0].partials is not None
    batches, cluster = batches_of(rows), Cluster(random.Random(seed))
    if not batches:
        return
    spread = on_spark(PLAN, inputs, batches, {}, partitions, cluster, outlet, ends=True)
    whole = embedded(PLAN, inputs, batches, {}, ends=True)
    assert Counter(spread.answers) == Counter(whole.answers)


def batches_of(rows: list[tuple[int, str, int]]) -> list[MicroBatch]:
    """One micro-batch per instant, of rows (instant, device, time)."""
    found = []
    for now in sorted({instant for instant, *_ in rows}):
        here = [(device, time) for instant, device, time in rows if instant == now]
        data = pa.RecordBatch.from_pylist([{"device": d, "k": t % 3} for d, t in here], schema=SCHEMA)
        found.append((now, {"s": (data, np.array([t for _, t in here], object))}))
    return found


def test_one_silent_device_of_many_delays_only_its_group() -> None:
    """20 devices, one of which stops: `idle` later the stream goes on, and no other row is ever late."""
    devices = [f"device {i}" for i in range(20)]
    groups = (cells_of(pa.array(devices), 800) % 100).tolist()
    silent = devices[next(i for i, group in enumerate(groups) if i and groups.count(group) == 1)]
    rows = [(now, d, now) for now in range(100, 150) for d in devices if now < 110 or d != silent]
    promise = SourcesPromise(SourceGroups("device", 100, idle=20, choose_after=None), 3)
    inputs = Inputs(promises={"s": promise}, rules={"s": STRICT})
    cluster = Cluster(random.Random(1), mishaps=0.0)
    found = on_spark(PLAN, inputs, batches_of(rows), {}, 2, cluster)
    assert found.late == []
    assert max(row[-1] for row in found.answers) >= 139
    # While it holds the stream back, nothing is answered beyond its promise.
    held = [row[-1] for answers in found.by_batch[11:28] for row in answers]
    assert max(held, default=0) <= 109


BY_DEVICE = SlidingAggregate(SOURCE, ("device",), (AggregateCall("n", "count"),), Sliding(10, 5))
EARLY: dict[str, Plan] = {
    "windows": RStream(BY_DEVICE, 5),
    "sessions": SessionAggregate(SOURCE, ("device",), (AggregateCall("n", "count"),), 3),
    "of a part": RStream(replace(BY_DEVICE, input=Select(SOURCE, col("k") > 0)), 5),
}


@effort(0.5, "one example takes long")
@given(arrivals(), st.data(), st.integers(1, 3), st.sampled_from(sorted(EARLY)), st.integers(0, 2**32))
def test_shards_answer_a_group_when_its_source_is_complete_as_one_engine_does(
    rows: list[Arrival], data: st.DataObject, partitions: int, name: str, seed: int
) -> None:
    """In the same micro-batch; in the end they are the rows of the query in order."""
    plan, batches = EARLY[name], batches_of(rows)
    by = SourceGroups("device", data.draw(st.integers(1, 4)), None, data.draw(st.none() | st.integers(1, 3)))
    bounds = SourcesPromise(by, data.draw(st.integers(0, 8)), data.draw(st.none() | st.integers(0, 30)))
    inputs = Inputs(promises={"s": bounds}, rules={"s": STRICT})
    assert inputs.answers_early(plan)
    if not batches:
        return
    cluster = Cluster(random.Random(seed))
    spread = on_spark(plan, inputs, batches, {}, partitions, cluster, early=frozenset({QUERY}))
    whole = list(embedded_instants(plan, inputs, batches, {}, waited=True, ordered=False))
    event(
        "more than in order" if len(spread.answers) > len(embedded(plan, inputs, batches, {}).answers) else ""
    )
    for found, expected in zip(spread.by_batch, whole, strict=True):
        assert Counter(found) == Counter(expected.answers)
    cluster = Cluster(random.Random(seed))
    ended = on_spark(plan, inputs, batches, {}, partitions, cluster, ends=True, early=frozenset({QUERY}))
    in_order = embedded(plan, inputs, batches, {}, ends=True)
    assert Counter(ended.answers) == Counter(in_order.answers)
    assert Counter(map(repr, ended.late)) == Counter(map(repr, in_order.late))


def test_packages_carry_a_number_for_each_active_cell_and_none_for_a_source() -> None:
    column = SourceColumn("device", 800, True)
    rng = np.random.default_rng(5)
    devices = pa.array([f"device {i}" for i in rng.integers(0, 100_000, 50_000)])
    rows = pa.RecordBatch.from_arrays([devices], ["device"])
    cells, times = column.of(rows, rows), rng.integers(0, 1_000, 50_000)
    best, instants, which = column.greatest(times, np.broadcast_to(np.int64(9), 50_000), cells)
    assert len(best) == len(which) == 800
    assert set(instants.tolist()) == {9}
    expected = [int(times[cells == cell].max()) for cell in range(800)]
    assert best.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(-9, 9)), max_size=20))
def test_the_greatest_time_of_each_cell_and_instant(rows: list[tuple[int, int, int]]) -> None:
    clocks, cells, times = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    column = SourceColumn("device", 6, True)
    best, instants, which = column.greatest(times, clocks, cells.astype(np.uint16))
    expected: dict[tuple[int, int], int] = {}
    for clock, cell, time in rows:
        expected[clock, cell] = max(time, expected.get((clock, cell), time))
    found = zip(instants.tolist(), which.tolist(), best.tolist(), strict=True)
    assert {(clock, cell): time for clock, cell, time in found} == expected


COUNTED = """SELECT k, count(*) AS n, window_end FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]
             WHERE v > 0 GROUP BY k"""


@pytest.mark.slow
def test_on_spark_the_column_may_be_one_that_no_query_reads(
    spark: SparkSession, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """Spark runs the filter and drops the column of the devices; the partitioner still gets it.

    Rows that the filter drops advance the heartbeat of their group, and no other.
    """
    fed, base = feed("s", "ts TIMESTAMP, device STRING, k INT, v INT"), datetime(2026, 1, 1, tzinfo=UTC)
    lag = {"fast": 0, "slow": 60}
    for i, v in ((0, 1), (1, 0), (2, 1), (3, 1), (50, 0)):
        fed.put(
            *(
                {"ts": (base + timedelta(seconds=10 * i - behind)).isoformat(), "device": d, "k": 1, "v": v}
                for d, behind in lag.items()
            )
        )
    rows = fed.read(spark)
    asked = headrace.query(COUNTED, [headrace.spark.stream("s", rows, time="ts")])
    counted = {}
    for name, by in (("plain", {}), ("by device", {"sources": {"column": "device", "groups": 50}})):
        options = headrace.spark.SparkOptions(bounds={"s": {"disorder": "5 seconds", **by}}, timer=None)
        out = headrace.spark.apply(asked, {"s": rows}, options)
        writer = out.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / name / "c"))
        played(partial(writer.start, str(tmp_path / name / "out")))
        counted[name] = sum(row.n for row in spark.read.parquet(str(tmp_path / name / "out")).collect())
    assert counted == {"plain": 4, "by device": 6}


DEVICES = 100_000
INSTANTS = [1_000 + 10 * i for i in range(12)]
DEVICE_NAMES = pa.array([f"device {i}" for i in range(DEVICES)])


def every_device_sends(folder: Path, silent: np.ndarray, silent_from: int) -> None:
    """Every device sends a row at each instant, but those that are `silent` from an instant on."""
    (folder / "s").mkdir(parents=True)
    (folder / "timer").mkdir()
    for number, now in enumerate(INSTANTS):
        rows = pa.table({"device": DEVICE_NAMES, "at": np.full(DEVICES, now), "came": np.full(DEVICES, now)})
        if now >= silent_from:
            rows = rows.filter(pa.array(~silent))
        files = {"s": rows, "timer": pa.table({"came": [now]})}
        for name, each in files.items():
            path = folder / name / f"{number:02}.parquet"
            pq.write_table(each, path)
            os.utime(path, (number + 1, number + 1))


def answered_on_spark(
    spark: SparkSession, folder: Path, text: str, idle: int, ordered: bool = True
) -> tuple[list[pa.Table], int]:
    """The answers of each micro-batch, and the number of late rows; devices are in 100 groups."""
    read = {
        name: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, schema in (("s", "device STRING, at BIGINT, came BIGINT"), ("timer", "came BIGINT"))
    }
    columns = pa.schema([("device", pa.string()), ("at", pa.int64())])
    asked = headrace.query(text, [headrace.StreamDef("s", columns, time_column="at", ticks_per_second=None)])
    sources = {"column": "device", "groups": 100, "idle": idle, "choose": False}
    options = headrace.spark.SparkOptions(
        bounds={"s": {"disorder": 5, "sources": sources}},
        timer=read.pop("timer"),
        arrival="came",
        ordered=ordered,
    )
    found: dict[int, pa.Table] = {}
    late: list[int] = []

    def keep(rows: DataFrame, batch: int) -> None:
        found[batch] = rows.toArrow()

    job = headrace.spark.job(read, options, checkpoint=folder / "checkpoint")
    job.add("counts", asked, sink=keep, late=lambda rows, batch: late.append(rows.count()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)  # one shard, if the window has no key
        assert job.start(trigger={"availableNow": True}).awaitTermination(600), "the job did not end"
    return [found.get(batch, found[0].slice(0, 0)) for batch in range(len(INSTANTS))], sum(late)


def counted_on_spark(
    spark: SparkSession, folder: Path, silent: np.ndarray, silent_from: int
) -> tuple[list[dict[int, int]], int]:
    """By micro-batch, the number of rows in each window that was answered; and the number of late rows."""
    every_device_sends(folder, silent, silent_from)
    text = "SELECT count(*) AS n, window_end FROM s [RANGE 10 TICKS SLIDE 10 TICKS]"
    found, late = answered_on_spark(spark, folder, text, idle=30)
    return [{row["window_end"]: row["n"] for row in rows.to_pylist()} for rows in found], late


@pytest.mark.slow
@pytest.mark.timeout(1900)
def test_one_silent_device_of_100_000_on_spark_delays_nobody_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A device whose group speaks is not waited for; a group that is silent is waited for until `idle`."""
    group_of = np.array(cells_of(DEVICE_NAMES, 800)) % 100
    one, group = np.zeros(DEVICES, np.bool_), group_of == group_of[7]
    one[7] = True
    after = INSTANTS[4]
    nobody, late = counted_on_spark(spark, tmp_path / "nobody", ~one & one, after)
    assert late == 0
    ended = [end for answers in nobody for end in answers]
    assert ended == sorted(ended)
    assert len(ended) >= 10
    assert set(nobody[5].values()) == {DEVICES}
    alone, late = counted_on_spark(spark, tmp_path / "one", one, after)
    assert late == 0
    assert [[*each] for each in alone] == [[*each] for each in nobody], "as early as without the silence"
    for answers in alone:
        assert all(n == DEVICES - (end > after) for end, n in answers.items())
    together, late = counted_on_spark(spark, tmp_path / "group", group, after)
    assert late == 0
    idle_at = INSTANTS.index(after - 10 + 30)
    assert not any(end > after for answers in together[:idle_at] for end in answers), "as the bounds say"
    assert [[*each] for each in together[idle_at + 1 :]] == [[*each] for each in nobody[idle_at + 1 :]]
    assert sorted(end for each in together for end in each) == ended
    for answers in together:
        assert all(n == DEVICES - (end > after) * group.sum() for end, n in answers.items())


def by_window(rows: pa.Table, silent: np.ndarray) -> tuple[dict[int, int], dict[int, int]]:
    """The number of devices that were answered by the end of the window: those that speak, and the silent."""
    numbers = [int(name.removeprefix("device ")) for name in rows["device"].to_pylist()]
    mask = silent[np.array(numbers, np.int64)]
    speaking, quiet = (
        Counter(rows.filter(pa.array(each))["window_end"].to_pylist()) for each in (~mask, mask)
    )
    return dict(speaking), dict(quiet)


@pytest.mark.slow
@pytest.mark.timeout(1900)
def test_a_silent_group_of_100_000_devices_on_spark_delays_only_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Answers for each device, in any order: those of other groups come as if nobody were silent."""
    text = "SELECT device, count(*) AS n, window_end FROM s [RANGE 10 TICKS SLIDE 10 TICKS] GROUP BY device"
    group_of = np.array(cells_of(DEVICE_NAMES, 800)) % 100
    group, after = group_of == group_of[7], INSTANTS[4]
    answered: dict[str, list[tuple[dict[int, int], dict[int, int]]]] = {}
    for name, silent in (("nobody", np.zeros(DEVICES, np.bool_)), ("group", group)):
        every_device_sends(tmp_path / name, silent, after)
        found, late = answered_on_spark(spark, tmp_path / name, text, idle=60, ordered=False)
        assert late == 0
        assert all(set(rows["n"].to_pylist()) <= {1} for rows in found)
        answered[name] = [by_window(rows, group) for rows in found]
    others, itself = DEVICES - int(group.sum()), int(group.sum())
    assert [speaking for speaking, _ in answered["group"]] == [s for s, _ in answered["nobody"]]
    assert sum((Counter(s) for s, _ in answered["group"]), Counter())[after + 30] == others
    assert answered["nobody"][5] == ({after: others}, {after: itself})
    assert answered["group"][5] == ({after: others}, {}), "its windows wait for it"
    came = [(number, quiet) for number, (_, quiet) in enumerate(answered["group"]) if after in quiet]
    idle_at = INSTANTS.index(after - 10 + 60)
    assert [quiet for _, quiet in came] == [{after - 10: itself, after: itself}]
    assert came[0][0] in (idle_at, idle_at + 1), "as the bounds say"


@pytest.mark.parametrize(
    ("given_bounds", "hint"),
    [
        ({"disorder": 5, "sources": 7}, '"sources": {"column": "device"}'),
        ({"disorder": 5, "sources": {"colum": "device"}}, '"sources": {"column": "device"}'),
        ({"disorder": 5, "sources": {"column": "device", "group": 7}}, "did you mean groups?"),
        ({"latency": 5, "sources": "device"}, "give disorder"),
        ({"slack": 5, "sources": "device"}, "use disorder, estimate, latency"),
        ({"disorder": 5, "sources": "devise"}, "did you mean device?"),
    ],
)
def test_mistakes_in_options_have_a_hint(given_bounds: Any, hint: str) -> None:
    with pytest.raises(HeadraceError) as error:
        inputs_of({"s": given_bounds}, ["s"], "strict", None, None).check([SOURCE])
    assert hint in error.value.hint


def test_options_make_the_promise() -> None:
    table = {"column": "device", "groups": 7, "idle": "2 seconds", "choose": False}
    found = inputs_of({"s": {"disorder": "1 second", "sources": table}}, ["s"], "strict", None, 1_000_000)
    promise = found.promises["s"]
    assert isinstance(promise, SourcesPromise)
    assert promise.by == SourceGroups("device", 7, 2_000_000, None)
    assert promise.disorder == 1_000_001, "less than this"


def test_streams_with_and_without_sources_have_their_own_bounds() -> None:
    bounds = {
        "s": {"estimate": {"loss": 0.1, "ceiling": 9}, "latency": 20, "sources": "device"},
        "u": {"disorder": 4},
        "w": {"estimate": True},
    }
    found = inputs_of(bounds, ["s", "u", "w"], "strict", None, None)
    promise = found.by_source("s")
    assert promise is not None
    assert promise.confidence == Confidence(0.1, ceiling=9)
    assert (promise.latency, promise.disorder) == (20, None)
    assert found.heartbeats is not None
    assert set(found.heartbeats.streams) == {"u", "w"}
    assert set(found.rules) == {"s", "u", "w"}


ORDERS = """
[pipeline]
name = "orders"
[streams.made]
source = "rows.jsonl"
schema = "made BIGINT, sent BIGINT"
time = "made"
[streams.sent]
of = "made"
time = "sent"
[[queries]]
name = "q"
sql = "SELECT made FROM sent"
sink = "q.jsonl"
"""


def test_other_orders_of_a_stream_are_refused(tmp_path: Path) -> None:
    """They would be read as two sources, whose rows can be in different micro-batches."""
    pipeline = parse(ORDERS, root=tmp_path)
    check_stream(pipeline, pipeline.streams["made"])
    with pytest.raises(PipelineError, match=r"HR-F017.*other orders"):
        check_stream(pipeline, pipeline.streams["sent"])
