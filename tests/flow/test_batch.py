"""Batches: rows with their times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.flow.batch import Batch, concat, sort_by_start

TIMES = np.array([1, 3, 3, 7])


def batch(sign: bool = False, arrival: bool = True) -> Batch:
    signs = np.array([1, -1, 1, 1], np.int8) if sign else None
    data = pa.record_batch({"v": [10, 20, 30, 40]})
    return Batch(data, TIMES, TIMES + 5, signs, TIMES * 100 if arrival else None)


def test_every_view_keeps_rows_and_times_together() -> None:
    b = batch(sign=True)
    mask = np.array([False, True, False, True])
    for view in (b.filter(mask), b.take(np.array([1, 3])), concat([b.slice(1, 2), b.slice(3, 4)])):
        assert view.data.column(0).to_pylist() == [20, 40]
        assert view.start.tolist() == [3, 7]
        assert view.end is not None
        assert view.end.tolist() == [8, 12]
        assert view.signs().tolist() == [-1, 1]
        assert view.arrival is not None
        assert view.arrival.tolist() == [300, 700]


def test_a_slice_of_everything_is_the_batch_itself() -> None:
    b = batch()
    assert b.slice(0, 4) is b
    assert b.filter(np.ones(4, np.bool_)) is b


def test_signs_are_explicit_where_one_batch_has_them() -> None:
    both = concat([batch(sign=False), batch(sign=True)])
    assert both.signs().tolist() == [1, 1, 1, 1, 1, -1, 1, 1]
    assert concat([batch(), batch()]).sign is None


def test_arrivals_are_lost_where_one_batch_has_none() -> None:
    assert concat([batch(arrival=True), batch(arrival=False)]).arrival is None


def test_sorting_by_start_is_stable_and_free_where_sorted() -> None:
    b = batch()
    assert sort_by_start(b) is b
    mixed = sort_by_start(b.take(np.array([3, 2, 1, 0])))
    assert mixed.start.tolist() == [1, 3, 3, 7]
    assert mixed.data.column(0).to_pylist() == [10, 30, 20, 40]


def test_bytes_count_rows_and_times() -> None:
    assert batch().bytes() == 4 * 8 * 4
