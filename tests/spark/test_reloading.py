"""Tables that are reloaded while a job runs: all shards change at the same instant, as an engine does."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.control import Entry, Reload, log_of
from headrace.errors import HeadraceWarning
from headrace.pipeline import Pipeline, parse
from headrace.pipeline.lookups import to_bytes
from headrace.runtimes.spark.driver.topology import World, topology
from headrace.runtimes.spark.worker.answers import Outlet
from headrace.runtimes.spark.worker.controlling import ControlSpec
from headrace.runtimes.spark.worker.packing import to_ipc
from tests.laws import effort
from tests.spark.simulated import Cluster, Level, MicroBatch, run_levels
from tests.spark.test_control import (
    FILE,
    LAST,
    HomeOf,
    Live,
    expected,
    in_one_engine,
    inputs_of,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = pa.schema([("id", pa.int64()), ("name", pa.string())])
JOINED = {
    "looked": "SELECT s.k, s.v, n.name FROM s [NOW], names AS n WHERE s.k = n.id",
    "kept": "SELECT n.name, count(*) AS c FROM s [RANGE 6 TICKS], names AS n WHERE s.v = n.id "
    "GROUP BY n.name",
    "pair": "SELECT s.v, u.w, n.name FROM s [RANGE 5 TICKS], u [RANGE 4 TICKS], names AS n "
    "WHERE s.k = u.k AND u.w = n.id",
}


ALIKE = [["looked"], ["kept"], ["looked", "kept"], ["pair"]]
"""Queries that read the same streams: the table changes for them at one instant."""


def file_with(names: list[str]) -> str:
    more = (f'[[queries]]\nname = "{n}"\nsql = "{JOINED[n]}"\nsink = "{n}.jsonl"\n' for n in names)
    table = '[tables.names]\npath = "names.csv"\nschema = "id BIGINT, name STRING"\nreload = true\n'
    return FILE + "".join(more) + table


def levels_of(pipeline: Pipeline, shards: int) -> list[Level]:
    inputs = inputs_of(pipeline)
    plans = {query.name: query.query.plan for query in pipeline.queries}
    data = pipeline.catalog.tables["names"].data
    assert data is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        made = topology(plans, World(inputs, shards, tables={"names": to_ipc(data)}), Outlet(packed=True))
    homes = tuple(each.home for each in made.placed if each.level == 0)
    control = ControlSpec(pipeline, 0, homes, HomeOf(inputs, shards))
    return [tuple(replace(host, control=control) for host in level) for level in made.levels]


@effort(0.4, "each example runs several queries in shards, and in an engine")
@given(st.data())
def test_all_shards_change_at_the_same_instant(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    batches: list[MicroBatch] = []
    now = 0
    for _ in range(data.draw(st.integers(3, 8))):
        now += rng.choice((1, 3, 5))
        batches.append((now, rows_of(rng, now)))
    batches.append((now + 30, {}))
    chosen = data.draw(st.sampled_from(ALIKE))
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "names.csv").write_text("id,name\n0,a\n1,b\n2,c\n")
        pipeline = parse(file_with(chosen), root=root)
        log, texts, entries = log_of(pipeline), dict[int, list[str]](), dict[int, list[Entry]]()
        for at in sorted(data.draw(st.lists(st.integers(0, len(batches) - 1), min_size=1, max_size=3))):
            rows = [{"id": rng.randint(0, 3), "name": rng.choice("xyz")} for _ in range(rng.randint(0, 4))]
            kept = log.keep(to_bytes(pa.Table.from_pylist(rows, schema=NAMES)))
            since = data.draw(st.none() | st.integers(0, now + 5))
            entry = log.append(Reload("names", since, kept))
            entries.setdefault(at, []).append(entry)
            texts.setdefault(at, []).append((log.path / f"{entry.number:08d}.json").read_text())
        cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
        outcome = run_levels(
            levels_of(pipeline, data.draw(st.integers(1, 3))),
            batches,
            cluster,
            pa.schema([]),
            ends=True,
            commands=texts,
        )
        spread = {name: Counter(map(repr, rows)) for name, rows in outcome.by_query.items()}
        answers = in_one_engine(pipeline, batches, entries, ends=True)
        fixed = in_one_engine(pipeline, batches, {}, ends=True)
    event(f"the answers differ: {answers != fixed}")
    for name in {**spread, **answers}:
        assert spread.get(name, Counter()) == answers.get(name, Counter()), name


@pytest.mark.spark
def test_a_table_is_reloaded_while_a_job_runs_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    rng, names, before = random.Random(6), tmp_path / "names.csv", "id,name\n0,a\n1,b\n2,c\n"
    names.write_text(before)
    with Live(tmp_path, spark, file_with(["looked", "kept"])) as live:
        for now in (5, 9):
            live.put(rows_of(rng, now))
        names.write_text("id,name\n0,x\n2,y\n3,z\n")
        live.tell(Reload("names"))
        for now in (14, 19):
            live.put(rows_of(rng, now))
        live.put(LAST)
    names.write_text(before)  # what the engine begins with
    found, wanted = live.answers(), expected(live)
    live.entries.clear()
    assert expected(live)["looked"] != wanted["looked"]
    for name in ("looked", "kept"):
        assert wanted[name]
        assert found.get(name, Counter()) == wanted[name], name
