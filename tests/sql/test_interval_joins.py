"""Outer and semi joins within an interval of time: each row once, at the instant at which it is decided."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SqlError
from headrace.plan.nodes.core import Window
from headrace.plan.nodes.trees import walk
from headrace.plan.nodes.windows import Unbounded
from headrace.sql import Catalog, StreamDef, query
from headrace.testing.asking import ask
from tests.sql.running import answer

STREAMS = [
    StreamDef(
        name,
        pa.schema([("k", pa.int64()), (value, pa.int64()), ("ts", pa.int64())]),
        time_column="ts",
        ticks_per_second=None,
    )
    for name, value in (("a", "x"), ("b", "y"))
]
CATALOG = Catalog(STREAMS, ticks_per_second=None)
Rows = list[tuple[int, int | None, int | None]]

QUERIES = {
    "left": "SELECT a.k, x, b.k AS j, y FROM a LEFT JOIN b ON a.k = b.k AND {within} AND x <= y",
    "right": "SELECT a.k, x, b.k AS j, y FROM b RIGHT JOIN a ON a.k = b.k AND {within} AND x <= y",
    "full": "SELECT a.k, x, b.k AS j, y FROM a FULL JOIN b ON {within} AND b.k = a.k AND x <= y",
    "exists": "SELECT k, x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND {within} AND x <= y)",
    "in": "SELECT k, x FROM a WHERE k IN (SELECT k FROM b WHERE {within} AND a.x <= b.y)",
    "not exists": "SELECT k, x FROM a WHERE NOT EXISTS "
    "(SELECT 1 FROM b WHERE b.k = a.k AND {within} AND y >= x)",
}
SPELLINGS = (
    "b.ts BETWEEN a.ts + {low} AND a.ts + {high}",
    "b.ts >= a.ts + {low} AND b.ts <= a.ts + {high}",
    "a.ts < b.ts - {low} + 1 AND a.ts + {high} > b.ts - 1",
    "a.ts BETWEEN b.ts - {high} AND b.ts - {low}",
)


def meaning(kind: str, low: int, high: int, lefts: Rows, rights: Rows) -> Counter[tuple[Any, ...]]:
    """The answer, pair by pair: rows without a partner when the last one could have come."""
    found: list[tuple[Any, ...]] = []
    met_left, met_right = set(), set()
    for i, (ta, k, x) in enumerate(lefts):
        for j, (tb, other, y) in enumerate(rights):
            fits = k is not None and k == other and x is not None and y is not None and x <= y
            if fits and low <= tb - ta <= high:
                met_left.add(i)
                met_right.add(j)
                found.append((max(ta, tb), k, x, other, y))
    alone = [(i, ta + max(high, 0), k, x) for i, (ta, k, x) in enumerate(lefts)]
    if kind in ("exists", "in"):
        return Counter((at, k, x) for i, at, k, x in alone if i in met_left)
    if kind == "not exists":
        return Counter((at, k, x) for i, at, k, x in alone if i not in met_left)
    found += [(at, k, x, None, None) for i, at, k, x in alone if i not in met_left]
    if kind == "full":
        found += [
            (tb + max(-low, 0), None, None, k, y) for j, (tb, k, y) in enumerate(rights) if j not in met_right
        ]
    return Counter(found)


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row[0])


FEW = st.sampled_from([1, 2, None])
ROWS = st.lists(st.tuples(st.integers(0, 12), FEW, FEW), max_size=7).map(in_order)


@pytest.mark.parametrize("kind", QUERIES)
@given(st.tuples(st.integers(-4, 4), st.integers(-4, 4)).map(sorted), st.sampled_from(SPELLINGS), ROWS, ROWS)
def test_each_row_is_answered_once(
    kind: str, bounds: list[int], spelling: str, lefts: Rows, rights: Rows
) -> None:
    low, high = bounds
    text = QUERIES[kind].format(within=spelling.format(low=low, high=high))
    rows = {name: [(*row, row[0]) for row in each] for name, each in (("a", lefts), ("b", rights))}
    found = answer(text, CATALOG, **rows)
    assert Counter(found) == meaning(kind, low, high, lefts, rights)


def test_partners_in_the_past_need_no_lower_bound() -> None:
    text = "SELECT x, y FROM a LEFT JOIN b ON a.k = b.k AND b.ts <= a.ts"
    found = answer(text, CATALOG, a=[(1, 1, 5, 1), (9, 1, 6, 9)], b=[(3, 1, 7, 3), (9, 1, 8, 9)])
    assert Counter(found) == Counter([(1, 5, None), (9, 6, 7), (9, 6, 8)])


def test_state_is_bounded_by_the_interval() -> None:
    text = "SELECT x, y FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - 3 AND a.ts + 5"
    windows = [each for each in walk(query(text, CATALOG).plan) if isinstance(each, Window)]
    unbounded = [each for each in windows if isinstance(each.spec, Unbounded)]
    assert len(unbounded) == 1, "only that of the answer, which is not kept"
    assert len(windows) > 1


def test_with_windows_each_instant_counts() -> None:
    text = (
        "SELECT x, y FROM a [RANGE 9] LEFT JOIN b [RANGE 9] ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 5"
    )
    found = answer(text, CATALOG, a=[(1, 1, 5, 1)], b=[(3, 1, 7, 3)])
    assert found == [(1, 5, None), (3, 5, 7)]


BY_SECOND = ([(1, 1), (2, 2)], [(11, 1), (13, 2)])


def test_intervals_of_timestamps() -> None:
    text = """
        CREATE STREAM a (k BIGINT, ts TIMESTAMP) TIME ts; CREATE STREAM b (k BIGINT, ts TIMESTAMP) TIME ts;
        SELECT a.k, unix_seconds(b.ts) AS s FROM a LEFT JOIN b
        ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' SECOND"""
    second = 1_000_000
    a, b = ([(s * second, k, dt.datetime.fromtimestamp(s, dt.UTC)) for s, k in rows] for rows in BY_SECOND)
    assert ask(text, a=a, b=b) == [(11 * second, 1, 11), (12 * second, 2, None)]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "SELECT a.x FROM a JOIN b ON a.k = b.k LEFT JOIN b AS c ON c.ts BETWEEN a.ts AND a.ts + 2",
            "in a subquery",
        ),
        (
            "SELECT x FROM a WHERE k NOT IN (SELECT k FROM b WHERE b.ts BETWEEN a.ts AND a.ts + 2)",
            "NOT EXISTS",
        ),
        (
            "SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.ts BETWEEN a.ts AND a.ts + 2) "
            "AND k NOT IN (SELECT k FROM b)",
            "subquery",
        ),
    ],
)
def test_what_is_refused(text: str, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        query(text, CATALOG)
    assert hint in caught.value.hint
