"""A budget is held by changing windows within their bounds, and every answer stays exact."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.engine import Engine
from headrace.errors import BudgetError, SpillError
from headrace.flow.batch import Batch
from headrace.memory.budget import budget_bytes, machine_bytes
from headrace.memory.choice import Cohort, Demand, Outlook, choose, loss, settled
from headrace.plan.nodes.trees import everywhere
from headrace.spill.directory import DirectorySpillStore
from headrace.spill.store import MemorySpillStore
from headrace.time.timestamp import MAX_TIME
from tests.engine.driving import assert_exact, execute
from tests.engine.test_quality import bounded
from tests.laws import effort
from tests.strategies.plans import cases
from tests.strategies.runs import runs

# ------------------------------------------------------------------------------------------------ choosing


def demand(**other: Any) -> Demand:
    plain: dict[str, Any] = {"least": 10, "most": 100, "size": 100, "weight": 1.0, "now": 0}
    return Demand(**{**plain, "rate": 1.0, "bytes": 1.0, **other})


demands = st.builds(
    demand,
    least=st.integers(1, 20),
    most=st.integers(20, 200),
    weight=st.sampled_from([1.0, 2.0, 5.0]),
    rate=st.sampled_from([0.0, 0.5, 1.0, 20.0]),
    bytes=st.sampled_from([1.0, 10.0]),
    cohorts=st.lists(
        st.builds(
            Cohort, st.just(-20), st.integers(-19, 0), st.integers(0, 50).map(float), st.integers(1, 150)
        ),
        max_size=3,
    ).map(tuple),
)


@given(st.lists(demands, min_size=1, max_size=2), st.data())
def test_the_choice_fits_and_nothing_that_fits_beside_the_rows_held_loses_less(
    several: list[Demand], data: st.DataObject
) -> None:
    """The sum of what is held now and of what new rows will need is linear in the sizes: it has one optimum.

    The need itself may be less, as rows leave before others come, and then other sizes may lose less: there
    is no bound on how much. 2.8 times was found, where 1.5 times was once declared.
    """
    outlook = Outlook(0.0, several)
    least, most = [d.least for d in several], [d.most for d in several]
    limit = data.draw(st.integers(0, 20_000) | st.integers(int(outlook.peak(least)), int(outlook.peak(most))))
    chosen = choose(outlook, limit)
    assert all(d.least <= w <= d.most for d, w in zip(several, chosen, strict=True))
    if outlook.peak(least) > limit:
        assert chosen == least
        return
    assert outlook.peak(chosen) <= limit
    room = limit - outlook.peak([0.0] * len(several))
    grids = [sorted({d.least, d.most, *range(d.least, d.most, 7)}) for d in several]
    beside = [w for w in itertools.product(*grids) if np.dot(outlook.costs, w) <= room]
    best = min((loss(several, sizes) for sizes in beside), default=math.inf)
    rounded = sum(2 * d.weight / (d.most - d.least) for d in several if d.most > d.least)
    assert loss(several, chosen) <= best + rounded


@given(st.lists(demands, min_size=1, max_size=3), st.data())
def test_a_greater_window_never_needs_less(several: list[Demand], data: st.DataObject) -> None:
    outlook = Outlook(0.0, several)
    small = [data.draw(st.integers(d.least, d.most)) for d in several]
    large = [data.draw(st.integers(w, d.most)) for w, d in zip(small, several, strict=True)]
    assert outlook.peak(small) <= outlook.peak(large) + 1e-6


def test_a_burst_is_met_with_the_room_that_committed_rows_leave() -> None:
    """100 rows held until their ends, 20 times the rate: 100 - w + 20 w must fit into 290."""
    held = Cohort(-100, 0, 100.0, 100)
    outlook = Outlook(0.0, [demand(least=1, rate=20.0, cohorts=(held,))])
    assert choose(outlook, 290.0) == [10]


def test_a_loss_is_spread_and_weighed() -> None:
    even = choose(Outlook(0.0, [demand(), demand()]), 150.0)
    assert even == [75, 75]
    weighed = choose(Outlook(0.0, [demand(weight=3.0), demand()]), 150.0)
    assert weighed[0] > 85 > 65 >= weighed[1]
    assert choose(Outlook(0.0, [demand(rate=0.0), demand()]), 50.0) == [100, 50]


def test_sizes_do_not_flap() -> None:
    now = demand(size=50)
    assert settled(now, 49, 0, pressed=False) == 50
    assert settled(now, 49, 0, pressed=True) == 49
    assert settled(now, 40, 0, pressed=False) == 40
    assert settled(now, 53, 99, pressed=False) == 50
    assert settled(now, 80, 3, pressed=False) == 50
    assert settled(now, 80, 7, pressed=False) == 80
    assert settled(replace(now, size=98), 100, 7, pressed=False) == 100


@pytest.mark.parametrize(
    ("written", "bytes"),
    [(64, 64), ("64", 64), ("64 MB", 64_000_000), ("1.5 KiB", 1536), ("2GB", 2 * 10**9), ("25 %", 250)],
)
def test_a_budget_is_bytes_a_size_or_a_share(written: int | str, bytes: int) -> None:
    assert budget_bytes(written, lambda: 1000) == bytes


@pytest.mark.parametrize("written", ["", "much", "-5", "5 parsecs", 0, -1, True, "120 %", 1.5])
def test_what_is_no_budget_is_refused(written: Any) -> None:
    with pytest.raises(BudgetError, match="HR-M002"):
        budget_bytes(written)
    assert machine_bytes() > 10**8


# ------------------------------------------------------------------------------------------------- exactness


@given(st.data())
def test_answers_are_exact_whatever_the_budget(data: st.DataObject) -> None:
    """Any plan, rows, order and restores; the manager decides when and by how much windows change."""
    drawn = data.draw(cases())
    case = replace(drawn, plan=everywhere(drawn.plan, bounded))
    run = data.draw(runs(case))
    budget = data.draw(st.sampled_from([1, 2_000, 20_000, 60_000]))

    def hook(engine: Engine) -> None:
        if engine.memory.manager is None:
            engine.memory.use(engine.memory.store or MemorySpillStore())
            engine.memory.set_budget(budget, policy="spill")

    answers, engine = execute(case, run, hook=hook)
    assert_exact(engine, answers, case.plan, case.sources)


# ----------------------------------------------------------------------------------------------------- bursts

A = pa.schema([("k", pa.int64()), ("v", pa.float64())])
B = pa.schema([("k2", pa.int64()), ("x", pa.int64())])
MAX, STEP = 20_000, 500
JOIN = """SELECT a.k, b.x FROM a [RANGE MIN 200, MAX 20000] AS a, b [RANGE MIN 200, MAX 20000] AS b
          WHERE a.k = b.k2"""
SUM = "SELECT k, sum(v) AS t FROM a [RANGE MIN 200, MAX 20000] GROUP BY k"
SLIDE = "DSTREAM(SELECT k, v FROM a [RANGE MIN 500, MAX 20000 SLIDE 500])"
BOUNDED = {"join": JOIN, "sum": SUM, "slide": SLIDE}


def started(text: str, budget: int | str | None, **how: Any) -> Engine:
    engine = Engine(spill_to=how.pop("spill_to", None))
    engine.add("q", headrace.query(text, {"a": A, "b": B}, ticks_per_second=None))
    engine.memory.set_budget(budget, **how)
    return engine


def feed(engine: Engine, begin: int, rows: int, rng: np.random.Generator) -> list[Batch]:
    """Rows of one step on each stream; the answers."""
    times = np.sort(rng.integers(begin, begin + STEP, rows))
    keys = rng.integers(0, 5_000 if "b" in engine.streams else 100, (2, rows))
    values = rng.random(rows)
    engine.push("a", pa.RecordBatch.from_arrays([pa.array(keys[0]), pa.array(values)], schema=A), times)
    if "b" in engine.streams:
        columns = [pa.array(keys[1]), pa.array(keys[0])]
        engine.push("b", pa.RecordBatch.from_arrays(columns, schema=B), times)
    return engine.drain()


def burst(engine: Engine, rows: int, times: int, until: int = 5 * MAX) -> tuple[int, list[tuple[int, ...]]]:
    """`times` the rows a step in the third window; the most bytes held, and the sizes after each step."""
    rng, peak, sizes = np.random.default_rng(3), 0, []
    for begin in range(0, until, STEP):
        feed(engine, begin, rows * times if 2 * MAX <= begin < 3 * MAX else rows, rng)
        peak = max(peak, engine.metrics().bytes)
        sizes.append(tuple(s.value for s in engine.quality.settings()))
    return peak, sizes


@pytest.mark.parametrize("name", BOUNDED)
def test_a_burst_fits_into_the_budget_and_windows_return_to_their_best(name: str) -> None:
    text = BOUNDED[name]
    free, _ = burst(started(text, None), 50, 20, until=3 * MAX)
    budget = free // 6
    engine = started(text, budget)
    peak, sizes = burst(engine, 50, 20)
    per_window = MAX // STEP
    best = tuple(MAX for _ in sizes[0])
    assert peak <= 1.05 * budget < free / 5, (peak, budget, free)
    assert all(each == best for each in sizes[per_window : 2 * per_window]), "at its best before the burst"
    assert all(max(each) < MAX / 2 for each in sizes[2 * per_window + 20 : 3 * per_window])
    assert all(each == best for each in sizes[4 * per_window :]), "back within one window"
    assert all(len(s.history) < 40 for s in engine.quality.settings()), "windows do not flap"


@effort(0.1, "two long runs each")
@given(
    rates=st.lists(st.tuples(st.integers(1, 60), st.sampled_from([0, 20, 100, 400])), min_size=2, max_size=5),
    share=st.sampled_from([0.3, 0.5, 0.8]),
    name=st.sampled_from(sorted(BOUNDED)),
)
def test_any_load_whose_minimum_fits_stays_within_the_budget(
    rates: list[tuple[int, int]], share: float, name: str
) -> None:
    """`share` of what fixed windows need; where the least windows need more, nothing is promised."""

    def run(budget: int | None) -> tuple[int, int]:
        engine, rng = started(BOUNDED[name], budget, policy="fail"), np.random.default_rng(1)
        begin = peak = least = 0
        for rows in (rows for steps, rows in rates for _ in range(steps)):
            try:
                feed(engine, begin, rows, rng)
            except BudgetError:
                peak = MAX_TIME
            peak, begin = max(peak, engine.metrics().bytes), begin + STEP
            least = max(least, engine.memory.manager.forecast.least if engine.memory.manager else 0)
            if peak == MAX_TIME:
                break
        return peak, least

    free, _ = run(None)
    budget = max(150_000, int(share * free))
    peak, least = run(budget)
    assert peak <= 1.05 * budget or least > 0.9 * budget, (peak, least, budget)


# --------------------------------------------------------------------------------------------- the same again


def test_a_snapshot_with_a_budget_serves_an_engine_without_and_the_other_way_round() -> None:
    managed, plain = started(SUM, "1 MB"), started(SUM, None)
    for engine in (managed, plain):
        feed(engine, 0, 100, np.random.default_rng(1))
    without, within = started(SUM, None), started(SUM, "1 MB")
    without.restore(managed.snapshot())
    within.restore(plain.snapshot())
    assert (without.memory.manager is None, within.memory.manager is None) == (True, False)
    engines = (managed, plain, without, within)
    first, *others = [[b.data for b in feed(e, STEP, 100, np.random.default_rng(2))] for e in engines]
    assert first
    assert others == [first] * 3


# ------------------------------------------------------------------------------------------------- shortage


def test_a_budget_that_the_least_windows_do_not_fit_into_fails_in_words() -> None:
    engine = started("SELECT k, sum(v) AS t FROM a [RANGE MIN 5000, MAX 20000] GROUP BY k", 60_000)
    with pytest.raises(BudgetError, match="HR-M001") as caught:
        burst(engine, 100, 1, until=MAX)
    said = caught.value
    assert "the budget is 58.6 KiB" in said.message
    assert "RANGE MIN 5000, MAX 20000" in said.place
    assert "spill" in said.hint
    assert [s.value for s in engine.quality.settings()] == [5000]
    engine.memory.set_budget("50 MB")
    feed(engine, MAX, 10, np.random.default_rng(1))


def test_a_budget_that_the_least_windows_do_not_fit_into_spills(tmp_path: Any) -> None:
    text = "SELECT a.k, b.x FROM a [RANGE 20000] AS a, b [RANGE 20000] AS b WHERE a.k = b.k2"

    def run(engine: Engine) -> tuple[int, list[tuple[int, Any]]]:
        rng, peak, said = np.random.default_rng(1), 0, []
        for begin in range(0, MAX, STEP):
            for each in feed(engine, begin, 300, rng):
                said += list(zip(each.start.tolist(), each.data.to_pylist(), strict=True))
            peak = max(peak, engine.metrics().bytes)
        return peak, sorted(said, key=repr)

    free, expected = run(started(text, None))
    budget = free // 3
    peak, said = run(started(text, budget, policy="spill", spill_to=DirectorySpillStore(tmp_path)))
    assert said == expected
    assert peak <= 1.05 * budget


def test_mistakes_are_named() -> None:
    engine = started(SUM, None)
    with pytest.raises(BudgetError, match="HR-M003"):
        engine.memory.set_budget("1 MB", policy="pray")  # type: ignore[arg-type]
    with pytest.raises(SpillError, match="HR-M101"):
        engine.memory.set_budget("1 MB", policy="spill")
    assert engine.memory.manager is None
