"""Windows that are resized while a job runs: in the lower stage of a query, in the upper one, or in both."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.control import Entry, Log, Resize
from headrace.pipeline import parse
from headrace.pipeline.sharing import start_together, with_shared_plans
from headrace.plan.analysis.stages import stages
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import adaptable
from tests.laws import effort
from tests.spark.simulated import Cluster, MicroBatch, run_levels
from tests.spark.test_control import (
    FILE,
    LAST,
    Live,
    expected,
    in_one_engine,
    levels_of,
    on_spark,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAY = "[RANGE MIN 1 TICKS, MAX 9 TICKS]"
SLIDES = "[RANGE MIN 1 TICKS, MAX 9 TICKS SLIDE 2 TICKS]"
NEWEST = "[PARTITION BY n ROWS MIN 1, MAX 9]"


def counts(by: str, window: str) -> str:
    return f"SELECT {by}, count(*) AS n FROM s {window} GROUP BY {by}"


QUERIES = {
    "below": f"SELECT n, count(*) AS m FROM ISTREAM({counts('k', MAY)}) [RANGE 6 TICKS] GROUP BY n",
    "above": f"SELECT n, count(*) AS m FROM ISTREAM({counts('k', '[RANGE 4 TICKS]')}) {MAY} GROUP BY n",
    "both": f"SELECT n, count(*) AS m FROM ISTREAM({counts('k', MAY)}) {MAY} GROUP BY n",
    "slides": f"SELECT n, count(*) AS m FROM ISTREAM({counts('k', SLIDES)}) {NEWEST} GROUP BY n",
    "joined": f"SELECT a.n, b.w FROM ({counts('k', MAY)}) AS a, u {MAY} AS b WHERE a.n = b.w",
    "reported": f"SELECT n, max(j) AS j FROM ({counts('j', '[RANGE 5 TICKS SLIDE 5 TICKS]')}) AS a, "
    f"u {MAY} AS b WHERE a.n = b.w GROUP BY n",
}
"""Queries that need two keys, one after the other."""
WINDOWS = {
    "below": ["s"],
    "above": ["s"],
    "both": ["s", "s#2"],
    "slides": ["s", "s#2"],
    "joined": ["s", "u"],
    "reported": ["u"],
}


def file_with(names: list[str]) -> str:
    more = (f'[[queries]]\nname = "{n}"\nsql = "{QUERIES[n]}"\nsink = "{n}.jsonl"\n' for n in names)
    return FILE + "".join(more)


@pytest.mark.parametrize("name", QUERIES)
def test_every_window_is_in_some_stage(tmp_path: Path, name: str) -> None:
    """And the nodes of the stages lead back to those of the query."""
    pipeline = parse(file_with([name]), root=tmp_path)
    plan = next(each.query.plan for each in pipeline.queries if each.name == name)
    cut = stages(plan)
    assert len(cut) == 2
    found: list[Plan] = [stage.written(node) for stage in cut for node in adaptable(stage.plan)]
    assert set(found) == set(adaptable(plan))
    hosts = [host for level in levels_of(pipeline, 3, 0) for host in level if name in host.queries]
    assert len(hosts) == 2
    for here in zip(*(host.windows[name] for host in hosts), strict=True):
        assert sum(node is not None for node in here) == 1


@effort(0.3, "each example runs several queries in two levels of shards, and in an engine twice")
@given(st.data())
def test_windows_of_two_stages_are_resized_as_in_an_engine(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    batches: list[MicroBatch] = []
    now = 0
    for _ in range(data.draw(st.integers(3, 8))):
        now += rng.choice((1, 3, 5))
        batches.append((now, rows_of(rng, now)))
    batches.append((now + 30, {}))
    names = data.draw(st.lists(st.sampled_from(list(QUERIES)), min_size=1, max_size=2, unique=True))
    with TemporaryDirectory() as folder:
        pipeline = parse(file_with(names), root=Path(folder))
        log, texts, entries = Log(Path(folder) / "log"), dict[int, list[str]](), dict[int, list[Entry]]()
        for at in sorted(data.draw(st.lists(st.integers(0, len(batches) - 1), min_size=1, max_size=4))):
            name = data.draw(st.sampled_from(names))
            since = data.draw(st.none() | st.integers(now - 9, now + 9))
            size = data.draw(st.integers(1, 9))
            entry = log.append(Resize(name, size, data.draw(st.sampled_from(WINDOWS[name])), since))
            entries.setdefault(at, []).append(entry)
            texts.setdefault(at, []).append((log.path / f"{entry.number:08d}.json").read_text())
    cluster, shards = Cluster(random.Random(data.draw(st.integers(0, 2**32)))), data.draw(st.integers(1, 3))
    spread = on_spark(pipeline, batches, texts, shards, cluster)
    answers = in_one_engine(pipeline, batches, entries, ends=True)
    fixed = in_one_engine(pipeline, batches, {}, ends=True)
    event(f"the answers differ: {answers != fixed}")
    for name in {**spread, **answers}:
        assert spread.get(name, Counter()) == answers.get(name, Counter()), name


def test_shards_agree_on_an_instant_that_some_have_answered(tmp_path: Path) -> None:
    """One shard had answered rows of time 12 and refused the change; the other had not, and made it."""
    pipeline = parse(file_with(["below"]), root=tmp_path)
    rng, batches, now = random.Random(0), list[MicroBatch](), 0
    for _ in range(5):
        now += rng.choice((1, 3, 5))
        batches.append((now, rows_of(rng, now)))
    batches.append((now + 30, {}))
    log = Log(tmp_path / "log")
    entry = log.append(Resize("below", 8, "s", 7))
    text = (log.path / f"{entry.number:08d}.json").read_text()
    found = on_spark(pipeline, batches, {5: [text]}, 2, Cluster(random.Random(1)))
    assert found["below"] == in_one_engine(pipeline, batches, {5: [entry]}, ends=True)["below"]


def test_a_window_that_is_shared_is_resized(tmp_path: Path) -> None:
    """Its rows have the columns of both queries, so it is not the window of either query alone."""
    texts = {name: f"SELECT k, {name}(v) AS v FROM s {MAY} GROUP BY k" for name in ("min", "max")}
    more = (f'[[queries]]\nname = "{n}"\nsql = "{text}"\nsink = "{n}.jsonl"\n' for n, text in texts.items())
    pipeline = parse(FILE + "".join(more), root=tmp_path)
    shared = with_shared_plans(pipeline, start_together(pipeline))
    plans = [{each.name: each.query.plan for each in of.queries} for of in (pipeline, shared)]
    assert plans[0]["min"] != plans[1]["min"]
    rng, log = random.Random(5), Log(tmp_path / "log")
    batches: list[MicroBatch] = [(now, rows_of(rng, now)) for now in range(3, 30, 3)]
    entry = log.append(Resize("min", 2))
    command = {3: [(log.path / f"{entry.number:08d}.json").read_text()]}
    for shards in (1, 3):
        levels = levels_of(pipeline, shards, 0, plans[1])
        found = run_levels(levels, batches, Cluster(rng), pa.schema([]), ends=True, commands=command).by_query
        answers = in_one_engine(shared, batches, {3: [entry]}, ends=True)
        assert answers["min"] != in_one_engine(shared, batches, {}, ends=True)["min"]
        for name in texts:
            assert Counter(map(repr, found[name])) == answers[name], name


@pytest.mark.spark
@pytest.mark.slow
def test_windows_of_two_stages_are_resized_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    rng, names = random.Random(4), ["both", "joined"]
    chosen = [Resize("both", 3, "s#2"), Resize("joined", 2, "u"), Resize("both", 2, "s"), None]
    with Live(tmp_path, spark, file_with(names)) as live:
        for number, command in enumerate(chosen):
            live.put(rows_of(rng, 10 * number + 5))
            live.put(rows_of(rng, 10 * number + 9))
            if command is not None:
                live.tell(command)
        live.put(LAST)
    found, wanted = live.answers(), expected(live)
    live.entries.clear()
    fixed = expected(live)
    for name in names:
        assert wanted[name] != fixed[name]
        assert found.get(name, Counter()) == wanted[name], name
