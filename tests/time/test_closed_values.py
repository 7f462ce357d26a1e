"""Closed values are the set that was closed, in the memory of its gaps."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace import tuning
from headrace.time.closed_values import ClosedValues, Runs, distinct_values

LEAST, MOST = -(2**63), 2**63 - 1
NUMBERS = st.integers(-12, 12) | st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST])
FEW = st.sampled_from([0, 2, 1024])


def runs_of(numbers: set[int]) -> list[tuple[int, int]]:
    """The runs of a set, naively."""
    return [
        (first, next(n for n in sorted(numbers) if n >= first and n + 1 not in numbers))
        for first in sorted(numbers)
        if first - 1 not in numbers
    ]


@given(st.lists(NUMBERS), st.lists(NUMBERS), FEW)
def test_runs_are_a_set_of_numbers(added: list[int], asked: list[int], few: int) -> None:
    with tuning.using(closed_waiting=few):
        runs, known = Runs(), set[int]()
        for number in added:
            assert runs.add(number) is (number not in known)
            known.add(number)
            for other in asked:
                assert (other in runs) is (other in known)
        several = sorted(set(asked))
        assert sorted(runs.among(np.array(several, np.int64))) == [n for n in several if n in known]
        first, last = runs.arrays()
        assert list(zip(first.tolist(), last.tolist(), strict=True)) == runs_of(known)
        again = Runs()
        again.read(first, last)
        assert sorted(again.among(np.array(several, np.int64))) == [n for n in several if n in known]
        assert runs.bytes == again.bytes == 16 * len(runs_of(known))


def test_numbers_that_are_closed_one_after_the_other_cost_nothing() -> None:
    closed = ClosedValues()
    order = np.random.default_rng(7).permutation(50_000)
    for number in order.tolist():
        assert closed.add((number,))
    assert closed.bytes == 16
    assert not closed.add((7,))


COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [1, 2, 3, None]),
    "short": (pa.int8(), [1, 2, None, -1]),
    "unsigned": (pa.uint64(), [1, 2, 2**63, 2**64 - 1]),
    "text": (pa.string(), ["1", "2", None]),
    "double": (pa.float64(), [1.0, 2.5, float("inf"), None]),
    "decimal": (pa.decimal128(38, 0), [decimal.Decimal(1), decimal.Decimal(10**30), None]),
    "boolean": (pa.bool_(), [True, False, None]),
}


@given(st.data(), st.sampled_from(sorted(COLUMNS)))
def test_closed_values_of_any_type_are_those_of_a_set(data: st.DataObject, name: str) -> None:
    type, values = COLUMNS[name]
    drawn = st.lists(st.sampled_from(values))
    closed, known = ClosedValues(), set[tuple[Any, ...]]()
    for value in data.draw(drawn):
        assert closed.add((value,)) is ((value,) not in known)
        known.add((value,))
    rows = pa.record_batch({"k": pa.array(data.draw(drawn), type)})
    assert set(closed.among(rows, ["k"])) == known & distinct_values(rows, ["k"])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))), st.lists(st.tuples(*[st.integers(0, 3)] * 2))
)
def test_closed_pairs_are_those_of_a_set(pairs: list[tuple[int, int]], come: list[tuple[int, int]]) -> None:
    closed = ClosedValues()
    for pair in pairs:
        closed.add(pair)
    rows = pa.record_batch({name: pa.array([p[i] for p in come], pa.int64()) for i, name in enumerate("kv")})
    assert set(closed.among(rows, ["k", "v"])) == set(pairs) & set(come)
