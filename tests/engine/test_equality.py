"""The central test: under every way of executing it, a query's answer is the oracle's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import tuning
from tests.engine.driving import assert_oracles_answer
from tests.laws import effort
from tests.strategies.plans import cases
from tests.strategies.runs import runs


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Iterator[None]:
    """A few rows are worth a file, so that small inputs are put away in pieces."""
    with tuning.using(spill_file_bytes=0):
        yield


@effort(4, "the central law of the project")
@given(st.data())
def test_the_engine_gives_the_oracles_answer_whatever_the_way_of_execution(data: st.DataObject) -> None:
    case = data.draw(cases())
    assert_oracles_answer(case, data.draw(runs(case)))
