"""Windows and granularities change while they run, and every answer is exact under their histories."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.engine import Engine, Snapshot
from headrace.engine.quality import Setting
from headrace.errors import GraphError
from headrace.expressions import col
from headrace.flow.batch import Batch
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import AggregateCall, Granularity, IStream, Join, Plan, Project, Source, Window
from headrace.plan.nodes.quality import adaptable, bounds_of
from headrace.plan.nodes.trees import everywhere
from headrace.plan.nodes.windows import Range, Rows, Sliding
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.ets import TimerPromise
from tests.engine.driving import Hook, assert_exact, execute
from tests.laws import effort
from tests.strategies.plans import cases
from tests.strategies.runs import runs

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
RENAMED = Project(B, (("k2", col("k")), ("v2", col("v"))))
COUNT = (AggregateCall("n", "count"),)


def joined(left: Range, right: Range) -> Plan:
    return IStream(Join(Window(A, left), Window(RENAMED, right), ("k",), ("k2",)))


def counted(window: Range, grain: int, coarsest: int | None) -> Plan:
    return IStream(nodes.Aggregate(Granularity(Window(A, window), grain, coarsest), ("k",), COUNT))


def rows_of(*keys: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": k, "v": 1} for k in keys], schema=SCHEMA)


def bounded(plan: Plan) -> Plan:
    """The same with bounds, if it may have some."""
    if isinstance(plan, Granularity):
        return replace(plan, coarsest=plan.coarsest or plan.grain + 3 * plan.ticks.slide)
    if isinstance(plan, Window) and isinstance(plan.spec, Range):
        return replace(plan, spec=Range(plan.spec.size, plan.spec.least or 1))
    if isinstance(plan, Window) and isinstance(plan.spec, Sliding):
        least = plan.spec.least or (plan.spec.size - 1) % plan.spec.slide + 1
        return replace(plan, spec=replace(plan.spec, least=least))
    if isinstance(plan, Window) and type(plan.spec) is Rows:
        return replace(plan, spec=replace(plan.spec, least=plan.spec.least or 1))
    return plan


def value_of(draw: Any, setting: Setting) -> int:
    """A value that the setting may get."""
    return setting.most - setting.step * int(
        draw(st.integers(0, (setting.most - setting.least) // setting.step))
    )


def change_at_random(draw: Any) -> Hook:
    """Before a step, now and then, give a window or a granularity another value, soon or later."""

    def hook(engine: Engine) -> None:
        known = engine.quality.settings()
        if not known or draw(st.integers(0, 2)):
            return
        chosen = draw(st.sampled_from(known))
        value = value_of(draw, chosen)
        later = draw(st.none() | st.integers(0, 12))
        at = None if later is None else max(chosen.earliest, -1) + later
        since = engine.quality.resize(chosen.node, value, at=at)
        note(f"{chosen.node} is {value} from {since}")

    return hook


@effort(4, "the central law, for windows that change")
@given(st.data())
def test_answers_are_exact_under_any_history(data: st.DataObject) -> None:
    drawn = data.draw(cases())
    case = replace(drawn, plan=everywhere(drawn.plan, bounded))
    run = data.draw(runs(case))
    answers, engine = execute(case, run, hook=change_at_random(data.draw))
    assert_exact(engine, answers, case.plan, case.sources)


@given(st.data())
def test_grains_that_change_often_keep_rows_in_order_and_heartbeats_true(data: st.DataObject) -> None:
    """Two rounded inputs meet in a join, which would see rows that come too late for what was promised."""
    draw = data.draw
    other = Granularity(Window(RENAMED, Range(9)), 1, 6)
    plan = IStream(Join(Granularity(Window(A, Range(12)), 1, 9), other, ("k",), ("k2",)))
    engine = Engine(propagation=draw(st.sampled_from(["eqg", "punctuation"])), strategy="dfs(1)")
    for source in (A, B):
        engine.streams.declare(source, promise=TimerPromise(0))
    engine.add("q", plan)
    seen: dict[str, list[tuple[int, dict[str, int]]]] = {"a": [], "b": []}
    answers: list[Batch] = []
    for _ in range(draw(st.integers(1, 20))):
        for setting in engine.quality.settings():
            if draw(st.booleans()):
                later = draw(st.integers(0, 3))
                value = draw(st.integers(setting.least, setting.most))
                engine.quality.resize(setting.node, value, at=max(setting.earliest, engine.now) + later)
        stream = draw(st.sampled_from(["a", "b"]))
        engine.push(stream, rows_of(1), [engine.now + 1])
        seen[stream].append((engine.now + 1, {"k": 1, "v": 1}))
        if draw(st.booleans()):
            answers += engine.drain()
        engine.advance(engine.now + draw(st.integers(1, 3)))
    for name in seen:
        engine.streams.end(name)
    answers += engine.drain()
    assert_same_stream(answers, oracle.stream(plan, seen, engine.quality.histories("q")), schema=plan.schema)


BOUNDED: list[Plan] = [
    joined(Range(9, 2), Range(5)),
    joined(Range(6, 1), Range(5)),
    joined(Range(1, 1), Range(8, 3)),
    counted(Range(7), 1, 4),
    counted(Range(7), 2, 3),
    counted(Range(7), 5, 6),
    counted(Range(9, 4), 1, 4),
    IStream(Window(A, Range(9, 2))),
    IStream(Window(A, Range(3, 1))),
    nodes.DStream(Window(A, Range(8, 4))),
    nodes.RStream(Window(A, Sliding(6, 2, 0, 2)), 2),
    nodes.RStream(Window(A, Sliding(4, 2, 0, 2)), 2),
    nodes.RStream(Window(A, Sliding(6, 2, 0, 6)), 2),
    nodes.DStream(Window(A, Sliding(9, 3, 1, 3))),
    IStream(nodes.Aggregate(Window(A, Sliding(6, 2, 0, 2)), ("k",), COUNT)),
    nodes.DStream(Window(A, Rows(5, (), 2))),
    nodes.DStream(Window(A, Rows(3, (), 1))),
    nodes.DStream(Window(A, Rows(2, ("k",), 1))),
    IStream(nodes.Aggregate(Window(A, Rows(3, (), 2)), ("k",), COUNT)),
]


@effort(4, "the central law, for windows that change")
@given(st.data())
def test_queries_that_share_come_go_and_change_and_each_stays_exact_and_within_its_bounds(
    data: st.DataObject,
) -> None:
    draw = data.draw
    engine = Engine(strategy=draw(st.sampled_from(["dfs", "bfs", "rr", "chain", "edf", "dfs(3)", "auto"])))
    for source in (A, B):
        engine.streams.declare(source, promise=TimerPromise(0))
    running: dict[str, Plan] = {}
    seen: dict[str, dict[str, list[tuple[int, dict[str, int]]]]] = {}
    answers: dict[str, list[Batch]] = defaultdict(list)
    hook = change_at_random(draw)
    for step in range(draw(st.integers(1, 25))):
        what = draw(st.sampled_from(["push", "push", "push", "advance", "add", "add", "remove", "resize"]))
        if what == "add":
            name = f"q{step}"
            running[name] = draw(st.sampled_from(BOUNDED))
            engine.add(name, running[name])
            seen[name] = {"a": [], "b": []}
        elif what == "remove" and running:
            name = draw(st.sampled_from(sorted(running)))
            check(engine, name, running.pop(name), seen[name], answers[name] + engine.drain(name))
            engine.remove(name)
        elif what == "resize":
            hook(engine)
        elif what == "advance":
            engine.advance(engine.now + draw(st.integers(1, 6)))
        elif what == "push" and running:
            stream = draw(st.sampled_from(["a", "b"]))
            keys = draw(st.lists(st.integers(0, 2), max_size=4))
            if stream in engine.streams:
                engine.push(stream, rows_of(*keys), np.full(len(keys), engine.now + 1, np.int64))
                for name in running:
                    seen[name][stream] += [(engine.now + 1, {"k": k, "v": 1}) for k in keys]
        for name in running:
            if draw(st.booleans()):
                answers[name] += engine.drain(name)
    engine.advance(engine.now + 1)
    for name, plan in running.items():
        check(engine, name, plan, seen[name], answers[name] + engine.drain(name))


def check(engine: Engine, name: str, plan: Plan, seen: Any, answers: list[Batch]) -> None:
    """What a query has said so far is what the oracle says, and no row saw a value that it did not allow."""
    histories = engine.quality.histories(name)
    said = oracle.stream(plan, seen, histories)
    came = max((batch.last for batch in answers), default=-(10**9))
    upto = max(came, engine.now - 1)
    assert_same_stream(answers, [e for e in said if e[0] <= upto], schema=plan.schema)
    first = min((t for rows in seen.values() for t, _ in rows), default=None)
    for node, history in histories.items():
        bounds = bounds_of(node)
        assert bounds is not None
        ends = [*(t for t, _ in history[1:]), 10**18]
        used = [v for (_, v), end in zip(history, ends, strict=True) if first is not None and end > first]
        assert all(value in bounds for value in used), (history, bounds)


# ------------------------------------------------------------------------------------------------- by hand


def test_rows_from_an_instant_on_get_the_new_size() -> None:
    engine = Engine()
    engine.add("q", nodes.DStream(Window(A, Range(10, 2))))
    engine.push("a", rows_of(1, 2), [0, 4])
    engine.run()
    (window,) = engine.quality.settings()
    assert (window.least, window.most, window.value, window.earliest) == (2, 10, 10, 5)
    assert window.queries == ("q",)
    assert engine.quality.resize(window.node, 3, at=6) == 6
    engine.push("a", rows_of(3, 4), [5, 6])
    engine.streams.end("a")
    left = {
        row["k"]: int(t) for b in engine.drain() for t, row in zip(b.start, b.data.to_pylist(), strict=True)
    }
    assert left == {1: 10, 2: 14, 3: 15, 4: 9}
    assert engine.quality.settings()[0].history[1:] == ((6, 3),)


def test_a_smaller_window_frees_the_state_behind_it() -> None:
    def peak(resize: bool) -> int:
        engine = Engine()
        engine.add("q", joined(Range(10_000, 10), Range(10)))
        if resize:
            for each in engine.quality.settings():
                engine.quality.resize(each.node, 10)
        for begin in range(0, 8000, 500):
            engine.push("a", rows_of(*range(begin, begin + 500)), np.arange(begin, begin + 500))
            engine.streams.heartbeat("b", begin + 499)
            engine.drain()
        return engine.metrics().state_bytes

    assert peak(resize=True) < peak(resize=False) / 5


def test_a_grain_ends_at_its_own_multiple() -> None:
    engine = Engine()
    engine.add("q", counted(Range(20), 4, 10))
    (grain,) = engine.quality.settings()
    engine.push("a", rows_of(1), [1])
    engine.run()
    assert engine.quality.resize(grain.node, 10, at=6) == 8
    assert engine.quality.resize(grain.node, 5, at=9) == 10
    assert [t for t, _ in engine.quality.settings()[0].history[1:]] == [8, 10]


@pytest.mark.parametrize(
    ("code", "act"),
    [
        ("HR-G015", lambda e: e.quality.resize("istream1", 5)),
        ("HR-G016", lambda e: e.quality.resize("adaptablewindow0", 11)),
        ("HR-G016", lambda e: e.quality.resize("adaptablewindow0", 1)),
        ("HR-G016", lambda e: e.quality.resize("adaptablewindow0", 2.5)),
        ("HR-G017", lambda e: e.quality.resize("adaptablewindow0", 5, at=4)),
        ("HR-G003", lambda e: e.quality.histories("other")),
    ],
)
def test_a_change_that_cannot_be_is_refused(code: str, act: Any) -> None:
    engine = Engine()
    engine.add("q", IStream(Window(A, Range(10, 2))))
    engine.push("a", rows_of(1), [4])
    engine.run()
    with pytest.raises(GraphError, match=code) as caught:
        act(engine)
    assert caught.value.hint
    assert len(engine.quality.settings()[0].history) == 1


def test_every_answer_can_tell_the_quality_in_force() -> None:
    engine = Engine()
    plan = counted(Range(20, 5), 4, 10)
    engine.add("q", plan)
    engine.push("a", rows_of(1), [1])
    engine.run()
    engine.quality.resize("adaptablewindow0", 6, at=7)
    window, grain = adaptable(plan)
    told = engine.quality.in_force("q", [-5, 6, 7, 100])
    assert told[window].tolist() == [20, 20, 6, 6]
    assert told[grain].tolist() == [4, 4, 4, 4]


def test_a_history_survives_a_snapshot() -> None:
    plan = IStream(Window(A, Range(10, 2)))
    engine = Engine()
    engine.add("q", plan)
    engine.push("a", rows_of(1), [4])
    engine.run()
    engine.quality.resize("adaptablewindow0", 5, at=7)
    other = Engine()
    other.add("q", plan)
    other.restore(Snapshot.decode(engine.snapshot().encode()))
    assert other.quality.settings() == engine.quality.settings()


# ------------------------------------------------------------------------------------------------ sharing


def bounds(engine: Engine) -> list[tuple[int, int, int]]:
    return [(each.least, each.most, each.value) for each in engine.quality.settings()]


def test_bounds_that_meet_are_one_operator_and_widen_when_a_query_leaves() -> None:
    engine = Engine()
    engine.add("one", joined(Range(9, 2), Range(5)))
    engine.add("two", joined(Range(6, 4), Range(5)))
    assert bounds(engine) == [(4, 6, 6)]
    assert len(list(engine.graph.components())) == 1
    assert [each.queries for each in engine.quality.settings()] == [("one", "two")]
    engine.push("a", rows_of(1), [1])
    engine.run()
    engine.remove("two")
    assert bounds(engine) == [(2, 9, 9)]
    assert engine.quality.settings()[0].history[1:] == ((2, 9),), "at its best again from the next instant on"


def test_bounds_that_do_not_meet_run_apart() -> None:
    engine = Engine()
    engine.add("one", joined(Range(9, 7), Range(5)))
    engine.add("two", joined(Range(6, 4), Range(5)))
    assert bounds(engine) == [(7, 9, 9), (4, 6, 6)]
    fixed = [node for node in engine.graph.nodes if node.name.startswith("window")]
    assert len(fixed) == 1, "what has no bounds is still shared"
    engine.remove("two")
    assert bounds(engine) == [(7, 9, 9)]
    engine.remove("one")
    assert engine.graph.nodes == []


def test_a_newcomer_whose_bounds_the_running_window_breaks_gets_its_own() -> None:
    engine = Engine()
    engine.add("one", IStream(Window(A, Range(9, 2))))
    engine.push("a", rows_of(1), [1])
    engine.run()
    engine.add("two", nodes.DStream(Window(A, Range(6, 4))))
    assert bounds(engine) == [(2, 9, 9), (4, 6, 6)]
    engine.quality.resize("adaptablewindow0", 5)
    engine.push("a", rows_of(1), [2])
    engine.run()
    engine.add("three", Project(IStream(Window(A, Range(5, 3))), (("k", col("k")),)))
    assert [each.queries for each in engine.quality.settings()] == [("one", "three"), ("two",)]
    assert bounds(engine)[0] == (3, 5, 5)


def test_a_shared_value_that_was_chosen_stays_when_bounds_widen() -> None:
    engine = Engine()
    engine.add("one", IStream(Window(A, Range(9, 2))))
    engine.add("two", nodes.DStream(Window(A, Range(6, 4))))
    engine.quality.resize("adaptablewindow0", 5)
    engine.remove("two")
    assert bounds(engine) == [(2, 9, 5)]


def test_explain_shows_bounds_and_value() -> None:
    engine = Engine()
    engine.add("q", counted(Range(9, 2), 1, 4))
    engine.quality.resize("adaptablewindow0", 5)
    said = engine.explain("q")
    assert "window [RANGE MIN 2, MAX 9]" in said
    assert "granularity coarsest 4, finest 1" in said
    assert "adaptablewindow0: window [RANGE MIN 2, MAX 9]; 5 now, from 2 to 9" in said
