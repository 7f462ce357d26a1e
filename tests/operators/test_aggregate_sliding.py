"""Sliding aggregates equal the oracle for every function and type, however they are fed and restored."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.operators.sliding_aggregate import SlidingAggregateOperator
from headrace.plan.nodes import SlidingAggregate
from headrace.plan.windows import Sliding
from tests.operators.aggregating import calls, check, keys, schemas, streams


@st.composite
def cases(draw: st.DrawFn) -> tuple[SlidingAggregate, Any]:
    schema = draw(schemas())
    below = draw(streams(schema))
    window = Sliding(draw(st.integers(1, 12)), draw(st.integers(1, 7)))
    bounds = draw(st.sampled_from([None, ("w_start", "w_end")]))
    return SlidingAggregate(below[0], draw(keys(schema)), draw(calls(schema, True)), window, bounds), below


@settings(max_examples=150)
@given(cases(), st.integers(0, 10**6))
def test_a_sliding_aggregate_is_what_the_oracle_says(case: tuple[SlidingAggregate, Any], seed: int) -> None:
    check(SlidingAggregateOperator, *case, seed)
