"""Aggregates over time equal the oracle at every instant: every function and type, withdrawals included."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.operators.aggregate import AggregateOperator
from headrace.plan.nodes import Aggregate
from tests.operators.aggregating import calls, check, keys, relations, schemas


@st.composite
def cases(draw: st.DrawFn) -> tuple[Aggregate, Any]:
    """`first` and `last` only where each row's end is known: else which copy goes is not determined."""
    schema, withdraws = draw(schemas()), draw(st.booleans())
    below = draw(relations(schema, withdraws))
    return Aggregate(below[0], draw(keys(schema)), draw(calls(schema, not withdraws))), below


@settings(max_examples=150)
@given(cases(), st.integers(0, 10**6))
def test_an_aggregate_is_what_the_oracle_says_at_every_instant(
    case: tuple[Aggregate, Any], seed: int
) -> None:
    check(AggregateOperator, *case, seed)
