"""What bounds cost: the law that the engine, run with the bound, loses and answers the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.engine import Engine
from headrace.engine.inputs import Inputs
from headrace.errors import TimeError
from headrace.graph.admission import Rules
from headrace.time.bound_costs import Arrived, Cost, Replay, candidates, least_bound
from headrace.time.ets import DisorderPromise, Promise, TimerPromise
from headrace.time.lags import Lags
from headrace.time.timestamp import MAX_TIME

WINDOW = 10
STREAM = headrace.StreamDef("s", pa.schema([("v", pa.int64())]), ticks_per_second=None)
QUERY = headrace.query(
    f"SELECT window_end, count(*) AS n, sum(v) AS total FROM s [RANGE {WINDOW} TICKS SLIDE {WINDOW} TICKS]",
    streams=[STREAM],
)
PROMISES = {"newest": DisorderPromise, "clock": TimerPromise}

rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(-5, 5)), min_size=1, max_size=30)
"""Rows as (pause before it, how far behind the clock, value)."""


def arrived(rows: Sequence[tuple[int, int, int]]) -> Arrived:
    clock = np.cumsum([pause for pause, _, _ in rows]) + 100
    times = clock - np.array([behind for _, behind, _ in rows])
    return Arrived(times, clock, np.array([float(v) for _, _, v in rows]))


def run(
    given: Arrived, promise: Promise, late: str
) -> tuple[int, dict[int, tuple[int, int]], dict[int, int]]:
    """What an engine with the promise does: late rows, answers by the end of the window, and their clocks."""
    assert given.values is not None
    engine = Engine(now=int(given.arrivals[0]))
    rules = Rules(disordered=True, enforce=late)
    Inputs(promises={"s": promise}, rules={"s": rules}).install(engine, QUERY.sources)
    engine.add("q", QUERY)
    answers: dict[int, tuple[int, int]] = {}
    clocks: dict[int, int] = {}
    late_rows = 0
    for now in [*np.unique(given.arrivals).tolist(), MAX_TIME]:
        mine = given.arrivals == now
        if now == MAX_TIME:
            engine.streams.end("s")
            now = int(given.arrivals[-1])
        else:
            data = pa.RecordBatch.from_arrays(
                [pa.array(given.values[mine].astype(np.int64))], schema=STREAM.schema
            )
            engine.push("s", data, given.times[mine], now=now)
        engine.advance(now)
        for batch in engine.drain("q"):
            for end, n, total in zip(*(c.to_pylist() for c in batch.data.columns), strict=True):
                answers[end], clocks[end] = (n, total), now
        late_rows += sum(int(np.count_nonzero(~each.admitted)) for each in engine.drain_late())
    return late_rows, answers, clocks


def exact(given: Arrived) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    assert given.values is not None
    for time, value in zip(given.times.tolist(), given.values.tolist(), strict=True):
        found.setdefault((time // WINDOW + 1) * WINDOW, []).append(int(value))
    return found


def errors(
    given: Arrived, answers: dict[int, tuple[int, int]]
) -> tuple[list[float], list[float], list[float]]:
    """The relative errors of count, sum and avg in each window whose exact value is not 0."""
    counts, sums, avgs = [], [], []
    for end, values in exact(given).items():
        n, total = answers.get(end, (0, 0))
        all_n, all_total = len(values), sum(values)
        counts.append(abs(n - all_n) / all_n)
        if all_total:
            sums.append(abs(total - all_total) / abs(all_total))
            avgs.append(abs((total / n if n else 0.0) - all_total / all_n) / abs(all_total / all_n))
    return counts, sums, avgs


def means(cost: Cost) -> list[float]:
    return [0.0 if each is None else each.mean for each in (cost.count, cost.sum, cost.avg)]


@given(
    against=st.sampled_from(list(PROMISES)),
    late=st.sampled_from(["strict", "admit"]),
    rows=rows,
    bound=st.integers(0, 45),
)
def test_the_cost_is_what_the_engine_loses_with_the_bound(
    against: str, late: str, rows: list[tuple[int, int, int]], bound: int
) -> None:
    given = arrived(rows)
    cost = Replay(WINDOW, against, late).costs(given, [bound])[0]
    lost, answers, clocks = run(given, PROMISES[against](bound), late)
    assert cost.late == lost
    found = errors(given, answers)
    assert means(cost) == pytest.approx([np.mean(each) if each else 0.0 for each in found])
    worst = [0.0 if each is None else each.worst for each in (cost.count, cost.sum, cost.avg)]
    assert worst == pytest.approx([max(each, default=0.0) for each in found])
    if against == "newest" and late == "strict" and lost == 0 and cost.delay is not None:
        last = int(given.arrivals[-1])
        newest = int(given.times.max())
        proven = {end: clock for end, clock in clocks.items() if end - 1 <= newest - bound}
        assert all(clock <= last for clock in proven.values())
        assert cost.delay == pytest.approx(np.mean([clock - end + 1 for end, clock in proven.items()]))


@given(rows=rows, share=st.sampled_from([0.0, 0.1, 0.5]))
def test_the_least_bound_loses_no_more_and_one_less_loses_more(
    rows: list[tuple[int, int, int]], share: float
) -> None:
    needs = Replay(WINDOW).needs(arrived(rows))
    bound = least_bound(needs, share)
    allowed = int(share * len(needs))
    assert np.count_nonzero(needs > bound) <= allowed
    assert not bound or np.count_nonzero(needs > bound - 1) > allowed


@given(rows=rows, scale=st.sampled_from([1, 7, 1_000]))
def test_the_histogram_of_a_run_counts_each_row_within_an_eighth(
    rows: list[tuple[int, int, int]], scale: int
) -> None:
    given = arrived(rows)
    given = Arrived(given.times * scale, given.arrivals * scale)
    lags = Lags()
    for now in np.unique(given.arrivals).tolist():
        times = given.times[given.arrivals == now]
        lags.observe(times, now, int(times.min()))
    counted = np.repeat(*np.array(lags.pairs()).T)
    needs = np.sort(Replay(WINDOW).needs(given))
    assert len(counted) == len(needs)
    assert ((counted >= needs) & (counted <= needs * 9 // 8 + 1)).all()


def test_candidates_are_round_and_reach_from_many_late_rows_to_none() -> None:
    second = 1_000_000
    needs = np.array([0] * 10 + [300_000, 4 * second, 9 * second, 70 * second])
    found = candidates(needs, second)
    assert found == [0, 10 * second, 20 * second, 30 * second, 60 * second, 70 * second]
    assert candidates(np.array([0, 3, 80, 120]), None) == [0, 100, 120]
    assert candidates(np.zeros(3, np.int64), second) == [0]
    wide = candidates(np.arange(10**6), None)
    assert len(wide) <= 14


def test_rows_of_which_only_the_order_is_known_are_judged_by_all_before() -> None:
    given = Arrived.in_order(np.array([5, 9, 5, 9, 12]))
    assert given.arrivals.tolist() == [5, 9, 10, 10, 12]
    assert Replay(WINDOW).needs(given).tolist() == [0, 0, 5, 1, 0]


def test_no_rows_cost_nothing() -> None:
    empty = Arrived.in_order(np.empty(0, np.int64))
    assert Replay(WINDOW).costs(empty, [3]) == [Cost(3, 0, 0)]


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(TimeError, match="HR-T060"):
        Arrived(np.array([1, 2]), np.array([2, 1]))
    with pytest.raises(TimeError, match="HR-T060"):
        Replay(0)
    with pytest.raises(TimeError, match="use newest or clock"):
        Replay(5, "moon")
