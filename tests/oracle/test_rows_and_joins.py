"""Select, Project, Union, Granularity and Join, computed by hand."""

from __future__ import annotations

from headrace.expressions import col
from headrace.plan.nodes.core import Granularity, Join, Plan, Project, Select, Union, Window
from headrace.plan.nodes.windows import Range, Rows, Unbounded
from headrace.testing import oracle
from headrace.time.timestamp import MAX_TIME
from tests.oracle.build import A, B, events, intervals, rows

NAN = float("nan")


def renamed(plan: Plan, suffix: str) -> Project:
    return Project(plan, tuple((name + suffix, col(name)) for name in plan.schema.names))


LEFT = Window(renamed(A, "1"), Range(5))
RIGHT = Window(renamed(B, "2"), Range(3))


def test_select_keeps_what_is_true_and_unknown_is_not_true() -> None:
    found = events(Select(A, col("v") > 1.0), a=rows((1, 1, 2.0), (2, 2, None), (3, 3, 1.0)))
    assert found == [(1, 1, 2.0)]


def test_project_computes_each_row_and_null_stays_null() -> None:
    found = events(Project(A, (("w", col("v") * 2.0), ("k", col("k")))), a=rows((1, 1, 2.0), (2, 2, None)))
    assert found == [(1, 4.0, 1), (2, None, 2)]


def test_project_keeps_copies() -> None:
    found = events(Project(A, (("k", col("k")),)), a=rows((1, 1, 2.0), (1, 1, 3.0)))
    assert found == [(1, 1), (1, 1)]


def test_simultaneous_rows_of_a_source_keep_the_order_of_delivery() -> None:
    assert events(A, a=rows((1, 2, 0.0), (1, 1, 0.0), (0, 3, 0.0))) == [(0, 3, 0.0), (1, 2, 0.0), (1, 1, 0.0)]


def test_union_is_of_bags_in_order_of_time() -> None:
    found = events(Union((A, B)), a=rows((3, 1, 0.0), (4, 1, 0.0)), b=rows((3, 1, 0.0), (1, 2, 0.0)))
    assert found == [(1, 2, 0.0), (3, 1, 0.0), (3, 1, 0.0), (4, 1, 0.0)]


def test_union_of_relations_has_the_copies_of_both() -> None:
    plan = Union((Window(A, Range(2)), Window(B, Unbounded())))
    relation = oracle.relation(plan, {"a": rows((1, 1, 0.0)), "b": rows((2, 1, 0.0))})
    assert [relation.at(t)[1, 0.0] for t in range(4)] == [0, 1, 2, 1]


def test_granularity_rounds_start_up_and_end_down() -> None:
    found = intervals(Granularity(Window(A, Range(5)), 4), a=rows((3, 1, 0.0), (4, 2, 0.0)))
    assert found == [(1, 0.0, 4, 8), (2, 0.0, 4, 8)]


def test_granularity_drops_what_is_left_empty() -> None:
    assert intervals(Granularity(Window(A, Range(3)), 4), a=rows((1, 1, 0.0), (5, 2, 0.0))) == []


def test_granularity_of_one_tick_changes_nothing_and_an_open_end_stays_open() -> None:
    assert intervals(Granularity(Window(A, Range(3)), 1), a=rows((1, 1, 0.0))) == [(1, 0.0, 1, 4)]
    assert intervals(Granularity(Window(A, Unbounded()), 4), a=rows((1, 1, 0.0))) == [(1, 0.0, 4, MAX_TIME)]


def test_granularity_rounds_before_zero_in_the_same_direction() -> None:
    assert intervals(Granularity(Window(A, Range(9)), 4), a=rows((-6, 1, 0.0))) == [(1, 0.0, -4, 0)]


def test_join_pairs_equal_keys_in_the_intersection() -> None:
    found = intervals(
        Join(LEFT, RIGHT, ("k1",), ("k2",)), a=rows((1, 7, 1.0)), b=rows((4, 7, 2.0), (5, 8, 3.0))
    )
    assert found == [(7, 1.0, 7, 2.0, 4, 6)]


def test_join_does_not_pair_rows_that_only_touch() -> None:
    assert intervals(Join(LEFT, RIGHT, ("k1",), ("k2",)), a=rows((1, 7, 1.0)), b=rows((6, 7, 2.0))) == []


def test_join_pairs_simultaneous_rows() -> None:
    assert intervals(Join(LEFT, RIGHT), a=rows((1, 7, 1.0)), b=rows((1, 8, 2.0))) == [(7, 1.0, 8, 2.0, 1, 4)]


def test_join_on_null_pairs_nothing_and_on_nan_pairs_nan() -> None:
    plan = Join(LEFT, RIGHT, ("k1", "v1"), ("k2", "v2"))
    assert intervals(plan, a=rows((1, None, 1.0), (1, 1, None)), b=rows((1, None, 1.0), (1, 1, None))) == []
    assert len(intervals(plan, a=rows((1, 1, NAN)), b=rows((1, 1, -NAN)))) == 1


def test_join_keeps_copies() -> None:
    plan = Join(LEFT, RIGHT, ("k1",), ("k2",))
    assert len(intervals(plan, a=rows((1, 1, 0.0), (1, 1, 0.0)), b=rows(*[(2, 1, 0.0)] * 3))) == 6


def test_join_residual_sees_both_sides_and_unknown_is_not_true() -> None:
    plan = Join(LEFT, RIGHT, residual=col("v1") < col("v2"))
    found = intervals(plan, a=rows((1, 1, 1.0), (1, 2, None)), b=rows((1, 3, 2.0), (1, 4, 0.0)))
    assert found == [(1, 1.0, 3, 2.0, 1, 4)]


def test_join_with_a_row_window_ends_when_the_row_is_pushed_out() -> None:
    plan = Join(Window(renamed(A, "1"), Rows(1)), RIGHT)
    found = intervals(plan, a=rows((1, 1, 0.0), (4, 2, 0.0)), b=rows((3, 9, 0.0)))
    assert found == [(1, 0.0, 9, 0.0, 3, 4), (2, 0.0, 9, 0.0, 4, 6)]
