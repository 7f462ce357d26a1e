"""`headrace.spark.files` gives what an ordinary DataFrame over the same files gives, and one engine."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import headrace
from headrace import tuning
from headrace.errors import HeadraceError
from headrace.runtimes.spark.driver.progress import read
from tests.spark.conftest import played

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int32()), ("c", pa.string()), ("v", pa.float64())])
DDL = "t bigint, k int, c string, v double"
FILES, ROWS = 3, 400
WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": lambda rows, path: pq.write_table(rows, path, row_group_size=90),
    "csv": pc.write_csv,
    "json": lambda rows, path: path.write_text("".join(json.dumps(r) + "\n" for r in rows.to_pylist())),
}
QUERIES = {
    "windows": "SELECT k, count(*) AS n, sum(v) AS x, window_start AS w "
    "FROM s [RANGE 20 SLIDE 10] GROUP BY k",
    "filtered": "SELECT k, count(*) AS n, max(v) AS x, window_end AS w FROM s [RANGE 10 SLIDE 10] "
    "WHERE c = 'a' AND v > 3.0 GROUP BY k",
    "join": "SELECT a.k AS k, a.v AS n, b.v AS x FROM s [RANGE 3] AS a, s [NOW] AS b "
    "WHERE a.k = b.k AND a.c = 'b'",
    "rows": "SELECT k, upper(c) AS c, v * 2 AS x, t FROM s WHERE v > 2.0",
}


def write(folder: Path, form: str) -> None:
    """Files in order of time, with late rows and some without a time."""
    folder.mkdir()
    for i in range(FILES):
        numbers = range(ROWS)
        times = [
            None if n % 97 == 5 else i * ROWS // 4 + n // 4 - (37 if n % 50 == 3 else n % 3) for n in numbers
        ]
        columns = [
            times,
            [n % 5 for n in numbers],
            ["abc"[n % 3] for n in numbers],
            [n % 11 / 2 for n in numbers],
        ]
        path = folder / f"{i}.{form}"
        WRITERS[form](pa.table(columns, schema=SCHEMA), path)
        os.utime(path, (i + 1, i + 1))


def ordinary(spark: SparkSession, folder: Path, form: str) -> DataFrame:
    rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).option("header", True)
    return rows.format(form).load(str(folder))


def by_arrow(spark: SparkSession, folder: Path, form: str) -> DataFrame:
    limit = {"maxFilesPerTrigger": 1}
    with tuning.using(file_piece_bytes=500):
        return headrace.spark.files(spark, folder, format=form, schema=DDL, options=limit)


def asked(text: str) -> headrace.Query:
    stream = headrace.StreamDef("s", SCHEMA, time_column="t", ticks_per_second=None)
    return headrace.query(text, [stream], ticks_per_second=None)


def applied(
    df: DataFrame, home: Path, text: str, **options: Any
) -> tuple[Counter[Any], dict[str, tuple[int, ...]]]:
    """The rows of a query, and what was counted: rows, late and rejected ones."""
    given = headrace.spark.SparkOptions(**{"bounds": {"s": {"disorder": 4}}, "timer": None, **options})
    answers = headrace.spark.apply(asked(text), {"s": df}, given)
    writer = answers.writeStream.format("parquet").option("checkpointLocation", str(home / "checkpoint"))
    running = played(writer.option("path", str(home / "out")).trigger(availableNow=True).start)
    found = pq.read_table(home / "out").to_pylist()
    progress = [read(each) for each in running.recentProgress]
    last = [each.streams["s"] for each in progress if "s" in each.streams]
    counted = (last[-1].rows, sum(each.late for each in last), sum(each.rejected for each in last))
    return Counter(tuple(row.values()) for row in found), {"s": counted}


@pytest.mark.parametrize("form", WRITERS)
def test_rows_late_rows_and_rejected_rows_are_those_of_a_dataframe(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    write(tmp_path / "in", form)
    options = {"enforce": "admit"}
    ours = applied(by_arrow(spark, tmp_path / "in", form), tmp_path / "ours", QUERIES["windows"], **options)
    theirs = applied(
        ordinary(spark, tmp_path / "in", form), tmp_path / "theirs", QUERIES["windows"], **options
    )
    assert ours == theirs
    assert sum(ours[0].values()) > 20
    assert min(ours[1]["s"]) > 0


@pytest.mark.parametrize("name", ["filtered", "join", "rows"])
def test_filters_and_projections_run_where_files_are_read(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    write(tmp_path / "in", "parquet")
    ours = applied(by_arrow(spark, tmp_path / "in", "parquet"), tmp_path / "ours", QUERIES[name])
    theirs = applied(ordinary(spark, tmp_path / "in", "parquet"), tmp_path / "theirs", QUERIES[name])
    assert ours == theirs
    assert sum(ours[0].values()) > 20


def test_a_job_writes_the_same_rows_and_side_outputs(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", "json")
    bad = '{"t": "x", "k": 1}\n'
    with (tmp_path / "in/2.json").open("a") as file:
        file.write(bad)
    os.utime(tmp_path / "in/2.json", (3, 3))
    found = {}
    for who, make in (("ours", by_arrow), ("theirs", ordinary)):
        kept: dict[str, list[Any]] = {"sink": [], "late": [], "rejected": []}
        options = headrace.spark.SparkOptions(bounds={"s": {"disorder": 4}}, timer=None)
        job = headrace.spark.job(
            {"s": make(spark, tmp_path / "in", "json")}, options, checkpoint=tmp_path / who
        )
        sinks = {kind: _collecting(to) for kind, to in kept.items()}
        job.add("windows", asked(QUERIES["windows"]), **sinks)
        played(lambda job=job: job.start(trigger={"availableNow": True}))
        found[who] = kept
    assert Counter(found["ours"]["sink"]) == Counter(found["theirs"]["sink"])
    assert Counter(found["ours"]["late"]) == Counter(found["theirs"]["late"])
    said = [row for row in found["ours"]["rejected"] if "HR-R10" in str(row)]
    assert len(said) == 1
    assert bad.strip() in str(said)  # Spark's own reader makes a row of nulls of it
    assert len(found["ours"]["rejected"]) == len(found["theirs"]["rejected"]) > 1


def _collecting(to: list[Any]) -> Callable[[DataFrame, int], None]:
    def sink(df: DataFrame, number: int) -> None:
        to.extend(tuple(map(str, row)) for row in df.collect())

    return sink


def test_directories_are_columns_and_the_schema_is_found(spark: SparkSession, tmp_path: Path) -> None:
    for k in ("1", "2"):
        folder = tmp_path / f"in dir/k={k}"
        folder.mkdir(parents=True)
        rows = pa.table([[1, 2, 30], ["a", "b", "c"], [1.0, 2.0, 3.0]], schema=SCHEMA.remove(1))
        pq.write_table(rows, folder / "f.parquet")
    df = headrace.spark.files(spark, tmp_path / "in dir", format="parquet", schema=DDL)
    assert [name for name in df.columns if not name.startswith("__headrace")] == SCHEMA.names
    rows, _ = applied(df, tmp_path / "run", "SELECT k, c FROM s")
    assert rows == Counter({(k, c): 1 for k in (1, 2) for c in "ab"})  # "c" waits for rows before it
    plain = headrace.spark.files(spark, tmp_path / "in dir/k=1/f.parquet")
    assert plain.columns[:3] == ["t", "c", "v"]
    assert headrace.spark.stream("s", plain, time="t").schema.names == ["t", "c", "v"]


def test_the_stream_is_an_ordinary_dataframe_too(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", "csv")
    df = by_arrow(spark, tmp_path / "in", "csv").where("k = 1")
    ours, _ = applied(df, tmp_path / "ours", QUERIES["rows"])
    theirs, _ = applied(
        ordinary(spark, tmp_path / "in", "csv").where("k = 1"), tmp_path / "theirs", QUERIES["rows"]
    )
    assert ours == theirs
    assert len(ours) > 20


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"path": "a.xlsx", "schema": DDL}, "HR-SP70"),
        ({"path": "a", "format": "parkett", "schema": DDL}, "HR-SP70"),
        ({"path": "a.csv"}, "HR-SP71"),
    ],
)
def test_mistakes_are_told(spark: SparkSession, given: dict[str, Any], code: str) -> None:
    with pytest.raises(HeadraceError, match=code):
        headrace.spark.files(spark, **given)
