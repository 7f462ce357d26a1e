"""Groups by places in an array are the groups that Arrow's hashes make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtimes.spark.worker import preaggregate
from headrace.runtimes.spark.worker.preaggregate import Asked, grouped

FUNCTIONS = ("count", "sum", "min", "max")

near = st.integers(-4, 4)
extreme = st.sampled_from([-(1 << 63), (1 << 63) - 1, 0, 5])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[pa.Array], list[Asked]]:
    """Keys and columns of some rows; nulls, keys far apart and text are left to hashes."""
    rows = draw(st.integers(0, 40))
    kinds = st.sampled_from([(pa.int64(), near), (pa.int8(), near), (pa.int64(), extreme)])
    keys = []
    for of, values in draw(st.lists(kinds, min_size=1, max_size=3)):
        some = draw(
            st.lists(values | st.none() if draw(st.booleans()) else values, min_size=rows, max_size=rows)
        )
        keys.append(pa.array(some, of))
    asked = []
    for function in draw(st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=4)):
        of, values = draw(
            st.sampled_from([(pa.int64(), near), (pa.float64(), near.map(float)), (pa.int32(), near)])
        )
        asked.append(Asked(function, pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), of)))
    return keys, asked


def rows_of(found: tuple[list[pa.Array], list[pa.Array]]) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for part in found for column in part]
    return sorted(zip(*columns, strict=True), key=repr)


@given(tables())
def test_places_and_hashes_make_the_same_groups(table: tuple[list[pa.Array], list[Asked]]) -> None:
    keys, asked = table
    assert rows_of(grouped(keys, asked)) == rows_of(preaggregate._by_hashes(keys, asked))


def test_whole_numbers_close_together_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preaggregate, "_by_hashes", None)
    keys = [pa.array(np.arange(100) % 7), pa.array(np.arange(100) // 50)]
    found = grouped(keys, [Asked("sum", pa.array(np.ones(100)))])
    assert sum(row[2] for row in rows_of(found)) == 100
    assert len(rows_of(found)) == 14


@pytest.mark.parametrize(
    ("values", "total"),
    [([np.inf, 1.0], np.inf), ([1e308, 1e308, -1e308], 1e308), ([1e300, 1e150, 1.0, -1e300, -1e150], 1.0)],
)
def test_a_partial_sum_is_exact_and_infinite_where_a_value_is(values: list[float], total: float) -> None:
    """A sum with an infinity was NaN."""
    _, (found,) = grouped([pa.array([1] * len(values))], [Asked("sum", pa.array(values))])
    assert found.to_pylist() == [total]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats()), max_size=20)
    | st.lists(st.tuples(st.integers(0, 3), st.floats(-1e3, 1e3, width=32)), max_size=40)
)
def test_sums_of_two_floats_are_those_of_limbs(rows: list[tuple[int, float]]) -> None:
    places = np.array([place for place, _ in rows], np.int64)
    values = np.array([value for _, value in rows], np.float64)
    by_limbs = preaggregate._sum_by_limbs(places, values, np.zeros(4), np.zeros(4))
    np.testing.assert_array_equal(preaggregate._exact_sum(places, values, 4), by_limbs)
