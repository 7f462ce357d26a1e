"""Kernels stay within their arrays (compiled they do not look; as Python they do), and round once."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.aggregates.limbs import Limbs, Sums
from headrace.kernels.exact_sums import POINT, add_doubles, add_reals, add_squares

EDGES = (0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, sys.float_info.max, -sys.float_info.max)


@pytest.mark.parametrize("value", [*EDGES, math.inf, -math.inf, math.nan], ids=repr)
@pytest.mark.parametrize(("power", "add"), [(1, add_reals), (2, add_squares)], ids=["sum", "squares"])
def test_no_number_has_digits_beyond_the_places(power: int, add: Any, value: float) -> None:
    """−∞ is counted in the last place, and its other digits were looked up behind it: a crash."""
    limbs, values, slots = Limbs(power), np.array([value]), np.zeros(1, np.int64)
    for _ in range(2):
        sums = np.zeros((1, len(limbs)), np.int64)
        done = add.py_func(slots, values, values.view(np.int64), 0, limbs.column, sums)
        limbs.have(np.arange(len(limbs.column)))
    assert done == 1


def limbs_of_places(low: int, high: int) -> st.SearchStrategy[list[int]]:
    """Sums of digits: small ones, ones at the edges of words, and any."""
    edges = [
        sign * (1 << bits) + more
        for bits in (0, 28, 31, 32, 53, 60, 62)
        for sign in (1, -1)
        for more in (-1, 0, 1)
    ]
    limb = st.one_of(
        st.just(0), st.sampled_from(edges), st.integers(-(2**33), 2**33), st.integers(-(2**62), 2**62)
    )
    return st.lists(limb, min_size=high - low, max_size=high - low)


@given(
    st.integers(1, 70).flatmap(lambda low: st.tuples(st.just(low), limbs_of_places(low, low + 5))),
    st.randoms(),
)
def test_a_sum_is_rounded_once(found: tuple[int, list[int]], order: Any) -> None:
    """Whatever its digits are, and wherever their columns: the float64 nearest to the exact sum."""
    low, limbs = found
    columns = list(range(len(limbs)))
    order.shuffle(columns)
    line = np.array([[limbs[c] for c in columns]], np.int64)
    exact = sum(Fraction(limb) * Fraction(2) ** (32 * (low + i - POINT)) for i, limb in enumerate(limbs))
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = math.inf if exact > 0 else -math.inf
    assert Sums(line, np.array([low + c for c in columns], np.int64)).rounded()[0] == nearest


reals = st.floats() | st.sampled_from(EDGES) | st.integers(-(2**60), 2**60).map(float)
near = st.floats(-1e6, 1e6) | st.integers(-4000, 4000).map(lambda cents: cents / 100)


@given(
    st.lists(st.tuples(st.integers(0, 3), reals), max_size=20)
    | st.lists(st.tuples(st.integers(0, 3), near), max_size=60)
)
def test_two_floats_hold_a_sum_exactly_or_are_not_used(rows: list[tuple[int, float]]) -> None:
    slots = np.array([slot for slot, _ in rows], np.int64)
    values = np.array([value for _, value in rows], np.float64)
    sums, rests = np.zeros(4), np.zeros(4)
    done = add_doubles(slots, values, sums, rests)
    exact = [Fraction(0)] * 4
    for slot, value in rows[:done]:
        exact[slot] += Fraction(value)
    assert [Fraction(a) + Fraction(b) for a, b in zip(sums, rests, strict=True)] == exact


def test_sums_of_prices_need_two_floats() -> None:
    cents = np.random.default_rng(1).integers(1, 1_000_000, 10_000)
    sums, rests = np.zeros(8), np.zeros(8)
    assert add_doubles(cents % 8, cents / 100, sums, rests) == len(cents)
