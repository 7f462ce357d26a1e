"""Earliest deadline first: the operator whose oldest row must have its results first."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Catalog, query
from headrace.engine import Engine
from headrace.errors import ScheduleError
from headrace.expressions import col
from headrace.graph.service import Service
from headrace.plan.nodes.core import Plan, Select, Source, TimeKind, Union
from headrace.time.ets import ClockPromise
from tests.scheduling.test_chain import recorded

SCHEMA = pa.schema([("v", pa.int64())])
S, T = (Source(name, SCHEMA, TimeKind.INTERNAL) for name in "st")


def path_of(source: Plan, *limits: int) -> Plan:
    for limit in limits:
        source = Select(source, col("v") < limit)
    return source


def push(engine: Engine, stream: str, now: int, rows: int = 1) -> None:
    engine.push(stream, pa.RecordBatch.from_pydict({"v": [1] * rows}, SCHEMA), now=now)


def engine_with(**queries: tuple[Plan, Service]) -> Engine:
    engine = Engine(strategy="edf")
    for name, (plan, service) in queries.items():
        engine.add(name, plan, service=service)
    return engine


def test_the_query_with_the_earliest_deadline_runs_first() -> None:
    engine = engine_with(
        slow=(path_of(S, 10), Service(1_000)),
        fast=(path_of(S, 20, 30), Service(10)),
        none=(path_of(S, 40), Service()),
    )
    ran = recorded(engine)
    push(engine, "s", 5, 2)
    engine.run()
    assert ran == ["select1", "select2", "select1", "select2", "select0", "select0", "select3", "select3"]


def test_a_row_that_has_waited_long_goes_before_one_with_an_earlier_target() -> None:
    engine = engine_with(slow=(path_of(S, 10), Service(100)), fast=(path_of(T, 20), Service(10)))
    ran = recorded(engine)
    push(engine, "s", 5)
    push(engine, "t", 94)
    push(engine, "t", 96)
    engine.run()
    assert ran == ["select1", "select0", "select1"], "deadlines 104, 105, 106"


def test_a_shared_operator_has_the_earliest_deadline_of_its_queries() -> None:
    shared = path_of(S, 10)
    engine = engine_with(
        slow=(path_of(shared, 20), Service(1_000)),
        fast=(path_of(shared, 30), Service(10)),
        middle=(path_of(T, 40), Service(100)),
    )
    assert {node.name: node.deadline for node in engine.graph.nodes} == {
        "select0": 10,
        "select1": 1_000,
        "select2": 10,
        "select3": 100,
    }
    ran = recorded(engine)
    push(engine, "s", 5)
    push(engine, "t", 5)
    engine.run()
    assert ran == ["select0", "select2", "select3", "select1"]
    engine.remove("fast")
    assert [node.deadline for node in engine.graph.nodes] == [1_000, 1_000, 100]


def test_paths_are_cut_at_forks_and_before_operators_with_several_inputs() -> None:
    engine = engine_with(both=(Union((path_of(S, 10), path_of(T, 20))), Service(10)))
    engine.streams.declare(S, promise=ClockPromise())
    assert [engine.scheduling.table.is_cut(node) for node in engine.graph.nodes] == [True, True, False]
    push(engine, "s", 5)
    assert [batch.data.to_pylist() for batch in engine.drain()] == [[{"v": 1}]]


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 30)), min_size=2, max_size=8))
def test_rows_run_in_the_order_of_their_deadlines(queries: list[tuple[int, int]]) -> None:
    """Each query has a stream of its own and one row, due when it came plus what the query allows."""
    engine, due = Engine(strategy="edf"), {}
    for i, (deadline, _) in enumerate(queries):
        engine.add(
            f"q{i}", path_of(Source(f"s{i}", SCHEMA, TimeKind.INTERNAL), 10), service=Service(deadline)
        )
    ran = recorded(engine)
    for i, (deadline, came) in sorted(enumerate(queries), key=lambda each: each[1][1]):
        push(engine, f"s{i}", came)
        due[f"select{i}"] = came + deadline
    engine.run()
    assert [due[name] for name in ran] == sorted(due.values())


def test_a_query_carries_its_deadline() -> None:
    catalog = Catalog({"s": SCHEMA}, ticks_per_second=1_000)
    found = query("SELECT v FROM s WHERE v > 0", catalog, service=Service(deadline=20, share=2.0))
    engine = Engine(strategy="edf(auto)")
    engine.add("q", found)
    assert engine.graph.services["q"] == Service(20, 2.0)
    assert [node.deadline for node in engine.graph.nodes] == [20]


@pytest.mark.parametrize("wrong", [{"deadline": 0}, {"deadline": 1.5}, {"share": 0}, {"priority": 0.5}])
def test_mistakes_have_a_code(wrong: dict[str, float]) -> None:
    with pytest.raises(ScheduleError, match="HR-S005"):
        Service(**wrong)  # type: ignore[arg-type]
