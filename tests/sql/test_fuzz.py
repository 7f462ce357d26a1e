"""No text ends in a traceback: what comes out is a plan or a HeadraceError."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.plan.nodes.core import Plan
from headrace.sql import query
from tests.laws import effort
from tests.sql import test_errors
from tests.sql.mutation import mutations, words_of
from tests.sql.running import STREAMS

WIDE = {
    **STREAMS,
    "events": pa.schema(
        [
            ("item", pa.int64()),
            ("at", pa.timestamp("us")),
            ("tags", pa.list_(pa.string())),
            ("raw", pa.binary()),
        ]
    ),
}
REAL = [
    "SELECT item, count(*) AS n, window_end FROM bids [RANGE 10 MINUTES SLIDE 1 MINUTE] "
    "GROUP BY item HAVING n > 1",
    "SELECT b.item, i.name, max(b.price) p FROM bids [RANGE 1 HOUR] b JOIN items [ROWS 5] i ON b.item = i.id "
    "AND b.price > 3 WHERE i.name LIKE 'a%' GROUP BY b.item, i.name",
    "WITH v(a, b) AS (ISTREAM(SELECT DISTINCT item, price FROM bids [PARTITION BY item ROWS 3])) "
    "SELECT a, CASE WHEN b IS NULL THEN 0 ELSE b / 2 END AS c FROM v [NOW] "
    "WHERE a IN (1, 2) OR b BETWEEN 1 AND 2",
    "SELECT y.id, count(x.*) AS n, last(x.price) FROM SEQ(bids+ AS x, NOT events AS n, items AS y) "
    "CHRONICLE STRICT PARTITION BY x.item = n.item = y.id WITHIN 1 HOUR "
    "WHERE x.price > 3 AND y.id < first(x.item)",
    "SELECT * FROM SEQ(bids AS a, (SELECT * FROM bids) AS b, items) RECENT "
    "PARTITION BY a.item = b.item = items.id [RANGE 5 SECONDS] WHERE a.price < b.price",
    "CREATE STREAM s (a BIGINT, t TIMESTAMP) TIME t; CREATE VIEW v AS SELECT a + 1 AS a FROM s; "
    "SELECT a FROM v UNION ALL SELECT item FROM bids EXCEPT SELECT id FROM items [UNBOUNDED]",
    "RSTREAM(SELECT x.item, y.price - x.price FROM bids [NOW] x, bids y, (SELECT id FROM items) z "
    "WHERE x.item = y.item AND z.id = CAST(x.price AS INT))",
    "SELECT sum(price) FILTER (WHERE price > 1) / count(DISTINCT price), first(at), tags, raw "
    "FROM bids, events [NOW] "
    "WHERE bids.item = events.item GROUP BY tags, raw, date_trunc('day', at), price * -1.5e3",
    "SELECT ISTREAM(item, extract(year FROM at) AS y, if(item = 1, 'a', concat('b', 1)) AS z) "
    "FROM events [RANGE 1 DAY] WHERE at > TIMESTAMP '2020-01-01'",
    *(text for text, *_ in test_errors.CASES if 0 < len(text) < 200),
]
WORDS = words_of(REAL)


def plan_or_error(text: str) -> Plan | None:
    try:
        found = query(text, WIDE)
    except HeadraceError:
        return None
    assert len(found.schema.names) == len(set(found.schema.names))
    return found.plan


@effort(12, "cheap, and most mutants are refused early")
@given(mutations(REAL))
def test_a_mutated_query_is_a_plan_or_an_error(text: str) -> None:
    plan_or_error(text)


@effort(4, "cheap")
@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
def test_words_in_any_order_are_a_plan_or_an_error(text: str) -> None:
    plan_or_error(text)
    plan_or_error(f"SELECT {text} FROM bids")
    plan_or_error(f"SELECT item FROM bids {text}")


@effort(4, "cheap")
@given(st.text(max_size=60))
@example("SELECT '\\ud800'\x00")
@example("{{ x }}")
@example("SELECT 1e999999999 FROM bids")
@example("SELECT item FROM bids [RANGE 1e999999999 SECONDS]")
def test_any_text_is_a_plan_or_an_error(text: str) -> None:
    plan_or_error(text)
    plan_or_error(f"SELECT {text} FROM bids")


def test_the_real_queries_that_are_meant_to_be_right_are() -> None:
    assert [plan_or_error(text) is not None for text in REAL[:9]] == [True] * 9
