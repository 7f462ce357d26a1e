"""Selections and projections that Spark runs itself: nobody can tell from the answers, Catalyst can."""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import headrace
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceWarning
from headrace.expressions import compile, compile_predicate
from headrace.graph.admission import Rules
from headrace.plan.analysis.native import links, native_parts
from headrace.plan.nodes.core import Plan, Project, Select
from headrace.plan.nodes.trees import exchange, sources_of
from headrace.runtimes.spark.worker.partitioner import KEEP
from headrace.sql import Query, StreamDef, query
from headrace.time.timestamp import FARTHEST
from tests.laws import effort
from tests.spark.simulated import Arrived, Cluster, MicroBatch, embedded, on_spark
from tests.spark.test_simulated import micro_batches, promises
from tests.strategies.plans import cases, tables_of
from tests.strategies.schemas import predicates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GUARD = 100

# ---------------------------------------------------------------------------------------------- simulated


def chained(rows: pa.RecordBatch, chain: Plan) -> tuple[pa.RecordBatch, np.ndarray]:
    """What a chain makes of every row, and which rows it keeps."""
    keep = np.ones(rows.num_rows, np.bool_)
    for link in links(chain)[1:]:
        if isinstance(link, Select):
            keep &= np.asarray(compile_predicate(link.predicate, link.input.schema)(rows))
        else:
            assert isinstance(link, Project)
            made = [compile(each, link.input.schema)(rows) for _, each in link.columns]
            rows = pa.RecordBatch.from_arrays(made, schema=link.schema)
    return rows, keep


def sifted(now: int, arrived: Arrived, chains: Mapping[str, Plan]) -> Arrived:
    """What Spark leaves of the rows: without payload where they are not kept."""
    found: Arrived = {}
    for name, (rows, times) in arrived.items():
        made, keep = chained(rows, chains[name])
        bad = [t is None or t != t or abs(t) >= FARTHEST or t > now + GUARD for t in times]
        keep |= np.array(bad)
        missing = [pa.nulls(made.num_rows, field.type) for field in made.schema]
        columns = [
            pa.array([v if k else None for v, k in zip(column.to_pylist(), keep, strict=True)], column.type)
            for column in (made.columns if made.num_rows else missing)
        ]
        marked = pa.RecordBatch.from_arrays([*columns, pa.array(keep)], [*made.schema.names, KEEP])
        found[name] = marked, times
    return found


@st.composite
def selected(draw: st.DrawFn, plan: Plan) -> Plan:
    """The plan with selections on some of its streams."""
    for source in dict.fromkeys(sources_of(plan)):
        if draw(st.booleans()):
            plan = exchange(plan, source, Select(source, draw(predicates(source.columns))))
    return plan


@effort(2, "any plan, any split")
@given(st.data())
def test_rows_sifted_before_the_fan_change_no_answer(data: st.DataObject) -> None:
    case = data.draw(cases())
    case = replace(case, plan=data.draw(selected(case.plan)))
    names = sorted({s.name for s in sources_of(case.plan)})
    rule = Rules(disordered=True, enforce="strict", guard=GUARD)
    inputs = Inputs(
        promises={name: data.draw(promises()) for name in names}, rules=dict.fromkeys(names, rule)
    )
    batches: list[MicroBatch] = data.draw(micro_batches(case))
    tables = {
        t.name: pa.Table.from_pylist([r for _, r in case.sources[t.name]], schema=t.columns)
        for t in tables_of(case.plan)
    }
    parts = native_parts(case.plan)
    event(f"prefix {any(len(links(chain)) > 1 for chain in parts.prefixes.values())}")
    event(f"suffix {parts.suffix is not None}")
    left = [(now, sifted(now, arrived, parts.prefixes)) for now, arrived in batches]
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        spread = on_spark(parts.core, inputs, left, tables, data.draw(st.integers(1, 3)), cluster)
    whole = embedded(case.plan, inputs, batches, tables)
    found = after(spread.answers, parts.core, parts.suffix)
    assert Counter(map(repr, found)) == Counter(map(repr, whole.answers))
    assert len(spread.rejected) == len(whole.rejected)


def after(answers: list[tuple[Any, ...]], core: Plan, suffix: Plan | None) -> list[tuple[Any, ...]]:
    """What the suffix makes of answers with their times."""
    if suffix is None:
        return answers
    named = [dict(zip(core.schema.names, row, strict=False)) for row in answers]
    rows, keep = chained(pa.RecordBatch.from_pylist(named, schema=core.schema), suffix)
    found = zip(rows.to_pylist(), answers, keep, strict=True)
    return [(*row.values(), answer[-1]) for row, answer, kept in found if kept]


# --------------------------------------------------------------------------------------------------- Spark

BIDS = pa.schema([("t", pa.int64()), ("item", pa.int32()), ("price", pa.int32()), ("note", pa.string())])
STREAM = StreamDef("bids", BIDS, time_column="t", ticks_per_second=None)
SPARK_BIDS = "t bigint, item int, price int, note string, unused string, arrival bigint"


def asked(text: str) -> Query:
    return query(text, [STREAM], ticks_per_second=None)


COUNTED = asked(
    """SELECT item, count(*) AS n, sum(price * 2) AS total FROM bids [RANGE 10 SLIDE 5]
       WHERE price > 3 AND note <> 'no' GROUP BY item HAVING sum(price * 2) > 9"""
)
CHOSEN = asked("SELECT item, price + 1 AS more FROM bids WHERE note LIKE 'y%'")
WINDOWED = asked("SELECT item, max(price) AS top FROM bids [RANGE 9] WHERE price % 3 <> 0 GROUP BY item")


def bids(now: int) -> list[dict[str, Any]]:
    rng = random.Random(now)
    times = (now, now - 1, now - 3, now - 9, None, now + 5000)
    return [
        {
            "t": rng.choice(times),
            "item": rng.choice((1, 2, 3, None)),
            "price": rng.choice((None, *range(9))),
            "note": rng.choice(("no", "yes", "y", None)),
            "arrival": now,
        }
        for _ in range(9)
    ]


CASES = {
    "counted": (COUNTED, {"disorder": 4}),
    "chosen": (CHOSEN, {"disorder": 4}),
    "filtered": (COUNTED, {"latency": 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_native_or_not_gives_the_same_answers(
    spark: SparkSession, feed: Callable[[str, str], Any], tmp_path: Path, name: str
) -> None:
    source, ticking = feed("bids", SPARK_BIDS), feed("timer", "arrival bigint")
    for now in (10, 16, 90):
        source.put(*(bids(now) if now < 90 else [{"t": 89, "price": 0, "note": "no", "arrival": 90}]))
        ticking.put({"arrival": now})
    found = []
    for native in (True, False):
        rows = given_to(CASES[name][0], source.read(spark), ticking.read(spark), CASES[name][1], native)
        writer = rows.writeStream.format("memory").queryName(f"{name}_{native}").trigger(availableNow=True)
        running = writer.option("checkpointLocation", str(tmp_path / str(native))).start()
        assert running.awaitTermination(240)
        found.append(Counter(map(tuple, spark.table(f"{name}_{native}").collect())))
    assert found[0] == found[1]
    assert found[0]


def given_to(
    each: Query, source: DataFrame, timer: DataFrame | None, bounds: Mapping[str, int], native: bool = True
) -> DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        return headrace.spark.apply(
            each,
            {"bids": source},
            headrace.spark.SparkOptions(
                bounds={"bids": bounds},
                timer=timer,
                guard=1000,
                arrival="arrival",
                time_column="at",
                native=native,
            ),
        )


@pytest.fixture
def parquet(spark: SparkSession, tmp_path: Path) -> DataFrame:
    schema = pa.schema([*BIDS, ("unused", pa.string()), ("arrival", pa.int64())])
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.Table.from_pylist(bids(10), schema), tmp_path / "parquet" / "1.parquet")
    return spark.readStream.schema(SPARK_BIDS).parquet(str(tmp_path / "parquet"))


@dataclass
class Scan:
    """What a physical plan reads from files."""

    columns: set[str]
    filters: str


def scan(frame: DataFrame, checkpoint: Path) -> Scan:
    """Of the file source in the micro-batch that a query runs."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    running: Any = writer.trigger(availableNow=True).start()
    assert running.awaitTermination(240)
    plan = str(running._jsq.explainInternal(False))
    found = re.search(r"Format: Parquet.*?PushedFilters: (\[.*?\]), ReadSchema: struct<(.*?)>", plan)
    assert found, plan
    return Scan({each.split(":")[0] for each in found[2].split(",")}, found[1])


def test_only_the_columns_that_are_needed_are_read(parquet: DataFrame, tmp_path: Path) -> None:
    native, plain = (
        scan(given_to(WINDOWED, parquet, None, {"disorder": 4}, each), tmp_path / str(each))
        for each in (True, False)
    )
    assert native.columns == {"t", "item", "price", "arrival"}
    assert plain.columns == {"t", "item", "price", "note", "arrival"}
    assert native.filters == plain.filters == "[]"  # a row that is dropped still brings its time


def test_filters_reach_the_files_where_times_prove_nothing(
    parquet: DataFrame, feed: Callable[[str, str], Any], spark: SparkSession, tmp_path: Path
) -> None:
    ticking = feed("timer", "arrival bigint")
    ticking.put({"arrival": 10})
    found = scan(given_to(COUNTED, parquet, ticking.read(spark), {"latency": 3}), tmp_path / "c")
    assert found.columns == {"t", "item", "price", "note", "arrival"}
    assert "GreaterThan(price,3)" in found.filters
    assert "Not(EqualTo(note,no))" in found.filters


def test_late_and_rejected_rows_are_told_as_they_came(
    spark: SparkSession, feed: Callable[[str, str], Any]
) -> None:
    from headrace.runtimes.spark.driver.apply import answers

    source = feed("bids", SPARK_BIDS)
    options = headrace.spark.SparkOptions(bounds={"bids": {"latency": 3}}, arrival="arrival")
    out = answers(COUNTED, {"bids": source.read(spark)}, options)
    assert out.suffix is None
    assert out.schema.names == COUNTED.schema.names
