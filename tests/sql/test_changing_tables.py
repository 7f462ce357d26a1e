"""Tables that a stream changes: every format makes the same table, and joins and aggregates follow it.

`ask` compares each answer with the oracle. DuckDB is the judge of long random histories: after each instant
its table holds what ours does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Engine, query
from headrace.errors import SqlError
from headrace.testing.asking import ask
from headrace.testing.compare import events_of
from tests.laws import effort

Row = tuple[Any, ...]
Change = tuple[int, int, int | None]
"""Time, key, and the new value; None deletes the key."""

changes = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 2), st.none() | st.integers(0, 3)), max_size=12
)


def in_order(found: list[Change]) -> list[Change]:
    return sorted(found, key=lambda change: change[0])


def held(found: list[Change]) -> Iterator[tuple[int, Counter[Row]]]:
    """What the table holds after each instant."""
    now: dict[int, int] = {}
    for time in sorted({time for time, _, _ in found}):
        for _, key, value in (each for each in found if each[0] == time):
            now.pop(key, None)
            now |= {} if value is None else {key: value}
        yield time, Counter(now.items())


def as_changelog(found: list[Change]) -> list[Row]:
    """What enters and what leaves at each instant, without what stays the same."""
    before: Counter[Row] = Counter()
    log: list[Row] = []
    for time, now in held(found):
        log += [(time, "-D", *row) for row in (before - now).elements()]
        log += [(time, "+I", *row) for row in (now - before).elements()]
        before = now
    return sorted(log)


# ------------------------------------------------------------ one table, five formats

STRUCT = "STRUCT<k: BIGINT, v: BIGINT>"
FORMATS: dict[str, tuple[str, str]] = {
    "marker": ("k BIGINT, v BIGINT, gone BOOLEAN", "DELETE WHEN gone"),
    "kafka": ("k BIGINT, v BIGINT", "FORMAT KAFKA"),
    "flink": ("op STRING, k BIGINT, v BIGINT", "FORMAT FLINK"),
    "stream": ("sign STRING, k BIGINT, v BIGINT", "FORMAT STREAM (sign)"),
    "debezium": (f"before {STRUCT}, after {STRUCT}, op STRING", "FORMAT DEBEZIUM"),
    "codes": ("op STRING, k BIGINT, v BIGINT", "DELETE WHEN op = 'gone' IGNORE WHEN op = 'old'"),
}


def written(format: str, found: list[Change]) -> list[Row]:
    """The changes as rows of a format, with old images where it has them."""
    now: dict[int, int] = {}
    rows: list[Row] = []
    for time, key, value in found:
        old = now.pop(key, None)
        now |= {} if value is None else {key: value}
        rows += [(time, *row) for row in _written(format, key, old, value)]
    return rows


def _written(format: str, key: int, old: int | None, new: int | None) -> list[Row]:
    before = None if old is None else {"k": key, "v": old}
    if format == "marker":
        return [(key, new, True if new is None else None)]
    if format == "kafka":
        return [(key, new)]
    if format == "debezium":
        if new is None:
            return [({"k": key, "v": old}, None, "d")]
        return [(before, {"k": key, "v": new}, "c" if old is None else "u")]
    insert, update, image, delete = {
        "flink": ("+I", "+U", "-U", "-D"),
        "stream": ("+", "+", "-", "-"),
        "codes": ("new", "new", "old", "gone"),
    }[format]
    images = [] if old is None or new is None else [(image, key, old)]
    return [*images, (delete if new is None else insert if old is None else update, key, new)]


@pytest.mark.parametrize("format", FORMATS)
@given(found=changes)
def test_every_format_makes_the_table(format: str, found: list[Change]) -> None:
    found = in_order(found)
    columns, clauses = FORMATS[format]
    text = f"""
        CREATE STREAM c ({columns});
        CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT) FROM c {clauses};
        CHANGELOG(SELECT k, v FROM t)"""
    assert sorted(ask(text, c=written(format, found), ticks_per_second=None)) == as_changelog(found)


@given(changes)
def test_a_changelog_by_key_is_a_table_again(found: list[Change]) -> None:
    """FROM_CHANGELOG(TO_CHANGELOG(t)) is t."""
    columns, clauses = FORMATS["marker"]
    text = f"""
        CREATE STREAM c ({columns});
        CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT) FROM c {clauses};
        CREATE TABLE again PRIMARY KEY (k) FROM (CHANGELOG(SELECT k, v FROM t) PRIMARY KEY (k)) FORMAT FLINK;
        CHANGELOG(SELECT k, v FROM again)"""
    found = in_order(found)
    assert sorted(ask(text, c=written("marker", found), ticks_per_second=None)) == as_changelog(found)


def test_a_key_may_have_several_columns_and_types_are_cast() -> None:
    text = """
        CREATE STREAM c (a BIGINT, b STRING, v BIGINT, note STRING);
        CREATE TABLE t (a INT, b STRING, v STRING, PRIMARY KEY (a, b) NOT ENFORCED) FROM c;
        SELECT * FROM t"""
    rows = [(1, 1, "x", 10, "n"), (2, 1, "y", 20, "n"), (3, 1, "x", 30, "n")]
    assert ask(text, c=rows, ticks_per_second=None) == [
        (1, 1, "x", "10"),
        (2, 1, "y", "20"),
        (3, 1, "x", "30"),
    ]
    assert query(text).schema.types == [pa.int32(), pa.string(), pa.string()]


def test_a_table_may_be_made_from_a_query() -> None:
    text = """
        CREATE STREAM c (k BIGINT, v BIGINT);
        CREATE TABLE t PRIMARY KEY (k) FROM (SELECT k, v * 2 AS v FROM c WHERE v > 0);
        SELECT k, v FROM t"""
    assert ask(text, c=[(1, 1, 1), (2, 1, 0), (3, 1, 2)], ticks_per_second=None) == [(1, 1, 2), (3, 1, 4)]


def test_deleted_keys_leave_no_state() -> None:
    text = """
        CREATE STREAM c (k BIGINT, v BIGINT, gone BOOLEAN);
        CREATE TABLE t PRIMARY KEY (k) FROM c DELETE WHEN gone;
        SELECT count(*) AS n FROM t"""
    made = query(text, ticks_per_second=None)
    engine = Engine()
    engine.add("q", made)
    held_bytes = []
    for step in range(30):
        keys = pa.array(range(step * 1000, step * 1000 + 1000), pa.int64())
        for gone in (False, True):
            flags = pa.array([gone] * 1000)
            rows = pa.RecordBatch.from_arrays([keys, keys, flags], schema=made.sources[0].schema)
            engine.push("c", rows, [2 * step + gone] * 1000)
            engine.drain("q")
        held_bytes.append(engine.memory.bytes())
    assert held_bytes[-1] <= 2 * max(held_bytes[:5])


# ------------------------------------------------------------ temporal joins

RATES = """
    CREATE STREAM rate_changes (currency STRING, rate BIGINT, gone BOOLEAN, ts BIGINT) TIME ts;
    CREATE STREAM orders (currency STRING, amount BIGINT, ts BIGINT) TIME ts;
    CREATE TABLE rates PRIMARY KEY (currency) FROM rate_changes DELETE WHEN gone;
"""
ROWS: dict[str, list[Row]] = {
    "rate_changes": [(1, "EUR", 10, None, 1), (5, "EUR", 12, False, 5), (7, "EUR", None, True, 7)],
    "orders": [(t, "EUR", n, t) for t, n in ((0, 1), (3, 2), (4, 2), (4, 2), (5, 1), (8, 3))],
}
AS_OF = "FROM orders AS o {} JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency"


def rated(text: str) -> list[Row]:
    return ask(RATES + text, **ROWS, ticks_per_second=None)


def test_each_row_meets_the_table_at_its_time() -> None:
    found = rated(f"SELECT o.amount * r.rate AS cost {AS_OF.format('')}")
    assert found == [(3, 20), (4, 20), (4, 20), (5, 12)]


def test_now_is_the_other_spelling() -> None:
    joined = "orders [NOW] AS o JOIN rates AS r ON o.currency = r.currency"
    assert rated(f"RSTREAM(SELECT o.amount * r.rate AS cost FROM {joined})") == [
        (3, 20),
        (4, 20),
        (4, 20),
        (5, 12),
    ]


def test_a_left_join_as_of_keeps_rows_without_a_partner() -> None:
    found = rated(f"SELECT o.amount, r.rate {AS_OF.format('LEFT')}")
    assert found == [(0, 1, None), (3, 2, 10), (4, 2, 10), (4, 2, 10), (5, 1, 12), (8, 3, None)]


def test_the_window_of_the_stream_is_over_the_joined_rows() -> None:
    joined = AS_OF.format("").replace("orders", "orders [RANGE 4 SLIDE 4]")
    found = rated(f"SELECT window_end, sum(o.amount * r.rate) AS cost {joined} GROUP BY o.currency")
    assert found == [(3, 4, 20), (7, 8, 52)]


def test_columns_of_both_sides_are_known_by_their_names() -> None:
    (first, *_) = rated(f"SELECT o.*, r.* {AS_OF.format('LEFT')}")
    assert first == (0, "EUR", 1, 0, None, None, None, None)
    twice = AS_OF.format("") + " JOIN rates FOR SYSTEM_TIME AS OF o.ts AS q ON r.currency = q.currency"
    assert rated(f"SELECT r.rate + q.rate AS s {twice}")[0] == (3, 20)


# ------------------------------------------------------------ errors

STREAM = "CREATE STREAM s (k BIGINT, o STRING, ts BIGINT) TIME ts; "
WRONG = {
    "CREATE TABLE t FROM s; SELECT * FROM t": ("HR-Q068", "PRIMARY KEY"),
    "CREATE TABLE t PRIMARY KEY (z) FROM s; SELECT * FROM t": ("HR-Q011", "columns: k, o, ts"),
    "CREATE TABLE t PRIMARY KEY (k) FROM s FORMAT FLICK; SELECT * FROM t": ("HR-Q068", "FLINK"),
    "CREATE TABLE t PRIMARY KEY (k) FROM s FORMAT FLINK; SELECT * FROM t": (
        "HR-Q011",
        "FORMAT FLINK (column)",
    ),
    "CREATE TABLE t PRIMARY KEY (k) FROM s FORMAT FLINK (k); SELECT * FROM t": ("HR-Q068", "STRING"),
    "CREATE TABLE t PRIMARY KEY (k) FROM s FORMAT KAFKA (o); SELECT * FROM t": ("HR-Q068", "DELETE WHEN"),
    "CREATE TABLE t PRIMARY KEY (k, o) FROM s FORMAT KAFKA; SELECT * FROM t": ("HR-Q068", "DELETE WHEN"),
    "CREATE TABLE t PRIMARY KEY (k) FROM s FORMAT DEBEZIUM (o); SELECT 1 FROM t": ("HR-Q068", "STRUCT"),
    "CREATE TABLE t PRIMARY KEY (k) FROM s DELETE k; SELECT * FROM t": ("HR-Q001", "DELETE WHEN"),
    "CREATE TABLE t PRIMARY KEY (k) FROM s DELETE WHEN k; SELECT * FROM t": ("HR-Q017", "comparison"),
    "CREATE TABLE t PRIMARY KEY (k) FROM s DELETE WHEN o = '' DELETE WHEN TRUE; SELECT 1 FROM t": (
        "HR-Q001",
        "twice",
    ),
    "CREATE TABLE t PRIMARY KEY (k) FROM s; SELECT * FROM t [RANGE 5]": ("HR-Q022", "ISTREAM"),
    "CREATE TABLE t (k INT, PRIMARY KEY (k)) FROM 'x.csv'; SELECT * FROM t": (
        "HR-Q068",
        "remove PRIMARY KEY",
    ),
    "CREATE TABLE t PRIMARY KEY (k) FROM (SELECT k FROM s [RANGE 5]); SELECT 1 FROM t": (
        "HR-Q068",
        "ISTREAM",
    ),
    "CREATE STREAM c (k BIGINT PRIMARY KEY)": ("HR-Q001", "CREATE TABLE t PRIMARY KEY (k)"),
    "SELECT * FROM FROM_CHANGELOG(input => TABLE s)": ("HR-Q001", "CREATE TABLE t PRIMARY KEY (k)"),
    "SELECT * FROM TO_CHANGELOG(input => TABLE s)": ("HR-Q001", "CHANGELOG(SELECT … FROM t)"),
    "CREATE TABLE t PRIMARY KEY (k) FROM": ("HR-Q001", "FROM 'items.csv'"),
    "CHANGELOG(SELECT k, count(*) AS n FROM s [RANGE 5] GROUP BY k) PRIMARY KEY (n)": (
        "HR-Q053",
        "group by n",
    ),
    "CHANGELOG(SELECT k FROM s [RANGE 5]) PRIMARY KEY (z)": ("HR-Q011", "columns: k"),
    "SELECT 1 FROM s AS a JOIN s FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k": ("HR-Q040", "CREATE TABLE t"),
    "SELECT 1 FROM s AS a JOIN (SELECT k FROM s [RANGE 5]) FOR SYSTEM_TIME AS OF a.ts AS b ON TRUE": (
        "HR-Q",
        "",
    ),
    "CREATE TABLE t PRIMARY KEY (k) FROM s; SELECT 1 FROM s JOIN t FOR SYSTEM_TIME AS OF s.k ON s.k = t.k": (
        "HR-Q061",
        "AS OF s.ts",
    ),
    "CREATE TABLE t PRIMARY KEY (k) FROM s; SELECT 1 FROM s FULL JOIN t FOR SYSTEM_TIME AS OF s.ts ON TRUE": (
        "HR-Q040",
        "LEFT JOIN",
    ),
    "CREATE TABLE t PRIMARY KEY (k) FROM s; SELECT 1 FROM t FOR SYSTEM_TIME AS OF s.ts": ("HR-Q002", "join"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_with_its_place(text: str) -> None:
    code, words = WRONG[text]
    with pytest.raises(SqlError) as error:
        query(STREAM + text, ticks_per_second=None)
    assert str(error.value.code).startswith(code)
    assert words in str(error.value)
    assert "line 1, column" in str(error.value)


# ------------------------------------------------------------ DuckDB is the judge

QUERIES = {
    "table": "SELECT n, k, v FROM a",
    "inner": "SELECT a.n, a.k, a.v, b.v AS w FROM a JOIN b ON a.n = b.n AND a.v = b.k",
    "left": "SELECT a.n, a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.n = b.n AND a.v = b.k",
    "aggregate": "SELECT n, v % 2 AS g, count(*) AS c, sum(v) AS s, max(k) AS m FROM a GROUP BY n, v % 2",
    "both": "SELECT a.n, count(b.v) AS c FROM a LEFT JOIN b ON a.n = b.n AND a.v = b.k GROUP BY a.n",
    "exists": "SELECT n, k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.n = a.n AND b.k = a.v)",
}
TABLES = """
    CREATE STREAM ca (n BIGINT, k BIGINT, v BIGINT, gone BOOLEAN);
    CREATE STREAM cb (n BIGINT, k BIGINT, v BIGINT, gone BOOLEAN);
    CREATE TABLE a (n BIGINT, k BIGINT, v BIGINT, PRIMARY KEY (n, k)) FROM ca DELETE WHEN gone;
    CREATE TABLE b (n BIGINT, k BIGINT, v BIGINT, PRIMARY KEY (n, k)) FROM cb DELETE WHEN gone;
"""
INSTANTS = 12


def histories(rng: random.Random, count: int) -> dict[int, dict[str, list[Row]]]:
    """By instant, the changes (n, k, v, gone) of two tables; each of `count` histories has its number n."""
    found: dict[int, dict[str, list[Row]]] = {time: {"ca": [], "cb": []} for time in range(INSTANTS)}
    for n in range(count):
        for _ in range(rng.randint(3, 16)):
            gone = rng.random() < 0.3
            value = None if gone else rng.randint(0, 4)
            found[rng.randrange(INSTANTS)][rng.choice(["ca", "cb"])].append(
                (n, rng.randint(0, 3), value, gone)
            )
    return found


def judged(found: dict[int, dict[str, list[Row]]]) -> dict[str, list[Counter[Row]]]:
    """The answers of DuckDB after each instant."""
    answers: dict[str, list[Counter[Row]]] = {name: [] for name in QUERIES}
    with duckdb.connect() as database:
        for table in ("a", "b"):
            database.execute(f"CREATE TABLE {table} (n BIGINT, k BIGINT, v BIGINT, PRIMARY KEY (n, k))")
        for now in found.values():
            for stream, rows in now.items():
                last = {(n, k): (n, k, v, gone) for n, k, v, gone in rows}
                columns = list(zip(*last.values(), strict=True)) or [()] * 4
                types = (pa.int64(), pa.int64(), pa.int64(), pa.bool_())
                arrays = [pa.array(values, of) for values, of in zip(columns, types, strict=True)]
                database.register("now", pa.table(arrays, ["n", "k", "v", "gone"]))
                table = stream[1]
                database.execute(
                    f"DELETE FROM {table} USING now WHERE {table}.n = now.n AND {table}.k = now.k"
                )
                database.execute(f"INSERT INTO {table} SELECT n, k, v FROM now WHERE NOT gone")
            for name, text in QUERIES.items():
                answers[name].append(Counter(database.execute(text).fetchall()))
    return answers


def followed(text: str, found: dict[int, dict[str, list[Row]]], cut: int) -> list[Counter[Row]]:
    """The answers of the engine, put together from its changelog; it is stopped and restored at `cut`."""
    made = query(f"{TABLES} CHANGELOG({text})", ticks_per_second=None)
    now: Counter[Row] = Counter()
    engine = Engine()
    engine.add("q", made)
    log: list[tuple[int, Row]] = []
    for time, arrived in found.items():
        if time == cut:
            log += events_of(engine.drain("q"))
            snapshot = engine.snapshot()
            engine = Engine()
            engine.add("q", made)
            engine.restore(snapshot)
        for source in made.sources:
            rows = arrived[source.name]
            columns = list(zip(*rows, strict=True)) or [()] * 4
            arrays = [pa.array(values, f.type) for values, f in zip(columns, source.schema, strict=True)]
            engine.push(
                source.name, pa.RecordBatch.from_arrays(arrays, schema=source.schema), [time] * len(rows)
            )
    for source in made.sources:
        engine.streams.end(source.name)
    log += events_of(engine.drain("q"))
    answers = []
    for time in found:
        for _, (operation, *row) in (each for each in log if each[0] == time):
            now[tuple(row)] += 1 if operation == "+I" else -1
        assert min(now.values(), default=0) >= 0
        answers.append(+now)
    return answers


def assert_as_duckdb(seed: int, count: int) -> None:
    rng = random.Random(seed)
    found = histories(rng, count)
    expected = judged(found)
    for name, text in QUERIES.items():
        assert followed(text, found, rng.randrange(INSTANTS)) == expected[name], (seed, name)


@effort(0.1, "each example is many histories")
@given(st.integers(0, 2**32))
def test_any_history_is_that_of_duckdb(seed: int) -> None:
    assert_as_duckdb(seed, 20)


@pytest.mark.slow
def test_ten_thousand_histories_are_those_of_duckdb() -> None:
    for seed in range(20):
        assert_as_duckdb(1000 + seed, 500)
