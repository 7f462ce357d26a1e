"""A closed group is answered before its window ends, with the rows it would have had (Tucker & Maier)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import StreamDef, query
from headrace.engine import Engine
from headrace.flow.batch import Batch
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.early import EarlySessions, EarlyWindows
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.punctuation import Between, Constant, OneOf, Punctuation
from headrace.time.skew import SkewMatrix
from tests.laws import effort

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64())])
STREAMS = [StreamDef(name, SCHEMA, ticks_per_second=1) for name in ("a", "b")]
SLACK = 3
"""How far the rows of a stream may be behind."""
TEXTS = {
    "tumbling": "SELECT k, count(*) AS n, max(v) AS m FROM a [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "sliding": "SELECT k, sum(v) AS s, window_start, window_end FROM a [RANGE 7 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY k",
    "gaps": "SELECT k, avg(v) AS m FROM a [RANGE 2 SECONDS SLIDE 5 SECONDS] WHERE v > 1 GROUP BY k",
    "two keys": "SELECT k, g, count(DISTINCT v) AS n FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k, g",
    "having": "SELECT k + 1 AS k, count(*) AS n FROM a [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k "
    "HAVING count(*) > 1",
    "sessions": "SELECT k, count(*) AS n, min(v) AS m, window_start, window_end FROM a [SESSION 3 SECONDS] "
    "GROUP BY k",
    "partitioned": "SELECT k, g, count(*) AS n FROM a [PARTITION BY k SESSION 3 SECONDS] GROUP BY k, g",
    "of a union": "SELECT k, count(*) AS n FROM (SELECT * FROM a UNION ALL SELECT * FROM b) "
    "[RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k",
}
Event = tuple[int, tuple[tuple[str, Any], ...]]


def plan_of(text: str) -> Plan:
    return query(text, STREAMS).plan


PLANS = {name: plan_of(text) for name, text in TEXTS.items()}


def engine_of(plan: Plan, enforce: str = "strict", *, ordered: bool = False) -> Engine:
    engine = Engine()
    skew = SkewMatrix.of(["a", "b"], {(s, s): [(0, SLACK + 1)] for s in ("a", "b")})
    rules = Rules(disordered=True, enforce=enforce)
    bounds = HeartbeatGenerator(Bounds.of(skew, timeout=10**6))
    engine.streams.manage(bounds, {stream.source: rules for stream in STREAMS})
    engine.add("q", plan, ordered=ordered)
    return engine


def rows(*found: tuple[int, str, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip("kgv", row, strict=True)) for row in found], schema=SCHEMA)


def closing(*patterns: tuple[str, Any], **until: int) -> Punctuation:
    return Punctuation(patterns=patterns, **until)


def events(batches: list[Batch]) -> Counter[Event]:
    return Counter(
        (int(time), tuple(row.items()))
        for batch in batches
        for time, row in zip(batch.start, batch.data.to_pylist(), strict=True)
    )


def late_rows(engine: Engine) -> list[tuple[list[int], list[int], list[bool]]]:
    return [(e.times.tolist(), e.missed.tolist(), e.admitted.tolist()) for e in engine.drain_late()]


PUNCTUATIONS = [
    closing(("k", Constant(1))),
    closing(("k", OneOf((0, 2)))),
    closing(("k", Between(2, 3))),
    closing(("k", Constant(3)), ("g", Constant("x"))),
    closing(("g", Constant("y"))),
]


@effort(2, "eight queries, two ways to treat late rows")
@given(st.data())
def test_the_same_rows_and_never_later(data: st.DataObject) -> None:
    """Against the query without punctuations: the same bag, the same late rows, at no step fewer answers."""
    plan = PLANS[data.draw(st.sampled_from(sorted(PLANS)))]
    enforce = data.draw(st.sampled_from(["strict", "admit"]))
    early, plain = engine_of(plan, enforce), engine_of(plan, enforce, ordered=True)
    streams = [name for name in ("a", "b") if plain.graph.sources[name].successors]
    closed: dict[str, list[Punctuation]] = {name: [] for name in streams}
    newest = dict.fromkeys(streams, 0)
    found: dict[bool, Counter[Event]] = {True: Counter(), False: Counter()}
    for now in range(1, data.draw(st.integers(2, 20))):
        stream = data.draw(st.sampled_from(streams))
        newest[stream] += data.draw(st.integers(0, 3))
        drawn = data.draw(
            st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xy"), st.integers(0, 4)), max_size=4)
        )
        times = [newest[stream] - data.draw(st.integers(0, SLACK + 2)) for _ in drawn]
        batch = rows(*drawn)
        ticks = np.array(times, np.int64)
        broken = np.zeros(len(ticks), np.bool_)
        for promise in closed[stream]:
            broken |= promise.matches(ticks, batch)
        batch, ticks = batch.filter(pa.array(~broken)), ticks[~broken]
        for engine in (early, plain):
            engine.push(stream, batch, ticks, now=now)
        if data.draw(st.booleans()):
            promise = data.draw(st.sampled_from(PUNCTUATIONS))
            closed[stream].append(promise)
            early.streams.punctuate(stream, promise)
        found[True] += events(early.drain())
        found[False] += events(plain.drain())
        assert not found[False] - found[True], "an answer is later than without punctuations"
        assert late_rows(early) == late_rows(plain)
        if data.draw(st.sampled_from([False, False, False, True])):
            snapshot, early = early.snapshot(), engine_of(plan, enforce)
            early.restore(snapshot)
    for engine in (early, plain):
        for stream in streams:
            engine.streams.end(stream)
    found[True] += events(early.drain())
    found[False] += events(plain.drain())
    assert found[True] == found[False]


@pytest.mark.parametrize("kind", ["tumbling", "sessions"])
def test_a_closed_auction_is_answered_at_once(kind: str) -> None:
    engine = engine_of(PLANS[kind])
    engine.push("a", rows((7, "x", 1), (8, "x", 2), (7, "x", 3)), [11, 12, 13], now=1)
    engine.streams.punctuate("a", closing(("k", Constant(7))))
    assert [row["k"] for batch in engine.drain() for row in batch.data.to_pylist()] == [7]
    engine.streams.end("a")
    assert [row["k"] for batch in engine.drain() for row in batch.data.to_pylist()] == [8]


def test_a_limit_on_time_releases_the_windows_that_end_by_then() -> None:
    engine = engine_of(PLANS["tumbling"])
    engine.push("a", rows((7, "x", 1), (7, "x", 2)), [13, 16], now=1)
    engine.streams.punctuate("a", closing(("k", Constant(7)), until=14))
    assert [batch.start.tolist() for batch in engine.drain()] == [[14]]
    engine.push("a", rows((7, "x", 3)), [15], now=2)
    engine.streams.end("a")
    assert [row["n"] for batch in engine.drain() for row in batch.data.to_pylist()] == [2]


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sessions"])
def test_closed_groups_are_freed_before_their_windows_end(kind: str) -> None:
    engine = engine_of(PLANS[kind])
    node = next(n for n in engine.graph.nodes if isinstance(n.plan, (EarlyWindows, EarlySessions)))
    engine.push("a", rows(*[(k, "x", 1) for k in range(5000)]), [10] * 5000, now=1)
    engine.run()
    before = node.operator.memory.bytes()
    engine.streams.punctuate("a", closing(("k", Between(0, 4990))))
    engine.drain()
    assert node.operator.memory.bytes() < before / 3
    engine.streams.punctuate("a", closing(("k", Between(4990, None))))
    engine.drain()
    assert not node.waits, "it holds nothing"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, first(v) AS m FROM a [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k",
        "SELECT count(*) AS n FROM a [RANGE 5 SECONDS SLIDE 5 SECONDS]",
        "SELECT a.k, b.v FROM a [RANGE 5 SECONDS] AS a, b [RANGE 5 SECONDS] AS b WHERE a.k = b.k",
    ],
)
def test_other_queries_are_as_they_were(text: str) -> None:
    plan = plan_of(text)
    assert engine_of(plan).graph.plan_of("q") == engine_of(plan, ordered=True).graph.plan_of("q")
