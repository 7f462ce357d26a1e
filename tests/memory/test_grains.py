"""A budget is held by coarser granularities too, and every answer stays exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.engine import Engine, Snapshot
from headrace.memory.choice import GrainDemand, Outlook, choose_both, lines_a_row, loss, settled_grain
from headrace.memory.flows import kinds_of
from headrace.spill.store import MemorySpillStore
from tests.engine.driving import assert_exact
from tests.laws import effort
from tests.memory.test_manager import MAX, STEP, A, burst, demand, started

COUNT = "SELECT k, count(*) [GRANULARITY COARSEST 2000, FINEST 10] AS n FROM a [RANGE 20000] GROUP BY k"
BOTH = """SELECT k, count(*) [GRANULARITY COARSEST 2000, FINEST 10] AS n
          FROM a [RANGE MIN 200, MAX 20000] GROUP BY k"""


def grain(**other: Any) -> GrainDemand:
    plain: dict[str, Any] = {"least": 1, "most": 100, "size": 1, "weight": 1.0, "now": 0, "rate": 1.0}
    return GrainDemand(**{**plain, "kinds": 10.0, "bytes": 1.0, "waiting": 0.0, "windows": (0,), **other})


# ------------------------------------------------------------------------------------------------ choosing


@given(st.floats(0.01, 100), st.integers(1, 10_000), st.floats(1, 1e6))
def test_a_coarser_grain_never_makes_more_lines(rate: float, size: int, kinds: float) -> None:
    fine, coarse = lines_a_row(rate, size, kinds), lines_a_row(rate, 2 * size, kinds)
    assert 0 < coarse <= fine <= 1
    assert coarse * 2 >= fine - 1e-12, "twice the grain saves half at most"


@given(st.integers(1, 2000), st.data())
def test_what_was_seen_tells_how_many_kinds_there_are(kinds: int, data: st.DataObject) -> None:
    seen = data.draw(st.integers(kinds, 20 * kinds + 20))
    rng = np.random.default_rng(seen)
    found = kinds_of(seen, len(np.unique(rng.integers(0, kinds, seen))))
    assert kinds / 3 < found < 3 * kinds + 10 or found > 1e9, "or too few were seen twice to tell"


grain_demands = st.builds(
    grain,
    least=st.integers(1, 20),
    most=st.integers(20, 300),
    weight=st.sampled_from([1.0, 3.0]),
    rate=st.sampled_from([0.5, 1.0, 20.0]),
    kinds=st.sampled_from([1.0, 50.0, 1e12]),
    bytes=st.sampled_from([1.0, 10.0]),
    waiting=st.sampled_from([0.0, 0.5]),
)


@given(st.lists(grain_demands, min_size=1, max_size=2), st.integers(1, 5000))
def test_the_choice_is_within_bounds_and_fits_where_something_does(grains: Any, limit: int) -> None:
    outlook = Outlook(0.0, [demand(bytes=0.0)], grains, [each.least for each in grains])
    sizes, values = choose_both(outlook, grains, limit)
    assert all(each.least <= value <= each.most for each, value in zip(grains, values, strict=True))
    found = outlook.at(values)
    ends = [[each.least for each in grains], [each.candidates()[-1] for each in grains]]
    least = min(outlook.at(each).peak([10]) for each in ends)
    assert found.peak(sizes) <= max(limit, least) + 1e-6
    chosen = loss(outlook.demands, sizes) + sum(g.loss(v) for g, v in zip(grains, values, strict=True))
    alone = outlook.at(ends[0])
    if alone.peak([10]) <= limit:
        without = next(w for w in range(100, 9, -1) if alone.peak([w]) <= limit)
        assert chosen <= loss(outlook.demands, [without]) + 0.05, "no worse than by windows alone"


def test_what_saves_nothing_is_left_at_its_best() -> None:
    useless = grain(kinds=1e12)
    assert choose_both(Outlook(0.0, [demand(least=100)], [useless], [1]), [useless], 10.0)[1] == [1]
    useful = grain()
    sizes, values = choose_both(Outlook(0.0, [demand(bytes=0.0)], [useful], [1]), [useful], 50.0)
    assert sizes[0] > 90, "the granularity pays, for it saves much at little loss"
    assert 10 < values[0] < 40
    waits = grain(waiting=1.0)
    assert choose_both(Outlook(0.0, [demand(least=100)], [waits], [1]), [waits], 1.0)[1][0] < 60


def test_grains_do_not_flap() -> None:
    now = grain(size=50)
    assert settled_grain(now, 51, 0, pressed=False, window=160) == 50
    assert settled_grain(now, 51, 0, pressed=True, window=160) == 51
    assert settled_grain(now, 60, 0, pressed=False, window=160) == 60
    assert settled_grain(now, 48, 99, pressed=False, window=160) == 50
    assert settled_grain(now, 20, 9, pressed=False, window=160) == 50
    assert settled_grain(now, 20, 10, pressed=False, window=160) == 20
    assert settled_grain(now, 1, 10, pressed=False, window=160) == 1


# ------------------------------------------------------------------------------------------------- exactness

QUERIES = [
    "SELECT k, count(*) [GRANULARITY COARSEST 40, FINEST 2] AS n FROM a [RANGE MIN 10, MAX 90] GROUP BY k",
    "SELECT k, avg(v) [GRANULARITY COARSEST 30, FINEST 1] AS m, max(v) AS x FROM a [RANGE 60] GROUP BY k",
    """SELECT sum(v) [GRANULARITY COARSEST 25, FINEST 5] AS t, headrace_granularity() AS g,
       headrace_window() AS w, count(DISTINCT v) AS d FROM a [RANGE MIN 20, MAX 80]""",
    """SELECT a.k, min(b.v) [GRANULARITY COARSEST 30, FINEST 3] AS m
       FROM a [RANGE MIN 10, MAX 50] AS a, a [RANGE MIN 5, MAX 30] AS b WHERE a.k = b.k GROUP BY a.k""",
]


def run(
    text: str, budget: int, loads: list[tuple[int, int]], restores: bool = False
) -> tuple[Engine, list[Any], Any, Any]:
    """Rows at random, so many a step of 20 ticks; the answers, and all rows."""
    found = headrace.query(text, {"a": A}, ticks_per_second=None)

    def made() -> Engine:
        engine = Engine(spill_to=MemorySpillStore())
        engine.add("q", found)
        engine.memory.set_budget(budget, policy="spill")
        return engine

    engine, rng, answers, rows, begin = made(), np.random.default_rng(len(loads)), list[Any](), list[Any](), 0
    for steps, many in loads:
        for _ in range(steps):
            times = np.sort(rng.integers(begin, begin + 20, many))
            keys, values = rng.integers(0, 3, many), rng.integers(0, 4, many) / 4
            rows += [
                (t, {"k": k, "v": v})
                for t, k, v in zip(times.tolist(), keys.tolist(), values.tolist(), strict=True)
            ]
            engine.push("a", pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=A), times)
            answers += engine.drain()
            begin += 20
            if restores:
                twin = made()
                twin.restore(Snapshot.decode(engine.snapshot().encode()))
                engine = twin
    engine.streams.end("a")
    answers += engine.drain()
    return engine, answers, found, {"a": rows}


@effort(0.25, "long runs")
@given(
    text=st.sampled_from(QUERIES),
    budget=st.sampled_from([1, 3_000, 8_000, 20_000, 50_000]),
    loads=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 2, 10, 60])), min_size=1, max_size=4),
    restores=st.booleans(),
)
def test_answers_are_exact_whatever_the_budget_the_rates_and_the_bursts(
    text: str, budget: int, loads: list[tuple[int, int]], restores: bool
) -> None:
    engine, answers, found, rows = run(text, budget, loads, restores)
    assert_exact(engine, answers, found.plan, rows)


def test_granularities_do_change_in_these_runs() -> None:
    engine, *_ = run(QUERIES[0], 8_000, [(3, 10), (6, 60)])
    assert any("granularity" in s.what and len(s.history) > 1 for s in engine.quality.settings())


# ----------------------------------------------------------------------------------------------------- bursts


@pytest.mark.parametrize("text", [COUNT, BOTH])
def test_a_burst_fits_into_the_budget_by_a_coarser_granularity(text: str) -> None:
    free, _ = burst(started(text, None), 50, 20, until=3 * MAX)
    budget = free // 6
    engine = started(text, budget)
    peak, values = burst(engine, 50, 20)
    per_window = MAX // STEP
    grains = [each[-1] for each in values]
    assert peak <= 1.05 * budget < free / 5, (peak, budget, free)
    assert all(each == 10 for each in grains[per_window : 2 * per_window]), "the finest before the burst"
    assert all(each > 50 for each in grains[2 * per_window + 5 : 3 * per_window])
    assert all(each == 10 for each in grains[4 * per_window :]), "back within one window"
    assert all(len(s.history) < 30 for s in engine.quality.settings()), "nothing flaps"


# ------------------------------------------------------------------------------------------------------ state


@pytest.mark.parametrize("function", ["avg(v)", "min(v)", "count(DISTINCT v)", "stddev(v)"])
def test_equal_values_that_end_together_are_one_line_of_state(function: str) -> None:
    def held(grain: int) -> int:
        text = f"SELECT k, {function} [GRANULARITY {grain}] AS x FROM a [RANGE 4000] GROUP BY k"
        engine = started(text, None)
        rng = np.random.default_rng(1)
        for begin in range(0, 8000, 1000):
            keys, values = rng.integers(0, 5, 1000), rng.integers(0, 3, 1000) / 3
            columns = [pa.array(keys), pa.array(values)]
            engine.push("a", pa.RecordBatch.from_arrays(columns, schema=A), np.arange(begin, begin + 1000))
            engine.drain()
        return engine.metrics().state_bytes

    assert held(500) < held(1) / 2
