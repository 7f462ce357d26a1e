"""The comparison of answers: bags per time, rounding forgiven, order and everything else not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from headrace.flow.batch import Batch
from headrace.testing.compare import assert_same_stream, difference, events_of
from tests.strategies import schemas
from tests.strategies.interleavings import batch_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])
NAN = float("nan")


@given(schemas.rows(SCHEMA))
def test_batches_become_the_rows_that_they_hold(rows: schemas.Rows) -> None:
    batch = batch_of(rows, SCHEMA)
    expected = [(time, (row["k"], row["v"])) for time, row in rows]
    cut = len(rows) // 2
    assert events_of([batch.slice(0, cut), batch.slice(cut, len(rows))]) == expected
    assert_same_stream([batch], expected, schema=SCHEMA)


def test_a_batch_without_columns_has_empty_rows() -> None:
    data = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert events_of([Batch(data, np.array([1, 2]))]) == [(1, ()), (2, ())]


def test_simultaneous_rows_may_come_in_any_order() -> None:
    assert_same_stream([(1, ("b",)), (1, ("a",))], [(1, ("a",)), (1, ("b",))])


def test_times_must_not_decrease() -> None:
    with pytest.raises(AssertionError, match="out of order"):
        assert_same_stream([(2, ()), (1, ())], [(1, ()), (2, ())])


def test_copies_count() -> None:
    assert difference([(1, ("a",))], [(1, ("a",)), (1, ("a",))]) == ["at 1:\n  missing    ('a',)"]
    assert difference([(1, ("a",)), (1, ("a",))], [(1, ("a",))]) == ["at 1:\n  unexpected ('a',)"]


def test_rounding_is_forgiven_and_more_is_not() -> None:
    assert_same_stream([(1, (0.1 + 0.2,))], [(1, (0.3,))])
    assert difference([(1, (0.3 + 1e-8,))], [(1, (0.3,))])


def test_rounding_is_forgiven_where_it_changes_the_order_of_rows() -> None:
    up, down = 1.0 + 1e-12, 1.0 - 1e-12
    assert_same_stream([(1, (up, "a")), (1, (down, "b"))], [(1, (1.0, "b")), (1, (1.0, "a"))])


def test_nan_equals_nan_and_null_equals_only_null() -> None:
    assert_same_stream([(1, (NAN, None))], [(1, (-NAN, None))])
    assert difference([(1, (NAN,))], [(1, (None,))])
    assert difference([(1, (0.0,))], [(1, (None,))])


def test_the_report_says_what_is_missing_and_unexpected_at_which_time() -> None:
    with pytest.raises(AssertionError) as failure:
        assert_same_stream([(1, (1,)), (3, (7,))], [(1, (1,)), (2, (5,)), (3, (8,))])
    report = str(failure.value)
    assert "differ at 2 times" in report
    assert "at 2:\n  missing    (5,)" in report
    assert "at 3:\n  missing    (8,)\n  unexpected (7,)" in report


def test_other_column_types_are_a_difference() -> None:
    narrow = pa.schema([("k", pa.int32()), ("v", pa.float64())])
    with pytest.raises(AssertionError, match="instead of"):
        assert_same_stream([batch_of([], narrow)], [], schema=SCHEMA)
