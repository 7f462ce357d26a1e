"""LAG in text, against answers computed by hand; `first` and `last` by time under all their names."""

from __future__ import annotations

import pytest

from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.trees import walk
from headrace.sql import Catalog, declare, query
from tests.sql.running import answer, plan_of

BIDS = [(1, 7, 10.0), (2, 8, 1.0), (3, 7, None), (5, 7, 30.0), (5, 7, 40.0)]


def test_the_value_of_the_row_before() -> None:
    text = "SELECT item, price, LAG(price) OVER (PARTITION BY item) AS before FROM bids"
    assert answer(text, bids=BIDS) == [
        (1, 7, 10.0, None),
        (2, 8, 1.0, None),
        (3, 7, None, 10.0),
        (5, 7, 30.0, None),
        (5, 7, 40.0, 30.0),
    ]


def test_further_back_with_a_default_and_inside_expressions() -> None:
    text = "SELECT price - LAG(price, 2, 0) OVER (PARTITION BY item) AS d FROM bids"
    assert answer(text, bids=BIDS) == [(1, 10.0), (2, 1.0), (3, None), (5, 20.0), (5, None)]


def test_the_default_stands_for_a_missing_row_not_for_null() -> None:
    text = "SELECT LAG(price, 1, -1) OVER (PARTITION BY item) AS b FROM bids WHERE item = 7"
    assert answer(text, bids=BIDS) == [(1, -1.0), (3, 10.0), (5, None), (5, 30.0)]


def test_where_comes_before_looking_back() -> None:
    text = "SELECT item, LAG(item) OVER () AS b FROM bids WHERE price > 5"
    assert answer(text, bids=BIDS) == [(1, 7, None), (5, 7, 7), (5, 7, 7)]


def test_partitions_and_arguments_may_be_computed() -> None:
    text = "SELECT LAG(price * 2) OVER (PARTITION BY item % 7) AS b, LAG(item) OVER () AS c FROM bids"
    plan = plan_of(text)
    assert plan.schema.names == ["b", "c"]
    assert sum(isinstance(each, Lag) for each in walk(plan)) == 2
    assert answer(text, bids=BIDS[:3]) == [(1, None, None), (2, None, 7), (3, 20.0, 8)]


def test_equal_calls_are_one() -> None:
    (lag,) = (
        each
        for each in walk(plan_of("SELECT LAG(price) OVER () + LAG(price, 1) OVER () AS s FROM bids"))
        if isinstance(each, Lag)
    )
    assert len(lag.calls) == 1


def test_a_stream_that_looks_back_is_a_stream() -> None:
    text = """
        SELECT max(rise) AS most FROM
        (SELECT price - LAG(price) OVER (PARTITION BY item) AS rise FROM bids) [UNBOUNDED] AS r
    """
    assert answer(text, bids=[(1, 7, 1.0), (2, 7, 4.0), (3, 7, 5.0)]) == [(1, None), (2, 3.0)]


def test_order_by_names_the_time_column_through_views() -> None:
    catalog = Catalog()
    declare("CREATE STREAM s (k BIGINT, v DOUBLE, ts TIMESTAMP) TIME ts", catalog)
    declare("CREATE VIEW w AS SELECT k, v, ts AS at FROM s WHERE v > 0", catalog)
    for text in (
        "SELECT LAG(v) OVER (PARTITION BY k ORDER BY ts) FROM s",
        "SELECT LAG(v) OVER (PARTITION BY k ORDER BY at) FROM w",
        "SELECT LAG(v) OVER (PARTITION BY k ORDER BY t) FROM w AS x(k, v, t)",
    ):
        assert any(isinstance(each, Lag) for each in walk(query(text, catalog).plan))


@pytest.mark.parametrize("name", ["first", "first_value", "any_value"])
def test_first_is_the_earliest_by_time(name: str) -> None:
    text = f"SELECT {name}(price) AS p FROM bids [ROWS 2]"
    assert answer(text, bids=BIDS[:3]) == [(1, 10.0), (3, 1.0)]
    text = f"SELECT {name}(price) AS p, window_end FROM bids [RANGE 4 SLIDE 4]"
    assert answer(text, bids=BIDS) == [(3, 10.0, 4), (7, 30.0, 8)]


@pytest.mark.parametrize("name", ["last", "last_value"])
def test_last_is_the_latest_by_time_null_or_not(name: str) -> None:
    text = f"SELECT {name}(price) AS p FROM bids [RANGE 2]"
    assert answer(text, bids=BIDS[:3]) == [(1, 10.0), (2, 1.0), (3, None)]
    text = f"SELECT {name}(price) AS p, window_end FROM bids [RANGE 4 SLIDE 4]"
    assert answer(text, bids=BIDS) == [(3, None, 4), (7, 40.0, 8)]
