"""Aggregates over time equal the oracle at every instant: every function and type, withdrawals included."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import tuning
from headrace.operators.aggregate import AggregateOperator
from headrace.plan.nodes.core import Aggregate, AggregateCall, Source, Window
from headrace.plan.nodes.windows import Rows
from headrace.testing.oracle import Element
from headrace.time.timestamp import MAX_TIME
from tests.laws import effort
from tests.operators.aggregating import calls, check, happenings, keys, relations, schemas
from tests.strategies.contracts import Given, Signed, batch_of


@st.composite
def cases(draw: st.DrawFn) -> tuple[Aggregate, Any]:
    """`first` and `last` only where each row's end is known: else which copy goes is not determined."""
    schema, withdraws = draw(schemas()), draw(st.booleans())
    below = draw(relations(schema, withdraws))
    return Aggregate(below[0], draw(keys(schema)), draw(calls(schema, not withdraws))), below


@effort(3, "many aggregates")
@given(cases(), st.integers(0, 10**6))
def test_an_aggregate_is_what_the_oracle_says_at_every_instant(
    case: tuple[Aggregate, Any], seed: int
) -> None:
    check(AggregateOperator, *case, seed)


@effort(2, "many aggregates")
@given(cases(), st.integers(0, 10**6))
def test_keeping_house_at_every_step_changes_no_answer(case: tuple[Aggregate, Any], seed: int) -> None:
    with tuning.using(compact_after=-1000, idle_keys=-1000):
        check(AggregateOperator, *case, seed)


@st.composite
def row_windows(draw: st.DrawFn) -> tuple[Aggregate, Any]:
    """The newest rows: each withdraws the oldest, so that equal rows must be told apart by age."""
    schema = pa.schema([("a", pa.int8()), ("b", pa.string())])
    happened, count = draw(happenings(schema)), draw(st.integers(1, 3))
    signed = [Signed(row, t, MAX_TIME) for t, row in happened]
    signed += [Signed(o.row, t, MAX_TIME, -1) for o, (t, _) in zip(signed, happened[count:], strict=False)]
    source = Source("s", schema)
    functions = draw(st.lists(st.sampled_from(["first", "last", "count", "min"]), min_size=1, max_size=3))
    named = tuple(AggregateCall(f"{f}_{i}", f, "b") for i, f in enumerate(functions))
    plan = Aggregate(Window(source, Rows(count)), draw(st.sampled_from([(), ("a",)])), named)
    rows = [(t, dict(zip(schema.names, row, strict=True))) for t, row in happened]
    return plan, (source, batch_of(signed, schema), rows)


@effort(2, "many aggregates")
@given(row_windows(), st.integers(0, 10**6))
def test_the_oldest_of_equal_rows_is_withdrawn_first(case: tuple[Aggregate, Any], seed: int) -> None:
    check(AggregateOperator, *case, seed)


def answers(elements: list[Element], *functions: str) -> dict[int, tuple[Any, ...]]:
    """The row that comes at each instant, for one group."""
    schema = pa.schema([("v", pa.float64())])
    below = Given("r", schema)
    plan = Aggregate(below, (), tuple(AggregateCall(f, f, "v") for f in functions))
    batch = batch_of([Signed(*e) for e in elements], schema)
    trial = check(AggregateOperator, plan, (below, batch, elements), 0)
    found: dict[int, tuple[Any, ...]] = {}
    for out in trial.watch.batches:
        rows = zip(*(c.to_pylist() for c in out.data.columns), strict=True)
        signs = out.signs().tolist()
        found |= {t: r for t, s, r in zip(out.start.tolist(), signs, rows, strict=True) if s > 0}
    return found


def test_values_that_are_not_finite_leave_no_trace_when_they_leave() -> None:
    finite = Element((0.1,), 0, 100)
    strange = [Element((v,), i + 1, i + 2) for i, v in enumerate((math.inf, -math.inf, math.nan))]
    found = answers([finite, *strange], "sum", "avg", "var_pop")
    assert found[4] == (0.1, 0.1, 0.0)


def test_a_sum_of_nothing_is_exactly_nothing_again() -> None:
    elements = [Element((v,), i, 9) for i, v in enumerate((1e300, 0.1, 1e280, 1e-300))]
    found = answers([*elements, Element((0.25,), 10, 20)], "sum")
    assert found[10] == (0.25,)


def test_a_row_replaced_by_an_equal_one_is_no_change() -> None:
    found = answers([Element((0.1,), 0, 5), Element((0.1,), 5, 9)], "sum", "max")
    assert found == {0: (0.1, 0.1)}


def test_more_events_than_steps_are_in_order() -> None:
    """Ranks in time are those of events: there may be more of them than positions."""
    elements = [Element((float(i),), i % 2, 3 + i % 3) for i in range(30)]
    assert list(answers(elements, "count")) == [0, 1, 3, 4]


@pytest.mark.parametrize("functions", [("sum",), ("min", "max"), ("count_distinct",), ("first",)])
@pytest.mark.parametrize("value", [pa.int64(), pa.string()])
def test_what_is_held_follows_what_is_live(functions: tuple[str, ...], value: pa.DataType) -> None:
    if value == pa.string() and functions == ("sum",):
        functions = ("count",)
    schema = pa.schema([("k", pa.int64()), ("v", value)])
    plan = Aggregate(Given("r", schema), ("k",), tuple(AggregateCall(f, f, "v") for f in functions))
    operator, sizes = AggregateOperator(plan), []
    for step in range(60):
        ids = np.arange(step * 500, (step + 1) * 500)
        rows = [
            Signed((int(i), int(i) if value == pa.int64() else str(i)), int(i), int(i) + 2_000) for i in ids
        ]
        operator.ingest(0, batch_of(rows, schema))
        operator.answer(int(ids[-1]))
        sizes.append(operator.memory.bytes())
    assert max(sizes[30:]) <= 2 * max(sizes[:30])


def test_space_for_values_that_have_gone_is_given_back() -> None:
    schema = pa.schema([("v", pa.int64())])
    operator = AggregateOperator(Aggregate(Given("r", schema), (), (AggregateCall("m", "max", "v"),)))
    operator.ingest(0, batch_of([Signed((i,), 0, 1 + i % 9) for i in range(20_000)], schema))
    operator.answer(0)
    burst = operator.memory.bytes()
    for t in range(10, 20_000, 10):
        operator.ingest(0, batch_of([Signed((t,), t, t + 5)], schema))
        operator.answer(t)
    assert operator.memory.bytes() < burst / 4


def test_a_group_that_comes_without_an_arrival_after_others_that_had_one() -> None:
    """As after a restart: rows that were held then have no arrival in this run."""
    schema = pa.schema([("k", pa.int64())])
    operator = AggregateOperator(Aggregate(Given("r", schema), ("k",), (AggregateCall("n", "count"),)))
    first, second = (batch_of([Signed((k,), k, 9)], schema) for k in (1, 2))
    operator.ingest(0, replace(first, arrival=np.array([7])))
    assert operator.answer(1) is not None
    operator.ingest(0, second)
    found = operator.answer(2)
    assert found is not None
    assert found.data.to_pylist() == [{"k": 2, "n": 1}]
