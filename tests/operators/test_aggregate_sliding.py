"""Sliding aggregates equal the oracle for every function and type, however they are fed and restored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import tuning
from headrace.flow.arc import Arc
from headrace.flow.batch import Batch
from headrace.operators.sliding_aggregate import SlidingAggregateOperator
from headrace.plan.nodes.core import AggregateCall, SlidingAggregate, Source
from headrace.plan.nodes.windows import Sliding
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME
from tests.laws import effort
from tests.operators.aggregating import calls, check, keys, schemas, streams

YEAR = 365 * 24 * 3600 * 10**6


@st.composite
def cases(draw: st.DrawFn) -> tuple[SlidingAggregate, Any]:
    schema = draw(schemas())
    below = draw(streams(schema))
    window = Sliding(draw(st.integers(1, 12)), draw(st.integers(1, 7)))
    bounds = draw(st.sampled_from([None, ("w_start", "w_end")]))
    return SlidingAggregate(below[0], draw(keys(schema)), draw(calls(schema, True)), window, bounds), below


@effort(3, "many aggregates")
@given(cases(), st.integers(0, 10**6))
def test_a_sliding_aggregate_is_what_the_oracle_says(case: tuple[SlidingAggregate, Any], seed: int) -> None:
    check(SlidingAggregateOperator, *case, seed)


@effort(2, "many aggregates")
@given(cases(), st.integers(0, 10**6))
def test_keeping_house_at_every_step_changes_no_answer(case: tuple[SlidingAggregate, Any], seed: int) -> None:
    with tuning.using(pane_chunk=1, pane_windows=2, idle_keys=-1000):
        check(SlidingAggregateOperator, *case, seed)


class Alone:
    """A sliding aggregate between an arc and a reader."""

    def __init__(self, window: Sliding, *functions: str, value: pa.DataType | None = None) -> None:
        self.schema = pa.schema([("k", pa.int64()), ("v", value or pa.int64())])
        named = tuple(AggregateCall(f, f, "v") for f in functions)
        self.operator = SlidingAggregateOperator(
            SlidingAggregate(Source("s", self.schema), ("k",), named, window)
        )
        self.arc = Arc()
        self.operator.connect([self.arc])
        self._reader = self.operator.output.reader()

    def push(self, times: Any, keys: Any, values: Any) -> list[Batch]:
        columns = [pa.array(keys, pa.int64()), pa.array(values, self.schema.field("v").type)]
        data = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        self.arc.append(Batch(data, np.asarray(times, np.int64)))
        return self.run()

    def end(self) -> list[Batch]:
        self.arc.punctuate(Punctuation(MAX_TIME))
        return self.run()

    def run(self) -> list[Batch]:
        while self.operator.more:
            self.operator.execute(1 << 30)
        out: list[Batch] = []
        while isinstance(item := self._reader.take(1 << 30), Batch):
            out.append(item)
        return out


def test_years_of_silence_and_the_end_of_time_cost_nothing() -> None:
    alone = Alone(Sliding(60, 1), "count")
    out = alone.push([-YEAR, 0, YEAR], [1, 1, 1], [1, 1, 1]) + alone.end()
    assert sum(map(len, out)) == 3 * 60


@pytest.mark.parametrize("functions", [("sum",), ("min",), ("count_distinct",), ("first", "last")])
@pytest.mark.parametrize("value", [pa.int64(), pa.string()])
def test_what_is_held_follows_what_is_live(functions: tuple[str, ...], value: pa.DataType) -> None:
    if value == pa.string() and functions == ("sum",):
        functions = ("max",)
    alone = Alone(Sliding(4_000, 1_000), *functions, value=value)
    sizes = []
    for step in range(60):
        ids = np.arange(step * 1_000, (step + 1) * 1_000)
        alone.push(ids, ids, ids.tolist() if value == pa.int64() else [str(i) for i in ids])
        sizes.append(alone.operator.memory.bytes())
    assert max(sizes[30:]) <= 2 * max(sizes[:30])


def test_a_huge_value_that_left_the_window_leaves_no_trace() -> None:
    alone = Alone(Sliding(3, 1), "sum", "stddev", value=pa.float64())
    values = [1e300, 1e280, 0.1, math.inf, 0.2, 0.3, 0.4, 0.5]
    out = alone.push(range(8), [1] * 8, values) + alone.end()
    found = {int(t): s for b in out for t, s in zip(b.start, b.data.column("sum").to_pylist(), strict=True)}
    assert found[6] == pytest.approx(0.9, rel=1e-15)
    assert [math.isinf(found[t]) for t in range(3, 7)] == [True, True, True, False]


def test_a_range_that_is_no_multiple_of_the_slide_makes_two_panes_a_slide() -> None:
    alone = Alone(Sliding(61_000, 60_000), "sum")
    alone.push(np.arange(60_000), [1] * 60_000, [1] * 60_000)
    assert len(alone.operator._log.entries) == 2


def test_a_snapshot_costs_what_changed() -> None:
    alone = Alone(Sliding(1_000_000, 1_000), "sum", "max")
    ids = np.arange(500_000)
    alone.push(ids, ids % 100, ids)
    parts = alone.operator.state()

    def written(full: bool) -> int:
        chunks = [part.changes(full) for part in parts.values()]
        return sum(v.nbytes for c in chunks for v in c.values() if isinstance(v, np.ndarray))

    full = written(True)
    alone.push(ids[:5_000] + 500_000, ids[:5_000] % 100, ids[:5_000])
    assert written(False) < full / 20


def test_the_heartbeat_passed_on_is_just_before_the_next_tick() -> None:
    operator = Alone(Sliding(10, 5), "count").operator
    assert [operator.map_heartbeat(h) for h in (-7, -6, 3, 4, 5, MAX_TIME)] == [-7, -2, 3, 8, 8, MAX_TIME]


def test_the_end_of_validity_is_right_for_negative_times() -> None:
    (batch,) = Alone(Sliding(5, 5), "count").push([-1000, 0], [1, 1], [1, 1])
    assert (batch.start.tolist(), batch.end.tolist()) == ([-996], [-991])  # type: ignore[union-attr]
