"""The first rows by an order, in every way to write it, against answers computed by hand."""

from __future__ import annotations

import pytest

from headrace.plan.nodes.core import IStream, Plan, Project, RStream
from headrace.plan.nodes.top_n import SortKey, TopN, ascending, descending
from headrace.plan.nodes.trees import walk
from tests.sql.running import answer, plan_of

BIDS = [(1, 7, 10.0), (2, 7, 30.0), (3, 7, 20.0), (4, 8, 5.0), (5, 8, None)]
NUMBERED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) AS n FROM bids"


def top_of(plan: Plan) -> TopN:
    return next(each for each in walk(plan) if isinstance(each, TopN))


def test_the_greatest_of_each_key_as_it_changes() -> None:
    text = (
        "SELECT item, price FROM bids QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) = 1"
    )
    assert answer(text, bids=BIDS) == [(1, 7, 10.0), (2, 7, 30.0), (4, 8, 5.0)]


def test_what_leaves_the_window_makes_room() -> None:
    text = "SELECT price FROM bids [RANGE 3] QUALIFY ROW_NUMBER() OVER (ORDER BY price DESC) <= 1"
    rows = [(1, 7, 30.0), (2, 7, 20.0), (9, 7, 1.0)]
    assert answer(text, bids=rows) == [(1, 30.0), (4, 20.0), (9, 1.0)]
    assert answer(f"DSTREAM({text})", bids=rows) == [(4, 30.0), (5, 20.0), (12, 1.0)]


def test_numbers_are_rows_of_their_own() -> None:
    assert answer(f"SELECT * FROM ({NUMBERED}) WHERE n <= 2", bids=BIDS) == [
        (1, 7, 10.0, 1),
        (2, 7, 10.0, 2),
        (2, 7, 30.0, 1),
        (3, 7, 20.0, 2),
        (4, 8, 5.0, 1),
        (5, 8, None, 2),
    ]


@pytest.mark.parametrize(
    ("condition", "count", "left"),
    [
        ("n <= 3", 3, False),
        ("n < 4", 3, False),
        ("3 >= n", 3, False),
        ("n = 1", 1, False),
        ("n = 3", 3, True),
        ("n BETWEEN 1 AND 3", 3, False),
        ("n BETWEEN 2 AND 3", 3, True),
        ("n <= 5 AND n <= 3 AND price > 1", 3, True),
    ],
)
def test_a_condition_around_it_bounds_the_number(condition: str, count: int, left: bool) -> None:
    plan = plan_of(f"SELECT n, price FROM ({NUMBERED}) WHERE {condition}")
    assert top_of(plan).count == count
    assert any(type(each).__name__ == "Select" for each in walk(plan)) == left
    answer(f"SELECT n, price FROM ({NUMBERED}) WHERE {condition}", bids=BIDS)


def test_a_number_that_nobody_reads_is_not_counted() -> None:
    assert top_of(plan_of(f"SELECT price FROM ({NUMBERED}) WHERE n <= 3")).rank is None
    assert top_of(plan_of(f"SELECT price FROM ({NUMBERED}) WHERE n = 3")).rank == "n"
    assert top_of(plan_of(f"SELECT price, n AS m FROM ({NUMBERED}) WHERE n <= 3")).rank == "n"


def test_a_number_through_with_and_views_and_joins() -> None:
    text = f"""
        WITH numbered AS ({NUMBERED})
        SELECT i.name, n.price FROM numbered n, items i WHERE n.item = i.id AND n.n <= 1
    """
    rows = answer(text, bids=BIDS, items=[(0, 7, "seven")])
    assert rows == [(1, "seven", 10.0), (2, "seven", 30.0)]


def test_order_by_limit_is_the_first_rows_of_all() -> None:
    text = "SELECT item FROM bids [UNBOUNDED] ORDER BY price DESC, item LIMIT 2"
    assert answer(text, bids=BIDS) == [(1, 7), (2, 7)]
    top = top_of(plan_of("SELECT item, price AS p FROM bids ORDER BY p DESC NULLS FIRST, 1 LIMIT 2"))
    assert (top.keys, top.count, top.rank) == ((), 2, None)
    assert top.order == (SortKey("p", descends=True, nulls_first=True), ascending("item"))


def test_a_sliding_window_has_its_own_first_rows() -> None:
    text = """
        SELECT item, count(*) AS n, window_end FROM bids [RANGE 4 SLIDE 2] GROUP BY item
        ORDER BY n DESC, item LIMIT 1
    """
    plan = plan_of(text)
    assert isinstance(plan, RStream)
    assert plan.slide == 2
    assert answer(text, bids=BIDS) == [(1, 7, 1, 2), (3, 7, 3, 4), (5, 7, 2, 6), (7, 8, 2, 8)]


def test_groups_are_numbered_by_their_aggregates() -> None:
    text = """
        SELECT item, max(price) AS p, ROW_NUMBER() OVER (ORDER BY count(*) DESC, item) AS n
        FROM bids [UNBOUNDED] GROUP BY item QUALIFY n <= 1
    """
    rows = answer(text, bids=BIDS)
    assert rows == [(1, 7, 10.0, 1), (2, 7, 30.0, 1)]


def test_keys_that_are_not_listed_are_not_shown() -> None:
    plan = plan_of(
        "SELECT price FROM bids QUALIFY ROW_NUMBER() OVER (PARTITION BY item % 2 ORDER BY -price) < 3"
    )
    assert plan.schema.names == ["price"]
    assert isinstance(plan, IStream)
    assert isinstance(plan.input, Project)
    assert top_of(plan).input.schema.names == ["price", "key", "key_1"]


def test_rows_that_the_order_leaves_equal_go_by_content() -> None:
    text = "SELECT item FROM bids [RANGE 9] ORDER BY price LIMIT 1"
    assert answer(text, bids=[(1, 9, 1.0), (1, 3, 1.0)]) == [(1, 3)]


def test_qualify_comes_before_distinct() -> None:
    """Both of the first bids are of item 7, which is shown once; were DISTINCT first, 5 would be too."""
    text = """
        SELECT DISTINCT item FROM bids [UNBOUNDED]
        QUALIFY ROW_NUMBER() OVER (ORDER BY price DESC) <= 2
    """
    assert answer(text, bids=[(1, 7, 9.0), (1, 7, 8.0), (1, 5, 1.0)]) == [(1, 7)]


def test_distinct_comes_before_the_limit() -> None:
    text = "SELECT DISTINCT item FROM bids [UNBOUNDED] ORDER BY item DESC LIMIT 2"
    assert answer(text, bids=BIDS) == [(1, 7), (4, 8)]


def test_spark_puts_nulls_first_going_up_and_last_going_down() -> None:
    up, down = (plan_of(f"SELECT item FROM bids ORDER BY item {d} LIMIT 1") for d in ("", "DESC"))
    assert top_of(up).order == (ascending("item"),)
    assert top_of(down).order == (descending("item"),)


def test_an_aggregate_may_be_taken_of_the_first_rows() -> None:
    text = f"SELECT avg(price) AS a FROM (SELECT price FROM ({NUMBERED}) WHERE n = 1) t"
    assert answer(text, bids=BIDS) == [(1, 10.0), (2, 30.0), (4, 17.5)]
