"""Query-level, operator-level and memory-aware heartbeats (Srivastava & Widom, §7, Figures 5 and 6)."""

from __future__ import annotations

from itertools import cycle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.errors import ScheduleError
from headrace.graph.admission import Rules
from headrace.graph.levels import memory_labels, operator_labels, query_labels
from headrace.plan.nodes.core import IStream, Join, Plan, Source, Window
from headrace.plan.nodes.windows import Range
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix
from tests.engine.driving import assert_oracles_answer
from tests.strategies.plans import cases
from tests.strategies.runs import runs

S1, S2, S3 = (Source(f"s{i}", pa.schema([(f"k{i}", pa.int64()), (f"v{i}", pa.int64())])) for i in (1, 2, 3))
O1 = Join(Window(S1, Range(100)), Window(S2, Range(100)), ("k1",), ("k2",))
O2 = Join(O1, Window(S3, Range(100)), ("k1",), ("k3",))
ALL = frozenset({"s1", "s2", "s3"})


def figure_5(level: str, disordered: bool = True) -> Engine:
    """O1 joins S1 and S2, O2 joins that with S3; S3 is silent and nobody vouches for it."""
    skew = SkewMatrix.of(sorted(ALL), {(s, s): [(0, 1)] for s in ALL})
    engine = Engine()
    rules = Rules(disordered=disordered, enforce="strict")
    heartbeats = HeartbeatGenerator(Bounds.of(skew, timeout=10**6))
    engine.streams.manage(heartbeats, dict.fromkeys((S1, S2, S3), rules))
    engine.add("q", IStream(O2))
    engine.scheduling.set_level(level)
    return engine


def feed(engine: Engine, copies: int) -> None:
    """At each clock, `copies` rows with one key on S1 and on S2; none on S3."""
    for clock in range(1, 11):
        for source in (S1, S2):
            rows = [{source.columns.names[0]: 7, source.columns.names[1]: clock}] * copies
            data = pa.RecordBatch.from_pylist(rows, schema=source.columns)
            engine.push(source.name, data, [clock] * copies, now=clock)
        engine.advance(clock)


def made(engine: Engine, plan: Plan) -> int:
    """Rows that the operator of a plan has made so far, whatever holds its inputs."""
    nodes = [n for n in engine.graph.nodes if isinstance(n.plan, type(plan)) and n.plan.schema == plan.schema]
    return nodes[0].operator.rows_out


@pytest.mark.parametrize("disordered", [True, False])
def test_operator_level_lets_o1_run_ahead_of_a_stream_it_does_not_read(disordered: bool) -> None:
    engine = figure_5("operator", disordered)
    feed(engine, 2)
    assert made(engine, O1) > 0


@pytest.mark.parametrize("disordered", [True, False])
def test_query_level_holds_o1_back_until_all_streams_have_come(disordered: bool) -> None:
    engine = figure_5("query", disordered)
    feed(engine, 2)
    assert made(engine, O1) == 0


@pytest.mark.parametrize("level", ["query", "memory"])
@pytest.mark.parametrize("disordered", [True, False])
def test_what_was_held_back_comes_out_at_once_when_the_stream_speaks(level: str, disordered: bool) -> None:
    found = {}
    for name in (level, "operator"):
        engine = figure_5(name, disordered)
        feed(engine, 2)
        row = pa.RecordBatch.from_pylist([{"k3": 7, "v3": 11}], schema=S3.columns)
        engine.push("s3", row, [11], now=11)
        engine.run()
        ahead = made(engine, O1)
        for source in (S1, S2, S3):
            engine.streams.end(source.name)
        found[name] = ahead, sum(len(batch) for batch in engine.drain())
    assert found[level] == found["operator"]
    assert min(found[level]) > 0


@given(st.data())
def test_levels_change_no_answer_over_streams_in_order(data: st.DataObject) -> None:
    """Whatever the query, and however it runs; and the level changes on the way."""
    case = data.draw(cases())
    levels = cycle(data.draw(st.lists(st.sampled_from(["operator", "query", "memory"]), min_size=1)))
    assert_oracles_answer(
        case, data.draw(runs(case)), hook=lambda engine: engine.scheduling.set_level(next(levels))
    )


@pytest.mark.parametrize("disordered", [True, False])
def test_memory_aware_lets_o1_run_until_it_proliferates(disordered: bool) -> None:
    engine = figure_5("memory", disordered)
    feed(engine, 3)
    ahead = made(engine, O1)
    assert ahead > 0, "nothing was measured yet, so nothing was held back"
    for clock in range(11, 15):
        for source in (S1, S2):
            data = pa.RecordBatch.from_pylist([dict.fromkeys(source.columns.names, 7)], schema=source.columns)
            engine.push(source.name, data, [clock], now=clock)
        engine.advance(clock)
    assert made(engine, O1) == ahead, "it makes more than it takes, so it waits for S3"


def test_figure_6_labels_of_the_plan_of_figure_5() -> None:
    engine = figure_5("operator")
    feed(engine, 3)
    first = next(n for n in engine.graph.nodes if n.plan.schema == O1.schema)
    second = next(n for n in engine.graph.nodes if isinstance(n.plan, Join) and n is not first)
    assert operator_labels(engine.graph)[first.id] == {"s1", "s2"}
    assert operator_labels(engine.graph)[second.id] == ALL
    assert query_labels(engine.graph)[first.id] == ALL
    assert memory_labels(engine.graph)[first.id] == ALL, "proliferative: waits with O2"
    first.rows_in, first.operator.rows_out = 100, 10
    assert memory_labels(engine.graph)[first.id] == {"s1", "s2"}, "selective: runs ahead"


def test_a_label_is_stable_where_the_selectivity_is_about_one() -> None:
    engine = figure_5("operator")
    first = next(n for n in engine.graph.nodes if n.plan.schema == O1.schema)
    waits = []
    for rows_out in (100, 105, 120, 105, 95, 105, 85, 95, 105):
        first.rows_in, first.operator.rows_out = 100, rows_out
        waits.append(memory_labels(engine.graph)[first.id] == ALL)
    assert waits == [False, False, True, True, True, True, False, False, False]


def test_levels_may_change_while_running() -> None:
    engine = figure_5("query")
    feed(engine, 2)
    engine.scheduling.set_level("operator")
    engine.run()
    assert made(engine, O1) > 0


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ScheduleError, match="HR-S003"):
        Engine().scheduling.set_level("galaxy")
