"""External, internal and latent time, and the policies by which sources make ETS (Bai et al. 2007, §5)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.engine import Engine
from headrace.expressions import col
from headrace.plan.nodes.core import IStream, Join, Plan, Project, Select, Source, TimeKind, Union, Window
from headrace.plan.nodes.windows import Range
from headrace.time.ets import NONE, ON_DEMAND, Policy, SkewPromise, periodic

SCHEMA = pa.schema([("v", pa.int64())])
PROPAGATIONS = pytest.mark.parametrize("propagation", ["eqg", "punctuation"])
STRATEGIES = pytest.mark.parametrize("strategy", ["dfs", "bfs", "rr", "chain", "edf", "auto"])


def union_of(kind: TimeKind) -> Plan:
    """Figure 4: two streams, each selected, and their union."""
    return Union(tuple(Select(Source(name, SCHEMA, kind), col("v") < 95) for name in ("a", "b")))


def engine_of(kind: TimeKind, policy: Policy, propagation: str = "eqg", strategy: str = "dfs") -> Engine:
    engine = Engine(propagation=propagation, strategy=strategy)
    for name in ("a", "b"):
        engine.streams.declare(Source(name, SCHEMA, kind), policy=policy)
    engine.add("q", union_of(kind))
    return engine


def row(value: int = 1) -> pa.RecordBatch:
    return pa.record_batch([pa.array([value], pa.int64())], schema=SCHEMA)


def push(engine: Engine, stream: str, now: int, value: int = 1) -> list[int]:
    engine.push(stream, row(value), now=now)
    return out(engine)


def out(engine: Engine) -> list[int]:
    return [int(t) for batch in engine.drain() for t in batch.start]


@PROPAGATIONS
@STRATEGIES
def test_on_demand_an_internal_row_never_waits_for_a_silent_stream(propagation: str, strategy: str) -> None:
    engine = engine_of(TimeKind.INTERNAL, ON_DEMAND, propagation, strategy)
    assert [push(engine, "a", now) for now in (10, 20, 30)] == [[10], [20], [30]]
    assert engine.metrics().sources["b"].ets_made == 3
    assert engine.metrics().held_items == 0


@PROPAGATIONS
@STRATEGIES
def test_without_ets_rows_wait_until_the_other_stream_speaks(propagation: str, strategy: str) -> None:
    engine = engine_of(TimeKind.INTERNAL, NONE, propagation, strategy)
    assert [push(engine, "a", now) for now in (10, 20, 30)] == [[], [], []]
    union = next(n for n in engine.metrics().nodes if n.startswith("union"))
    assert engine.metrics().nodes[union].waiting_since == 10
    assert push(engine, "b", 25 + 10) == [10, 20, 30]
    assert engine.metrics().nodes[union].waiting_since == 35
    assert engine.metrics().nodes[union].waited == 25


@PROPAGATIONS
def test_periodic_ets_release_rows_at_the_next_period(propagation: str) -> None:
    engine = engine_of(TimeKind.INTERNAL, periodic(100), propagation)
    engine.advance(0)
    assert push(engine, "a", 10) == []
    engine.advance(99)
    assert out(engine) == []
    engine.advance(100)
    assert out(engine) == [10]


def test_a_promise_that_an_internal_stream_made_is_kept_by_its_stamps() -> None:
    engine = engine_of(TimeKind.INTERNAL, ON_DEMAND)
    assert push(engine, "a", 10) == [10]
    assert push(engine, "b", 10) == [11], "10 was promised to be past on b, so b's row is stamped after it"


@STRATEGIES
def test_latent_rows_never_wait_and_no_ets_is_made(strategy: str) -> None:
    engine = engine_of(TimeKind.LATENT, ON_DEMAND, "eqg", strategy)
    assert [push(engine, "a", now) for now in (10, 20)] == [[10], [20]]
    assert all(s.ets_made == 0 for s in engine.metrics().sources.values())


def test_latent_rows_are_stamped_where_a_time_is_first_needed() -> None:
    left, right = Source("a", SCHEMA, TimeKind.LATENT), Source("b", SCHEMA, TimeKind.LATENT)
    renamed = Project(right, (("w", col("v")),))
    engine = Engine()
    engine.add("q", IStream(Join(Window(left, Range(10)), Window(renamed, Range(10)), ("v",), ("w",))))
    engine.push("a", row(7), now=100)
    engine.run()
    assert push(engine, "b", 105, 7) == [105]
    assert push(engine, "b", 120, 7) == [], "the window of a's row is over"


def test_an_external_stream_with_skew_delta_promises_t_plus_elapsed_minus_delta() -> None:
    engine = Engine()
    for name in ("a", "b"):
        engine.streams.declare(Source(name, SCHEMA), promise=SkewPromise(5))
    engine.add("q", union_of(TimeKind.EXTERNAL))
    engine.push("b", row(), [100], now=1000)
    engine.push("a", row(), [108], now=1000)
    engine.advance(1011)
    assert out(engine) == [100], "b has promised 100 + 11 - 5 = 106, and 108 needs 107"
    engine.advance(1012)
    assert out(engine) == [108]


def test_each_ets_is_passed_once() -> None:
    engine = engine_of(TimeKind.INTERNAL, ON_DEMAND)
    push(engine, "a", 10)
    made = engine.metrics().sources["b"].ets_made
    engine.run()
    engine.run()
    assert engine.metrics().sources["b"].ets_made == made


def test_a_register_is_active_until_its_value_has_been_passed_on() -> None:
    """Bai et al., Figure 11: set by the predecessor, reset when the operator has used and passed it."""
    engine = engine_of(TimeKind.INTERNAL, ON_DEMAND)
    union = next(n for n in engine.graph.nodes if len(n.operator.inputs) == 2).operator
    engine.graph.sources["b"].heartbeat(7)
    assert union.registers[1].read() == 7
    assert union.registers[1].active
    engine.run()
    assert not any(register.active for register in union.registers)
    assert union.registers[1].value == 7
