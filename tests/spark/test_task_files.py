"""Results that tasks write where they read the rows: the same as through the engine."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import headrace
from headrace.engine.inputs import Inputs
from headrace.graph.admission import Rules
from headrace.plan.nodes.trees import sources_of
from headrace.runtimes.spark.driver import task_files as chosen
from headrace.runtimes.spark.driver.job import Job
from headrace.runtimes.spark.driver.parquet_files import ParquetFolder, is_plain
from headrace.runtimes.spark.driver.progress import read
from headrace.runtimes.spark.driver.topology import World, levels
from headrace.runtimes.spark.worker.answers import RESULT, Outlet
from headrace.runtimes.spark.worker.running import QUERY
from headrace.runtimes.spark.worker.task_files import TaskFiles
from tests.spark.conftest import played
from tests.spark.simulated import Cluster, embedded_instants, run_levels
from tests.spark.test_simulated import GUARDS, micro_batches, promises
from tests.strategies import plans
from tests.strategies.plans import Case, source_lists, stamped
from tests.strategies.schemas import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int32()), ("c", pa.string()), ("v", pa.float64())])
DDL = "t bigint, k int, c string, v double"
TEXT = "SELECT k, upper(c) AS c, v * 2 AS x, t FROM s WHERE v > 2.0"

CHAINS = (
    plans._source,
    plans._select(plans._source),
    plans._project(plans._source),
    plans._project(plans._select(plans._source)),
    plans._select(plans._project(plans._source)),
)


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """Filters and projections of one stream, and its rows."""
    plan = draw(st.sampled_from(CHAINS))(draw, draw(source_lists()), 2)
    drawn = {source.name: draw(rows(source.columns, 16)) for source in sources_of(plan)}
    return Case(plan, stamped(plan, drawn))


@given(st.data())
def test_tasks_write_what_an_engine_that_admits_late_rows_answers(data: st.DataObject) -> None:
    case = data.draw(chains())
    stream = chosen._only_stream(case.plan)
    assume(stream is not None and is_plain(case.plan.schema))
    assert stream is not None
    rule = Rules(disordered=True, enforce="admit", guard=data.draw(GUARDS))
    inputs = Inputs(promises={stream.name: data.draw(promises())}, rules={stream.name: rule})
    assume(chosen._never_late(stream, inputs))
    batches = data.draw(micro_batches(case))
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    world = World(inputs, data.draw(st.integers(1, 3)))
    outlet = Outlet(kinds=frozenset((RESULT,)), packed=True)
    made = levels({QUERY: case.plan}, world, outlet)
    with tempfile.TemporaryDirectory() as folder:
        files = TaskFiles(QUERY, stream.name, case.plan, folder, "snappy")
        found = run_levels(made, batches, cluster, pa.schema([]), files=files)
    wanted, rejected = Counter[str](), 0
    for each in embedded_instants(case.plan, inputs, batches, {}, ordered=False):
        assert not each.late
        wanted += Counter(repr(row[:-1]) for row in each.answers)
        rejected += len(each.rejected)
    event(f"{len(case.plan.schema)} columns, rows: {bool(wanted)}, rejected: {bool(rejected)}")
    assert Counter(map(repr, found.answers)) == wanted
    assert found.numbers["rejected"] == rejected


def test_a_task_that_failed_leaves_nothing_that_a_reader_sees(tmp_path: Path) -> None:
    plan = headrace.query(TEXT, [stream()], ticks_per_second=None).plan
    files = TaskFiles("q", "s", plan, str(tmp_path), "snappy")
    with files.opened(3, 0) as given_up:
        given_up._write(some_rows(10))
    with files.opened(3, 0) as counts:
        counts._write(some_rows(20))
    with files.opened(3, 1) as empty:
        empty._write(some_rows(0))
    assert (counts.read, empty.read, empty.rows) == (20, 0, 0)
    ParquetFolder(tmp_path, "snappy").show(3, [counts.name])
    assert [each.name for each in tmp_path.iterdir()] == ["batch=3"]
    assert pq.read_table(tmp_path / "batch=3").num_rows == counts.rows > 0


def some_rows(count: int) -> pa.RecordBatch:
    numbers = np.arange(count)
    columns = [numbers, numbers.astype(np.int32), ["a"] * count, numbers.astype(np.float64)]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def stream() -> headrace.StreamDef:
    return headrace.StreamDef("s", SCHEMA, time_column="t", ticks_per_second=None)


# --- Spark ------------------------------------------------------------------------------------------------


def put(folder: Path) -> None:
    """Files in order of time, with rows that come late, rows without a time, and a line that is no row."""
    folder.mkdir()
    for i in range(3):
        lines = []
        for n in range(300):
            time = None if n % 97 == 5 else i * 75 + n // 4 - (37 if n % 50 == 3 else n % 3)
            lines.append(json.dumps({"t": time, "k": n % 5, "c": "abc"[n % 3], "v": n % 11 / 2}))
        (folder / f"{i}.json").write_text("\n".join([*lines, "no row"]) + "\n")
        os.utime(folder / f"{i}.json", (i + 1, i + 1))


def by_arrow(spark: SparkSession, folder: Path) -> DataFrame:
    return headrace.spark.files(spark, folder, format="json", schema=DDL, options={"maxFilesPerTrigger": 1})


def ordinary(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(folder))


Ran = tuple[Counter[Any], tuple[int, int, int]]


def ran(df: DataFrame, home: Path, result: Any) -> Ran:
    """The rows that a reader of the result sees; how many were read, late and rejected, and are results."""
    asked = headrace.query(TEXT, [stream()], ticks_per_second=None, ordered=False)
    options = headrace.spark.SparkOptions(bounds={"s": {"disorder": 4}}, timer=None, enforce="admit")
    made = headrace.spark.outputs(asked, {"s": df}, options)
    to = {"checkpoint": str(home / "checkpoint"), "result": result}
    running = played(lambda: made.start(**to, trigger={"availableNow": True}))
    progress = [read(each) for each in running.recentProgress]
    last = [each.streams["s"] for each in progress if "s" in each.streams]
    return sum((Counter(each.queries) for each in progress), Counter()), (
        last[-1].rows,
        sum(each.late for each in last),
        sum(each.rejected for each in last),
    )


@pytest.mark.parametrize("source", [by_arrow, ordinary])
def test_a_job_shows_the_rows_that_its_tasks_wrote(spark: SparkSession, tmp_path: Path, source: Any) -> None:
    put(tmp_path / "in")
    mine = ran(source(spark, tmp_path / "in"), tmp_path / "mine", str(tmp_path / "out"))
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"batch=0", "batch=1", "batch=2"}
    written = ds.dataset(tmp_path / "out", format="parquet").to_table().to_pylist()
    through_engine: list[tuple[Any, ...]] = []
    other = ran(
        source(spark, tmp_path / "in"),
        tmp_path / "other",
        lambda rows, batch: through_engine.extend(map(tuple, rows.collect())),
    )
    assert Counter(tuple(row.values()) for row in written) == Counter(through_engine)
    assert mine == other
    assert mine[0].total() == len(written) > 300
    assert mine[1][1] == 0
    assert mine[1][2] > 0


def test_only_results_that_need_no_engine_are_written_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in")
    df = ordinary(spark, tmp_path / "in")

    def found(
        text: str = TEXT,
        ordered: bool = False,
        late: str | None = None,
        controlled: bool = False,
        enforce: str = "admit",
    ) -> bool:
        options = headrace.spark.SparkOptions(bounds={"s": {"disorder": 4}}, timer=None, enforce=enforce)
        job = Job({"s": df}, options, str(tmp_path / "checkpoint"), controlled=controlled)
        asked = headrace.query(text, [stream()], ticks_per_second=None, ordered=ordered)
        job.add("q", asked, sink=str(tmp_path / "out"), late=late)
        return job._dataflow(frozenset(), frozenset())[0].files is not None

    assert found()
    assert found("SELECT * FROM s")
    assert not found(ordered=True)
    assert not found(enforce="strict")
    assert not found(late=str(tmp_path / "late"))
    assert not found(controlled=True)
    assert not found("SELECT k, count(*) AS n FROM s [RANGE 10 SLIDE 10] GROUP BY k")
    assert not found("SELECT DISTINCT k FROM s [RANGE 10]")
