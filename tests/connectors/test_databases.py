"""Tables of databases as sinks: each row once, whatever happens; upserts; secrets."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest

from headrace.connectors.databases import DatabaseTarget, newest
from headrace.errors import ConnectorError, HeadraceError, PipelineError
from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Runner
from tests.faults.killing import run_with_kills
from tests.servers.postgres import PASSWORD, CannotStart, postgres

KILLS = int(os.environ.get("HEADRACE_KILLS", "12"))
TYPES = ("postgres", "sqlite", "duckdb")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    try:
        running = postgres()
        url = running.__enter__()
    except CannotStart as reason:
        pytest.skip(str(reason))
    yield url
    running.__exit__(None, None, None)


class Place:
    """A database of some type that the tests can look into."""

    def __init__(self, of: str, to: str) -> None:
        self.type, self.to = of, to

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        if self.type == "postgres":
            with psycopg.connect(self.to, autocommit=True) as session:
                found = session.execute(text.encode())
                return list(found.fetchall()) if found.description else []
        if self.type == "sqlite":
            lite = sqlite3.connect(self.to, isolation_level=None)
            try:
                return list(lite.execute(text).fetchall())
            finally:
                lite.close()
        with duckdb.connect(self.to) as duck:
            return list(duck.execute(text).fetchall())

    def key(self) -> str:
        """How a pipeline file says where it is."""
        if self.type == "postgres":
            return f'type = "postgres", url = "{self.to.replace(PASSWORD, "${TEST_PASSWORD}")}"'
        return f'type = "{self.type}", database = "{self.to}"'


@pytest.fixture(params=TYPES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("TEST_PASSWORD", PASSWORD)
    if request.param == "postgres":
        found = Place("postgres", request.getfixturevalue("server"))
        for (name,) in found.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
            found.rows(f'DROP TABLE "{name}"')
        return found
    return Place(request.param, str(tmp_path / "db"))


def target(place: Place, **more: Any) -> DatabaseTarget:
    return DatabaseTarget(place.type, place.to, "answers", place="queries.q.sink", **more)


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def table(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], SCHEMA)


def test_a_commit_is_applied_once(place: Place) -> None:
    to = target(place)
    to.open(SCHEMA, "run")
    assert to.last("run") == 0
    to.apply("run", 1, table((1, "a"), (2, None)))
    to.apply("run", 1, table((1, "a"), (2, None)))
    to.apply("run", 2, table((1, "a"), (3, 'quote " and, comma')))
    assert to.last("run") == 2
    to.close()
    found = place.rows("SELECT k, v FROM answers ORDER BY k, v")
    assert sorted(found, key=str) == [(1, "a"), (1, "a"), (2, None), (3, 'quote " and, comma')]


def test_a_row_replaces_the_one_with_the_same_key(place: Place) -> None:
    to = target(place, key=("k",))
    to.open(SCHEMA, "run")
    to.apply("run", 1, table((1, "a"), (2, "b"), (1, "c")))
    to.apply("run", 2, table((2, "d"), (3, "")))
    to.close()
    assert place.rows("SELECT k, v FROM answers ORDER BY k") == [(1, "c"), (2, "d"), (3, "")]


def test_an_operation_says_what_a_row_does(place: Place) -> None:
    schema = pa.schema([("op", pa.string()), *SCHEMA])

    def changes(*rows: tuple[str, int, str | None]) -> pa.Table:
        return pa.Table.from_pylist([{"op": op, "k": k, "v": v} for op, k, v in rows], schema)

    to = target(place, key=("k",), operation="op")
    to.open(schema, "run")
    to.apply("run", 1, changes(("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c"), ("-D", 3, "c")))
    to.apply("run", 2, changes(("+U", 1, "d"), ("-D", 2, None), ("-D", 9, None)))
    to.apply("run", 2, changes(("+I", 2, "again")))
    to.close()
    assert place.rows("SELECT * FROM answers") == [(1, "d")]
    for wrong in ({"operation": "op"}, {"operation": "absent", "key": ("k",)}):
        with pytest.raises(ConnectorError, match="HR-C023"):
            target(place, **wrong).open(schema, "run")


def test_a_key_of_all_columns_and_a_key_that_is_not_there(place: Place) -> None:
    to = target(place, key=("k", "v"))
    to.open(SCHEMA, "run")
    to.apply("run", 1, table((1, "a"), (1, "a"), (1, "b")))
    to.close()
    assert place.rows("SELECT k, v FROM answers ORDER BY v") == [(1, "a"), (1, "b")]
    with pytest.raises(ConnectorError, match="HR-C023"):
        target(place, key=("absent",)).open(SCHEMA, "run")


@pytest.mark.parametrize(("existing", "left"), [("append", 2), ("replace", 1)])
def test_rows_that_are_there_stay_or_go_once(place: Place, existing: str, left: int) -> None:
    for run in ("first", "second", "second"):
        to = target(place, existing=existing)
        to.begin()
        to.open(SCHEMA, run)
        to.apply(run, 1, table((1, run)))
        to.close()
    assert len(place.rows("SELECT * FROM answers")) == left
    with pytest.raises(ConnectorError, match="HR-C010"):
        target(place, existing="error").begin()


def test_values_of_every_type_arrive(place: Place) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    row = {
        "b": True,
        "i": -(2**62),
        "f": 0.1,
        "t": "naïve \\ ' \" \n",
        "y": b"\x00\xff",
        "at": at,
        "d": date(2026, 1, 2),
        "n": Decimal("12.34"),
        "l": [1, 2],
        "s": {"x": 1},
    }
    types = [
        pa.bool_(),
        pa.int64(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.timestamp("us", "UTC"),
        pa.date32(),
        pa.decimal128(10, 2),
        pa.list_(pa.int64()),
        pa.struct([("x", pa.int64())]),
    ]
    schema = pa.schema(list(zip(row, types, strict=True)))
    to = target(place)
    to.open(schema, "run")
    to.apply("run", 1, pa.Table.from_pylist([row, dict.fromkeys(row)], schema))
    to.close()
    found = place.rows("SELECT b, i, f, t, y, d, n, l, s FROM answers WHERE i IS NOT NULL")[0]
    assert (bool(found[0]), *found[1:4], bytes(found[4])) == tuple(list(row.values())[:5])
    assert str(found[5]) == "2026-01-02"
    assert Decimal(str(found[6])) == Decimal("12.34")
    assert [json.loads(each) if isinstance(each, str) else each for each in found[7:]] == [[1, 2], {"x": 1}]
    text = 'CAST(epoch_us("at") AS VARCHAR)' if place.type == "duckdb" else '"at"'
    moment = place.rows(f'SELECT {text} FROM answers WHERE "at" IS NOT NULL')[0][0]
    if place.type == "duckdb":
        moment = datetime.fromtimestamp(int(moment) // 1_000_000, UTC).replace(
            microsecond=int(moment) % 1_000_000
        )
    assert (datetime.fromisoformat(moment) if isinstance(moment, str) else moment) == at
    assert len(place.rows("SELECT * FROM answers WHERE b IS NULL AND l IS NULL AND t IS NULL")) == 1


def test_the_last_row_of_a_key_is_kept_in_its_place() -> None:
    found = newest(table((1, "a"), (2, "b"), (1, "c"), (3, "d")), ["k"])
    assert found.to_pylist() == [{"k": 2, "v": "b"}, {"k": 1, "v": "c"}, {"k": 3, "v": "d"}]


def test_a_table_that_cannot_take_the_rows_is_an_error(place: Place) -> None:
    place.rows("CREATE TABLE answers (other INTEGER)")
    to = target(place)
    to.open(SCHEMA, "run")
    with pytest.raises(ConnectorError, match=r"HR-C022.*answers.*queries\.q\.sink"):
        to.apply("run", 1, table((1, "a")))
    assert to.last("run") == 0
    to.close()


# --- pipelines

TEXT = """
[pipeline]
name = "x"
runtime = "embedded"
checkpoint = "state"
every_rows = 40

[streams.s]
source = {{ path = "rows.jsonl", block_bytes = 1000 }}
schema = "k BIGINT, v BIGINT, at BIGINT"
time = {{ column = "at", unit = "ms" }}

[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n, sum(v) AS v FROM s [RANGE 50 MILLISECONDS SLIDE 50 MILLISECONDS] GROUP BY k"
sink = {{ {place}, table = "counts", time = "at" }}

[[queries]]
name = "newest"
sql = "SELECT k, v FROM s"
sink = {{ {place}, table = "newest", key = "k" }}
rejected = {{ {place}, table = "refused" }}
"""


def write(root: Path, place: Place, rows: int = 1500) -> Path:
    root.mkdir(exist_ok=True)
    made = [{"k": i % 7, "v": i, "at": i} if i % 100 else {"k": "x"} for i in range(rows)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    path = root / "pipeline.toml"
    path.write_text(TEXT.format(place=place.key()))
    return path


def content(place: Place) -> dict[str, Any]:
    """What the tables have; rows of the windows and rejected rows as bags."""
    return {name: sorted(place.rows(f"SELECT * FROM {name}"), key=str) for name in TABLES}


TABLES = ("counts", "newest", "refused")


def drop(place: Place) -> None:
    for name in (*TABLES, "headrace_commits"):
        place.rows(f"DROP TABLE IF EXISTS {name}")


def test_a_pipeline_writes_to_tables(place: Place, tmp_path: Path) -> None:
    Runner(load(write(tmp_path / "p", place))).run()
    found = content(place)
    assert sum(n for _, n, _, _ in found["counts"]) == 1485
    assert len(found["newest"]) == 7
    assert max(v for _, v in found["newest"]) == 1499
    assert len(found["refused"]) == 15


@pytest.mark.timeout(900)
def test_tables_of_killed_runs_equal_those_of_one_run(place: Place, tmp_path: Path) -> None:
    path = write(tmp_path / "p", place)
    Runner(load(path)).run()
    expected = content(place)
    clear = _clearing(place, path, expected, check=False)
    clear()
    run_with_kills(path, max(2, KILLS // 4), KILLS, _clearing(place, path, expected))


def _clearing(
    place: Place, path: Path, expected: dict[str, Any], *, check: bool = True
) -> Callable[[], None]:
    def look_and_clear() -> None:
        if check:
            assert content(place) == expected
        drop(place)
        shutil.rmtree(path.parent / "state")

    return look_and_clear


def test_a_database_that_is_away_for_a_while_is_waited_for(server: str, tmp_path: Path) -> None:
    """All sessions of the server end while a commit is applied; it is applied again, once."""
    place = Place("postgres", server)
    drop(place)
    place.rows("DROP TABLE IF EXISTS answers")
    to = target(place)
    to.open(SCHEMA, "away")
    place.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    to.apply("away", 1, table((1, "a")))
    to.close()
    assert place.rows("SELECT k FROM answers") == [(1,)]


# --- secrets


def test_a_password_is_nowhere_but_in_the_environment(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_PASSWORD", PASSWORD)
    place = Place("postgres", server)
    drop(place)
    path = write(tmp_path / "p", place, 100)
    pipeline = load(path)
    result = Runner(pipeline).run()
    assert PASSWORD not in str(result) + str(pipeline) + json.dumps(pipeline.tables())
    assert all(PASSWORD not in query.query.explain() for query in pipeline.queries)
    for each in path.parent.rglob("*"):
        assert each.is_dir() or PASSWORD.encode() not in each.read_bytes(), each


def test_no_error_shows_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PASSWORD", PASSWORD)
    url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:1/{PASSWORD}"
    path = write(tmp_path / "p", Place("postgres", url), 10)
    path.write_text(path.read_text().replace('table = "counts"', 'table = "counts", patience = "10 ms"'))
    with pytest.raises(HeadraceError, match="HR-C022") as caught:
        Runner(load(path)).run()
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@host/db", "host=here password=secret", "postgresql://me:pa${X}@h/d"]
)
def test_a_password_in_the_file_is_refused(url: str) -> None:
    text = TEXT.format(place=f'type = "postgres", url = "{url}"')
    with pytest.raises(PipelineError, match=r"HR-F004.*password.*") as caught:
        parse(text)
    assert "secret" not in str(caught.value)
