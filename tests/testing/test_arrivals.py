"""Arrivals are what they are called: rates, gaps, bounds on disorder."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InputError
from headrace.testing import arrivals as arr
from headrace.testing.arrivals import SECOND

SEEDS = st.integers(0, 2**32 - 1)


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_poisson_has_its_rate_and_is_the_same_for_the_same_seed() -> None:
    found = arr.poisson(50.0, 20_000, rng())
    assert 20_000 / (found.arrival[-1] / SECOND) == pytest.approx(50.0, rel=0.05)
    assert np.array_equal(found.time, arr.poisson(50.0, 20_000, rng()).time)


def test_gaps_of_a_poisson_stream_vary_as_much_as_they_last() -> None:
    gaps = np.diff(arr.poisson(50.0, 20_000, rng()).arrival)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_bursts_come_at_once_and_then_nothing() -> None:
    found = arr.bursts(3, 100, 2, rng(), start=5)
    assert found.arrival.tolist() == [5, 5, 5, 105, 105, 105]
    spread = arr.bursts(30, 100, 4, rng(), within=10)
    assert set(spread.arrival // 100) == {0, 1, 2, 3}
    assert (spread.arrival % 100).max() <= 10


def test_silence_is_silent() -> None:
    steady = arr.arrivals_at(np.arange(10))
    assert arr.stops(steady, 3).arrival.tolist() == [0, 1, 2]
    assert arr.starts_late(steady, 7).arrival.tolist() == [7, 8, 9]
    assert arr.silent(steady, 2, 8).arrival.tolist() == [0, 1, 8, 9]


@given(SEEDS, st.integers(0, 500))
def test_late_rows_are_never_later_than_the_bound(seed: int, most: int) -> None:
    steady = arr.poisson(10_000.0, 200, rng(seed))
    found = arr.late(steady, most, rng(seed))
    assert arr.disorder(found) <= most
    assert ((found.arrival - found.time) <= most).all()
    assert (np.diff(found.arrival) >= 0).all()
    assert sorted(found.time) == steady.time.tolist()


@given(SEEDS, st.integers(0, 20))
def test_shuffled_rows_are_at_most_k_places_away(seed: int, k: int) -> None:
    found = arr.shuffled(arr.arrivals_at(np.arange(100)), k, rng(seed))
    assert np.abs(found.time - np.arange(100)).max() <= k
    assert sorted(found.time) == list(range(100))


def test_disorder_happens() -> None:
    steady = arr.arrivals_at(np.arange(100))
    assert arr.disorder(steady) == 0
    assert arr.disorder(arr.late(steady, 10, rng())) > 0
    assert arr.disorder(arr.shuffled(steady, 10, rng())) > 0
    assert arr.disorder(arr.stops(steady, 0)) == 0


def test_skew_moves_the_clock_of_one_stream() -> None:
    both = arr.merge(arr.arrivals_at(np.array([10, 30])), arr.arrivals_at(np.array([20]), stream=1))
    found = arr.skewed(both, 5, stream=1)
    assert found.arrival.tolist() == [10, 20, 30]
    assert found.time.tolist() == [10, 15, 30]
    assert arr.skewed(both, 5).time.tolist() == [5, 15, 25]


def test_a_coarse_clock_makes_rows_simultaneous() -> None:
    found = arr.coarse(arr.arrivals_at(np.array([1, 2, 9, 10])), 5)
    assert found.time.tolist() == [0, 0, 5, 10]
    assert found.arrival.tolist() == [1, 2, 9, 10]


def test_merge_goes_by_arrival_and_each_stream_can_be_taken_out_again() -> None:
    one, other = arr.poisson(10.0, 50, rng(1)), arr.poisson(10.0, 50, rng(2), stream=1)
    both = arr.merge(one, other)
    assert (np.diff(both.arrival) >= 0).all()
    assert np.array_equal(both.of(1).time, other.time)
    assert len(both.of(0)) + len(both.of(1)) == len(both) == 100


def test_a_batch_of_arrivals_has_the_schema_and_is_in_order_of_time() -> None:
    schema = pa.schema([("k", pa.int32()), ("v", pa.float64()), ("s", pa.string()), ("b", pa.bool_())])
    batch = arr.to_batch(
        arr.late(arr.poisson(10.0, 300, rng()), SECOND, rng()), schema, rng(), keys=4, nulls=0.2
    )
    assert batch.data.schema.equals(schema)
    assert (np.diff(batch.start) >= 0).all()
    assert batch.arrival is not None
    assert set(batch.data.column("k").to_pylist()) == {None, 0, 1, 2, 3}
    assert 20 < batch.data.column("v").null_count < 120


def test_a_type_without_random_values_is_named() -> None:
    with pytest.raises(InputError, match="cannot make values of type"):
        arr.to_batch(arr.arrivals_at(np.arange(2)), pa.schema([("x", pa.list_(pa.int8()))]), rng())
