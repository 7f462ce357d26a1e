"""Punctuations: patterns, what they match, what two of them say together (Tucker & Maier, §2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.time.punctuation import (
    Between,
    Constant,
    OneOf,
    Pattern,
    Punctuate,
    Punctuation,
    heartbeat,
    intersect,
)
from headrace.time.timestamp import MAX_TIME, MIN_TIME

VALUES = st.integers(0, 6)
PATTERNS: st.SearchStrategy[Pattern] = st.one_of(
    VALUES.map(Constant),
    st.lists(VALUES, min_size=1, max_size=3, unique=True).map(lambda v: OneOf(tuple(v))),
    st.tuples(st.none() | VALUES, st.none() | VALUES).map(lambda ends: Between(*ends)),
)
DOMAIN = pa.array([0, 1, 2, 3, 4, 5, 6, None], pa.int64())


def holds(pattern: Pattern, value: int | None) -> bool:
    """The meaning of each pattern, value by value."""
    if isinstance(pattern, Constant):
        return value == pattern.value
    if isinstance(pattern, OneOf):
        return value in pattern.values
    low, high = pattern.low, pattern.high
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


@given(PATTERNS)
def test_a_pattern_matches_what_it_means(pattern: Pattern) -> None:
    assert pattern.matches(DOMAIN).tolist() == [holds(pattern, v) for v in DOMAIN.to_pylist()]


@given(PATTERNS, PATTERNS)
def test_an_intersection_matches_what_both_match(left: Pattern, right: Pattern) -> None:
    both = intersect(left, right)
    expected = left.matches(DOMAIN) & right.matches(DOMAIN)
    found = np.zeros(len(DOMAIN), np.bool_) if both is None else both.matches(DOMAIN)
    assert found.tolist() == expected.tolist()


@given(PATTERNS, PATTERNS, st.integers(0, 5), st.integers(0, 5))
def test_two_punctuations_together_speak_of_the_rows_both_speak_of(
    left: Pattern, right: Pattern, until: int, other: int
) -> None:
    rows = pa.record_batch({"k": DOMAIN, "v": DOMAIN})
    times = np.arange(len(DOMAIN))
    one, two = Punctuation(until, (("k", left),)), Punctuation(other, (("k", right), ("v", left)))
    both = one.intersect(two)
    expected = one.matches(times, rows) & two.matches(times, rows)
    found = np.zeros(len(DOMAIN), np.bool_) if both is None else both.matches(times, rows)
    assert found.tolist() == expected.tolist()


def test_the_heartbeat_is_the_punctuation_whose_only_pattern_is_on_time() -> None:
    assert heartbeat(7).heartbeat == 7
    assert Punctuation(7, (("k", Constant(1)),)).heartbeat == MIN_TIME


def test_figure_2_matches_bids_of_all_items_up_to_its_time() -> None:
    bids = pa.record_batch({"person": ["p1", "p2"], "price": [10.0, 11.0], "item": ["i1", "i2"]})
    assert heartbeat(5567).matches(np.array([5567, 5568]), bids).tolist() == [True, False]


def test_a_renamed_punctuation_is_dropped_with_an_attribute_it_restricts() -> None:
    closed = Punctuation(patterns=(("k", Constant(1)),))
    assert closed.rename({"k": "key"}) == Punctuation(patterns=(("key", Constant(1)),))
    assert closed.rename({"v": "v"}) is None


@given(st.lists(st.tuples(PATTERNS, st.booleans()), max_size=4), st.integers(-1, 6))
def test_punctuate_finds_exactly_the_rows_that_break_a_promise(
    closed: list[tuple[Pattern, bool]], promised: int
) -> None:
    punctuate = Punctuate()
    assert punctuate.promise(promised)
    assert not punctuate.promise(promised), "not news"
    rows, times = pa.record_batch({"k": DOMAIN}), np.arange(len(DOMAIN))
    expected = times <= promised
    for pattern, for_ever in closed:
        punctuation = Punctuation(MAX_TIME if for_ever else 3, (("k", pattern),))
        punctuate.close(punctuation)
        expected = expected | punctuation.matches(times, rows)
    assert punctuate.breaking(times, rows).tolist() == expected.tolist()


@pytest.mark.parametrize("value", ["x", 2.5, True, None])
def test_constants_of_any_type_match_themselves(value: object) -> None:
    column = pa.array([value, value])
    assert Constant(value).matches(column).tolist() == [True, True]
