"""Windows, granularity and projection: validity, heartbeats, punctuations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.expressions import col
from headrace.flow.batch import Batch
from headrace.kernels.newest import NONE
from headrace.operators.contract import Stateless
from headrace.operators.granularity import GranularityOperator
from headrace.operators.project import ProjectOperator
from headrace.operators.rows_window import RowsWindowOperator
from headrace.operators.state.newest_rows import NewestRows
from headrace.operators.ticks import add, ceil_to, floor_to, tick_after
from headrace.operators.window import WindowOperator
from headrace.plan.nodes.core import Granularity, Project, Source, Window
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Ticks, Unbounded
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME
from tests.strategies.plans import slidings

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])
SOURCE = Source("s", SCHEMA)
SEVEN = Constant(7)


def stream(*times: int) -> Batch:
    columns = [pa.array(range(len(times)), pa.int64()), pa.array(["x"] * len(times))]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), np.array(times, np.int64))


def spans(batch: Batch) -> list[tuple[int, int]]:
    assert batch.end is not None
    return list(zip(batch.start.tolist(), batch.end.tolist(), strict=True))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (Range(10), [(-3, 7), (9, 19), (MAX_TIME - 5, MAX_TIME)]),
        (Now(), [(-3, -2), (9, 10), (MAX_TIME - 5, MAX_TIME - 4)]),
        (Unbounded(), [(-3, MAX_TIME), (9, MAX_TIME), (MAX_TIME - 5, MAX_TIME)]),
        (Sliding(20, 10), [(-1, 19), (9, 29)]),
        (Sliding(2, 9), [(10, 19)]),
        (Sliding(3, 2), [(-2, 0), (10, 12), (MAX_TIME - 5, MAX_TIME - 1)]),
    ],
    ids=lambda s: type(s).__name__,
)
def test_validity_stays_inside_the_time_domain(spec: Range, expected: list[tuple[int, int]]) -> None:
    operator = WindowOperator(Window(SOURCE, spec))
    assert spans(operator.apply(stream(-3, 9, MAX_TIME - 5))) == expected


SPECS = slidings(30, 12) | st.builds(Range, st.integers(1, 9))


@given(SPECS, st.integers(-50, 50))
def test_the_heartbeat_of_a_window_is_the_largest_that_is_kept(spec: Range | Sliding, time: int) -> None:
    operator = WindowOperator(Window(SOURCE, spec))
    later = operator.apply(stream(*range(time + 1, time + 60)))
    assert operator.map_heartbeat(time) == later.first - 1


@given(st.integers(1, 12), st.integers(-50, 50))
def test_the_heartbeat_of_a_granularity_is_the_largest_that_is_kept(grain: int, time: int) -> None:
    operator = GranularityOperator(Granularity(Window(SOURCE, Range(100)), grain))
    windowed = WindowOperator(Window(SOURCE, Range(100))).apply(stream(*range(time + 1, time + 60)))
    assert operator.map_heartbeat(time) == operator.apply(windowed).first - 1


@pytest.mark.parametrize("end", [MIN_TIME, MAX_TIME])
def test_the_ends_of_time_are_passed_as_they_are(end: int) -> None:
    window = Window(SOURCE, Sliding(20, 10))
    operators: list[Stateless] = [WindowOperator(window), GranularityOperator(Granularity(window, 7))]
    assert [o.map_heartbeat(end) for o in operators] == [end, end]


@given(st.integers(1, 2**62), st.lists(st.integers(MIN_TIME + 1, MAX_TIME), min_size=1))
def test_rounding_saturates(step: int, values: list[int]) -> None:
    times = np.array(values, np.int64)
    assert ceil_to(times, step).tolist() == [min(MAX_TIME, -(-t // step) * step) for t in values]
    assert add(times, step).tolist() == [min(MAX_TIME, t + step) for t in values]
    low = [t for t in values if t // step * step >= MIN_TIME and t < MAX_TIME]
    assert floor_to(np.array(low, np.int64), step).tolist() == [t // step * step for t in low]


@given(st.integers(-100, 100), st.integers(1, 20), st.integers(0, 19))
def test_the_tick_after_is_the_next_one(time: int, slide: int, phase: int) -> None:
    tick = tick_after(time, Ticks(slide, phase % slide))
    assert (tick + 1 - phase) % slide == 0
    assert time < tick <= time + slide


def test_a_punctuation_passes_a_window_with_its_time_moved() -> None:
    promise = Punctuation(12, (("k", SEVEN),))
    sliding = WindowOperator(Window(SOURCE, Sliding(20, 10)))
    assert sliding.on_punctuation(0, promise) == Punctuation(18, (("k", SEVEN),))


def test_a_punctuation_passes_a_projection_under_the_new_name_or_not_at_all() -> None:
    plan = Project(SOURCE, (("a", col("k")), ("b", col("k") + 1), ("c", col("k"))))
    operator = ProjectOperator(plan)
    assert operator.on_punctuation(0, Punctuation(5, (("k", SEVEN),))) == Punctuation(5, (("a", SEVEN),))
    assert operator.on_punctuation(0, Punctuation(5, (("s", Constant("x")),))) is None


def test_a_bare_column_is_the_input_array_itself() -> None:
    batch = stream(1, 2)
    out = ProjectOperator(Project(SOURCE, (("a", col("k")),))).apply(batch)
    assert out.data.column(0).buffers()[1].address == batch.data.column(0).buffers()[1].address


def test_no_columns_are_left_but_rows_are() -> None:
    assert len(ProjectOperator(Project(SOURCE, ())).apply(stream(1, 2)).data) == 2


# --------------------------------------------------------------------------------------------- row windows


@given(st.lists(st.lists(st.integers(0, 2), max_size=30), max_size=40), st.integers(1, 5))
def test_the_row_displaced_is_the_oldest_of_its_partition(batches: list[list[int]], limit: int) -> None:
    newest = NewestRows(SCHEMA, ["k"], limit)
    held: dict[int, list[str]] = {}
    serial = 0
    for keys in batches * 5:
        names = [f"row {serial + i}" for i in range(len(keys))]
        serial += len(keys)
        columns = [pa.array(keys, pa.int64()), pa.array(names, pa.string())]
        displaced = newest.add(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        expected = []
        for key, name in zip(keys, names, strict=True):
            held.setdefault(key, []).append(name)
            expected.append(held[key].pop(0) if len(held[key]) > limit else None)
        found = newest.rows.rows(displaced[displaced != NONE]).column(1).to_pylist()
        assert found == [name for name in expected if name is not None]
        assert [d == NONE for d in displaced] == [name is None for name in expected]
        newest.tidy()


def test_a_punctuation_on_partition_keys_closes_them_and_frees_their_rows() -> None:
    operator = RowsWindowOperator(Window(SOURCE, Rows(1, ("k",))))
    operator.apply(stream(*range(5000)))
    before = operator.memory.bytes()
    assert operator.on_punctuation(0, Punctuation(patterns=(("s", Constant("x")),))) is None
    assert operator.memory.bytes() == before
    promise = Punctuation(patterns=(("k", SEVEN),))
    assert operator.on_punctuation(0, promise) == promise
    assert operator.memory.bytes() <= before
    again = operator.apply(stream(*range(5000, 5010)))
    assert len(again) == 10 + 9, "only the closed partition has nothing to withdraw"
