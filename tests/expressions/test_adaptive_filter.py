"""Conditions in whatever order: the mask is that of the predicate, and a user's function sees every row."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace.expressions as e
from headrace.expressions import And, Expression, col, compile_predicate
from headrace.expressions.adaptive_filter import AdaptiveFilter
from headrace.expressions.functions.rule import UserFunction
from headrace.expressions.nodes import UserFunctionCall
from tests.laws import effort

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("s", pa.string())])
CONDITIONS: list[Expression] = [
    col("a") > 5,
    col("a") + col("b") > 3.0,
    col("b") < 0.5,
    e.Like(col("s"), e.Literal("%x%")),
    e.Function("length", (e.Function("upper", (col("s"),)),)) > 2,
    e.IsNotNull(col("s")),
    e.In(col("a"), (e.Literal(1), e.Literal(7), e.Literal(None))),
    e.Literal(True),
]


def rows(seed: int, count: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    texts = rng.choice(["", "x", "axb", "long text", "NaN"], count)
    columns = [
        pa.array(rng.integers(0, 9, count), mask=rng.random(count) < 0.1),
        pa.array(rng.random(count) * rng.choice([1, 9]), mask=rng.random(count) < 0.1),
        pa.array(texts.tolist(), pa.string(), mask=rng.random(count) < 0.1),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@effort(0.5, "thousands of rows each")
@given(
    st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from([0, 1, 300, 2000])), max_size=4),
    st.integers(1, 1000),
)
def test_the_order_of_conditions_changes_no_mask(
    chosen: list[Expression], batches: list[tuple[int, int]], every: int
) -> None:
    predicate = And(tuple(chosen)) if len(chosen) > 1 else chosen[0]
    adaptive_filter, plain = AdaptiveFilter(predicate, SCHEMA), compile_predicate(predicate, SCHEMA)
    adaptive_filter.every = every
    for seed, count in batches:
        batch = rows(seed, count)
        assert adaptive_filter(batch).tolist() == plain(batch).tolist()
        restored = AdaptiveFilter(predicate, SCHEMA)
        restored.restore(json.loads(json.dumps(adaptive_filter.state())))
        assert restored.state() == adaptive_filter.state()


def test_what_is_cheap_and_rules_out_much_comes_first_and_follows_the_data() -> None:
    dear, cheap = e.Like(col("s"), e.Literal("%x%")), col("a") > 5
    adaptive_filter = AdaptiveFilter(And((dear, cheap)), SCHEMA)
    assert not adaptive_filter.is_changed
    adaptive_filter(rows(0, 2000))
    assert not adaptive_filter.is_changed, "it looks only when it is told to"
    adaptive_filter.every = 1000
    adaptive_filter(rows(0, 2000))
    assert str(adaptive_filter).startswith("a > 5 (")
    assert adaptive_filter.is_changed
    batch = rows(1, 2000)
    passing = batch.set_column(0, SCHEMA.field(0), pa.array(np.full(2000, 9)))
    nothing = passing.set_column(2, SCHEMA.field(2), pa.array(["y"] * 2000))
    for _ in range(8):
        adaptive_filter(nothing)
    assert str(adaptive_filter).startswith("s LIKE"), "now that is what rules out all"


def test_a_function_of_the_user_sees_every_row() -> None:
    seen: list[int] = []

    def odd(values: pa.Array) -> pa.Array:
        seen.append(len(values))
        return pa.array([v is not None and v % 2 == 1 for v in values.to_pylist()])

    call = UserFunctionCall("odd", (col("a"),), UserFunction("odd", odd, pa.bool_()))
    adaptive_filter = AdaptiveFilter(And((col("a") > 7, call, e.Like(col("s"), e.Literal("%x%")))), SCHEMA)
    adaptive_filter.every = 1
    for seed in range(3):
        batch = rows(seed, 500)
        expected = compile_predicate(And((col("a") > 7, e.Like(col("s"), e.Literal("%x%")))), SCHEMA)(batch)
        odd_rows = np.array([v is not None and v % 2 == 1 for v in batch.column(0).to_pylist()])
        assert adaptive_filter(batch).tolist() == (expected & odd_rows).tolist()
    assert seen == [500, 500, 500]
