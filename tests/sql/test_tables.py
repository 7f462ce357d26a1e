"""Tables: from files and from Python, joined with streams by comma and by JOIN, never windowed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import headrace
from headrace.engine import Engine
from headrace.errors import GraphError, HeadraceError, InputError, PlanError, SqlError
from headrace.plan.analysis.check import check
from headrace.plan.nodes.core import RStream, Table
from headrace.sql import Catalog, Code, TableDef, query
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

BIDS = pa.schema([("item", pa.int64()), ("price", pa.float64())])
ITEMS = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = pa.table({"id": [1, 2, 2], "name": ["one", "two", "deux"]}, schema=ITEMS)
JOINS = [
    "SELECT name, price FROM bids [RANGE 10], items WHERE item = id",
    "SELECT name, price FROM items JOIN bids [RANGE 10] ON item = id",
    "SELECT name, price FROM bids JOIN items ON item = id AND price > 1",
    "SELECT name, max(price) AS top FROM bids [RANGE 10 SLIDE 5], items WHERE item = id GROUP BY name",
    "SELECT b.name FROM (SELECT max(name) AS name, id FROM items GROUP BY id) b, bids [NOW] WHERE id = item",
    "SELECT item AS k FROM bids [RANGE 5] UNION SELECT id FROM items",
    "SELECT id FROM items EXCEPT SELECT item FROM bids [RANGE 5]",
    "DSTREAM(SELECT name FROM bids [RANGE 4], items WHERE item = id)",
]


def catalog(data: pa.Table | None = ROWS) -> Catalog:
    return Catalog(
        [headrace.StreamDef("bids", BIDS, ticks_per_second=None), TableDef("items", ITEMS, data)],
        ticks_per_second=None,
    )


def push(engine: Engine) -> None:
    rows = {"item": [2, 1, 3, 2], "price": [1.0, 2.0, 3.0, 4.0]}
    engine.push("bids", pa.RecordBatch.from_pydict(rows, schema=BIDS), [1, 3, 4, 12])


SOURCES = {
    "bids": [
        (t, {"item": i, "price": p}) for t, i, p in [(1, 2, 1.0), (3, 1, 2.0), (4, 3, 3.0), (12, 2, 4.0)]
    ],
    "items": [(0, row) for row in ROWS.to_pylist()],
}


@pytest.mark.parametrize("text", JOINS)
@pytest.mark.parametrize("load", ["with the query", "before", "after", "at the end"])
def test_a_query_over_a_table_answers_as_the_oracle_says_whenever_it_is_loaded(text: str, load: str) -> None:
    found = query(text, catalog(ROWS if load == "with the query" else None))
    engine = Engine()
    if load == "before":
        engine.load("items", ROWS)
    engine.add("q", found)
    if load == "after":
        engine.load("items", ROWS.to_batches()[0])
    push(engine)
    early = engine.drain()
    if load == "at the end":
        assert early == [], "an answer before the table is known"
        engine.load("items", ROWS)
    engine.streams.end("bids")
    assert_same_stream(early + engine.drain(), oracle.stream(found.plan, SOURCES), schema=found.schema)


def test_nothing_waits_for_a_loaded_table() -> None:
    engine = Engine()
    engine.add("q", query("SELECT ISTREAM(name, price) FROM bids [NOW], items WHERE item = id", catalog()))
    push(engine)
    assert sum(len(batch) for batch in engine.drain()) == 3, "the last instant is still open"


def test_a_query_that_comes_later_sees_the_whole_table() -> None:
    engine = Engine()
    text = "SELECT ISTREAM(name, price) FROM bids [NOW], items WHERE item = id AND id < 9"
    engine.add("old", query(text, catalog()))
    push(engine)
    engine.run()
    engine.add("new", query(text, catalog()))
    rows = pa.RecordBatch.from_pydict({"item": [1], "price": [7.0]}, schema=BIDS)
    engine.push("bids", rows, [20])
    engine.streams.end("bids")
    assert sum(len(batch) for batch in engine.drain("new")) == 1


@pytest.mark.parametrize("name", ["items.csv", "items.json", "items.jsonl", "items.parquet", "items.arrow"])
@pytest.mark.parametrize("columns", ["", "(id BIGINT, name STRING)", "(name STRING, id INT)"])
def test_a_table_is_read_from_a_file_by_its_ending(tmp_path: Path, name: str, columns: str) -> None:
    path = tmp_path / name
    WRITERS[path.suffix](ROWS, path)
    text = f"CREATE TABLE items {columns} FROM '{path}'; SELECT name FROM bids [NOW], items WHERE item = id"
    found = query(text, {"bids": BIDS}, ticks_per_second=None)
    (table,) = found.tables
    assert table.data is not None
    assert table.path == str(path)
    assert table.data.select(["id", "name"]).to_pylist() == ROWS.to_pylist()
    if "INT)" in columns:
        assert table.schema == pa.schema([("name", pa.string()), ("id", pa.int32())])
    engine = Engine()
    engine.add("q", found)
    push(engine)
    engine.streams.end("bids")
    names = [name for batch in engine.drain() for name in batch.data["name"].to_pylist()]
    assert sorted(names) == ["deux", "deux", "one", "two", "two"]


def write_json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f'{{"id": {r["id"]}, "name": "{r["name"]}"}}\n' for r in table.to_pylist()))


WRITERS = {
    ".csv": pa.csv.write_csv,
    ".json": write_json,
    ".jsonl": write_json,
    ".parquet": pa.parquet.write_table,
    ".arrow": lambda table, path: pa.feather.write_feather(table, path, compression="uncompressed"),
}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE TABLE t (nome STRING) FROM '{csv}'; SELECT nome FROM bids, t", Code.TABLE_COLUMNS),
        ("CREATE TABLE t (id INT, name INT) FROM '{csv}'; SELECT id FROM bids, t", Code.TABLE_FILE),
        ("CREATE TABLE t (id INT, name INT) FROM '{parquet}'; SELECT id FROM bids, t", Code.TABLE_COLUMNS),
        ("CREATE TABLE t FROM '{not_parquet}'; SELECT id FROM bids, t", Code.TABLE_FILE),
        ("CREATE TABLE t FROM '{csv}'; SELECT id FROM t", Code.NO_STREAM),
        ("CREATE TABLE t FROM '{csv}'; SELECT count(*) FROM t", Code.NO_STREAM),
        ("CREATE TABLE t FROM '{csv}'; SELECT id FROM bids, t [NOW]", Code.WINDOW_ON_RELATION),
        ("CREATE TABLE bids FROM '{csv}'; SELECT id FROM bids", Code.NAME_TAKEN),
        ("CREATE TABLE t FROM '{csv}'; SELECT count(*) FROM bids, t", Code.NO_WINDOW),
        ("CREATE TABLE t FROM '{csv}'; SELECT RSTREAM(id) FROM t", Code.ENDLESS),
        ("CREATE TABLE t (a INT, a INT) FROM '{csv}'; SELECT a FROM bids, t", Code.SAME_COLUMN),
    ],
)
def test_what_is_wrong_with_a_table_has_a_code_and_a_place(tmp_path: Path, text: str, code: Code) -> None:
    pa.csv.write_csv(ROWS, tmp_path / "items.csv")
    pa.parquet.write_table(ROWS, tmp_path / "items.parquet")
    (tmp_path / "text.parquet").write_text("id,name\n")
    files = {"csv": "items.csv", "parquet": "items.parquet", "not_parquet": "text.parquet"}
    with pytest.raises(SqlError) as caught:
        query(text.format(**{name: tmp_path / file for name, file in files.items()}), {"bids": BIDS})
    assert caught.value.code == code, str(caught.value)
    assert caught.value.line == 1


def test_a_table_goes_with_any_time() -> None:
    streams = [headrace.StreamDef("a", BIDS), headrace.StreamDef("b", BIDS, ticks_per_second=None)]
    known = Catalog([*streams, TableDef("items", ITEMS)])
    assert query("SELECT name FROM items, a WHERE id = item", known).ticks_per_second == 1_000_000
    assert query("SELECT name FROM items, b WHERE id = item", known).ticks_per_second is None
    with pytest.raises(SqlError, match=Code.TIME_DOMAINS):
        query("SELECT name FROM items, a, b WHERE id = a.item", known)


def refusals() -> list[tuple[str, type[HeadraceError], object]]:
    def loaded(engine: Engine) -> None:
        engine.load("items", ROWS)
        engine.load("items", ROWS.slice(0, 1))

    def as_stream(engine: Engine) -> None:
        engine.load("bids", ROWS)

    def other_columns(engine: Engine) -> None:
        engine.load("items", ROWS.select(["name"]))

    def other_plan(engine: Engine) -> None:
        engine.load("things", ROWS.select(["name"]))
        engine.add("r", query("SELECT 1 AS x FROM bids, things", Catalog([*BOTH, TableDef("things", ITEMS)])))

    def no_rows(engine: Engine) -> None:
        engine.load("items", [1, 2])  # type: ignore[arg-type]

    def pushed(engine: Engine) -> None:
        engine.push("items", ROWS.to_batches()[0], [1, 2, 3])

    return [
        ("HR-G013", GraphError, loaded),
        ("HR-G014", GraphError, as_stream),
        ("HR-I003", InputError, other_columns),
        ("HR-G001", GraphError, other_plan),
        ("HR-I009", InputError, no_rows),
        ("HR-G005", GraphError, pushed),
    ]


BOTH = [headrace.StreamDef("bids", BIDS)]


@pytest.mark.parametrize(("code", "kind", "act"), refusals(), ids=[code for code, _, _ in refusals()])
def test_an_engine_refuses_what_no_table_can_be(code: str, kind: type[HeadraceError], act) -> None:  # type: ignore[no-untyped-def]
    engine = Engine()
    engine.add("q", query(JOINS[0], catalog(None)))
    with pytest.raises(kind, match=code) as caught:
        act(engine)
    assert caught.value.hint


def test_the_same_rows_may_come_twice() -> None:
    engine = Engine()
    engine.load("items", ROWS)
    engine.load("items", ROWS)
    found = query(JOINS[0], catalog())
    engine.add("q", found)
    push(engine)
    engine.streams.end("bids")
    assert_same_stream(engine.drain(), oracle.stream(found.plan, SOURCES), schema=found.schema)


def test_data_must_have_the_columns_declared() -> None:
    with pytest.raises(SqlError, match=Code.TABLE_COLUMNS):
        TableDef("items", BIDS, ROWS)


def test_rows_valid_since_the_beginning_of_time_cannot_be_reported_at_each_tick() -> None:
    with pytest.raises(PlanError, match="HR-P021"):
        check(RStream(Table("items", ITEMS), 10))


def test_a_mapping_may_hold_arrow_tables() -> None:
    found = query(JOINS[0], {"bids": BIDS, "items": ROWS}, ticks_per_second=None)
    assert found.tables[0].data is ROWS
    assert [source.name for source in found.sources] == ["bids"]
