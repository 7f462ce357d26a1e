"""Each window's boundaries, computed by hand from the definitions in docs/cql."""

from __future__ import annotations

from headrace.expressions import col
from headrace.plan.nodes.core import IStream, Project, Union, Window
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded
from headrace.testing import oracle
from headrace.time.timestamp import MAX_TIME
from tests.oracle.build import A, B, intervals, rows


def test_range_holds_times_after_now_minus_size_up_to_now() -> None:
    relation = oracle.relation(Window(A, Range(3)), {"a": rows((5, 1, 0.0))})
    assert [instant for instant in range(12) if relation.at(instant)] == [5, 6, 7]


def test_range_expires_each_copy_on_its_own() -> None:
    assert intervals(Window(A, Range(3)), a=rows((1, 1, 0.0), (2, 1, 0.0))) == [
        (1, 0.0, 1, 4),
        (1, 0.0, 2, 5),
    ]


def test_range_of_a_huge_size_never_ends() -> None:
    assert intervals(Window(A, Range(MAX_TIME)), a=rows((1, 1, 0.0))) == [(1, 0.0, 1, MAX_TIME)]


def test_now_lasts_one_tick() -> None:
    assert intervals(Window(A, Now()), a=rows((4, 1, 0.0))) == [(1, 0.0, 4, 5)]


def test_unbounded_lasts_for_ever() -> None:
    assert intervals(Window(A, Unbounded()), a=rows((4, 1, 0.0))) == [(1, 0.0, 4, MAX_TIME)]


def test_sliding_shows_a_row_from_the_answer_of_its_first_window_to_that_after_its_last() -> None:
    """T = 4, S = 2: time 3 is in windows [0, 4) and [2, 6), answered at 3 and 5; [4, 8) at 7 lacks it."""
    assert intervals(Window(A, Sliding(4, 2)), a=rows((3, 1, 0.0))) == [(1, 0.0, 3, 7)]


def test_sliding_window_excludes_its_end_and_includes_its_begin() -> None:
    """T = S = 4: time 3 is in [0, 4), time 4 in [4, 8)."""
    found = intervals(Window(A, Sliding(4, 4)), a=rows((3, 1, 0.0), (4, 2, 0.0)))
    assert found == [(1, 0.0, 3, 7), (2, 0.0, 7, 11)]


def test_sliding_with_gaps_between_windows_skips_rows_in_no_window() -> None:
    """T = 2, S = 5: windows [0, 2), [5, 7): times 2 … 4 and 7 … 9 are in none."""
    found = intervals(Window(A, Sliding(2, 5)), a=rows(*((t, t, 0.0) for t in range(10))))
    assert found == [(0, 0.0, 1, 6), (1, 0.0, 1, 6), (5, 0.0, 6, 11), (6, 0.0, 6, 11)]


def test_sliding_windows_start_at_multiples_of_the_slide_where_the_range_is_not_one() -> None:
    """T = 3, S = 2: time 4 is in [2, 5) and [4, 7), as in Spark's `window` and Flink's `HOP`."""
    found = intervals(Window(A, Sliding(3, 2)), a=rows((4, 1, 0.0), (-1, 2, 0.0)))
    assert sorted(found) == [(1, 0.0, 4, 8), (2, 0.0, 0, 2)]


def test_sliding_is_aligned_to_multiples_of_the_slide_before_zero_too() -> None:
    """T = S = 4: time −1 is in [−4, 0), answered at −1."""
    assert intervals(Window(A, Sliding(4, 4)), a=rows((-1, 1, 0.0))) == [(1, 0.0, -1, 3)]


def test_rows_keeps_the_newest() -> None:
    found = intervals(Window(A, Rows(2)), a=rows((1, 1, 0.0), (2, 2, 0.0), (5, 3, 0.0)))
    assert found == [(1, 0.0, 1, 5), (2, 0.0, 2, MAX_TIME), (3, 0.0, 5, MAX_TIME)]


def test_rows_takes_simultaneous_rows_in_order_of_delivery_from_a_source() -> None:
    found = intervals(Window(A, Rows(1)), a=rows((1, 9, 0.0), (1, 3, 0.0)))
    assert found == [(3, 0.0, 1, MAX_TIME)]


def test_rows_takes_simultaneous_rows_by_content_after_a_union() -> None:
    plan = Window(Union((A, B)), Rows(1))
    assert intervals(plan, a=rows((1, 9, 0.0)), b=rows((1, 3, 0.0))) == [(9, 0.0, 1, MAX_TIME)]
    assert intervals(plan, a=rows((1, 3, 0.0)), b=rows((1, 9, 0.0))) == [(9, 0.0, 1, MAX_TIME)]


def test_content_order_is_nulls_first_and_nan_last() -> None:
    plan = Window(Union((A, B)), Rows(1))
    nan = float("nan")
    [(_, newest, _, _)] = intervals(plan, a=rows((1, 1, nan), (1, 1, None)), b=rows((1, 1, 7.0)))
    assert newest != newest
    assert intervals(plan, a=rows((1, 1, None)), b=rows((1, 1, -7.0))) == [(1, -7.0, 1, MAX_TIME)]


def test_content_order_after_a_projection_is_that_of_the_projected_rows() -> None:
    flipped = Project(Union((A, B)), (("n", -col("k")),))
    assert intervals(Window(flipped, Rows(1)), a=rows((1, 9, 0.0)), b=rows((1, 3, 0.0))) == [
        (-3, 1, MAX_TIME)
    ]


def test_rows_sorts_late_deliveries_by_time() -> None:
    found = intervals(Window(A, Rows(1)), a=rows((5, 2, 0.0), (1, 1, 0.0)))
    assert found == [(1, 0.0, 1, 5), (2, 0.0, 5, MAX_TIME)]


def test_partitioned_rows_keep_the_newest_of_each_partition_and_null_is_a_partition() -> None:
    found = intervals(
        Window(A, Rows(1, ("k",))),
        a=rows((1, 1, 0.0), (2, None, 1.0), (3, 2, 2.0), (4, None, 3.0), (6, 1, 4.0)),
    )
    assert found == [
        (1, 0.0, 1, 6),
        (None, 1.0, 2, 4),
        (2, 2.0, 3, MAX_TIME),
        (None, 3.0, 4, MAX_TIME),
        (1, 4.0, 6, MAX_TIME),
    ]


def test_a_stream_made_from_a_relation_can_be_windowed_again() -> None:
    plan = Window(IStream(Window(A, Range(2))), Range(5))
    assert intervals(plan, a=rows((1, 1, 0.0))) == [(1, 0.0, 1, 6)]
