"""Queries whose results need no order: no row waits for its place in time, and no result changes.

Aggregates over windows hold open panes, whatever the order of rows, in every query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import StreamDef, query
from headrace.engine import Engine
from headrace.errors import SqlError
from headrace.flow.batch import Batch
from headrace.graph.admission import Rules
from headrace.plan.analysis.ordering import Merge, Order
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.early import EarlyWindows
from headrace.plan.nodes.trees import walk
from headrace.plan.nodes.unsorted import UnsortedWindows
from headrace.testing import oracle
from headrace.testing.compare import events_of
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix
from tests.laws import effort

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
STREAMS = [StreamDef(name, SCHEMA, ticks_per_second=None) for name in ("a", "b")]
SLACK = 4
"""How far the rows of a stream may be behind."""
AT_ONCE = {
    "selection": "SELECT k, v + 1 AS w FROM a WHERE v > 1",
    "as it is": "SELECT * FROM a",
    "union": "SELECT k FROM a UNION ALL SELECT v AS k FROM b",
    "selected union": "SELECT k FROM (SELECT k, v FROM a UNION ALL SELECT v AS k, k AS v FROM b) WHERE k > 1",
}
"""Queries whose answer to a row is known when the row comes."""
TEXTS = AT_ONCE | {
    "tumbling": "SELECT k, count(*) AS n, sum(v * 0.1) AS s FROM a [RANGE 5 SLIDE 5] GROUP BY k",
    "sliding": "SELECT k, avg(v * 0.1) AS m, window_end FROM a [RANGE 7 SLIDE 2] GROUP BY k",
    "long": "SELECT k, max(v) AS m, window_end FROM a [RANGE 70 SLIDE 2] GROUP BY k",
    "distinct values": "SELECT k, count(DISTINCT v) AS n FROM a [RANGE 7 SLIDE 2] GROUP BY k",
    "first": "SELECT k, first(v) AS n FROM a [RANGE 4 SLIDE 2] GROUP BY k",
    "no key": "SELECT count(*) AS n, min(v) AS m FROM a [RANGE 5 SLIDE 2]",
    "having": "SELECT k + 1 AS k FROM a [RANGE 5 SLIDE 5] GROUP BY k HAVING count(*) > 1",
    "sessions": "SELECT k, count(*) AS n, window_end FROM a [SESSION 3] GROUP BY k",
    "changing": "SELECT k, count(*) AS n FROM a [RANGE 4] GROUP BY k",
    "distinct": "SELECT DISTINCT k FROM a [RANGE 4]",
    "shown": "RSTREAM(SELECT k, v FROM a [RANGE 4 SLIDE 2])",
    "left": "DSTREAM(SELECT k, v FROM a [RANGE 3])",
    "join": "SELECT a.k, a.v, b.v AS w FROM a [RANGE 4] AS a, b [RANGE 3] AS b WHERE a.k = b.k",
    "both": "SELECT k, count(*) AS n FROM (SELECT * FROM a UNION ALL SELECT * FROM b) [RANGE 6 SLIDE 3] "
    "GROUP BY k",
}
PLANS = {name: query(f"UNORDERED({text})", STREAMS, ticks_per_second=None) for name, text in TEXTS.items()}
Arrival = tuple[str, int, dict[str, int]]


def engine_of(
    name: str, enforce: str = "strict", *, ordered: bool = False, disordered: bool = True
) -> Engine:
    engine = Engine()
    skew = SkewMatrix.of(["a", "b"], {(s, s): [(0, SLACK + 1)] for s in ("a", "b")})
    rules = Rules(disordered=disordered, enforce=enforce)
    heartbeats = HeartbeatGenerator(Bounds.of(skew, timeout=10**6))
    engine.streams.manage(heartbeats, {stream.source: rules for stream in STREAMS})
    engine.add("q", PLANS[name], ordered=ordered)
    return engine


def plan_of(name: str, *, ordered: bool = False) -> Plan:
    return engine_of(name, ordered=ordered).graph.plan_of("q")


def push(engine: Engine, stream: str, times: list[int], rows: list[dict[str, int]], now: int) -> None:
    if stream in engine.streams:
        engine.push(
            stream, pa.RecordBatch.from_pylist(rows, schema=SCHEMA), np.array(times, np.int64), now=now
        )


def bag(batches: Iterable[Batch]) -> Counter[Any]:
    return Counter(events_of(list(batches)))


@st.composite
def arrivals(draw: st.DrawFn, lateness: int) -> list[list[Arrival]]:
    """Rows in pushes, each up to `lateness` behind the newest of its stream."""
    newest = {"a": 0, "b": 0}
    pushes: list[list[Arrival]] = []
    for _ in range(draw(st.integers(1, 12))):
        rows: list[Arrival] = []
        for _ in range(draw(st.integers(0, 5))):
            stream = draw(st.sampled_from("ab"))
            newest[stream] += draw(st.integers(0, 3))
            time = newest[stream] - draw(st.integers(0, lateness))
            rows.append((stream, time, {"k": draw(st.integers(0, 2)), "v": draw(st.integers(0, 5))}))
        pushes.append(rows)
    return pushes


def send(engine: Engine, rows: list[Arrival], now: int) -> None:
    for stream in "ab":
        mine = [(time, row) for name, time, row in rows if name == stream]
        push(engine, stream, [time for time, _ in mine], [row for _, row in mine], now)


@effort(2, "nineteen queries, ordered and not")
@given(arrivals(SLACK), st.sampled_from(sorted(TEXTS)), st.sampled_from(["strict", "admit"]), st.data())
def test_the_same_rows_as_the_oracle_and_none_later_than_in_order(
    pushes: list[list[Arrival]], name: str, enforce: str, data: st.DataObject
) -> None:
    if name == "first":
        enforce = "strict"
    loose, sorted_ = engine_of(name, enforce), engine_of(name, enforce, ordered=True)
    found, in_order = Counter[Any](), Counter[Any]()
    for now, rows in enumerate(pushes, start=1):
        for engine in (loose, sorted_):
            send(engine, rows, now)
        found += bag(loose.drain())
        in_order += bag(sorted_.drain())
        assert not in_order - found, "a result is later than in order"
        if data.draw(st.sampled_from([False, False, True])):
            snapshot, loose = loose.snapshot(), engine_of(name, enforce)
            loose.restore(snapshot)
    for engine in (loose, sorted_):
        for stream in engine.streams:
            engine.streams.end(stream)
    found += bag(loose.drain())
    in_order += bag(sorted_.drain())
    came = [each for rows in pushes for each in rows]
    rows_of = {s: [(time, row) for stream, time, row in came if stream == s] for s in "ab"}
    wanted = Counter(oracle.stream(PLANS[name].plan, rows_of))
    assert found == wanted
    assert in_order == wanted


@given(arrivals(SLACK + 4), st.sampled_from(sorted(TEXTS)))
def test_late_rows_are_those_of_the_query_in_order(pushes: list[list[Arrival]], name: str) -> None:
    """Under `strict`: which rows are late does not depend on where rows are sorted."""
    engines = [engine_of(name), engine_of(name, ordered=True)]
    for now, rows in enumerate(pushes, start=1):
        for engine in engines:
            send(engine, rows, now)
            engine.run()
    late = [
        [(each.stream, each.times.tolist()) for each in engine.streams.drain_late()] for engine in engines
    ]
    assert late[0] == late[1]
    for engine in engines:
        for source in engine.metrics().sources.values():
            assert source.rows_in == source.rows_processed + source.rows_late + source.rows_rejected
        for stream in engine.streams:
            engine.streams.end(stream)
    assert bag(engines[0].drain()) == bag(engines[1].drain())


@pytest.mark.parametrize("name", sorted(AT_ONCE))
def test_a_row_that_waits_for_no_other_leaves_at_once(name: str) -> None:
    loose, in_order = engine_of(name), engine_of(name, ordered=True)
    for engine in (loose, in_order):
        push(engine, "a", [9, 7, 8], [{"k": 2, "v": 2}] * 3, now=1)
    assert [int(t) for batch in loose.drain() for t in batch.start] in ([9, 7, 8], [7, 8, 9])
    assert in_order.drain() == []
    push(loose, "a", [6], [{"k": 2, "v": 2}], now=2)
    assert [int(t) for batch in loose.drain() for t in batch.start] == [6]
    assert not any(isinstance(each, Order) for each in walk(plan_of(name)))


def test_a_union_of_streams_in_order_does_not_wait_either() -> None:
    loose, in_order = (engine_of("union", "refuse", ordered=ordered) for ordered in (False, True))
    for engine in (loose, in_order):
        push(engine, "a", [7], [{"k": 2, "v": 2}], now=1)
    assert [batch.start.tolist() for batch in loose.drain()] == [[7]]
    assert in_order.drain() == []
    assert any(isinstance(each, Merge) for each in walk(loose.graph.plan_of("q")))


def test_under_admit_a_row_is_never_too_late_for_a_result_that_leaves_at_once() -> None:
    """Also if another query, with windows, has answered for its time."""
    engine = engine_of("selection", "admit")
    engine.add("windows", PLANS["tumbling"])
    for now, time in enumerate((7, 30, 8), start=1):
        push(engine, "a", [time], [{"k": 2, "v": 2}], now=now)
    assert sorted(t for batch in engine.drain("q") for t in batch.start.tolist()) == [7, 8, 30]
    (late,) = engine.streams.drain_late()
    assert (late.times.tolist(), late.admitted.tolist()) == ([8], [True])
    engine.streams.end("a")
    assert [row["n"] for batch in engine.drain("windows") for row in batch.data.to_pylist()] == [1, 1]


@pytest.mark.parametrize("name", ["tumbling", "sliding", "long"])
@pytest.mark.parametrize("ordered", [False, True])
def test_open_panes_are_held_and_not_their_rows(name: str, ordered: bool) -> None:
    """5 groups in some 100 open windows: the state does not grow with the rows in them."""
    plan = plan_of(name, ordered=ordered)
    assert any(isinstance(each, (UnsortedWindows, EarlyWindows)) for each in walk(plan))
    assert not any(isinstance(each, Order) for each in walk(plan))
    held = []
    for rows in (10_000, 100_000):
        engine = Engine()
        skew = SkewMatrix.of(["a"], {("a", "a"): [(0, 10**6)]})
        rules = Rules(disordered=True, enforce="strict")
        bounds = HeartbeatGenerator(Bounds.of(skew, timeout=10**9))
        engine.streams.manage(bounds, {STREAMS[0].source: rules})
        engine.add("q", PLANS[name], ordered=ordered)
        rng = np.random.default_rng(0)
        data = pa.RecordBatch.from_pydict(
            {"k": rng.integers(0, 5, rows), "v": rng.integers(0, 9, rows)}, schema=SCHEMA
        )
        engine.push("a", data, rng.integers(0, 500, rows), now=1)
        engine.run()
        held.append(sum(node.operator.memory.bytes() for node in engine.graph.nodes))
    assert held[1] < 1.1 * held[0]
    assert held[1] < 100_000 * 24 / 4


LISTS = StreamDef("l", pa.schema([("k", pa.int64()), ("parts", pa.list_(pa.int64()))]), ticks_per_second=None)


def engine_over_lists(text: str, size: int, rows: int) -> Engine:
    """Lists of so many parts, in any order; nothing is released before the end."""
    engine = Engine()
    bounds = Bounds.of(SkewMatrix.of(["l"], {("l", "l"): [(0, 10**6)]}), timeout=10**9)
    engine.streams.manage(
        HeartbeatGenerator(bounds), {LISTS.source: Rules(disordered=True, enforce="strict")}
    )
    engine.add("q", query(text, [LISTS], ticks_per_second=None))
    for push in range(4):
        data = [{"k": i, "parts": list(range(size))} for i in range(rows // 4)]
        engine.push(
            "l", pa.RecordBatch.from_pylist(data, schema=LISTS.schema), np.arange(len(data)), now=push + 1
        )
        engine.run()
    return engine


def test_explain_says_where_rows_are_sorted_and_why() -> None:
    text = "SELECT k, part FROM l, UNNEST(parts) AS t(part)"
    many, few = (str(engine_over_lists(text, size, 400).explain("q")) for size in (20, 0))
    assert "they wait before unnest" in many
    assert "they wait after unnest" in few
    assert "not measured yet" in str(engine_over_lists(text, 20, 4).explain("q"))
    windows = str(engine_of("sliding", ordered=True).explain("q"))
    assert "takes rows of a in any order, so nothing is sorted before it" in windows
    assert "are put in order for the results of q" in str(engine_of("selection", ordered=True).explain("q"))
    assert "order of rows" not in str(engine_of("selection").explain("q"))


def test_unordered_is_around_the_whole_query() -> None:
    with_ = "WITH x AS (SELECT k FROM a) UNORDERED(SELECT k FROM x)"
    assert not query(with_, STREAMS, ticks_per_second=None).ordered
    assert not query("unordered(ISTREAM(SELECT k FROM a [NOW]))", STREAMS, ticks_per_second=None).ordered
    assert query("SELECT k FROM a", STREAMS, ticks_per_second=None).ordered
    with pytest.raises(SqlError, match="HR-Q050"):
        query("SELECT k FROM UNORDERED(SELECT k FROM a)", STREAMS, ticks_per_second=None)
