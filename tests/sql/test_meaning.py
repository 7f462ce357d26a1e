"""Random queries, made by mutating real ones, mean the same to the engine as to the oracle."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, note
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.sql import query
from tests.laws import effort
from tests.sql.mutation import mutations
from tests.sql.running import SEQUENCE, answer

REAL = [
    "SELECT item, count(*) AS n, window_end FROM bids [RANGE 8 SLIDE 2] GROUP BY item HAVING n > 1",
    "SELECT b.item, i.name, max(b.price) p FROM bids [RANGE 9] b JOIN items [ROWS 2] i ON b.item = i.id "
    "AND b.price > 1 WHERE i.name LIKE 'a%' GROUP BY b.item, i.name",
    "WITH v(a, b) AS (ISTREAM(SELECT DISTINCT item, price FROM bids [PARTITION BY item ROWS 3])) "
    "SELECT a, CASE WHEN b IS NULL THEN 0 ELSE b / 2 END AS c FROM v [NOW] WHERE a IN (1, 2) OR b = 3",
    "RSTREAM(SELECT x.item, y.price - x.price FROM bids [NOW] x, bids y WHERE x.item = y.item)",
    "SELECT item, sum(price) / count(*) AS a, last(price) FROM bids [ROWS 3] GROUP BY item",
    "SELECT DISTINCT item % 2 AS k FROM bids [RANGE 4] EXCEPT ALL SELECT id FROM items [RANGE 3]",
    "DSTREAM(SELECT a.item, b.price FROM bids [RANGE 3] a, bids [PARTITION BY item ROWS 1] b "
    "WHERE a.item = b.item AND a.price <= b.price)",
    "SELECT n, count(*) AS c FROM (SELECT item, count(*) AS n FROM bids [RANGE 4 SLIDE 2] GROUP BY item) "
    "GROUP BY n",
    "SELECT item FROM bids UNION ALL SELECT id + 1 FROM items WHERE name IS NOT NULL",
    "SELECT item, price FROM bids [RANGE 5] "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) < 3",
    "SELECT n, item FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price) AS n FROM bids) "
    "WHERE n <= 2 AND item > 0",
    "SELECT item, price - LAG(price, 1, 0.0) OVER (PARTITION BY item) AS d FROM bids WHERE price > 1",
    "SELECT item, count(*) AS n, window_end, last(price) FROM bids [SESSION 2] GROUP BY item HAVING n > 1",
    "SELECT item, count(*) AS n FROM bids [RANGE 4 SLIDE 2] GROUP BY item ORDER BY n DESC, item LIMIT 1",
    "SELECT b.item, i.name, c.price FROM bids [RANGE 5] b LEFT JOIN items [RANGE 3] i ON b.item = i.id "
    "AND i.name > 'a' RIGHT JOIN bids [ROWS 2] c ON c.item = b.item AND c.price < 3 WHERE c.price > 1",
    "SELECT item, i.name FROM bids [RANGE 4 SLIDE 2] FULL JOIN items [RANGE 4 SLIDE 2] i ON item = i.id",
    "SELECT item, price FROM bids [RANGE 5] b WHERE price > 1 AND EXISTS (SELECT 1 FROM items [RANGE 4] i "
    "WHERE i.id = b.item AND i.name <> 'b') AND item NOT IN (SELECT id FROM items [ROWS 1])",
    "SELECT item, count(*) AS n FROM bids [RANGE 5] b WHERE NOT EXISTS (SELECT 1 FROM items [RANGE 4] i "
    "WHERE i.id <=> b.item) AND item IN (SELECT item FROM bids [ROWS 3] GROUP BY item) GROUP BY item",
]
ITEM = st.sampled_from([1, 2, 3, None])
TIMES = st.integers(0, 12)
BIDS = st.lists(st.tuples(TIMES, ITEM, st.sampled_from([1.0, 2.5, 3.0, None])), max_size=8)
ITEMS = st.lists(st.tuples(TIMES, ITEM, st.sampled_from(["a", "ab", "b", None])), max_size=6)


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[0])


@effort(2, "many ways to write a query")
@given(mutations(REAL, least=0, most=2), BIDS.map(in_order), ITEMS.map(in_order))
def test_a_query_means_the_same_to_engine_and_oracle(
    text: str, bids: list[tuple[Any, ...]], items: list[tuple[Any, ...]]
) -> None:
    try:
        query(text, SEQUENCE)
    except HeadraceError:
        assume(False)
    note(text)
    answer(text, bids=bids, items=items)
