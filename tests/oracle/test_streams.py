"""IStream, DStream and RStream, computed by hand."""

from __future__ import annotations

import pytest

from headrace.plan.nodes.core import Aggregate, DStream, Except, IStream, RStream, Window
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded
from headrace.testing import oracle
from tests.oracle.build import A, B, call, events, rows


def test_istream_has_the_rows_that_enter_and_dstream_those_that_leave() -> None:
    source = rows((1, 1, 0.0), (2, 2, 0.0))
    assert events(IStream(Window(A, Range(3))), a=source) == [(1, 1, 0.0), (2, 2, 0.0)]
    assert events(DStream(Window(A, Range(3))), a=source) == [(4, 1, 0.0), (5, 2, 0.0)]


def test_equal_rows_that_leave_and_enter_at_one_instant_are_no_news() -> None:
    source = rows((1, 7, 0.0), (4, 7, 0.0))
    assert events(IStream(Window(A, Range(3))), a=source) == [(1, 7, 0.0)]
    assert events(DStream(Window(A, Range(3))), a=source) == [(7, 7, 0.0)]


def test_netting_is_of_bags() -> None:
    source = rows((1, 7, 0.0), (4, 7, 0.0), (4, 7, 0.0))
    assert events(IStream(Window(A, Range(3))), a=source) == [(1, 7, 0.0), (4, 7, 0.0)]


def test_an_equal_row_pushed_out_of_a_row_window_is_no_news() -> None:
    assert events(IStream(Window(A, Rows(1))), a=rows((1, 7, 0.0), (2, 7, 0.0))) == [(1, 7, 0.0)]


def test_a_row_that_enters_and_leaves_at_one_instant_was_never_there() -> None:
    source = rows((1, 1, 0.0), (1, 2, 0.0))
    assert events(IStream(Window(A, Rows(1))), a=source) == [(1, 2, 0.0)]
    assert events(DStream(Window(A, Rows(1))), a=source) == []


def test_istream_of_an_aggregate_reports_each_new_answer_and_dstream_each_old_one() -> None:
    count = Aggregate(Window(A, Range(3)), (), (call("count", None),))
    source = rows((1, 1, 0.0), (2, 1, 0.0))
    assert events(IStream(count), a=source) == [(1, 1), (2, 2), (4, 1)]
    assert events(DStream(count), a=source) == [(2, 1), (4, 2), (5, 1)]


def test_rows_come_back_when_what_hid_them_leaves() -> None:
    plan = IStream(Except(Window(A, Unbounded()), Window(B, Range(2))))
    assert events(plan, a=rows((1, 1, 0.0)), b=rows((3, 1, 0.0))) == [(1, 1, 0.0), (5, 1, 0.0)]


def test_rstream_of_one_tick_repeats_a_row_at_every_tick_of_its_validity() -> None:
    assert events(RStream(Window(A, Now())), a=rows((3, 1, 0.0), (3, 1, 0.0))) == [(3, 1, 0.0)] * 2
    assert events(RStream(Window(A, Range(2))), a=rows((3, 1, 0.0))) == [(3, 1, 0.0), (4, 1, 0.0)]


def test_rstream_with_a_slide_answers_at_multiples_less_one() -> None:
    """T = 4, S = 2: time 3 is in the windows answered at 3 and 5."""
    assert events(RStream(Window(A, Sliding(4, 2)), 2), a=rows((3, 1, 0.0))) == [(3, 1, 0.0), (5, 1, 0.0)]
    assert events(RStream(Window(A, Range(5)), 4), a=rows((3, 1, 0.0))) == [(3, 1, 0.0), (7, 1, 0.0)]
    assert events(RStream(Window(A, Range(3)), 5), a=rows((-2, 1, 0.0))) == [(-1, 1, 0.0)]


def test_rstream_over_rows_that_never_leave_is_refused() -> None:
    with pytest.raises(ValueError, match="endless answer"):
        events(RStream(Window(A, Unbounded())), a=rows((1, 1, 0.0)))


def test_relation_reports_its_content_and_when_it_changes() -> None:
    relation = oracle.relation(Window(A, Range(3)), {"a": rows((1, 7, 0.0), (4, 7, 0.0), (5, 8, 0.0))})
    assert relation.instants == [1, 5, 7, 8]
    assert relation.at(6) == {(7, 0.0): 1, (8, 0.0): 1}
