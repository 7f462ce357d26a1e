"""Queries come and go, tables are swapped, paths are cut: no row is lost, repeated or reordered."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.errors import GraphError
from headrace.expressions import col
from headrace.flow.batch import Batch
from headrace.plan.nodes.core import Distinct, IStream, Join, Plan, Project, Select, Source, Union, Window
from headrace.plan.nodes.windows import Range, Rows
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.ets import TimerPromise

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
RENAMED = Project(B, (("k2", col("k")), ("v2", col("v"))))
UNION = Union((Select(A, col("v") < 8), Select(B, col("v") < 8)))
PLANS: list[Plan] = [
    Select(A, col("v") < 8),
    UNION,
    Select(UNION, col("k") > 0),
    IStream(Join(Window(Select(A, col("v") < 8), Range(5)), Window(RENAMED, Range(4)), ("k",), ("k2",))),
    IStream(Distinct(Window(UNION, Range(6)))),
    IStream(Window(A, Rows(3, ("k",)))),
]


@given(st.data())
def test_each_query_sees_exactly_the_rows_between_its_coming_and_going(data: st.DataObject) -> None:
    draw = data.draw
    engine = Engine(strategy=draw(st.sampled_from(["dfs", "bfs", "rr", "chain", "edf", "dfs(3)", "auto"])))
    for source in (A, B):
        engine.streams.declare(source, promise=TimerPromise(0))
    running: dict[str, Plan] = {}
    seen: dict[str, dict[str, list[tuple[int, dict[str, int]]]]] = {}
    answers: dict[str, list[Batch]] = defaultdict(list)
    for step in range(draw(st.integers(1, 25))):
        what = draw(st.sampled_from(["push", "push", "push", "advance", "add", "remove", "swap", "break"]))
        if what == "add":
            name = f"q{step}"
            running[name] = draw(st.sampled_from(PLANS))
            engine.add(name, running[name], since=draw(st.integers(0, 2)))
            seen[name] = {"a": [], "b": []}
        elif what == "remove" and running:
            name = draw(st.sampled_from(sorted(running)))
            engine.run()
            answers[name] += engine.drain(name)
            engine.remove(name)
            del running[name]
        elif what == "swap":
            some = (
                draw(st.lists(st.sampled_from(engine.graph.nodes), max_size=3))
                if engine.graph.nodes
                else None
            )
            engine.scheduling.use(draw(st.sampled_from(["dfs", "bfs", "rr(4)", "auto"])), some or None)
        elif what == "break" and engine.graph.nodes:
            node = draw(st.sampled_from(engine.graph.nodes))
            draw(st.sampled_from([engine.scheduling.set_break, engine.scheduling.unset_break]))(node)
        elif what == "advance":
            engine.advance(engine.now + draw(st.integers(1, 6)))
        elif what == "push" and engine.graph.sources:
            stream = draw(st.sampled_from(["a", "b"]))
            rows = draw(
                st.lists(st.fixed_dictionaries({"k": st.integers(0, 2), "v": st.integers(0, 9)}), max_size=5)
            )
            times = np.full(len(rows), engine.now + 1, np.int64)
            engine.push(stream, pa.RecordBatch.from_pylist(rows, schema=SCHEMA), times)
            for name in running:
                seen[name][stream] += [(engine.now + 1, row) for row in rows]
        for name in running:
            if draw(st.booleans()):
                answers[name] += engine.drain(name)
    engine.advance(engine.now + 1)
    for name, plan in running.items():
        answers[name] += engine.drain(name)
        expected = [e for e in oracle.stream(plan, seen[name]) if e[0] <= engine.now]
        assert_same_stream(answers[name], expected, schema=plan.schema)


def test_equal_sub_plans_are_one_node_and_removal_frees_only_what_no_one_else_uses() -> None:
    engine = Engine()
    engine.add("one", UNION)
    engine.add("two", Select(UNION, col("k") > 0))
    assert len(engine.graph.nodes) == 4
    assert len(list(engine.graph.components())) == 1
    engine.remove("one")
    assert len(engine.graph.nodes) == 4
    engine.remove("two")
    assert engine.graph.nodes == []
    assert all(not source.arc.readers and not source.successors for source in engine.graph.sources.values())


def test_a_stateful_node_that_has_run_is_not_shared_with_a_newcomer() -> None:
    engine = Engine()
    plan = IStream(Distinct(Window(A, Range(100))))
    engine.add("old", plan)
    batch = pa.RecordBatch.from_pylist([{"k": 1, "v": 1}], schema=SCHEMA)
    engine.push("a", batch, [1])
    engine.streams.heartbeat("a", 1)
    assert len(engine.drain("old")) == 1
    engine.add("new", plan)
    engine.push("a", batch, [2])
    engine.streams.heartbeat("a", 2)
    assert sum(len(b) for b in engine.drain("old")) == 0
    assert sum(len(b) for b in engine.drain("new")) == 1


def test_a_newcomer_does_not_see_rows_that_wait_in_the_buffers_of_others() -> None:
    engine = Engine()
    row = pa.RecordBatch.from_pylist([{"k": 1, "v": 1}], schema=SCHEMA)
    engine.add("old", UNION)
    engine.push("a", row, [5])
    engine.add("new", UNION)
    engine.streams.heartbeat("b", 5)
    assert sum(len(b) for b in engine.drain("old")) == 1
    assert engine.drain("new") == []


def test_rows_in_a_fork_leave_when_the_last_reader_has_passed_them() -> None:
    engine = Engine()
    engine.add("fast", A)
    engine.add("slow", A)
    engine.push("a", pa.RecordBatch.from_pylist([{"k": 1, "v": 1}], schema=SCHEMA), [1])
    arc = engine.graph.sources["a"].arc
    engine.drain("fast")
    assert arc.held_rows() == 1
    engine.drain("slow")
    assert arc.held_rows() == 0
    assert arc.bytes() == 0


@pytest.mark.parametrize(
    ("code", "act"),
    [
        ("HR-G002", lambda e: e.add("q", A)),
        ("HR-G003", lambda e: e.remove("r")),
        ("HR-G003", lambda e: e.drain("r")),
        ("HR-G005", lambda e: e.push("nowhere", None)),
        ("HR-G001", lambda e: e.add("r", Source("a", pa.schema([("z", pa.int64())])))),
        ("HR-G004", lambda e: e.snapshot(since=99)),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_code_place_and_hint(code: str, act) -> None:  # type: ignore[no-untyped-def]
    engine = Engine()
    engine.add("q", A)
    with pytest.raises(GraphError, match=code) as caught:
        act(engine)
    assert caught.value.hint


def test_queries_share_operators_within_a_generation_only() -> None:
    engine = Engine()
    for query, since in (("first", 0), ("second", 0), ("third", 1), ("fourth", 1)):
        engine.add(query, PLANS[4], since=since)
    nodes = {query: {node.id for node in engine.graph.nodes_of(query)} for query in engine.graph.sinks}
    assert nodes["first"] == nodes["second"]
    assert nodes["third"] == nodes["fourth"]
    assert not nodes["first"] & nodes["third"]
