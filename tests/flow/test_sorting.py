"""The order of rows by time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import tuning
from headrace.flow.batch import order_of
from headrace.time.timestamp import MAX_TIME, MIN_TIME

RNG = np.random.default_rng(5)
MANY = 4 * tuning.current.merge_rows
SHAPES = {
    "ordered": np.arange(MANY),
    "backwards": np.arange(MANY)[::-1].copy(),
    "equal": np.zeros(MANY, np.int64),
    "random": RNG.integers(-(2**40), 2**40, MANY),
    "many equal": RNG.integers(0, 7, MANY),
    "two runs": np.concatenate([np.arange(MANY), np.arange(MANY)]),
    "far apart": RNG.integers(MIN_TIME, MAX_TIME, MANY, endpoint=True),
    "just fits": RNG.permutation(np.append(RNG.integers(0, 2**51 - 1, MANY - 2), [0, 2**51 - 1])),
    "just does not": RNG.permutation(np.append(RNG.integers(0, 2**51, MANY - 2), [0, 2**51])),
    "none": np.empty(0, np.int64),
    "one": np.zeros(1, np.int64),
}


@pytest.mark.parametrize("name", SHAPES)
def test_rows_come_in_order_and_equal_times_stay_as_they_are(name: str) -> None:
    times = SHAPES[name]
    assert np.array_equal(order_of(times), np.argsort(times, kind="stable"))


@given(st.lists(st.integers(MIN_TIME, MAX_TIME) | st.integers(-5, 5), max_size=40))
def test_it_is_the_stable_order_of_any_times(times: list[int]) -> None:
    array = np.array(times, np.int64)
    with tuning.using(merge_rows=2):
        assert np.array_equal(order_of(array), np.argsort(array, kind="stable"))


def test_a_column_of_lines_is_ordered_as_it_lies() -> None:
    lines = np.stack([RNG.integers(0, 99, MANY), np.arange(MANY)], axis=1)
    assert np.array_equal(order_of(lines[:, 0]), np.argsort(lines[:, 0], kind="stable"))
