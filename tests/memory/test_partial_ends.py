"""Rows that end together are one partial value where counts and sums are all that is needed, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import tuning
from headrace.engine import Engine, Snapshot
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from tests.laws import effort
from tests.memory.test_manager import A, started

CALLS = """avg(v) AS a, count(v) AS n, variance(v) AS d, sum(w) AS t, avg(w) AS b, sum(z) AS y,
    count(*) AS c, sum(v)"""
TEXTS = [
    f"SELECT k, {CALLS} [GRANULARITY 4] AS s FROM a [RANGE 11] GROUP BY k",
    f"SELECT {CALLS} [GRANULARITY COARSEST 9, FINEST 3] AS s FROM a [RANGE MIN 5, MAX 12]",
    f"SELECT k, {CALLS} AS s FROM a [RANGE MIN 2, MAX 8 SLIDE 2] GROUP BY k",
    f"SELECT k, {CALLS} [GRANULARITY 6] AS s FROM a [RANGE 12 SLIDE 3] GROUP BY k",
]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("w", pa.int64()), ("z", pa.decimal128(30, 2))])
HUGE = st.sampled_from(
    [0.0, 1.5, -0.1, 1e300, -1e300, 1e-300, 5e-324, float("inf"), float("-inf"), float("nan")]
)
rows = st.tuples(
    st.integers(0, 2),
    st.none() | HUGE,
    st.none() | st.integers(-(2**57), 2**57),
    st.none() | st.decimals(-(10**20), 10**20, places=2),
    st.integers(0, 6),
)


@effort(2, "many kinds of numbers")
@given(st.sampled_from(TEXTS), st.lists(st.lists(rows, max_size=5), max_size=8), st.data())
def test_what_leaves_together_is_what_came_exactly(text: str, pushes: Any, data: st.DataObject) -> None:
    found = headrace.query(text, {"a": SCHEMA}, ticks_per_second=None)

    def made() -> Engine:
        engine = Engine(strategy=data.draw(st.sampled_from(["dfs(1)", "bfs", "auto"])))
        engine.add("q", found)
        return engine

    with tuning.using(compact_after=data.draw(st.sampled_from([0, 1, 1000]))):
        engine, answers, seen, time = made(), list[Any](), list[Any](), 0
        for push in pushes:
            times = []
            for *row, later in push:
                time += later
                times.append(time)
                seen.append((time, dict(zip("kvwz", row, strict=True))))
            batch = pa.RecordBatch.from_pylist(
                [dict(zip("kvwz", row, strict=True)) for *row, _ in push], SCHEMA
            )
            engine.push("a", batch, np.array(times, np.int64))
            answers += engine.drain()
            if engine.quality.settings() and data.draw(st.booleans()):
                setting = data.draw(st.sampled_from(engine.quality.settings()))
                steps = (setting.most - setting.least) // setting.step
                value = setting.most - setting.step * data.draw(st.integers(0, steps))
                engine.quality.resize(setting.node, value)
            if data.draw(st.booleans()):
                twin = made()
                twin.restore(Snapshot.decode(engine.snapshot().encode()))
                engine = twin
        engine.streams.end("a")
        answers += engine.drain()
        histories = engine.quality.histories("q")
        expected = oracle.stream(found.plan, {"a": seen}, histories)
        assert_same_stream(answers, expected, schema=found.plan.schema)


@pytest.mark.parametrize(
    "function", ["avg(v)", "sum(v)", "count(v)", "stddev(v)", "avg(v), sum(v), variance(v), count(*)"]
)
def test_measurements_that_end_together_are_one_line_of_state(function: str) -> None:
    """Values never repeat, so lines are saved only because what leaves is one sum."""

    def held(grain: int) -> int:
        text = (
            f"SELECT k, {function.replace(')', f') [GRANULARITY {grain}]', 1)} FROM a [RANGE 4000] GROUP BY k"
        )
        engine = started(text, None)
        rng = np.random.default_rng(1)
        for begin in range(0, 8000, 1000):
            columns = [pa.array(rng.integers(0, 5, 1000)), pa.array(rng.random(1000))]
            engine.push("a", pa.RecordBatch.from_arrays(columns, schema=A), np.arange(begin, begin + 1000))
            engine.drain()
        return engine.metrics().state_bytes

    assert held(500) < held(1) / 10
