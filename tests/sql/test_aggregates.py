"""GROUP BY, HAVING and aggregates, also inside expressions and over expressions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headrace.plan.nodes.core import Aggregate, AggregateCall, Plan, Project, SlidingAggregate
from headrace.sql import Catalog
from headrace.sql.binder.aggregate_names import MORE as NAMES
from headrace.sql.binder.more_aggregates import MORE
from tests.sql.running import STREAMS, answer, plan_of

BIDS = [(1, 7, 10.0), (3, 8, 20.0), (4, 7, 30.0), (4, 8, None)]


def aggregate_in(plan: Plan) -> Aggregate:
    while not isinstance(plan, Aggregate):
        (plan,) = plan.inputs
    return plan


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("count(*)", 4),
        ("COUNT(1)", 4),
        ("count(price)", 3),
        ("count(DISTINCT item)", 2),
        ("count(DISTINCT item % 2)", 2),
        ("sum(price)", 60.0),
        ("sum(item)", 30),
        ("avg(price)", 20.0),
        ("mean(price)", 20.0),
        ("min(price)", 10.0),
        ("max(DISTINCT price)", 30.0),
        ("variance(price)", 100.0),
        ("var_pop(price)", 200 / 3),
        ("stddev(price)", 10.0),
        ("stddev_samp(price)", 10.0),
        ("stddev_pop(price)", math.sqrt(200 / 3)),
        ("first(price)", 10.0),
        ("last(price)", None),
        ("sum(price * 2)", 120.0),
        ("sum(price) / count(*)", 15.0),
        ("max(price) - min(price) + 1", 21.0),
        ("coalesce(last(price), -1.0)", -1.0),
        ("CASE WHEN count(*) > 3 THEN 'many' ELSE 'few' END", "many"),
        ("count(*) FILTER (WHERE item = 7)", 2),
        ("sum(price) FILTER (WHERE item = 8)", 20.0),
        ("count(CASE WHEN price > 15 THEN 1 END)", 2),
        ("1", 1),
        ("count_if(price > 15)", 2),
        ("count_if(price > 99)", 0),
        ("count_if(price > 15) FILTER (WHERE item = 7)", 1),
        ("bool_and(price > 5)", True),
        ("every(price > 10)", False),
        ("bool_or(item = 8)", True),
        ("some(price > 99)", False),
        ("any(item = 7)", True),
        ("bool_and(NULL)", None),
        ("approx_count_distinct(item)", 2),
        ("approx_count_distinct(item, 0.05)", 2),
        ("max_by(item, price)", 7),
        ("min_by(item, price)", 7),
        ("min_by(price, item)", 30.0),
        ("max_by(price, item)", 20.0),
        ("max_by(item, price) FILTER (WHERE price < 25)", 8),
        ("max_by(item, CAST(NULL AS INT))", None),
        ("median(price)", 20.0),
        ("median(item)", 7.5),
        ("median(price) FILTER (WHERE price > 99)", None),
        ("percentile(price, 0)", 10.0),
        ("percentile(price, 0.25) + percentile(price, 0.75)", 40.0),
        ("collect_list(price)", (10.0, 20.0, 30.0)),
        ("array_agg(item)", (7, 8, 7, 8)),
        ("collect_list(price) FILTER (WHERE item = 9)", ()),
        ("collect_set(item)", (7, 8)),
        ("listagg(item, ', ')", "7, 8, 7, 8"),
        ("string_agg(CAST(item AS STRING))", "7878"),
        ("approx_percentile(price, 0.5)", 20.0),
        ("percentile_approx(item, 0.5, 100)", 7),
        ("percentile_approx(item, 1)", 8),
        ("approx_percentile(price, 0.5) FILTER (WHERE price > 99)", None),
        ("topk(price, 2)", (30.0, 20.0)),
        ("topk(item, 3)", (8, 8, 7)),
        ("topkdistinct(item, 3)", (8, 7)),
        ("topk(item, 3) FILTER (WHERE item = 9)", None),
        ("corr(item, price)", 0.0),
        ("corr(price, price)", 1.0),
        ("corr(price, 1)", None),
        ("covar_pop(price, -price)", -200 / 3),
        ("covar_samp(price, item)", 0.0),
        ("covar_samp(price, item) FILTER (WHERE price = 10)", None),
        ("bit_and(item)", 0),
        ("bit_or(item)", 15),
        ("bit_xor(item)", 0),
        ("listagg(item, NULL) FILTER (WHERE item = 9)", None),
    ],
)
def test_an_aggregate_has_its_value(call: str, value: Any) -> None:
    rows = answer(f"SELECT {call} AS v, count(*) AS n FROM bids [RANGE 10 SLIDE 10]", bids=BIDS)
    (row,) = rows
    assert row == (9, pytest.approx(value) if isinstance(value, float) else value, 4)


WINDOWS = ["[RANGE 4 SLIDE 2]", "[RANGE 3]", "[SESSION 2]", "[ROWS 2]", "[UNBOUNDED]"]
CALLS = [
    *("count_if(price > 15)", "bool_and(price > 15)", "bool_or(price > 15)", "approx_count_distinct(price)"),
    *("max_by(item, price)", "min_by(item, price)", "median(price)", "percentile(price, 0.9)"),
    *("collect_list(price)", "collect_set(price)", "listagg(price, ';')", "approx_percentile(price, 0.3)"),
    *(
        "topk(price, 2)",
        "topkdistinct(item, 2)",
        "corr(item, price)",
        "covar_samp(price, item)",
        "bit_xor(item)",
    ),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_the_engine_agrees_with_the_oracle_in_every_window_and_output(window: str) -> None:
    """`answer` compares the two."""
    listed = ", ".join(f"{call} AS v{i}" for i, call in enumerate(CALLS))
    text = f"SELECT item, {listed} FROM bids {window} GROUP BY item"
    for asked in (text, f"ISTREAM({text})", f"DSTREAM({text})"):
        assert answer(asked, bids=[*BIDS, (5, 7, 5.0), (9, 8, math.nan), (12, 7, 30.0)])


def test_the_names_of_more_aggregates_are_known_to_the_parser() -> None:
    assert set(MORE) == NAMES


def test_a_users_aggregate_comes_before_one_of_the_library() -> None:
    class Median:
        arguments, result = ("double",), "double"

        def initialize(self) -> int:
            return 0

        def iterate(self, state: int, values: Any) -> int:
            return state

        def terminate(self, state: int) -> float:
            return -1.0

    catalog = Catalog(STREAMS, ticks_per_second=None)
    catalog.register_aggregate("median", Median)
    assert answer("SELECT median(price) FROM bids [RANGE 10 SLIDE 10]", catalog, bids=BIDS) == [(9, -1.0)]


def test_a_group_is_reported_when_it_changes() -> None:
    text = "SELECT item, count(*) AS n FROM bids [RANGE 10] GROUP BY item"
    assert answer(f"ISTREAM({text})", bids=BIDS) == [
        (1, 7, 1),
        (3, 8, 1),
        (4, 7, 2),
        (4, 8, 2),
        (11, 7, 1),
        (13, 8, 1),
    ]


def test_without_keys_there_is_one_group_while_there_are_rows() -> None:
    assert answer("SELECT max(price) FROM bids [ROWS 1]", bids=BIDS[:2]) == [(1, 10.0), (3, 20.0)]


def test_group_by_takes_expressions_aliases_and_positions() -> None:
    texts = [
        "SELECT item % 2 AS odd, count(*) AS n FROM bids [ROWS 9] GROUP BY item % 2",
        "SELECT item % 2 AS odd, count(*) AS n FROM bids [ROWS 9] GROUP BY odd",
        "SELECT item % 2 AS odd, count(*) AS n FROM bids [ROWS 9] GROUP BY 1",
    ]
    first, *others = (plan_of(text) for text in texts)
    assert all(each == first for each in others)
    assert answer(texts[0], bids=BIDS[:3]) == [(1, 1, 1), (3, 0, 1), (4, 1, 2)]


def test_a_column_comes_before_an_alias_of_the_same_name() -> None:
    text = "SELECT item % 2 AS price, count(*) AS n FROM bids [NOW] GROUP BY price, item"
    assert aggregate_in(plan_of(text)).keys == ("price", "item")


def test_expressions_over_keys_are_computed_after_grouping() -> None:
    text = "SELECT (item + 1) * 2 AS k, count(*) AS n FROM bids [NOW] GROUP BY item + 1"
    assert answer(text, bids=BIDS[:1]) == [(1, 16, 1)]


def test_a_key_need_not_be_listed() -> None:
    """At 4 there are two groups of one row; one of them equals the group that is there since 3."""
    text = "SELECT count(*) AS n FROM bids [NOW] GROUP BY item"
    assert answer(text, bids=BIDS) == [(1, 1), (3, 1), (4, 1)]


def test_having_filters_groups_by_aggregates_and_aliases() -> None:
    by_call = "SELECT item, count(*) AS n FROM bids [ROWS 9] GROUP BY item HAVING count(*) > 1 AND item = 7"
    by_alias = "SELECT item, count(*) AS n FROM bids [ROWS 9] GROUP BY item HAVING n > 1 AND item = 7"
    assert answer(by_call, bids=BIDS) == [(4, 7, 2)]
    assert plan_of(by_call) == plan_of(by_alias)


def test_having_may_ask_for_aggregates_that_are_not_listed() -> None:
    text = "SELECT item FROM bids [ROWS 9] GROUP BY item HAVING max(price) > 25"
    assert answer(text, bids=BIDS) == [(4, 7)]


def test_groups_without_aggregates_are_distinct_keys() -> None:
    assert answer("SELECT item FROM bids [ROWS 9] GROUP BY item", bids=BIDS) == [(1, 7), (3, 8)]
    sliding = "SELECT item FROM bids [RANGE 10 SLIDE 10] GROUP BY item"
    assert answer(sliding, bids=BIDS) == [(9, 7), (9, 8)]


def test_the_bounds_alone_are_one_row_per_window() -> None:
    text = "SELECT window_end FROM bids [RANGE 10 SLIDE 10] GROUP BY window_end"
    assert answer(text, bids=BIDS) == [(9, 10)]


def test_equal_calls_are_computed_once() -> None:
    plan = plan_of("SELECT sum(price), sum(Price) + 1, SUM(bids.price) / count(*) FROM bids [NOW]")
    assert aggregate_in(plan).calls == (
        AggregateCall("sum", "sum", "price"),
        AggregateCall("count", "count", None),
    )


def test_plain_columns_are_aggregated_where_they_are() -> None:
    plan = aggregate_in(plan_of("SELECT item, max(price) FROM bids [NOW] GROUP BY item"))
    assert not isinstance(plan.input, Project)


def test_one_sliding_stream_is_aggregated_in_panes() -> None:
    plan = aggregate_in(plan_of("SELECT sum(price * 2) FROM bids [RANGE 10 SLIDE 5] WHERE item = 7"))
    assert isinstance(plan, SlidingAggregate)
    assert plan.bounds is None
    assert not plan.input.is_relation


def test_a_sliding_window_over_united_streams_is_aggregated_in_panes_too() -> None:
    text = """
        SELECT sum(i) AS s FROM (SELECT item AS i FROM bids UNION ALL SELECT id FROM items) [RANGE 4 SLIDE 4]
    """
    assert isinstance(aggregate_in(plan_of(text)), SlidingAggregate)
    assert answer(text, bids=BIDS[:2], items=[(2, 1, "x")]) == [(3, 16)]


def test_sliding_streams_that_are_joined_are_aggregated_as_a_relation() -> None:
    text = """
        SELECT count(*) AS n FROM bids [RANGE 4 SLIDE 2] a, bids [RANGE 4 SLIDE 2] b WHERE a.item = b.item
    """
    plan = aggregate_in(plan_of(text))
    assert type(plan) is Aggregate
    assert answer(text, bids=BIDS[:2]) == [(1, 1), (3, 2), (5, 1)]


def test_aggregates_of_aggregates_take_a_subquery() -> None:
    text = """
        SELECT max(n) AS most FROM (SELECT item, count(*) AS n FROM bids [RANGE 10 SLIDE 5] GROUP BY item)
    """
    assert answer(text, bids=BIDS) == [(4, 2), (9, 2)]


def test_distinct_after_grouping() -> None:
    text = "SELECT DISTINCT count(*) AS n FROM bids [ROWS 9] GROUP BY item"
    assert answer(text, bids=BIDS[:2]) == [(1, 1)]


def test_in_having_an_alias_comes_before_a_column_that_is_not_grouped() -> None:
    text = """
        SELECT item, max(price) AS price FROM bids [ROWS 9] GROUP BY item HAVING price > 25 AND max(price) > 1
    """
    assert answer(text, bids=BIDS) == [(4, 7, 30.0)]


def test_a_key_called_as_a_bound_stands_beside_the_bounds() -> None:
    text = """
        SELECT window_start, window_end, count(*) AS n
        FROM (SELECT item AS window_start FROM bids) [RANGE 10 SLIDE 10] GROUP BY window_start
    """
    assert answer(text, bids=BIDS) == [(9, 7, 10, 2), (9, 8, 10, 2)]
