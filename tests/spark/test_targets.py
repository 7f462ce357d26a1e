"""Sinks that take a micro-batch in one transaction: functions and tables of databases."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.pipeline import load
from headrace.runtimes.embedded.factory import target_of
from headrace.runtimes.spark.driver.pipeline import Runner
from headrace.runtimes.spark.driver.sinks import Run, Targets

pytestmark = pytest.mark.spark

CODE = """
import pyarrow.compute as pc

WRITTEN = []

def rows():
    yield [{"k": i % 3, "v": i, "at": i} for i in range(60)]
    yield {"k": "none", "v": 1, "at": 1}

def twice(values):
    return pc.multiply(values, 2)

def write(rows, commit):
    WRITTEN.append((commit, rows.to_pylist()))
"""
TEXT = """
[pipeline]
name = "x"
runtime = "spark"
checkpoint = "state"

[streams.s]
source = { type = "python", function = "targets_on_spark:rows", bounded = true }
schema = "k BIGINT, v BIGINT, at BIGINT"
time = { column = "at", unit = "s" }

[functions.twice]
function = "targets_on_spark:twice"
arguments = ["bigint"]
result = "bigint"

[[queries]]
name = "sums"
sql = "SELECT k, sum(twice(v)) AS v FROM s [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k"
sink = { type = "sqlite", database = "db", table = "sums", key = ["k", "at"], time = "at" }
rejected = { type = "python", function = "targets_on_spark:write" }
"""


def test_rows_of_a_micro_batch_reach_targets_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "targets_on_spark.py").write_text(CODE)
    path = tmp_path / "pipeline.toml"
    path.write_text(TEXT)
    Runner(load(path), spark).run()
    found = rows_in(tmp_path / "db")
    sums = {
        (k, end): sum(2 * v for v in range(60) if v % 3 == k and v // 30 == end)
        for k in (0, 1, 2)
        for end in (0, 1)
    }
    assert [row["v"] for row in found] == [sums[k, end] for end in (0, 1) for k in (0, 1, 2)]
    ((commit, rejected),) = sys.modules["targets_on_spark"].WRITTEN
    assert commit == 1
    assert [row["code"] for row in rejected] == ["HR-R102"]
    repeated(spark, path, found)


def repeated(spark: SparkSession, path: Path, before: list[dict[str, Any]]) -> None:
    """The micro-batch runs again, as after a crash: nothing changes."""
    pipeline = load(path)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    target = target_of(pipeline, pipeline.queries[0].spec.sink, "queries.sums.sink")
    again = Targets(target, schema, Run(path.parent / "state" / "spark" / "outputs" / "sums.sink"))
    rows = spark.createDataFrame([(9, 9, None)], "k long, v long, at timestamp")
    again(rows, 0)
    assert rows_in(path.parent / "db") == before
    again(rows.selectExpr("k", "v", "timestamp '2026-01-01 00:00:00' AS at"), 1)
    assert len(rows_in(path.parent / "db")) == len(before) + 1


def rows_in(path: Path) -> list[dict[str, Any]]:
    database = sqlite3.connect(path)
    try:
        database.row_factory = sqlite3.Row
        rows = database.execute('SELECT k, v, "at" FROM sums ORDER BY "at", k').fetchall()
        return [json.loads(json.dumps(dict(row))) for row in rows]
    finally:
        database.close()


CHANGES = """
[pipeline]
name = "points"
runtime = "spark"
checkpoint = "state"

[streams.changes]
source = "changes.jsonl"
schema = "ts BIGINT, id BIGINT, team STRING, points BIGINT, op STRING"
time = { column = "ts", unit = "s" }

[tables.players]
stream = "changes"
key = "id"
format = "flink"

[[queries]]
name = "totals"
sql = "CHANGELOG(SELECT team, sum(points) AS points FROM players GROUP BY team) PRIMARY KEY (team)"
sink = { type = "sqlite", database = "db", table = "totals", key = "team", operation = "op" }
"""


def test_a_changelog_keeps_a_table_up_to_date(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(1, 1, "red", 5, "+I"), (1, 2, "red", 7, "+I"), (2, 3, "blue", 4, "+I"), (3, 2, "red", 7, "-U")]
    rows += [(3, 2, "red", 9, "+U"), (5, 3, "blue", 4, "-D"), (9, 4, "green", 1, "+I")]
    names = ("ts", "id", "team", "points", "op")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (tmp_path / "changes.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "pipeline.toml").write_text(CHANGES)
    Runner(load(tmp_path / "pipeline.toml"), spark).run()
    database = sqlite3.connect(tmp_path / "db")
    try:
        found = database.execute("SELECT team, points FROM totals ORDER BY team").fetchall()
    finally:
        database.close()
    assert found == [("green", 1), ("red", 14)]
