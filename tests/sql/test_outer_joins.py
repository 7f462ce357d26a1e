"""Outer, semi and anti joins: answers worked out by hand, and those of DuckDB at each instant."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace import Engine, query
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.trees import walk
from headrace.sql import StreamDef
from headrace.testing.asking import ask
from headrace.testing.compare import events_of
from tests.laws import effort
from tests.sql.running import SEQUENCE, answer

BIDS = [(0, 1, 5.0), (8, 2, 6.0), (20, None, 7.0)]
ITEMS = [(2, 1, "a"), (3, 1, "b"), (6, 2, "c"), (11, 1, "d")]

BY_HAND: dict[str, list[tuple[Any, ...]]] = {
    "SELECT price, name FROM bids [RANGE 10] LEFT JOIN items [RANGE 5] ON item = id": [
        *((0, 5.0, None), (2, 5.0, "a"), (3, 5.0, "b"), (8, 5.0, None), (8, 6.0, "c")),
        *((11, 6.0, None), (20, 7.0, None)),
    ],
    "SELECT price, name FROM bids [RANGE 10] RIGHT JOIN items [RANGE 5] ON item = id": [
        *((2, 5.0, "a"), (3, 5.0, "b"), (6, None, "c"), (8, 6.0, "c"), (11, None, "d")),
    ],
    "SELECT price, name FROM bids [RANGE 10] FULL OUTER JOIN items [RANGE 5] ON item = id": [
        *((0, 5.0, None), (2, 5.0, "a"), (3, 5.0, "b"), (6, None, "c"), (8, 5.0, None), (8, 6.0, "c")),
        *((11, 6.0, None), (11, None, "d"), (20, 7.0, None)),
    ],
    "SELECT price, name FROM bids [RANGE 10 SLIDE 10] LEFT JOIN items [RANGE 10 SLIDE 10] ON item = id": [
        *((9, 5.0, "a"), (9, 5.0, "b"), (9, 6.0, "c"), (29, 7.0, None)),
    ],
    "SELECT price, name FROM bids LEFT JOIN items ON item = id": [
        *((0, 5.0, None), (2, 5.0, "a"), (3, 5.0, "b"), (8, 6.0, "c"), (11, 5.0, "d"), (20, 7.0, None)),
    ],
    "SELECT price FROM bids [RANGE 10] WHERE EXISTS (SELECT * FROM items [RANGE 5] WHERE item = id)": [
        *((2, 5.0), (8, 6.0)),
    ],
    "SELECT price FROM bids [RANGE 10] WHERE NOT EXISTS (SELECT 1 FROM items [RANGE 5] WHERE item = id)": [
        *((0, 5.0), (8, 5.0), (11, 6.0), (20, 7.0)),
    ],
    "SELECT price FROM bids [NOW] WHERE item IN (SELECT id FROM items [RANGE 5])": [(8, 6.0)],
    "SELECT price FROM bids [NOW] WHERE item NOT IN (SELECT id FROM items [RANGE 5])": [(0, 5.0), (20, 7.0)],
    "SELECT price FROM bids [NOW] WHERE item NOT IN (SELECT id FROM items [RANGE 10])": [(0, 5.0)],
    "SELECT price FROM bids WHERE item IN (SELECT id FROM items)": [(2, 5.0), (8, 6.0)],
}


BY_HAND |= {
    "SELECT price FROM bids [RANGE 10] LEFT SEMI JOIN items [RANGE 5] ON item = id": [(2, 5.0), (8, 6.0)],
    "SELECT price FROM bids [RANGE 10] b LEFT ANTI JOIN items [RANGE 5] i ON b.item = i.id WHERE price < 7": [
        *((0, 5.0), (8, 5.0), (11, 6.0)),
    ],
}
"""Spark's words for EXISTS and NOT EXISTS."""


@pytest.mark.parametrize("text", BY_HAND)
def test_answers_by_hand(text: str) -> None:
    found = answer(text, bids=BIDS, items=ITEMS)
    assert Counter(found) == Counter(BY_HAND[text])


few = st.lists(
    st.tuples(st.integers(0, 25), st.none() | st.integers(0, 2), st.integers(0, 1)), max_size=8
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@effort(0.3, "each example runs four queries and their oracle")
@given(few, few)
@example([(1, 0, 1), (2, 1, 0), (5, 0, 1), (12, 0, 1), (13, None, 1)], [(3, 0, 1), (14, 1, 0)])
def test_rows_without_a_key_and_without_a_partner_come_once(
    left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]
) -> None:
    """Few rows of many instants that are answered together: `ask` compares with the oracle."""
    streams = "CREATE STREAM l (k BIGINT, x BIGINT); CREATE STREAM r (k BIGINT, y BIGINT); "
    for text in (
        "SELECT l.k, x, y FROM l [RANGE 10 SLIDE 5] FULL JOIN r [RANGE 10 SLIDE 5] ON l.k = r.k",
        "SELECT l.k, x, y FROM l [NOW] LEFT JOIN r [RANGE 4] ON l.k = r.k",
        "SELECT l.k, x, y FROM l [RANGE 6] FULL JOIN r [ROWS 2] ON l.k = r.k AND x <> y",
        "SELECT k, x FROM l [NOW] WHERE NOT EXISTS (SELECT 1 FROM r [RANGE 4] WHERE r.k = l.k)",
    ):
        ask(streams + text, l=left, r=right, ticks_per_second=None)


# ------------------------------------------------------------------------------------- as DuckDB answers

SCHEMAS = {
    "l": pa.schema([("run", pa.int64()), ("k", pa.int64()), ("x", pa.int64())]),
    "r": pa.schema([("run", pa.int64()), ("k", pa.int64()), ("y", pa.int64())]),
}
STREAMS = [StreamDef(name, schema, ticks_per_second=None) for name, schema in SCHEMAS.items()]
SIZES = {"l": 5, "r": 3}
LAST = 16
RUNS = 10_000
"""Sequences of insertions and deletions: rows enter windows of random rows, and leave them."""

QUERIES = {
    "left": "SELECT l.run, l.k, x, y FROM {l} LEFT JOIN {r} ON {at} AND l.k = r.k AND x <> y",
    "right": "SELECT r.run, r.k, x, y FROM {l} RIGHT JOIN {r} ON {at} AND l.k = r.k",
    "full": "SELECT l.run, r.run AS s, x, y FROM {l} FULL JOIN {r} ON {at} AND l.k = r.k AND x < y",
    "exists": "SELECT run, k, x FROM {l} WHERE EXISTS (SELECT 1 FROM {r} WHERE {at} AND r.k = l.k AND y > x)",
    "not exists": "SELECT run, k, x FROM {l} WHERE NOT EXISTS (SELECT 1 FROM {r} WHERE {at} AND r.k = l.k)",
    "in": "SELECT run, k, x FROM {l} WHERE x > 0 AND k IN (SELECT k FROM {r} WHERE {at})",
    "not in": "SELECT run, k, x FROM {l} WHERE k NOT IN (SELECT k FROM {r} WHERE {at} AND x <= y)",
}


def random_rows(seed: int) -> dict[str, list[tuple[int, ...]]]:
    """Rows (time, run, k, x) of all runs in the order of time; keys and values are few, and some are null."""
    chance = random.Random(seed)
    few: list[int | None] = [0, 1, 2, None]
    made: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for run in range(RUNS):
        for name in SCHEMAS:
            for _ in range(chance.randrange(5)):
                made[name].append((chance.randrange(LAST - 5), run, chance.choice(few), chance.choice(few)))
    return {name: sorted(rows, key=lambda row: row[0]) for name, rows in made.items()}


def changes(text: str, rows: dict[str, list[tuple[int, ...]]]) -> list[Counter[tuple[Any, ...]]]:
    """What the engine answers at each instant: all that has come less all that has gone."""
    found: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(LAST)]
    for output, sign in (("ISTREAM", 1), ("DSTREAM", -1)):
        made = query(f"{output}({text})", STREAMS, ticks_per_second=None)
        engine = Engine(now=-1)
        engine.add("q", made.plan)
        for name, schema in SCHEMAS.items():
            columns = [pa.array([row[i + 1] for row in rows[name]], f.type) for i, f in enumerate(schema)]
            engine.push(
                name, pa.RecordBatch.from_arrays(columns, schema=schema), [row[0] for row in rows[name]]
            )
            engine.streams.end(name)
        for time, row in events_of(engine.drain("q")):
            for at in range(time, LAST):
                found[at][row] += sign
    return found


@pytest.mark.parametrize("kind", QUERIES)
def test_at_each_instant_the_answer_is_that_of_duckdb(kind: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    rows = random_rows(7)
    ours = QUERIES[kind].format(l="l [RANGE 5]", r="r [RANGE 3]", at="l.run = r.run")
    with duckdb.connect() as database:
        for name, schema in SCHEMAS.items():
            valid = [(t, *row) for time, *row in rows[name] for t in range(time, time + SIZES[name])]
            columns = dict(zip(["t", *schema.names], zip(*valid, strict=True), strict=True))
            database.register(
                f"{name}_rows", pa.table({c: pa.array(v, pa.int64()) for c, v in columns.items()})
            )
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        theirs = QUERIES[kind].format(l="l", r="r", at="l.run = r.run AND l.t = r.t")
        time = "coalesce(l.t, r.t)" if kind == "full" else "r.t" if kind == "right" else "l.t"
        answered = database.execute(theirs.replace("SELECT ", f"SELECT {time} AS t, ", 1)).fetchall()
    expected: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(LAST)]
    for at, *row in answered:
        expected[at][tuple(row)] += 1
    found = changes(ours, rows)
    for at in range(LAST):
        assert found[at] == expected[at], at


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        ("SELECT price FROM bids WHERE item NOT IN (SELECT id FROM items)", 3),
        ("SELECT price FROM bids WHERE item NOT IN (SELECT id FROM items WHERE id IS NOT NULL)", 2),
        ("SELECT price FROM bids WHERE item IS NOT NULL AND item NOT IN (SELECT id FROM items)", 2),
        (
            "SELECT price FROM bids WHERE item IS NOT NULL AND item NOT IN "
            "(SELECT id FROM items WHERE id IS NOT NULL AND price > id)",
            1,
        ),
    ],
)
def test_not_in_takes_fewer_joins_if_nothing_is_null(text: str, joins: int) -> None:
    plan = query(text, SEQUENCE).logical
    assert sum(isinstance(each, OuterJoin) for each in walk(plan)) == joins
