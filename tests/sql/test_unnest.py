"""UNNEST in its spellings: the rows of each, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import SqlError
from headrace.sql import query
from headrace.sql.place import Code
from headrace.testing.asking import ask

STREAMS = """CREATE STREAM o (id BIGINT, items ARRAY<STRING>, lines ARRAY<STRUCT<sku: STRING, n: INT>>,
tags MAP<STRING, INT>); CREATE STREAM p (k STRING); """
ROWS = [
    (1, 10, ["a", "b"], [{"sku": "x", "n": 2}, {"sku": "y", "n": 3}], [("t", 1)]),
    (2, 11, None, [], None),
    (3, 12, ["a"], [None], [("u", 2), ("v", None)]),
]
ITEMS = [(1, 10, "a"), (1, 10, "b"), (3, 12, "a")]
ALL = [*ITEMS[:2], (2, 11, None), ITEMS[2]]
POSITIONS = [(1, 10, 0, "a"), (1, 10, 1, "b"), (3, 12, 0, "a")]
CASES: list[tuple[str, list[Any]]] = [
    ("SELECT id, item FROM o, UNNEST(items) AS u(item)", ITEMS),
    ("SELECT o.id, u.item FROM o CROSS JOIN UNNEST(o.items) AS u(item)", ITEMS),
    ("SELECT id, item FROM o, LATERAL explode(items) AS u(item)", ITEMS),
    ("SELECT id, item FROM o LATERAL VIEW explode(items) u AS item", ITEMS),
    ("SELECT id, explode(items) AS item FROM o", ITEMS),
    ("SELECT id, i FROM o, UNNEST(items) AS i", ITEMS),
    ("SELECT id, item FROM o LEFT JOIN UNNEST(items) AS u(item) ON TRUE", ALL),
    ("SELECT id, item FROM o LATERAL VIEW OUTER explode(items) u AS item", ALL),
    ("SELECT id, explode_outer(items) AS item FROM o", ALL),
    ("SELECT id, n, item FROM o LATERAL VIEW posexplode(items) u AS n, item", POSITIONS),
    ("SELECT id, posexplode(items) FROM o", POSITIONS),
    ("SELECT id, posexplode(items) AS (n, item) FROM o", POSITIONS),
    (
        "SELECT id, n, i FROM o LATERAL VIEW posexplode_outer(items) u AS n, i WHERE n IS NULL OR n = 1",
        [(1, 10, 1, "b"), (2, 11, None, None)],
    ),
    (
        "SELECT pos, key, value FROM o LATERAL VIEW posexplode(tags) u",
        [(1, 0, "t", 1), (3, 0, "u", 2), (3, 1, "v", None)],
    ),
    ("SELECT a, b FROM o LATERAL VIEW inline(lines) u AS a, b", [(1, "x", 2), (1, "y", 3), (3, None, None)]),
    (
        "SELECT id, n, item FROM o, UNNEST(items) WITH ORDINALITY AS u(item, n)",
        [(1, 10, 1, "a"), (1, 10, 2, "b"), (3, 12, 1, "a")],
    ),
    ("SELECT u.* FROM o, UNNEST(lines) AS u", [(1, "x", 2), (1, "y", 3), (3, None, None)]),
    ("SELECT id, l.sku FROM o, UNNEST(lines) AS u(l)", [(1, 10, "x"), (1, 10, "y"), (3, 12, None)]),
    ("SELECT a, b FROM o, UNNEST(lines) AS u(a, b)", [(1, "x", 2), (1, "y", 3), (3, None, None)]),
    ("SELECT key, value FROM o, UNNEST(tags)", [(1, "t", 1), (3, "u", 2), (3, "v", None)]),
    ("SELECT item FROM o, UNNEST(items) AS u(item) WHERE item = 'b'", [(1, "b")]),
    ("SELECT x FROM o, UNNEST(items) AS u(x), UNNEST(lines) AS v WHERE n = 3", [(1, "a"), (1, "b")]),
    (
        "SELECT item, count(*) AS n FROM o [RANGE 9 SECONDS SLIDE 9 SECONDS], UNNEST(items) AS u(item) "
        "GROUP BY item",
        [(8, "a", 2), (8, "b", 1)],
    ),
    (
        "SELECT explode(items) AS item, count(*) AS n FROM o [RANGE 9 SECONDS SLIDE 9 SECONDS] GROUP BY item",
        [(8, "a", 2), (8, "b", 1)],
    ),
    (
        "SELECT i FROM (SELECT items FROM o [ROWS 1]) AS q, UNNEST(items) AS u(i)",
        [(1, "a"), (1, "b"), (3, "a")],
    ),
    (
        "SELECT o.id, p.k FROM o [RANGE 5 SECONDS], UNNEST(items) AS u(item), p [NOW] WHERE p.k = u.item",
        [(2, 10, "a")],
    ),
    (
        "SELECT u.x, p.k FROM o [NOW], UNNEST(items) AS u(x) LEFT JOIN p [RANGE 9 SECONDS] ON p.k = u.x",
        [(1, "a", None), (1, "b", None), (3, "a", "a")],
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text[:70] for text, _ in CASES])
def test_each_element_is_a_row(text: str, expected: list[Any]) -> None:
    streams: dict[str, Any] = {"o": ROWS} | ({"p": [(2, "a")]} if " p " in text else {})
    assert ask(STREAMS + text, **streams) == expected


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("SELECT id FROM o, UNNEST(id) AS u(x)", Code.TYPES, "an array or a map"),
        ("SELECT id FROM o, UNNEST(items) AS u(id)", Code.AMBIGUOUS_COLUMN, "u(other_name)"),
        ("SELECT o.item FROM o, UNNEST(items) AS u(item)", Code.UNKNOWN_COLUMN, "'items'"),
        ("SELECT u.id FROM o, UNNEST(items) AS u(item)", Code.UNKNOWN_COLUMN, "item"),
        ("SELECT id FROM o [ROWS 3], UNNEST(items) AS u(item)", Code.NOT_CQL, "subquery"),
        ("SELECT x FROM UNNEST(array(1, 2)) AS u(x)", Code.NOT_CQL, "FROM takes streams"),
        ("SELECT id FROM o, UNNEST(lines) AS u(a, b, c)", Code.TYPES, "name each"),
        ("SELECT id FROM o, UNNEST(items, items) AS u(a, b)", Code.NOT_CQL, "UNNEST(items)"),
        ("SELECT explode(items), explode(items) FROM o", Code.NOT_CQL, "in FROM"),
        ("SELECT id FROM o JOIN UNNEST(items) AS u(x) ON x = 'a'", Code.NOT_CQL, "WHERE"),
        ("SELECT id FROM o RIGHT JOIN UNNEST(items) AS u(x)", Code.JOIN_KIND, "LEFT JOIN"),
        ("SELECT id FROM o LATERAL VIEW flatten(items) u AS item", Code.NOT_CQL, "UNNEST(items)"),
        ("SELECT inline(lines) FROM o", Code.NOT_CQL, "LATERAL VIEW"),
        ("SELECT posexplode(items) AS item FROM o", Code.COLUMN_COUNT, "(pos, item)"),
        ("SELECT id FROM o, p [NOW], UNNEST(array(o.id, p.k)) AS u(x)", Code.TYPES, ""),
        (
            "SELECT k FROM p [NOW] LEFT JOIN o [NOW] ON o.id = 1, UNNEST(items) AS u(x)",
            Code.NOT_CQL,
            "before the join",
        ),
    ],
)
def test_what_is_refused_says_what_to_write(text: str, code: Code, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        query(STREAMS + text)
    assert caught.value.code == code, str(caught.value)
    assert hint in caught.value.hint, str(caught.value)
    assert caught.value.line is not None
