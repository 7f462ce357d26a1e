"""As early as is safe: with ETS on demand nothing that is provable waits, and nothing comes too early."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.expressions import col
from headrace.graph.source import SourceNode
from headrace.operators.contract import Waiting
from headrace.plan.nodes.core import AggregateCall, IStream, Plan, Select, Source, Union
from headrace.plan.nodes.session import SessionAggregate
from headrace.testing import oracle
from headrace.testing.compare import difference, events_of
from headrace.time.ets import TimerPromise
from headrace.time.timestamp import MAX_TIME, MIN_TIME
from tests.engine.driving import engine_for
from tests.strategies.plans import cases
from tests.strategies.runs import Run, runs

SCHEMA = pa.schema([("v", pa.int64())])


@given(st.data())
def test_all_that_the_clock_proves_is_out_when_advance_returns(data: st.DataObject) -> None:
    case = data.draw(cases())
    drawn = data.draw(runs(case))
    run = Run(drawn.steps, drawn.k, drawn.strategy, "on_demand", drawn.propagation, (), frozenset())
    expected, wait = oracle.stream(case.plan, case.sources), sessions_in_a_row(case.plan)
    engine = engine_for(case, run)
    answers = []
    for step in run.steps:
        if step[0] == "push":
            engine.push(step[1], step[2].data, step[2].start)
        elif step[0] == "end":
            engine.streams.end(step[1])
        else:
            engine.advance(step[1])
            answers += engine.drain()
            proven = step[1] - wait
            due = [event for event in expected if event[0] <= proven]
            out = [event for event in events_of(answers) if event[0] <= proven]
            assert not difference(out, due), (step, due, out)


def sessions_in_a_row(plan: Plan) -> int:
    """Ticks that an answer waits: the last of a session is also the last at which a row may prolong it."""
    below = max(map(sessions_in_a_row, plan.inputs), default=0)
    return below + isinstance(plan, SessionAggregate)


def test_a_session_is_answered_one_tick_after_the_last_at_which_a_row_may_prolong_it() -> None:
    count = (AggregateCall("n", "count"),)
    engine = Engine()
    engine.streams.declare(Source("s", SCHEMA), promise=TimerPromise(0))
    engine.add("q", IStream(SessionAggregate(Source("s", SCHEMA), ("v",), count, 3)))
    engine.push("s", pa.record_batch([pa.array([7])], schema=SCHEMA), [10])
    engine.advance(12)
    assert engine.drain() == []
    engine.advance(13)
    assert events_of(engine.drain()) == [(12, (7, 1))]


def _nested_unions(draw: st.DrawFn) -> Plan:
    """The graph of Figure 5: unions of unions, selections in between."""
    leaves: list[Plan] = [Source(f"s{i}", SCHEMA) for i in range(draw(st.integers(2, 4)))]
    while len(leaves) > 1:
        taken = draw(st.integers(2, len(leaves)))
        selected = tuple(_maybe_selected(draw, p) for p in leaves[:taken])
        leaves = [*leaves[taken:], _maybe_selected(draw, Union(selected))]
    return leaves[0]


def _maybe_selected(draw: st.DrawFn, plan: Plan) -> Plan:
    return Select(plan, col("v") < draw(st.integers(0, 9))) if draw(st.booleans()) else plan


@given(st.data())
def test_no_row_stays_in_a_buffer_once_its_release_is_provable(data: st.DataObject) -> None:
    plan = _nested_unions(data.draw)
    propagation = data.draw(st.sampled_from(["eqg", "punctuation"]))
    engine = Engine(
        strategy=data.draw(st.sampled_from(["dfs", "bfs", "rr", "chain", "edf", "dfs(2)", "auto"])),
        propagation=propagation,
    )
    lag = data.draw(st.integers(0, 5))
    names = _declare(engine, plan, lag)
    engine.add("q", plan)
    last = dict.fromkeys(names, 0)
    for _ in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(names))
        engine.streams.set_clock(engine.now + data.draw(st.integers(0, 4)))
        first = max(last[name], engine.now - lag + 1)
        times = np.sort(first + np.array(data.draw(st.lists(st.integers(0, 6), max_size=4)), np.int64))
        values = data.draw(st.lists(st.integers(0, 9), min_size=len(times), max_size=len(times)))
        if len(times):
            engine.push(name, pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA), times)
            last[name] = int(times[-1])
        engine.run()
        _assert_nothing_provable_waits(engine)


def _declare(engine: Engine, plan: Plan, lag: int) -> list[str]:
    if isinstance(plan, Source):
        engine.streams.declare(plan, promise=TimerPromise(lag))
        return [plan.name]
    return [name for below in plan.inputs for name in _declare(engine, below, lag)]


def _assert_nothing_provable_waits(engine: Engine) -> None:
    for node in engine.graph.nodes:
        operator = node.operator
        assert not operator.more, f"{node} could run"
        if not isinstance(operator, Waiting):
            assert all(reader.empty for reader in operator.inputs)
            continue
        proven = min(_proven(engine, before) for before in node.predecessors)
        for reader in operator.inputs:
            head = reader.head()
            assert head is None or head > proven + 1, f"{node} holds {head} though {proven} is proven"


def _proven(engine: Engine, before: object) -> int:
    """The heartbeat behind an arc that the sources' promises and rows imply, computed from scratch."""
    if isinstance(before, SourceNode):
        by_rows = before.arc.heartbeat if before.arc.rows_in else MIN_TIME
        return MAX_TIME if before.ended else max(before.promise.at(engine.now), by_rows)
    return min(_proven(engine, p) for p in before.predecessors)  # type: ignore[attr-defined]
