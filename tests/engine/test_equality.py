"""The central test: under every way of executing it, a query's answer is the oracle's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.testing.plans import cases
from headrace.testing.runs import runs
from tests.engine.driving import execute


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Iterator[None]:
    """A few rows are worth a file, so that small inputs are put away in pieces."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("flow.timeline", "operators.joinside", "operators.coldgroups", "operators.farends"):
            patch.setattr(f"headrace.{module}._WORTH", 0)
        yield


@settings(max_examples=int(os.environ.get("HEADRACE_EXAMPLES", "200")))
@given(st.data())
def test_the_engine_gives_the_oracles_answer_whatever_the_way_of_execution(data: st.DataObject) -> None:
    case = data.draw(cases())
    run = data.draw(runs(case))
    answers, _ = execute(case, run)
    expected = oracle.stream(case.plan, case.sources)
    note(f"expected {expected}")
    assert_same_stream(answers, expected, schema=case.plan.schema)
