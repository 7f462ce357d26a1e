"""Tables of changes in a pipeline file, and a changelog that keeps a table of a database up to date."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from headrace.errors import PipelineError
from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Runner

FILE = """
[pipeline]
name = "points"
runtime = "embedded"
checkpoint = "checkpoint"

[streams.changes]
source = "changes.jsonl"
schema = "ts BIGINT, id BIGINT, team STRING, points BIGINT, op STRING"
time = {{ column = "ts", kind = "external" }}

[tables.players]
stream = "changes"
{keys}

[[queries]]
name = "totals"
sql = "CHANGELOG(SELECT team, sum(points) AS points FROM players GROUP BY team) PRIMARY KEY (team)"
sink = {{ type = "sqlite", database = "points.db", table = "totals", key = "team", operation = "op" }}
"""
KEYS = """
schema = "id BIGINT, team STRING, points BIGINT"
key = "id"
format = "flink"
ignore = "points < 0"
"""
CHANGES = [
    (1, 1, "red", 5, "+I"),
    (1, 2, "red", 7, "+I"),
    (2, 3, "blue", 4, "+I"),
    (3, 2, "red", 7, "-U"),
    (3, 2, "red", 9, "+U"),
    (4, 1, "red", -1, "+U"),
    (5, 3, "blue", 4, "-D"),
]


def write(folder: Path, keys: str = KEYS) -> Path:
    names = ("ts", "id", "team", "points", "op")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in CHANGES]
    (folder / "changes.jsonl").write_text("\n".join(lines) + "\n")
    path = folder / "pipeline.toml"
    path.write_text(FILE.format(keys=keys))
    return path


def totals(folder: Path) -> list[tuple[str, int]]:
    database = sqlite3.connect(folder / "points.db")
    try:
        return list(database.execute("SELECT team, points FROM totals ORDER BY team").fetchall())
    finally:
        database.close()


def test_a_database_holds_the_answer(tmp_path: Path) -> None:
    pipeline = load(write(tmp_path))
    Runner(pipeline).run()
    assert totals(tmp_path) == [("red", 14)]
    Runner(load(tmp_path / "pipeline.toml")).run()  # continues, with nothing new
    assert totals(tmp_path) == [("red", 14)]


@pytest.mark.parametrize(
    ("keys", "code", "words"),
    [
        ("", "HR-F004", "needs 'key'"),
        ('key = "ids"', "HR-Q011", "did you mean 'id'"),
        ('key = "id"\nformat = "flick"', "HR-Q068", "FLINK"),
        ('key = "id"\ndelete = "op = 1; SELECT"', "HR-Q", ""),
        ('key = "id"\npath = "x.csv"', "HR-F004", "has no key 'path'"),
        ('key = "id"\nreload = true', "HR-F004", "has no key 'reload'"),
    ],
)
def test_a_table_that_cannot_be_made_is_an_error_in_the_file(
    tmp_path: Path, keys: str, code: str, words: str
) -> None:
    with pytest.raises(PipelineError) as error:
        load(write(tmp_path, keys))
    assert str(error.value.code).startswith(code)
    assert words in str(error.value)
    assert "pipeline.toml" in str(error.value)


def test_a_table_from_a_file_has_no_key(tmp_path: Path) -> None:
    text = write(tmp_path).read_text().replace('stream = "changes"', 'path = "x.csv"')
    with pytest.raises(PipelineError, match="has no key 'key'"):
        parse(text, root=tmp_path)


DEBEZIUM = """
[pipeline]
name = "people"
runtime = "embedded"

[streams.changes]
source = "changes.jsonl"
schema = "before STRUCT<id: INT, name: STRING>, after STRUCT<id: INT, name: STRING>, op STRING, ts BIGINT"
time = { column = "ts", unit = "s" }

[tables.people]
stream = "changes"
key = "id"
format = "debezium"

[[queries]]
name = "log"
sql = "CHANGELOG(SELECT id, name FROM people) PRIMARY KEY (id)"
sink = "log.jsonl"
"""


def test_a_file_of_debezium(tmp_path: Path) -> None:
    ann, anna = {"id": 1, "name": "Ann"}, {"id": 1, "name": "Anna"}
    images = [(None, ann, "c"), (ann, anna, "u"), (None, None, "t"), (anna, None, "d")]
    rows = [{"before": b, "after": a, "op": op, "ts": time} for time, (b, a, op) in enumerate(images, 1)]
    (tmp_path / "changes.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "pipeline.toml").write_text(DEBEZIUM)
    Runner(load(tmp_path / "pipeline.toml")).run()
    found = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["op"], row["id"], row["name"]) for row in found] == [
        ("+I", 1, "Ann"),
        ("+U", 1, "Anna"),
        ("-D", 1, "Anna"),
    ]
