"""Aggregates, Distinct and Except at every instant, computed by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from headrace.plan.nodes.core import Aggregate, Distinct, Except, SlidingAggregate, Union, Window
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded
from headrace.testing import oracle
from headrace.time.timestamp import MAX_TIME
from tests.oracle.build import A, B, call, intervals, rows

NAN = float("nan")


def aggregate(function: str, *values: object) -> object:
    """`function(v)` over values that come one tick apart, while all are valid."""
    plan = Aggregate(Window(A, Unbounded()), (), (call(function),))
    source = rows(*((time, 1, value) for time, value in enumerate(values)))
    [(result,)] = oracle.relation(plan, {"a": source}).at(len(values))
    return result


@pytest.mark.parametrize(
    ("function", "values", "result"),
    [
        ("count", (1.0, None, 1.0), 2),
        ("count", (None,), 0),
        ("count_distinct", (1.0, None, 1.0, NAN, -NAN, 0.0, -0.0), 3),
        ("sum", (0.1,) * 10, 1.0),
        ("sum", (1e100, 1.0, -1e100), 1.0),
        ("sum", (None, 2.0), 2.0),
        ("sum", (None,), None),
        ("avg", (1.0, None, 2.0), 1.5),
        ("avg", (None,), None),
        ("min", (2.0, None, 1.0), 1.0),
        ("min", (NAN, 1.0), 1.0),
        ("max", (2.0, None, 1.0), 2.0),
        ("max", (None,), None),
        ("variance", (1.0, 2.0, 3.0, None), 1.0),
        ("variance", (1.0,), None),
        ("var_pop", (1.0, 3.0), 1.0),
        ("var_pop", (1.0,), 0.0),
        ("stddev", (1.0, 3.0), math.sqrt(2.0)),
        ("stddev", (1.0, None), None),
        ("stddev_pop", (1.0, 3.0), 1.0),
        ("stddev_pop", (None,), None),
        ("first", (None, 1.0), None),
        ("last", (1.0, 2.0), 2.0),
        ("last", (1.0, None), None),
    ],
)
def test_aggregate_function(function: str, values: tuple[object, ...], result: object) -> None:
    assert aggregate(function, *values) == result


@pytest.mark.parametrize("function", ["max", "sum", "avg", "variance", "stddev_pop"])
def test_nan_is_larger_than_any_number_and_spoils_sums(function: str) -> None:
    result = aggregate(function, 1.0, NAN, math.inf)
    assert isinstance(result, float)
    assert math.isnan(result)


def test_aggregate_follows_every_change_expiry_included() -> None:
    plan = Aggregate(Window(A, Range(3)), (), (call("sum"), call("count", None)))
    found = intervals(plan, a=rows((1, 1, 1.0), (2, 1, 2.0)))
    assert found == [(1.0, 1, 1, 2), (3.0, 2, 2, 4), (2.0, 1, 4, 5)]


def test_a_group_lasts_while_it_has_rows_and_null_is_a_group() -> None:
    plan = Aggregate(Window(A, Range(2)), ("k",), (call("count", None),))
    found = intervals(plan, a=rows((1, 7, 0.0), (1, None, 0.0), (2, None, 0.0)))
    assert found == [(None, 1, 1, 2), (7, 1, 1, 3), (None, 2, 2, 3), (None, 1, 3, 4)]


def test_an_unchanged_answer_is_one_interval() -> None:
    plan = Aggregate(Window(A, Now()), ("k",), (call("sum"),))
    assert intervals(plan, a=rows((1, 1, 5.0), (2, 1, 5.0), (4, 1, 5.0))) == [(1, 5.0, 1, 3), (1, 5.0, 4, 5)]


def test_with_no_keys_an_empty_input_has_no_row() -> None:
    assert intervals(Aggregate(Window(A, Range(2)), (), (call("count", None),)), a=[]) == []


def test_simultaneous_rows_are_applied_together() -> None:
    plan = Aggregate(Window(A, Rows(2)), (), (call("sum"),))
    assert intervals(plan, a=rows((1, 1, 1.0), (1, 1, 2.0), (1, 1, 3.0))) == [(5.0, 1, MAX_TIME)]


def test_first_and_last_go_by_time_then_by_delivery() -> None:
    plan = Aggregate(Window(A, Range(9)), (), (call("first"), call("last")))
    [*_, (first, last, _, _)] = intervals(plan, a=rows((2, 1, 5.0), (1, 1, 9.0), (1, 1, 1.0), (2, 1, 4.0)))[
        :2
    ]
    assert (first, last) == (9.0, 4.0)


def test_first_and_last_go_by_content_after_a_union() -> None:
    plan = Aggregate(Window(Union((A, B)), Now()), (), (call("first"), call("last")))
    assert intervals(plan, a=rows((1, 1, 9.0)), b=rows((1, 1, 4.0))) == [(4.0, 9.0, 1, 2)]


def test_sliding_aggregate_answers_each_window_at_its_last_tick() -> None:
    """T = 4, S = 2: windows [0, 4) with both rows, [−2, 2) and [2, 6) with one."""
    plan = SlidingAggregate(A, (), (call("sum"),), Sliding(4, 2), ("window_start", "window_end"))
    found = intervals(plan, a=rows((1, 1, 1.0), (3, 1, 2.0)))
    assert found == [(1.0, -2, 2, 1, 3), (3.0, 0, 4, 3, 5), (2.0, 2, 6, 5, 7)]
    assert plan.schema.names == ["sum", "window_start", "window_end"]


def test_sliding_aggregate_without_bounds_shows_only_the_groups() -> None:
    plan = SlidingAggregate(A, ("k",), (call("count", None),), Sliding(5, 5))
    found = intervals(plan, a=rows((0, 1, 0.0), (4, 1, 0.0), (4, 2, 0.0), (5, 1, 0.0)))
    assert found == [(1, 2, 4, 9), (2, 1, 4, 9), (1, 1, 9, 14)]


def test_distinct_lasts_while_one_copy_does_and_null_equals_null() -> None:
    found = intervals(Distinct(Window(A, Range(3))), a=rows((1, None, NAN), (2, None, -NAN), (9, None, NAN)))
    assert [(start, end) for *_, start, end in found] == [(1, 5), (9, 12)]


def test_except_has_each_content_once_while_the_right_has_it_not() -> None:
    plan = Except(Window(A, Range(9)), Window(B, Range(2)))
    found = intervals(plan, a=rows((1, 1, None), (2, 1, None)), b=rows((4, 1, None)))
    assert found == [(1, None, 1, 4), (1, None, 6, 11)]


def test_except_all_takes_copies_away_one_by_one() -> None:
    plan = Except(Window(A, Unbounded()), Window(B, Unbounded()), all=True)
    sources = {
        "a": rows((1, 1, 0.0), (1, 1, 0.0), (5, 2, 0.0)),
        "b": rows((2, 1, 0.0), (3, 1, 0.0), (4, 1, 0.0)),
    }
    relation = oracle.relation(plan, sources)
    assert [relation.at(t)[1, 0.0] for t in range(6)] == [0, 2, 1, 0, 0, 0]
    assert relation.at(5) == Counter({(2, 0.0): 1})
