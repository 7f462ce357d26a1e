"""MATCH_RECOGNIZE as text: what it means, and what its errors say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace import Catalog, Engine, query
from headrace.errors import SqlError
from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.match import Match
from headrace.plan.nodes.trees import walk
from headrace.sql.catalog import StreamDef
from headrace.sql.place import Code
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("price", pa.int64()), ("tax", pa.float64())])
CATALOG = Catalog([StreamDef("s", SCHEMA, time_column="ts", ticks_per_second=1)])
Rows = list[dict[str, Any]]


def asked(clauses: str, prices: list[int], more: str = "") -> list[tuple[Any, ...]]:
    """The matches in rows with these prices, one a second, from the engine and from the oracle."""
    plan = query(f"SELECT * FROM s MATCH_RECOGNIZE ({clauses}) AS m {more}", CATALOG).plan
    rows: Rows = [{"k": "a", "ts": at, "price": p, "tax": p / 4} for at, p in enumerate(prices)]
    engine = Engine()
    engine.add("q", plan)
    engine.push("s", pa.RecordBatch.from_pylist(rows, SCHEMA), [row["ts"] for row in rows])
    engine.streams.end("s")
    answers = engine.drain()
    assert_same_stream(answers, oracle.stream(plan, {"s": [(row["ts"], row) for row in rows]}))
    return [tuple(row.values()) for batch in answers for row in batch.data.to_pylist()]


def test_a_fall_and_a_rise() -> None:
    clauses = """
        PARTITION BY k ORDER BY ts
        MEASURES START_ROW.ts AS start_ts, LAST(PRICE_DOWN.ts) AS bottom, LAST(PRICE_UP.ts) AS end_ts
        ONE ROW PER MATCH
        AFTER MATCH SKIP TO LAST PRICE_UP
        PATTERN (START_ROW PRICE_DOWN+ PRICE_UP)
        DEFINE PRICE_DOWN AS (LAST(PRICE_DOWN.price, 1) IS NULL AND PRICE_DOWN.price < START_ROW.price)
                             OR PRICE_DOWN.price < LAST(PRICE_DOWN.price, 1),
               PRICE_UP AS PRICE_UP.price > LAST(PRICE_DOWN.price)"""
    assert asked(clauses, [12, 17, 19, 21, 25, 18, 15, 14, 24, 25, 19]) == [("a", 4, 7, 8)]
    assert asked(clauses, [9, 5, 7, 3, 8]) == [("a", 0, 1, 2), ("a", 2, 3, 4)]


def test_a_running_average_ends_a_match() -> None:
    clauses = """
        MEASURES FIRST(A.ts) AS begins, LAST(A.ts) AS ends, AVG(A.price) AS average
        PATTERN (A+ B) DEFINE A AS AVG(A.price) < 15"""
    assert asked(clauses, [12, 16, 13, 16, 40, 2, 4, 30, 9]) == [(0, 3, 14.25), (5, 7, 12.0)]


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        ("A.price", 3),
        ("FIRST(A.price)", 1),
        ("LAST(A.price)", 3),
        ("LAST(A.price, 1)", 2),
        ("FIRST(A.price, 2)", 3),
        ("FIRST(A.price, 3)", None),
        ("price", 9),
        ("FIRST(price)", 1),
        ("LAST(price, 1)", 3),
        ("k", "a"),
        ("m_row.price", None),
        ("COUNT(*)", 4),
        ("COUNT(A.*)", 3),
        ("COUNT(A.price)", 3),
        ("COUNT(m_row.*)", 0),
        ("SUM(A.price * 2 + 1)", 15),
        ("SUM(price)", 15),
        ("AVG(A.tax)", 0.5),
        ("MIN(A.price) + MAX(B.price)", 10),
        ("LAST(A.price + A.ts)", 5),
        ("COUNT(DISTINCT A.k)", 1),
        ("COUNT_IF(A.price > 1)", 2),
        ("SUM(A.price) FILTER (WHERE A.price > 1)", 5),
        ("MATCH_ROWTIME()", 3),
        ("CASE WHEN COUNT(m_row.*) > 0 THEN 'm' ELSE 'none' END", "none"),
        ("FINAL LAST(A.price)", 3),
        ("a.PRICE", 3),
    ],
)
def test_measures(measure: str, value: object) -> None:
    clauses = (
        f"MEASURES {measure} AS x PATTERN (A+ m_row? B) DEFINE A AS price < 5, B AS price > 5, m_row AS 1 = 0"
    )
    assert asked(clauses, [1, 2, 3, 9]) == [(value,)]


@pytest.mark.parametrize(
    ("define", "ends"),
    [
        ("B AS price > PREV(price)", [4]),
        ("B AS B.price > PREV(B.price, 2)", [4]),
        ("B AS PREV(price * 2) > 9", [1, 4]),
        ("B AS B.price > A.price", [4]),
        ("B AS B.price = FIRST(A.price) - 1", [2]),
        ("B AS COUNT(*) > 2", [2]),
        ("B AS B.price + A.price > 12", [4]),
        ("B AS s.price > 4 AND price < 6", [1]),
        ("A AS ts = 2", [3]),
    ],
)
def test_definitions(define: str, ends: list[int]) -> None:
    more = "" if define.startswith("A") else ", A AS A.price > 4"
    pattern = "A A B" if "COUNT" in define else "A B"
    found = asked(f"MEASURES LAST(ts) AS t PATTERN ({pattern}) DEFINE {define}{more}", [5, 5, 4, 6, 8])
    assert [row[0] for row in found] == ends


def test_conditions_on_the_row_alone_are_separate_from_others() -> None:
    text = "MEASURES A.ts AS t PATTERN (A B) DEFINE B AS price > 3 AND PREV(price) < 2 AND B.price > A.price"
    plan = query(f"SELECT t FROM s MATCH_RECOGNIZE (PARTITION BY k {text})", CATALOG).plan
    match = next(each for each in walk(plan) if isinstance(each, Match))
    assert isinstance(match.input, Lag)
    (b,) = (each for each in match.variables if each.name == "B")
    assert b.condition is not None
    assert b.test is not None
    assert [str(term) for term in b.terms] == ["last(A.price)"]


def test_within_and_what_may_follow() -> None:
    clauses = (
        "MEASURES A.ts AS a, B.ts AS b PATTERN (A X*? B) WITHIN {} DEFINE A AS price = 1, B AS price = 2"
    )
    prices = [1, 0, 0, 2, 1, 2]
    assert asked(clauses.format("INTERVAL '3' SECONDS"), prices) == [(4, 5)]
    assert asked(clauses.format("4 SECONDS"), prices) == [(0, 3), (4, 5)]
    assert asked(clauses.format("4 SECONDS"), prices, "WHERE m.a > 0") == [(4, 5)]
    text = f"SELECT count(*) AS n FROM s MATCH_RECOGNIZE ({clauses.format('1m')}) [RANGE 1 MINUTE]"
    assert not query(text, CATALOG).plan.is_relation


def test_a_variable_may_have_the_name_of_a_column() -> None:
    clauses = "MEASURES price.ts AS x, K.price AS y PATTERN (price k) DEFINE k AS k.price > price.price"
    assert asked(clauses, [3, 2, 5]) == [(1, 5)]


def test_a_variable_may_have_fields() -> None:
    schema = pa.schema([("s", pa.struct([("f", pa.int64())])), ("f", pa.int64())])
    text = "SELECT x FROM t MATCH_RECOGNIZE (MEASURES s.s.f AS x PATTERN (s b) DEFINE b AS b.s.f > s.f)"
    assert query(text, {"t": schema}).plan.schema.names == ["x"]


def test_within_may_be_a_number_of_ticks() -> None:
    catalog = Catalog([StreamDef("s", SCHEMA, time_column="ts", ticks_per_second=None)])
    text = "SELECT x FROM s MATCH_RECOGNIZE (MEASURES A.k AS x PATTERN (A B) WITHIN 15 DEFINE B AS price > 1)"
    (match,) = (each for each in walk(query(text, catalog).plan) if isinstance(each, Match))
    assert match.within == 15


def test_the_matches_of_a_subquery_and_of_a_union() -> None:
    union = "(SELECT ts, price FROM s WHERE price > 1 UNION ALL SELECT ts, 0 - price FROM s)"
    text = (
        f"SELECT * FROM {union} MATCH_RECOGNIZE (MEASURES A.price AS x PATTERN (A B) DEFINE A AS price < 0)"
    )
    assert query(text, CATALOG).plan.schema.names == ["x"]


WRONG: dict[str, tuple[str, Code, str, str]] = {
    "no row": ("MEASURES A.k AS k PATTERN (A*)", Code.PATTERN, "without any row", "A+"),
    "all rows": (
        "MEASURES A.k AS k ALL ROWS PER MATCH PATTERN (A)",
        Code.PATTERN,
        "ALL ROWS PER MATCH",
        "MEASURES",
    ),
    "exclusion": ("MEASURES A.k AS k PATTERN (A {- B -})", Code.PATTERN, "{- -}", "MEASURES"),
    "anchor": ("MEASURES A.k AS k PATTERN (^ A)", Code.PATTERN, "anchors", "first row"),
    "end": ("MEASURES A.k AS k PATTERN (A $)", Code.PATTERN, "anchors", "last row"),
    "permute": ("MEASURES A.k AS k PATTERN (PERMUTE(A, B))", Code.PATTERN, "PERMUTE", "(A B | B A)"),
    "subset": ("MEASURES A.k AS k PATTERN (A B) SUBSET U = (A, B)", Code.PATTERN, "SUBSET", "pattern"),
    "order": ("ORDER BY price MEASURES A.k AS k PATTERN (A)", Code.PATTERN, "time column", "ORDER BY ts"),
    "down": ("ORDER BY ts DESC MEASURES A.k AS k PATTERN (A)", Code.PATTERN, "ascending", "ORDER BY ts"),
    "computed key": ("PARTITION BY price + 1 PATTERN (A)", Code.PATTERN, "only columns", "subquery"),
    "unknown key": ("PARTITION BY prize PATTERN (A)", Code.UNKNOWN_COLUMN, "'prize'", "'price'"),
    "no columns": ("PATTERN (A)", Code.PATTERN, "no columns", "MEASURES"),
    "twice": ("PARTITION BY k MEASURES A.k AS k PATTERN (A)", Code.SAME_COLUMN, "'k'", "rename"),
    "no name": ("MEASURES A.k PATTERN (A)", Code.SYNTAX, "needs a name", "AS"),
    "no pattern": ("MEASURES A.k AS k", Code.SYNTAX, "expected PATTERN", "in this order"),
    "empty": ("MEASURES A.k AS k PATTERN ()", Code.SYNTAX, "expected a variable", "PATTERN (A B+ C)"),
    "counts": ("MEASURES A.k AS k PATTERN (A{5,2})", Code.SYNTAX, "number of repetitions", "A{2,5}"),
    "quantifiers": ("MEASURES A.k AS k PATTERN (A+*)", Code.SYNTAX, "two quantifiers", "(A+)*"),
    "large": ("MEASURES A.k AS k PATTERN ((A{100}){100})", Code.PATTERN, "1000 rows", "smaller"),
    "skip": (
        "MEASURES A.k AS k AFTER MATCH SKIP TO A PATTERN (A)",
        Code.SYNTAX,
        "needs a place",
        "TO FIRST A",
    ),
    "skip to another": (
        "MEASURES A.k AS k AFTER MATCH SKIP TO LAST Z PATTERN (A)",
        Code.PATTERN_VARIABLE,
        "'Z'",
        "variables: A",
    ),
    "unknown variable": ("MEASURES Z.k AS k PATTERN (A)", Code.PATTERN_VARIABLE, "'Z'", "variables: A"),
    "unknown column": ("MEASURES A.prize AS k PATTERN (A)", Code.UNKNOWN_COLUMN, "'prize'", "'price'"),
    "unknown definition": (
        "MEASURES A.k AS k PATTERN (A) DEFINE B AS B.price > 1",
        Code.PATTERN_VARIABLE,
        "'B'",
        "variables: A",
    ),
    "defined twice": (
        "MEASURES A.k AS k PATTERN (A) DEFINE A AS price > 1, a AS price < 3",
        Code.PATTERN_VARIABLE,
        "twice",
        "AND",
    ),
    "no condition": (
        "MEASURES A.k AS k PATTERN (A) DEFINE A AS A.price + 1",
        Code.NOT_BOOLEAN,
        "boolean",
        "x > 0",
    ),
    "next": ("MEASURES NEXT(A.k) AS k PATTERN (A)", Code.PATTERN, "NEXT", "PREV"),
    "prev in measures": ("MEASURES PREV(A.k) AS k PATTERN (A)", Code.PATTERN, "PREV", "LAST(A.x)"),
    "prev of another": (
        "MEASURES A.k AS k PATTERN (A B) DEFINE B AS PREV(A.price) > 1",
        Code.PATTERN,
        "PREV",
        "PREV(B.x)",
    ),
    "nested": ("MEASURES LAST(PREV(A.k)) AS k PATTERN (A)", Code.PATTERN, "PREV", "alone"),
    "two variables": ("MEASURES SUM(A.price + B.price) AS k PATTERN (A B)", Code.PATTERN, "one variable", ""),
    "classifier": ("MEASURES CLASSIFIER() AS k PATTERN (A)", Code.PATTERN, "CLASSIFIER", "CASE"),
    "offset": ("MEASURES LAST(A.k, A.price) AS k PATTERN (A)", Code.ARGUMENTS, "offset", "LAST(A.x, 1)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_supported_is_refused_with_place_and_hint(name: str) -> None:
    clauses, code, message, hint = WRONG[name]
    with pytest.raises(SqlError) as caught:
        query(f"SELECT * FROM s MATCH_RECOGNIZE ({clauses})", CATALOG)
    assert caught.value.code == code
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.column


def test_a_window_before_it_is_refused() -> None:
    with pytest.raises(SqlError) as caught:
        query("SELECT * FROM s [RANGE 1 HOUR] MATCH_RECOGNIZE (MEASURES A.k AS k PATTERN (A))", CATALOG)
    assert caught.value.code == Code.PATTERN
    assert "WITHIN" in caught.value.hint
