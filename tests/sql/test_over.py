"""Functions with OVER, against answers computed by hand and by the definition in plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SqlError
from headrace.plan.nodes.over import Over
from headrace.plan.nodes.trees import walk
from headrace.sql import Catalog, declare, query
from headrace.testing.asking import ask
from tests.sql.running import answer, plan_of

STREAM = "CREATE STREAM s (k STRING, x BIGINT, ts BIGINT) TIME ts; "
BIDS = [(1, 7, 10.0), (2, 8, 1.0), (3, 7, None), (5, 7, 30.0), (5, 7, 40.0)]
Rows = list[tuple[int, str, int | None]]
ROWS: st.SearchStrategy[Rows] = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from("ab"), st.none() | st.integers(-9, 9)), max_size=12
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


def asked(text: str, rows: Rows) -> list[tuple[Any, ...]]:
    return ask(STREAM + text, s=[(t, k, x, t) for t, k, x in rows], ticks_per_second=None)


def test_frames_of_rows() -> None:
    text = "SELECT item, sum(price) OVER (PARTITION BY item ROWS 1 PRECEDING) AS two FROM bids"
    assert answer(text, bids=BIDS) == [(1, 7, 10.0), (2, 8, 1.0), (3, 7, 10.0), (5, 7, 30.0), (5, 7, 70.0)]


def test_simultaneous_rows_are_peers_in_a_range_only() -> None:
    text = """
        SELECT count(*) OVER (PARTITION BY item RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) AS of_time,
               count(*) OVER (PARTITION BY item ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS of_rows
        FROM   bids"""
    assert answer(text, bids=BIDS) == [(1, 1, 1), (2, 1, 1), (3, 2, 2), (5, 3, 3), (5, 3, 3)]


@given(ROWS, st.integers(0, 4))
def test_frames_are_the_last_rows_and_the_last_times(rows: Rows, n: int) -> None:
    text = f"""
        SELECT k, sum(x) OVER (PARTITION BY k ORDER BY ts ROWS {n} PRECEDING) AS a,
               count(x) OVER (PARTITION BY k ORDER BY ts RANGE {n} PRECEDING) AS b,
               first_value(x) OVER (PARTITION BY k ORDER BY ts ROWS {n} PRECEDING) AS c,
               max(x) FILTER (WHERE x < 5) OVER (ORDER BY ts) AS d
        FROM   s"""
    expected = []
    for i, (t, k, _) in enumerate(rows):
        own = [x for _, j, x in rows[: i + 1] if j == k][-n - 1 :]
        near = [x for u, j, x in rows if j == k and t - n <= u <= t and x is not None]
        small = [x for u, _, x in rows if u <= t and x is not None and x < 5]
        known = [x for x in own if x is not None]
        total = sum(known) if known else None
        expected.append((t, k, total, len(near), own[0], max(small, default=None)))
    assert asked(text, rows) == expected


@given(ROWS)
def test_numbers_and_ranks_in_order_of_time(rows: Rows) -> None:
    listed = "k, row_number() OVER w AS n, rank() OVER w AS r"
    text = f"SELECT {listed} FROM s WINDOW w AS (PARTITION BY k ORDER BY ts)"
    expected = [
        (t, k, sum(j == k for _, j, _ in rows[: i + 1]), 1 + sum(j == k and u < t for u, j, _ in rows))
        for i, (t, k, _) in enumerate(rows)
    ]
    assert asked(text, rows) == expected


def test_a_row_number_in_order_of_time_stays_a_stream() -> None:
    rows: Rows = [(1, "a", 3), (2, "b", 1), (4, "a", 5), (4, "a", 6)]
    inner = "SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM s"
    assert asked(f"SELECT k, x FROM ({inner}) WHERE n = 2", rows) == [(4, "a", 5)]
    assert asked(f"SELECT k, x, n FROM ({inner}) [NOW] WHERE n >= 2", rows) == [
        (4, "a", 5, 2),
        (4, "a", 6, 3),
    ]
    assert asked("SELECT k, x FROM s QUALIFY ROW_NUMBER() OVER (ORDER BY ts) <= 2", rows) == [
        (1, "a", 3),
        (2, "b", 1),
    ]


def test_qualify_filters_by_any_function_and_by_aliases() -> None:
    rows: Rows = [(1, "a", 3), (2, "a", 1), (4, "a", 5)]
    text = """
        SELECT x, x - LAG(x) OVER (ORDER BY ts) AS d FROM s
        QUALIFY d > 0 AND count(*) OVER (ORDER BY ts) > 2"""
    assert asked(text, rows) == [(4, 5, 4)]


def test_named_windows_may_build_on_each_other() -> None:
    rows: Rows = [(1, "a", 3), (2, "a", 1), (4, "a", 5), (4, "b", 7)]
    text = """
        SELECT k, sum(x) OVER v AS s, sum(x) OVER (w ROWS 1 PRECEDING) AS t
        FROM   s WINDOW w AS (PARTITION BY k ORDER BY ts), v AS (w RANGE 2 PRECEDING)"""
    assert asked(text, rows) == [(1, "a", 3, 3), (2, "a", 4, 4), (4, "a", 6, 6), (4, "b", 7, 7)]


def test_equal_frames_are_one_node_and_unused_calls_are_dropped() -> None:
    text = """
        SELECT a
        FROM   (SELECT sum(price) OVER w AS a, max(price) OVER w AS b, sum(price) OVER (ROWS 2 PRECEDING) AS c
                FROM   bids WINDOW w AS (ROWS BETWEEN 2 PRECEDING AND CURRENT ROW))"""
    (over,) = (each for each in walk(plan_of(text)) if isinstance(each, Over))
    assert [call.function for call in over.calls] == ["sum"]


def test_order_by_names_the_time_column_through_views() -> None:
    catalog = Catalog()
    declare("CREATE STREAM s (k BIGINT, v DOUBLE, ts TIMESTAMP) TIME ts", catalog)
    declare("CREATE VIEW w AS SELECT k, v, ts AS at FROM s WHERE v > 0", catalog)
    text = "SELECT avg(v) OVER (PARTITION BY k ORDER BY at RANGE INTERVAL 1 HOUR PRECEDING) AS a FROM w"
    (over,) = (each for each in walk(query(text, catalog).plan) if isinstance(each, Over))
    assert over.frame.preceding == 3600 * 1_000_000


@given(ROWS, st.integers(1, 3))
def test_a_later_row_answers_the_rows_before_it(rows: Rows, n: int) -> None:
    text = f"""
        SELECT k, x, lead(x) OVER w AS a, lead(x + 1, {n}) OVER w AS b,
               lag(x) OVER w AS c, count(*) OVER w AS d
        FROM   s WINDOW w AS (PARTITION BY k ORDER BY ts)"""
    expected = []
    for i, (later, k, _) in enumerate(rows):
        own = [(t, x) for t, j, x in rows[: i + 1] if j == k]
        if len(own) > n:
            (t, x), past = own[-n - 1], own[: -n - 1]
            ahead = [y for _, y in own[-n:]]
            counted = sum(j == k and u <= t for u, j, _ in rows)
            last = None if ahead[n - 1] is None else ahead[n - 1] + 1
            expected.append((later, k, x, ahead[0], last, past[-1][1] if past else None, counted))
    assert asked(text, rows) == expected


def test_what_comes_after_lead_has_no_time_column() -> None:
    catalog = Catalog()
    declare("CREATE STREAM s (k BIGINT, v DOUBLE, ts TIMESTAMP) TIME ts", catalog)
    declare("CREATE VIEW w AS SELECT v, ts, LEAD(v) OVER (ORDER BY ts) AS next FROM s", catalog)
    with pytest.raises(SqlError, match="only order by the time column"):
        query("SELECT sum(v) OVER (ORDER BY ts) AS a FROM w", catalog)


TIMED = "OVER (ORDER BY ts)"
NAMED = "FROM s WINDOW w AS (PARTITION BY k ORDER BY ts)"


@pytest.mark.parametrize(
    ("text", "said"),
    {
        f"lead(x, 1, 0) {TIMED} FROM s": "takes no default",
        "lead(x, 0) OVER (ORDER BY ts) FROM s": "offset of LEAD",
        f"lead(x) {TIMED}, lead(x) OVER (PARTITION BY k ORDER BY ts) FROM s": "different PARTITION BY",
        f"ntile(4) {TIMED} FROM s": "needs the whole partition",
        f"dense_rank() {TIMED} FROM s": "keep every instant",
        "sum(x) OVER (PARTITION BY k) FROM s": "without ORDER BY",
        "sum(x) OVER (ORDER BY x) FROM s": "SUM can only order by the time column",
        "rank() OVER (ORDER BY ts DESC) FROM s": "RANK can only order by the time column",
        "sum(x) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM s": "end at CURRENT ROW",
        "sum(x) OVER (ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) FROM s": "end at CURRENT ROW",
        "sum(x) OVER (ORDER BY ts ROWS k PRECEDING) FROM s": "counted by a number",
        "sum(x) OVER (ORDER BY ts RANGE 'x' PRECEDING) FROM s": "takes an INTERVAL",
        "sum(x) OVER w FROM s": "'w' does not exist",
        f"sum(x) OVER (w PARTITION BY k) {NAMED}": "already has",
        f"sum(x) {TIMED} FROM s [ROWS 3]": "this is a relation",
        "rank() OVER (ORDER BY ts ROWS 3 PRECEDING) FROM s": "does not support a frame",
        f"rank(x) {TIMED} FROM s": "takes no arguments",
        f"upper(k) {TIMED} FROM s": "OVER works with aggregates",
        f"last_value(x) IGNORE NULLS {TIMED} FROM s": "IGNORE NULLS",
        f"sum(count(*)) {TIMED} FROM s [ROWS 3]": "OVER is not allowed here in SELECT",
        f"k FROM s WHERE sum(x) {TIMED} > 3": "OVER is not allowed here in WHERE",
    }.items(),
)
def test_what_a_stream_cannot_answer_is_an_error_with_a_place_and_a_hint(text: str, said: str) -> None:
    with pytest.raises(SqlError, match=said) as caught:
        query(f"{STREAM}SELECT {text}")
    assert "line 1" in str(caught.value)
    assert caught.value.hint
