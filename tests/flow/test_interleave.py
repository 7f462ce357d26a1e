"""Merging two batches gives what sorting them together, stably, gives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.flow.batch import Batch, concat, sort_by_start
from headrace.flow.interleave import merge

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
    arrival = start * 7 if draw(st.booleans()) else None
    return Batch(data, start, start + 5, sign, arrival).slice(1, len(start))


@given(batches(), batches())
def test_a_merge_is_a_stable_sort_of_both(left: Batch, right: Batch) -> None:
    merged, expected = merge(left, right), sort_by_start(concat([left, right]))
    assert merged.data.equals(expected.data)
    for name in ("start", "end", "sign", "arrival"):
        mine, its = getattr(merged, name), getattr(expected, name)
        assert (mine is None) == (its is None)
        assert mine is None or mine.tolist() == its.tolist()
