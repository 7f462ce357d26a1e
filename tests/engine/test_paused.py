"""Paused streams: the answer comes as early as the bounds prove it, and not a tick earlier."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.engine import Engine
from headrace.expressions import col
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import Plan, Select, Source, Union
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix

SCHEMA = pa.schema([("v", pa.int64())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
UNION = Union((A, B))
NOTHING_OF_B = Union((A, Select(B, col("v") < 0)))
OWN, BETWEEN, TIMEOUT = 2, 5, 40


def engine_of(plan: Plan) -> Engine:
    """Each stream is less than 2 ticks out of order and 5 behind the other; a pause ends after 40."""
    own = {(name, name): [(0, OWN)] for name in ("a", "b")}
    skew = SkewMatrix.of(["a", "b"], own | {("a", "b"): [(0, BETWEEN)], ("b", "a"): [(0, BETWEEN)]})
    engine = Engine()
    rules = Rules(disordered=True, enforce="strict")
    engine.streams.manage(HeartbeatGenerator(Bounds.of(skew, timeout=TIMEOUT)), {A: rules, B: rules})
    engine.add("q", plan)
    return engine


def push(engine: Engine, stream: str, time: int, clock: int) -> list[int]:
    """Push a row with a time at a clock; the times that come out."""
    engine.push(stream, pa.record_batch([pa.array([1], pa.int64())], schema=SCHEMA), [time], now=clock)
    return out(engine)


def out(engine: Engine) -> list[int]:
    return [int(t) for batch in engine.drain() for t in batch.start]


def test_a_stream_that_never_spoke_is_vouched_for_by_the_other() -> None:
    engine = engine_of(UNION)
    assert push(engine, "a", 10, 1) == []
    assert push(engine, "a", 13, 2) == []
    assert push(engine, "a", 14, 3) == [10]


def test_a_stream_that_stopped_speaking_is_vouched_for_by_the_other() -> None:
    engine = engine_of(UNION)
    assert push(engine, "b", 9, 1) == []
    assert push(engine, "a", 10, 2) == []
    assert push(engine, "a", 12, 3) == []
    assert push(engine, "a", 13, 4) == []
    assert push(engine, "a", 14, 5) == [9, 10]


def test_a_stream_whose_rows_are_all_filtered_out_still_moves_on() -> None:
    engine = engine_of(NOTHING_OF_B)
    assert push(engine, "a", 10, 1) == []
    assert push(engine, "b", 10, 2) == []
    assert push(engine, "b", 11, 3) == []
    assert push(engine, "b", 15, 4) == [10]


@pytest.mark.parametrize("plan", [UNION, NOTHING_OF_B])
def test_when_all_streams_pause_the_timeout_releases_everything(plan: Plan) -> None:
    engine = engine_of(plan)
    assert push(engine, "a", 10, 1) == []
    assert push(engine, "a", 11, 2) == []
    engine.advance(2 + TIMEOUT - 1)
    assert out(engine) == []
    engine.advance(2 + TIMEOUT)
    assert out(engine) == [10, 11]
