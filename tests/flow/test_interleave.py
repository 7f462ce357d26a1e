"""Merging two batches gives what sorting them together, stably, gives; a filter the rows of its mask."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.flow.batch import Batch, Extent, concat, sort_by_start
from headrace.flow.fixed64 import constant, is_constant, words_of
from headrace.operators.union import merge

COLUMNS = (
    (pa.int64(), st.integers(-(2**62), 2**62)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.timestamp("us"), st.integers(0, 2**40)),
    (pa.duration("us"), st.timedeltas(timedelta(0), timedelta(days=1))),
    (pa.int32(), st.none() | st.integers(0, 9)),
    (pa.int64(), st.none() | st.integers(0, 9)),
    (pa.string(), st.none() | st.text(max_size=3)),
)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Some rows after the first of a larger batch, so that every column has an offset."""
    start = np.sort(np.array(draw(st.lists(st.integers(0, 20), min_size=2, max_size=30)), np.int64))

    def values(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=len(start), max_size=len(start)))

    columns = [pa.array(values(of), type) for type, of in COLUMNS]
    data = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])
    sign = np.array(values(st.sampled_from((1, -1))), np.int8) if draw(st.booleans()) else None
    arrival = draw(st.sampled_from((None, start * 7, constant(3, len(start)), constant(4, len(start)))))
    if draw(st.booleans()):  # the time is a column, and the same memory
        data = data.set_column(0, "c0", pa.array(start))
    return Batch(data, start, start + 5, sign, arrival).slice(1, len(start))


@given(batches(), batches())
def test_a_merge_is_a_stable_sort_of_both(left: Batch, right: Batch) -> None:
    merged, expected = merge(left, right), sort_by_start(concat([left, right]))
    assert merged.data.equals(expected.data)
    for name in ("start", "end", "sign", "arrival"):
        mine, its = getattr(merged, name), getattr(expected, name)
        assert (mine is None) == (its is None)
        assert mine is None or mine.tolist() == its.tolist()


def test_what_is_one_array_stays_one_array() -> None:
    """A time that is a column is merged and filtered once, and one arrival for all rows takes eight bytes."""
    times = [np.arange(0, 10, 2), np.arange(1, 11, 2)]
    left, right = (Batch(pa.record_batch({"t": pa.array(t)}), t, arrival=constant(9, len(t))) for t in times)
    merged = merge(left, right)
    for rows in (merged, merged.filter(merged.start % 3 == 0)):
        assert np.shares_memory(rows.start, words_of(rows.data.column(0)))
        assert rows.arrival is not None
        assert is_constant(rows.arrival)
        assert rows.arrival.tolist() == [9] * len(rows)


@given(batches(), st.data())
def test_a_filter_keeps_the_rows_of_the_mask(rows: Batch, data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    found = rows.filter(mask)
    assert found.data.equals(rows.data.filter(pa.array(mask)))
    for name in ("start", "end", "sign", "arrival"):
        mine, its = getattr(found, name), getattr(rows, name)
        assert (mine is None) == (its is None)
        assert mine is None or mine.tolist() == its[mask].tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_an_extent_is_the_least_the_greatest_and_the_order(times: list[int]) -> None:
    expected = (min(times), max(times), times == sorted(times))
    assert Extent.of(np.array(times, np.int64)) == expected
