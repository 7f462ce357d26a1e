"""Groups of streams share a heartbeat, and a row that keeps its bounds is never late for it (§5.2)."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pyarrow as pa
from hypothesis import given

from headrace.engine import Engine
from headrace.engine.inputs import STRICT, Inputs
from headrace.flow.batch import Batch
from headrace.plan.nodes.core import AggregateCall, Plan, RStream, SlidingAggregate, Source, Union
from headrace.plan.nodes.windows import Sliding
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.bounds import Bounds
from headrace.time.grouping import group_bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import CombinedHeartbeats
from tests.time.simulation import bounds, emit, seeds
from tests.time.test_grouping import grouping

SCHEMA = pa.schema([("k", pa.int64())])
CALLS = (AggregateCall("n", "count"), AggregateCall("s", "sum", "k"))


def counted(names: tuple[str, ...]) -> Plan:
    """Windows over all streams together."""
    streams = Union(tuple(Source(name, SCHEMA) for name in names))
    return RStream(SlidingAggregate(streams, ("k",), CALLS, Sliding(10, 5)), 5)


def row(key: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": key}], schema=SCHEMA)


@given(bounds(), seeds)
def test_a_row_that_keeps_its_bounds_is_never_late_in_a_group(
    declared: Bounds, rng: np.random.Generator
) -> None:
    """Whatever the groups, by themselves or combined with other promises, and after a restart."""
    closed, names = declared.closed(), declared.streams
    plan, group = counted(names), rng.permutation(grouping(rng, len(names)))
    combined, shuffled = bool(rng.integers(0, 2)), tuple(rng.permutation(names).tolist())

    def engine_of() -> Engine:
        grouped = HeartbeatGenerator(group_bounds(closed, group), close=False)
        heartbeats = CombinedHeartbeats(shuffled, [grouped]) if combined else grouped
        made = Engine()
        Inputs(heartbeats, rules=dict.fromkeys(names, STRICT)).install(
            made, [Source(name, SCHEMA) for name in names]
        )
        made.add("q", plan)
        return made

    engine, answers = engine_of(), list[Batch]()
    came: dict[str, list[tuple[int, dict[str, int]]]] = {name: [] for name in names}
    for clock, rows in groupby(emit(closed, rng, 25).rows(), key=lambda each: each[2]):
        for stream, time, _ in rows:
            key = int(rng.integers(0, 2))
            engine.push(names[stream], row(key), [time], now=clock)
            came[names[stream]].append((time, {"k": key}))
        answers += engine.drain()
        assert engine.drain_late() == []
        if rng.integers(0, 5) == 0:
            snapshot, engine = engine.snapshot(), engine_of()
            engine.restore(snapshot)
    for name in names:
        engine.streams.end(name)
    answers += engine.drain()
    assert_same_stream(answers, oracle.stream(plan, came), schema=plan.schema)
