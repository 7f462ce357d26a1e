"""A query is accepted only if its smallest windows fit beside those of the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import headrace
from headrace import tuning
from headrace.control import AddQuery, log_of, submit
from headrace.engine import Engine
from headrace.errors import BudgetError
from headrace.pipeline import parse
from headrace.runtimes.embedded import Progress, Runner
from headrace.spill.store import MemorySpillStore
from headrace.testing import oracle
from tests.laws import effort

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
CATALOG = {"a": COLUMNS, "b": COLUMNS}
STEP = 100
BUDGET = 80_000


def asked(text: str) -> headrace.Query:
    return headrace.query(text, CATALOG, ticks_per_second=None)


def left(least: int, most: int) -> headrace.Query:
    """Every row, when it leaves its window."""
    return asked(f"DSTREAM(SELECT k, v FROM a [RANGE MIN {least}, MAX {most}])")


class World:
    """An engine with a budget, and a steady load."""

    def __init__(self, budget: int, rows: int, **options: Any) -> None:
        self.engine = Engine(**options)
        for stream in CATALOG:
            self.engine.streams.declare(asked(f"SELECT k FROM {stream}").sources[0])
        self.engine.memory.set_budget(budget, policy="spill" if options else "fail")
        self.rng, self.rows, self.now = np.random.default_rng(1), rows, 0
        self.came: dict[str, list[tuple[int, dict[str, int]]]] = {stream: [] for stream in CATALOG}
        self.peak = 0

    def go(self, steps: int) -> dict[str, list[Any]]:
        """Push rows of each stream for some steps; returns the answers."""
        found: dict[str, list[Any]] = {}
        for _ in range(steps):
            for stream, came in self.came.items():
                times = np.sort(self.rng.integers(self.now, self.now + STEP, self.rows))
                values = {name: self.rng.integers(0, 50, self.rows) for name in COLUMNS.names}
                self.engine.push(stream, pa.RecordBatch.from_pydict(values, COLUMNS), times)
                columns = [values[name].tolist() for name in COLUMNS.names]
                named = [dict(zip(COLUMNS.names, each, strict=True)) for each in zip(*columns, strict=True)]
                came += zip(times.tolist(), named, strict=True)
            self.now += STEP
            for name, batches in self.engine.drain_all().items():
                for each in batches:
                    rows = zip(*(column.to_pylist() for column in each.data.columns), strict=True)
                    found.setdefault(name, []).extend(zip(each.start.tolist(), rows, strict=True))
            self.peak = max(self.peak, self.engine.memory.bytes())
        return found


TEXTS = (
    "DSTREAM(SELECT k, v FROM a {})",
    "DSTREAM(SELECT v FROM b {} WHERE k < 10)",
    "SELECT a.k, b.v FROM a {} AS a, b {} AS b WHERE a.k = b.k AND a.v = b.v",
)
"""Queries whose state is the rows of their windows: nothing else is forecast."""


@effort(0.15, "each example runs several engines")
@given(
    st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(1, 1500), st.booleans()), min_size=1, max_size=5),
    st.sampled_from([150_000, 400_000]),
    st.integers(0, 30),
)
def test_what_is_accepted_fits_while_the_load_is_steady(
    wanted: list[tuple[str, int, bool]], budget: int, rows: int
) -> None:
    world = World(budget, rows)
    world.go(3)
    accepted = 0
    for number, (text, least, slides) in enumerate(wanted):
        window = f"[RANGE MIN {least}, MAX {4 * least}{f' SLIDE {least}' if slides else ''}]"
        query = asked(text.format(window, window))
        refused = ""
        try:
            world.engine.add(f"q{number}", query, since=number)
            accepted += 1
        except BudgetError as error:
            refused = error.code
        assert refused in ("", "HR-M004")
        assert (f"q{number}" in world.engine.graph.sinks) == (not refused)
        world.go(2)
    world.go(25)
    assert set(world.engine.drain_all()) == set(world.engine.graph.sinks)
    event(f"accepted {accepted} of {len(wanted)}")


@pytest.mark.parametrize("share", [0.2, 3.0])
def test_the_forecast_is_near_what_the_query_really_needs(share: float) -> None:
    """A fifth of what fits is accepted, and three times of it is refused."""
    alone = World(10**9, 20)
    alone.engine.add("q", left(2000, 2000))
    alone.go(40)
    world = World(int(alone.peak / share), 20)
    world.engine.add("first", left(1, 100))
    world.go(10)
    if share < 1:
        world.engine.add("q", left(2000, 8000), since=1)
        world.go(60)
    else:
        with pytest.raises(BudgetError, match="HR-M004"):
            world.engine.add("q", left(2000, 8000), since=1)


def test_a_refusal_says_what_fits() -> None:
    world = World(60_000, 20)
    world.engine.add("first", left(10, 500))
    world.go(20)
    with pytest.raises(BudgetError, match="HR-M004") as refused:
        world.engine.add("more", left(5000, 9000), since=1)
    text = str(refused.value)
    smaller, budget = re.search(r"MIN (\d+)\]", text), re.search(r"a budget of ([\d.]+ [KM]iB)", text)
    assert smaller is not None, text
    assert budget is not None, text
    with pytest.raises(BudgetError, match="HR-M004"):
        world.engine.add("more", left(int(smaller[1]) * 11 // 10, 9000), since=1)
    world.engine.add("more", left(int(smaller[1]), 9000), since=1)
    world.engine.remove("more")
    world.engine.memory.set_budget(budget[1])
    world.engine.add("more", left(5000, 9000), since=2)
    world.go(60)


def test_nothing_is_refused_before_rows_came_or_if_state_may_spill() -> None:
    fresh = World(10_000, 20)
    fresh.engine.add("q", left(10**6, 10**7))
    spilling = World(10_000, 20, spill_to=MemorySpillStore())
    spilling.engine.add("first", left(10, 500))
    spilling.go(20)
    spilling.engine.add("q", left(10**6, 10**7), since=1)


def test_memory_is_redistributed_when_queries_come_and_go() -> None:
    """The windows that run shrink for a new query, and are as large as before when it has left."""
    world = World(BUDGET, 20)
    world.engine.add("stays", left(50, 2000))
    answers = world.go(30)["stays"]
    size = {each.queries[0]: each.value for each in world.engine.quality.settings()}
    assert size == {"stays": 2000}
    world.engine.add("guest", left(50, 4000), since=1)
    answers += world.go(50)["stays"]
    shared = {each.queries[0]: each.value for each in world.engine.quality.settings()}
    assert 50 < shared["stays"] < 1800, shared
    assert 50 < shared["guest"] < 4000, shared
    assert world.peak <= 1.05 * BUDGET
    world.engine.remove("guest")
    answers += world.go(50)["stays"]
    assert [each.value for each in world.engine.quality.settings()] == [2000]
    for stream in CATALOG:
        world.engine.streams.end(stream)
    answers += world.go(0).get("stays", [])
    for batch in world.engine.drain("stays"):
        rows = zip(*(column.to_pylist() for column in batch.data.columns), strict=True)
        answers += zip(batch.start.tolist(), rows, strict=True)
    histories = world.engine.quality.histories("stays")
    assert len(next(iter(histories.values()))) > 2
    expected = oracle.stream(left(50, 2000).plan, world.came, histories)
    assert sorted(answers) == sorted(expected)


def test_the_quality_of_a_query_counts_by_its_importance() -> None:
    """Two equal queries over streams with the same rates: the more important one loses less."""
    world = World(BUDGET, 20)
    of_b = asked("DSTREAM(SELECT k, v FROM b [RANGE MIN 50, MAX 4000])")
    world.engine.add("high", left(50, 4000), importance=4)
    world.engine.add("low", of_b)
    world.go(80)
    size = {each.queries[0]: each.value for each in world.engine.quality.settings()}
    lost = {name: (4000 - value) / 3950 for name, value in size.items()}
    assert 3 < lost["low"] / lost["high"] < 5, size


FILE = """
[pipeline]
name = "loaded"
runtime = "embedded"
clock = "event"
checkpoint = "checkpoint"

[streams.a]
source = "a.jsonl"
schema = { k = "bigint", v = "bigint", t = "bigint" }
time = { column = "t", unit = "tick" }

[memory]
budget = "60 KB"

[[queries]]
name = "first"
sql = "DSTREAM(SELECT k, v FROM a [RANGE MIN 10 TICKS, MAX 500 TICKS])"
sink = "first.jsonl"
"""


def test_a_command_that_adds_a_query_which_does_not_fit_is_refused(tmp_path: Path) -> None:
    rows = [f'{{"k": {i % 7}, "v": {i % 50}, "t": {5 * i}}}\n' for i in range(4000)]
    (tmp_path / "a.jsonl").write_text("".join(rows))
    pipeline = parse(FILE, root=tmp_path)
    written = False

    def write(progress: Progress) -> None:
        nonlocal written
        if not written and progress.streams["a"].rows_in > 2000:
            written = True
            for name, least in (("large", 40_000), ("small", 20)):
                sql = f"DSTREAM(SELECT k, v FROM a [RANGE MIN {least} TICKS, MAX 90000 TICKS])"
                submit(pipeline, AddQuery(name, sql, f"{name}.jsonl"))

    with tuning.using(control_seconds=0):
        assert Runner(pipeline).run(on_progress=write, every=0).state == "finished"
    refused, accepted = log_of(pipeline).read()
    assert "HR-M004" in str(refused.refused)
    assert accepted.refused is None
    assert (tmp_path / "small.jsonl").exists()
