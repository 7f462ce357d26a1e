"""One memory budget for all queries and shards of a job: one size of a window everywhere, exact answers."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import headrace
from headrace.control import AddQuery, Entry, Log, RemoveQuery, Resize, SetBudget, SetStrategy, changed
from headrace.engine.inputs import Inputs
from headrace.errors import BudgetError, HeadraceWarning, SparkError
from headrace.graph.admission import Rules
from headrace.pipeline import parse
from headrace.plan.nodes.quality import adaptable
from headrace.runtimes.spark.driver.admission import FILE as FILE_OF_MEASURES
from headrace.runtimes.spark.driver.admission import FOLDER, check_added
from headrace.runtimes.spark.driver.budget import JobBudget
from headrace.runtimes.spark.driver.status import Described, merged_reports
from headrace.runtimes.spark.worker.budgeting import Choice
from headrace.runtimes.spark.worker.controlling import in_band
from headrace.runtimes.spark.worker.state_store import Layout, Store
from headrace.sql import Query, StreamDef
from headrace.testing import oracle
from headrace.time.ets import DisorderPromise
from tests.laws import effort
from tests.spark.conftest import Feed
from tests.spark.simulated import (
    Cluster,
    Manager,
    MicroBatch,
    Outcome,
    clocks,
    job_on_spark,
    reported_histories,
    run_levels,
)
from tests.spark.test_control import FILE, in_one_engine, levels_of
from tests.spark.test_control import rows_of as few_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
CATALOG = {"a": COLUMNS, "b": COLUMNS}
MAY = "[RANGE MIN 5, MAX 60]"
QUERIES = {
    "joined": f"SELECT a.k, a.v, b.v AS w FROM a {MAY} AS a, b [RANGE MIN 10, MAX 40] AS b WHERE a.k = b.k",
    "counted": f"SELECT k, count(*) AS n, max(v) AS v FROM a {MAY} GROUP BY k",
    "left": "DSTREAM(SELECT k, v FROM b [RANGE MIN 3, MAX 90])",
    "rounded": "SELECT k, count(*) [GRANULARITY COARSEST 20, FINEST 1] AS n FROM a [RANGE 50] GROUP BY k",
    "slid": "SELECT k, sum(v) AS x, max(v) AS m FROM a [RANGE MIN 10, MAX 60 SLIDE 10] GROUP BY k",
    "newest": "SELECT k, sum(v) AS x FROM b [PARTITION BY k ROWS MIN 2, MAX 9] GROUP BY k",
    "apart": "SELECT k, avg(v) [GRANULARITY COARSEST 20, FINEST 2] AS x, count(*) [GRANULARITY 5] AS n "
    "FROM b [RANGE MIN 20, MAX 50] GROUP BY k",
    "staged": f"SELECT n, count(*) AS m FROM ISTREAM(SELECT k, count(*) AS n FROM a {MAY} GROUP BY k) {MAY} "
    "GROUP BY n",
}


def asked(texts: dict[str, str], catalog: Any = CATALOG) -> dict[str, Query]:
    return {name: headrace.query(text, catalog, ticks_per_second=None) for name, text in texts.items()}


def world(rng: random.Random, batches: int, disorder: int) -> list[MicroBatch]:
    """Two streams with bursts, as far out of order as they may be."""
    made: list[MicroBatch] = []
    now = 100
    for _ in range(batches):
        begin, now = now, now + rng.choice((3, 20, 60))
        arrived = {}
        for name in "ab":
            rows = rng.choice((0, 3, 20, 90))
            ends = sorted(rng.randint(begin + 1, now) for _ in range(rows))
            times = np.array([time - rng.randint(0, disorder) for time in ends], object)
            data = [{"k": rng.randint(0, 4), "v": rng.randint(0, 3)} for _ in ends]
            if rows:
                arrived[name] = (pa.RecordBatch.from_pylist(data, COLUMNS), times)
        made.append((now, arrived))
    return made


def rows_of(batches: list[MicroBatch]) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {"a": [], "b": []}
    for _, arrived in batches:
        for name, (rows, times) in arrived.items():
            found[name] += zip(map(int, times), rows.to_pylist(), strict=True)
    return {name: sorted(rows, key=lambda each: each[0]) for name, rows in found.items()}


def ran(
    queries: dict[str, Query], batches: list[MicroBatch], disorder: int, shards: int, **more: Any
) -> Outcome:
    inputs = Inputs(
        promises=dict.fromkeys("ab", DisorderPromise(disorder)),
        rules=dict.fromkeys("ab", Rules(disordered=True, enforce="strict")),
    )
    plans = {name: each.plan for name, each in queries.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)  # that there is one shard only
        return job_on_spark(plans, inputs, batches, {}, shards, ends=True, budget=10**9, **more)


def assert_exact(outcome: Outcome, queries: dict[str, Query], batches: list[MicroBatch]) -> None:
    """The answers are those that the oracle computes from the histories that the job reports."""
    reports = [json.loads(each) for each in outcome.reports]
    histories = merged_reports(reports, Described("job"))["figures"]["histories"]
    rows = rows_of(batches)
    for name, each in queries.items():
        known = dict(zip(adaptable(each.plan), histories[name], strict=True))
        expected = Counter((*row, time) for time, row in oracle.stream(each.plan, rows, known))
        assert Counter(outcome.by_query[name]) == expected, name


@effort(0.25, "each example is a job of several queries, and the oracle")
@given(st.data())
def test_windows_have_one_size_in_all_shards_and_answers_are_exact(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    disorder = data.draw(st.sampled_from([0, 2, 9]))
    batches = world(rng, data.draw(st.integers(2, 9)), disorder)
    names = data.draw(st.lists(st.sampled_from(list(QUERIES)), min_size=1, max_size=3, unique=True))
    queries = asked({name: QUERIES[name] for name in names})
    manager = Manager(data.draw(st.sampled_from([1, 3_000, 10_000, 30_000])), rng, policy="spill")
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    outcome = ran(queries, batches, disorder, data.draw(st.integers(1, 3)), cluster=cluster, manager=manager)
    for windows in manager.histories:
        assert all(len(histories) == 1 for histories in windows.values()), windows
    changes = sum(len(h) - 1 for each in manager.histories[-1].values() for h in each)
    event(f"changes: {min(changes, 5)}")
    assert not outcome.late
    assert_exact(outcome, queries, batches)


BURST = {
    "joined": "SELECT a.k, a.v, b.v AS w FROM a [RANGE MIN 20, MAX 2000] AS a, "
    "b [RANGE MIN 20, MAX 2000] AS b WHERE a.k = b.k AND a.v = b.v",
    "left": "DSTREAM(SELECT k, v FROM a [RANGE MIN 20, MAX 2000])",
    "rounded": "SELECT k, count(*) [GRANULARITY COARSEST 200, FINEST 1] AS n FROM b [RANGE 1000] GROUP BY k",
}
BUDGET = 180_000
"""A third of what the queries hold without a budget."""


def burst(rng: random.Random, step: int, usual: int, first: int, last: int, end: int) -> list[MicroBatch]:
    """Micro-batches of two streams, each over `step` ticks, with 20 times the rows from `first` to `last`."""
    made: list[MicroBatch] = []
    for begin in range(0, end, step):
        rows = usual * (20 if first <= begin < last else 1)
        arrived = {}
        for name in "ab":
            at = np.array(sorted(rng.randint(begin, begin + step - 1) for _ in range(rows)), object)
            data = [{"k": rng.randint(0, 40), "v": rng.randint(0, 40)} for _ in range(rows)]
            arrived[name] = (pa.RecordBatch.from_pylist(data, COLUMNS), at)
        made.append((begin + step, arrived))
    return made


def test_a_burst_is_kept_within_the_budget_of_all_shards_and_queries() -> None:
    queries, batches = asked(BURST), burst(random.Random(1), 250, 8, 3000, 6000, 10_000)

    held, cluster = Manager(BUDGET, random.Random(2), policy="spill"), Cluster(random.Random(3), mishaps=0.0)
    outcome = ran(queries, batches, 0, 2, cluster=cluster, manager=held)
    assert 0.5 * BUDGET < max(held.held) <= 1.05 * BUDGET, max(held.held)
    assert all(len(each) == 1 for windows in held.histories for each in windows.values())
    assert_exact(outcome, queries, batches)
    histories = [each for windows in held.histories[-1].values() for each in windows]
    assert all(1 < len(each) < 30 for each in histories), "sizes change, and do not flap"
    assert [each[-1][1] for each in histories] == [each[0][1] for each in histories], "and return"


ADDED = (
    "SELECT j, k, count(*) AS n FROM s [RANGE MIN 1 TICKS, MAX 30 TICKS] GROUP BY j, k",
    "SELECT k, max(w) AS w FROM u [RANGE MIN 2 TICKS, MAX 20 TICKS] GROUP BY k",
    "SELECT k, v FROM s WHERE v > 2",
)


@effort(0.25, "each example is a job with commands, and an engine")
@given(st.data())
def test_queries_come_and_go_under_a_budget(data: st.DataObject) -> None:
    """An engine that is given the same commands and the chosen sizes answers the same."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    batches: list[MicroBatch] = []
    now = 0
    for _ in range(data.draw(st.integers(3, 9))):
        now += rng.choice((1, 3, 9))
        batches.append((now, few_rows(rng, now)))
    batches.append((now + 60, {}))
    with TemporaryDirectory() as folder:
        pipeline = parse(FILE, root=Path(folder))
        log, texts, entries = Log(Path(folder) / "log"), dict[int, list[str]](), dict[int, list[Entry]]()
        at = 0
        for number in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(at, len(batches) - 2))
            name = data.draw(st.sampled_from(["pairs", *(f"new{i}" for i in range(number))]))
            text = data.draw(st.sampled_from(ADDED))
            added = AddQuery(f"new{number}", text, f"{number}.jsonl")
            entry = log.append(data.draw(st.sampled_from([added, added, RemoveQuery(name)])))
            entries.setdefault(at, []).append(entry)
            texts.setdefault(at, []).append((log.path / f"{entry.number:08d}.json").read_text())
    manager = Manager(data.draw(st.sampled_from([1, 3_000, 6_000])), rng, policy="spill")
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    levels = levels_of(pipeline, data.draw(st.integers(1, 3)), 0)
    outcome = run_levels(
        *(levels, batches, cluster, pa.schema([])), ends=True, commands=texts, manager=manager, budget=10**9
    )
    for batch, choice in manager.choices.items():
        for each in choice.values:
            resize = Resize(each.query, each.value, since=each.since)
            entries.setdefault(batch, []).append(Entry(10**6, resize))
    event(f"choices: {min(5, len(manager.choices))}")
    answers = in_one_engine(pipeline, batches, entries, ends=True)
    for name in {**outcome.by_query, **answers}:
        assert Counter(map(repr, outcome.by_query[name])) == answers.get(name, Counter()), name


WIDE = "[RANGE MIN 5 TICKS, MAX 100 TICKS]"
TWO = {"of_s": f"DSTREAM(SELECT k, v FROM s {WIDE})", "of_u": f"DSTREAM(SELECT k, w FROM u {WIDE})"}


def test_a_query_that_goes_leaves_its_memory_to_the_others(tmp_path: Path) -> None:
    more = (f'[[queries]]\nname = "{n}"\nsql = "{text}"\nsink = "{n}.jsonl"\n' for n, text in TWO.items())
    pipeline, rng = parse(FILE + "".join(more), root=tmp_path), random.Random(1)
    batches: list[MicroBatch] = []
    for now in range(20, 620, 20):
        times = np.array(sorted(rng.randint(now - 19, now) for _ in range(80)), object)
        values = {name: [rng.randint(0, 99) for _ in times] for name in "kjvw"} | {"t": times.tolist()}
        columns = {"s": "kjvt", "u": "kwt"}
        arrived = {
            name: pa.RecordBatch.from_pydict({c: values[c] for c in columns[name]}) for name in columns
        }
        batches.append((now, {name: (rows, times) for name, rows in arrived.items()}))
    log = Log(tmp_path / "log")
    entry = log.append(RemoveQuery("of_u"))
    text = (log.path / f"{entry.number:08d}.json").read_text()

    def run(budget: int, commands: dict[int, list[str]]) -> Manager:
        manager, cluster = Manager(budget, random.Random(2), policy="spill"), Cluster(rng, mishaps=0.0)
        levels = levels_of(pipeline, 2, 0)
        run_levels(
            *(levels, batches, cluster, pa.schema([])), commands=commands, manager=manager, budget=10**9
        )
        return manager

    def size_of_s(windows: dict[tuple[int, str], set[Any]]) -> int:
        (history,) = next(each for key, each in windows.items() if "of_s" in key[1])
        return int(history[-1][1])

    gone = run(7 * max(run(10**9, {}).held) // 10, {15: [text]})
    assert size_of_s(gone.histories[14]) < 90
    assert size_of_s(gone.histories[-1]) == 100


def test_a_query_that_does_not_fit_is_refused_by_what_all_shards_measured(tmp_path: Path) -> None:
    """The shards together refuse and accept as one engine does, and so does what is written to a file."""
    queries = asked({"left": "DSTREAM(SELECT k, v FROM a [RANGE MIN 20, MAX 500])"})
    batches = burst(random.Random(1), 100, 40, 0, 0, 3000)
    manager = Manager(40_000, random.Random(2), policy="fail")
    ran(queries, batches, 0, 3, cluster=Cluster(random.Random(3), mishaps=0.0), manager=manager)
    engine = headrace.Engine()
    engine.add("left", queries["left"])
    engine.memory.set_budget(40_000)
    for now, arrived in batches:
        for name, (rows, times) in arrived.items():
            if name == "a":
                engine.push(name, rows, times.astype(np.int64))
        engine.advance(now)
        engine.drain()
    measured = manager.job.measured()
    assert {name: sum(each.rows for each in of) for name, of in measured.arrivals.items()}["a"] == 40 * 30
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / FILE_OF_MEASURES).write_text(measured.text())
    verdicts = {}
    for least in (50, 100, 20_000):
        query = asked({"q": f"DSTREAM(SELECT k, v FROM a [RANGE MIN {least}, MAX 30000])"})["q"]
        checks: list[Callable[[], object]] = [
            lambda query=query: engine.memory.admit("q", query.plan, None),  # type: ignore[misc]
            lambda query=query: measured.check("q", query),  # type: ignore[misc]
            lambda query=query: check_added(tmp_path, "q", query),  # type: ignore[misc]
        ]
        verdicts[least] = [_refused(check) for check in checks]
    assert verdicts == {50: [False] * 3, 100: [False] * 3, 20_000: [True] * 3}


def _refused(check: Callable[[], object]) -> bool:
    try:
        check()
    except BudgetError as error:
        return error.code == "HR-M004"
    return False


def test_the_importance_of_queries_counts_for_all_shards() -> None:
    texts = {
        "high": "DSTREAM(SELECT k, v FROM a [RANGE MIN 20, MAX 2000])",
        "low": "DSTREAM(SELECT k, v FROM b [RANGE MIN 20, MAX 2000])",
    }
    queries = asked(texts)
    manager = Manager(140_000, random.Random(2), policy="spill", importance={"high": 4.0})
    batches = burst(random.Random(1), 100, 40, 0, 0, 4000)
    ran(queries, batches, 0, 2, cluster=Cluster(random.Random(3), mishaps=0.0), manager=manager)
    sizes = {key[1][3:].partition("'")[0]: each for key, each in manager.histories[-1].items()}
    lost = {name: (2000 - next(iter(each))[-1][1]) / 1980 for name, each in sizes.items()}
    assert 0 < 2 * lost["high"] < lost["low"] <= 1, lost


LIMITED = FILE + '[memory]\nbudget = "1 GB"\n'


@pytest.mark.parametrize("seed", range(6))
def test_all_shards_hold_another_budget_and_do_not_forget_it(tmp_path: Path, seed: int) -> None:
    """A worker that missed the command caught up with the state, and at the next command forgot this one."""
    rng, log, pipeline = random.Random(seed), Log(tmp_path / "log"), parse(LIMITED, root=tmp_path)
    batches: list[MicroBatch] = [(now, few_rows(rng, now)) for now in range(3, 40, 3)]
    texts = {}
    for at, command in ((2, SetBudget("2 GB")), (6, SetStrategy("bfs"))):
        entry = log.append(command)
        texts[at] = [(log.path / f"{entry.number:08d}.json").read_text()]
    hosts = [
        tuple(replace(host, budget=10**9, all_shards=4) for host in level)
        for level in levels_of(pipeline, 3, 0)
    ]
    cluster, said = Cluster(rng, mishaps=0), clocks(batches)
    for number in range(len(batches)):
        one = run_levels(
            hosts,
            [batches[number]],
            cluster,
            pa.schema([]),
            said=[said[number]],
            commands={0: texts.get(number, [])},
        )
        held = {json.loads(each)["memory"]["budget"] for each in one.reports}
        assert held == {2 * 10**9 if number >= 2 else 10**9} or not (number or held), number
    for cells in cluster.states.values():
        followed = Store(cells, Layout()).followed()
        assert followed is not None
        assert [each["command"]["kind"] for each in followed["changes"]] == ["budget", "strategy"]


@pytest.mark.parametrize(
    ("text", "command", "live"),
    [
        (LIMITED, SetBudget("2 GB"), True),
        (LIMITED, SetBudget(5_000_000), True),
        (LIMITED, SetBudget("25 %"), False),
        (LIMITED, SetBudget(None), False),
        (LIMITED, SetBudget("2 GB", "spill"), False),
        (FILE, SetBudget("2 GB"), False),
    ],
)
def test_shards_take_over_another_size_only(
    tmp_path: Path, text: str, command: SetBudget, live: bool
) -> None:
    pipeline = parse(text, root=tmp_path)
    assert in_band(command, pipeline, changed(pipeline, Entry(1, command))) is live


# --- on Spark ---------------------------------------------------------------------------------------------


def test_a_running_job_gets_another_budget(
    spark: SparkSession, feed: Callable[[str, str], Feed], tmp_path: Path
) -> None:
    """Its shards and its manager; the Spark query goes on. No budget needs another start."""
    source = feed("a", "k bigint, v bigint, t bigint")
    timed = COLUMNS.append(pa.field("t", pa.int64()))
    streams = [StreamDef("a", timed, time_column="t", ticks_per_second=None)]
    options = headrace.spark.SparkOptions(bounds={"a": DisorderPromise(0)}, timer=None, memory="1 GB")
    from headrace.runtimes.spark.driver.source_names import named_sources, reader

    with named_sources(spark):
        rows = (
            reader(spark, "a").schema(source.schema).option("maxFilesPerTrigger", 1).json(str(source.folder))
        )
        job = headrace.spark.job({"a": rows}, options, checkpoint=tmp_path / "checkpoint")
        job.add("counted", asked({"q": QUERIES["counted"]}, streams)["q"], sink=lambda rows, batch: None)
        source.put({"k": 1, "v": 2, "t": 3})
        running = job.start()
        running.processAllAvailable()
        assert job.status().budget == 10**9
        job.send(SetBudget("2 GB"))
        source.put({"k": 1, "v": 2, "t": 9})
        running.processAllAvailable()
        assert running.isActive
        assert job.running is running
        assert job.status().budget == 2 * 10**9
        job.send(SetBudget(None))
        assert not running.isActive
        source.put({"k": 1, "v": 2, "t": 12})
        job.running.processAllAvailable()
        assert job.status().budget is None
        job.running.stop()


def test_without_names_of_sources_a_budget_cannot_be_taken_away(
    spark: SparkSession, feed: Callable[[str, str], Feed], tmp_path: Path
) -> None:
    """Spark could not continue the other sources: the command is refused, and the job runs on."""
    source = feed("a", "k bigint, v bigint, t bigint")
    timed = COLUMNS.append(pa.field("t", pa.int64()))
    streams = [StreamDef("a", timed, time_column="t", ticks_per_second=None)]
    options = headrace.spark.SparkOptions(bounds={"a": DisorderPromise(0)}, timer=None, memory="1 GB")
    job = headrace.spark.job({"a": source.read(spark)}, options, checkpoint=tmp_path / "checkpoint")
    job.add("counted", asked({"q": QUERIES["counted"]}, streams)["q"], sink=lambda rows, batch: None)
    source.put({"k": 1, "v": 2, "t": 3})
    running = job.start()
    running.processAllAvailable()
    with pytest.raises(SparkError, match="no longer reads the memory manager"):
        job.send(SetBudget(None))
    source.put({"k": 1, "v": 2, "t": 9})
    running.processAllAvailable()
    assert job.running is running
    assert job.status().budget == 10**9
    running.stop()


HALF = 260_000
"""Half of what the queries hold without a budget."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_burst_on_spark_is_kept_within_the_budget_and_recomputed_from_the_history(
    spark: SparkSession, feed: Callable[[str, str], Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two shards, three queries, and a driver that is started again within the burst."""
    timed = COLUMNS.append(pa.field("t", pa.int64()))
    streams = [StreamDef(name, timed, time_column="t", ticks_per_second=None) for name in "ab"]
    queries = asked(BURST, streams)
    batches = burst(random.Random(1), 500, 16, 1500, 3500, 6500)
    feeds = {name: feed(name, "k bigint, v bigint, t bigint") for name in "ab"}
    held: list[int] = []
    sizes: dict[tuple[int, str], set[Any]] = {}
    choose = JobBudget.choose

    def chosen(self: JobBudget, batch: int, reports: Any) -> Choice:
        plain = list(reports)
        held.append(sum(each["memory"]["held"] for each in plain))
        sizes.update(reported_histories(plain))
        assert all(len(each) == 1 for each in sizes.values()), "one size at each instant in all shards"
        return choose(self, batch, plain)

    monkeypatch.setattr(JobBudget, "choose", chosen)
    found: dict[str, dict[int, list[tuple[Any, ...]]]] = {name: {} for name in queries}

    def keep(name: str) -> Callable[[DataFrame, int], None]:
        def sink(rows: DataFrame, batch: int) -> None:
            found[name][batch] = [tuple(row) for row in rows.collect()]

        return sink

    far = 100_000
    row = pa.RecordBatch.from_pylist([{"k": -1, "v": -1}], COLUMNS)
    last: MicroBatch = (far, {name: (row, np.array([far], object)) for name in "ab"})
    bounds = {name: DisorderPromise(0) for name in "ab"}
    options = headrace.spark.SparkOptions(bounds=bounds, timer=None, memory=HALF, shards=2)
    read = {name: each.read(spark) for name, each in feeds.items()}
    job = headrace.spark.job(read, options, checkpoint=tmp_path / "checkpoint")
    for name, each in queries.items():
        job.add(name, each, sink=keep(name), time_column="at")
    for part in (batches[:5], [*batches[5:], last]):
        for _, arrived in part:
            for name, (data, times) in arrived.items():
                feeds[name].put(*(r | {"t": t} for r, t in zip(data.to_pylist(), times, strict=True)))
        running = job.start()
        running.processAllAvailable()
        running.stop()
    assert max(held) <= 1.05 * HALF, (max(held), HALF)
    assert len(held) > len(batches)
    rows = {n: [(t, row | {"t": t}) for t, row in each] for n, each in rows_of(batches).items()}
    for name, each in queries.items():
        histories = job.histories(name)
        assert all(len(entries) > 1 for entries in histories.values()), name
        instants = [entries[-1][0] for entries in histories.values()]
        for (node, entries), (same, sizes_then) in zip(
            histories.items(), job.in_force(name, instants).items(), strict=True
        ):
            assert node == same
            assert sizes_then.tolist() == [[v for t, v in entries if t <= at][-1] for at in instants]
        expected = Counter((*r, t) for t, r in oracle.stream(each.plan, rows, histories) if t < far)
        answers = Counter(row for every in found[name].values() for row in every if row[-1] < far)
        assert answers == expected, name
    assert job.status().budget == HALF
    large = asked({"q": "DSTREAM(SELECT k, v FROM a [RANGE MIN 100000, MAX 900000])"}, streams)["q"]
    with pytest.raises(BudgetError, match="HR-M004"):
        check_added(tmp_path / "checkpoint", "q", large)
