"""A group is answered when its own source is complete: a silent source delays no other group."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace import StreamDef, query
from headrace.engine import Engine
from headrace.engine.inputs import STRICT, Inputs
from headrace.flow.batch import Batch
from headrace.graph.admission import Rules
from headrace.kernels.hashing import EMPTY
from headrace.operators.early_results import EarlySessionsOperator
from headrace.plan.nodes.core import Plan
from headrace.state.source_cells import cells_of
from headrace.time.ets import NONE, DisorderPromise, Policy, Promise, periodic
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.quantile import Confidence
from headrace.time.sources import SourceGroups, SourcesPromise
from tests.engine.test_sources import BY_HASH, FAST, SLOW, Arrival, arrivals, instants, promises
from tests.laws import effort

SCHEMA = pa.schema([("device", pa.string()), ("v", pa.int64())])
STREAMS = [StreamDef(name, SCHEMA, ticks_per_second=1) for name in ("s", "u")]
BOTH = "(SELECT * FROM s UNION ALL SELECT * FROM u)"
TEXTS = {
    "tumbling": "SELECT device, count(*) AS n, window_end FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] "
    "GROUP BY device",
    "sliding": "SELECT device, sum(v) AS t, window_start FROM s [RANGE 7 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY device",
    "having": "SELECT device AS d, count(*) + 1 AS n FROM (SELECT v, device FROM s WHERE v > 3) "
    "[RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY device HAVING count(*) > 1",
    "two keys": "SELECT v % 2 AS odd, device, count(*) AS n FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS] "
    "GROUP BY v % 2, device",
    "sessions": "SELECT device, count(*) AS n, window_start, window_end FROM s [SESSION 3 SECONDS] "
    "GROUP BY device",
    "of a union": f"SELECT device, count(*) AS n FROM {BOTH} [RANGE 5 SECONDS SLIDE 5 SECONDS] "
    "GROUP BY device",
}
PLANS = {name: query(text, STREAMS).plan for name, text in TEXTS.items()}
Event = tuple[int, tuple[Any, ...]]


def engine_of(
    plan: Plan,
    promise: Promise,
    *,
    ordered: bool = False,
    other: Promise | None = None,
    rules: Rules = STRICT,
    **how: Any,
) -> Engine:
    """An engine with bounds on `s`, and the same or `other` ones on `u`."""
    policy: Policy | None = how.pop("policy", None)
    engine = Engine(**how)
    bounds = {"s": promise, "u": other or promise}
    policies = {} if policy is None else dict.fromkeys(bounds, policy)
    inputs = Inputs(promises=bounds, rules=dict.fromkeys(bounds, rules), policies=policies)
    inputs.install(engine, [stream.source for stream in STREAMS])
    engine.add("q", plan, ordered=ordered)
    return engine


def push(engine: Engine, rows: list[Arrival], now: int, stream: str = "s") -> None:
    if rows:
        data = pa.RecordBatch.from_pylist([{"device": d, "v": t % 7} for _, d, t in rows], schema=SCHEMA)
        engine.push(stream, data, [time for *_, time in rows], now=now)


def events(batches: list[Batch]) -> Counter[Event]:
    return Counter(
        (int(time), tuple(row.values()))
        for batch in batches
        for time, row in zip(batch.start, batch.data.to_pylist(), strict=True)
    )


def late_rows(engine: Engine) -> list[tuple[str, list[int]]]:
    return [(late.stream, late.times.tolist()) for late in engine.drain_late()]


@st.composite
def ways(draw: st.DrawFn) -> dict[str, Any]:
    strategy = draw(st.sampled_from(["auto", "dfs", "bfs", "rr", "chain", "edf", "dfs(3)"]))
    policy = draw(st.sampled_from([None, None, NONE, periodic(4)]))
    return {
        "strategy": strategy,
        "policy": policy,
        "propagation": draw(st.sampled_from(["direct", "in_band"])),
    }


@effort(2, "six queries, many ways to run them")
@given(promises(), arrivals(), ways(), st.data())
def test_the_same_rows_and_never_later(
    promise: SourcesPromise, rows: list[Arrival], how: dict[str, Any], data: st.DataObject
) -> None:
    """Against the query in order: the same bag, the same late rows, at no step fewer answers."""
    name = data.draw(st.sampled_from(sorted(PLANS)))
    loose = engine_of(PLANS[name], promise, **how)
    plain = engine_of(PLANS[name], promise, ordered=True, **how)
    streams = ["s", "u"] if name == "of a union" else ["s"]
    found: dict[bool, Counter[Event]] = {True: Counter(), False: Counter()}
    most = 0
    for now, here in instants(rows):
        stream = data.draw(st.sampled_from(streams))
        cut = data.draw(st.integers(0, len(here)))
        for engine in (loose, plain):
            push(engine, here[:cut], now, stream)
            push(engine, here[cut:], now, data.draw(st.just(stream)))
            engine.advance(now)
        found[True] += events(loose.drain())
        found[False] += events(plain.drain())
        assert not found[False] - found[True], "an answer is later than in order"
        most = max(most, sum((found[True] - found[False]).values()))
        assert late_rows(loose) == late_rows(plain)
        if data.draw(st.sampled_from([False, False, False, True])):
            snapshot, loose = loose.snapshot(), engine_of(PLANS[name], promise, **how)
            loose.restore(snapshot)
    event("some answers were earlier" if most else "no answer was earlier")
    for engine in (loose, plain):
        for stream in streams:
            engine.streams.end(stream)
    found[True] += events(loose.drain())
    found[False] += events(plain.drain())
    assert found[True] == found[False]


@given(promises(), arrivals(), st.sampled_from(["tumbling", "sessions"]))
def test_a_group_is_answered_as_soon_as_its_source_is_complete(
    promise: SourcesPromise, rows: list[Arrival], name: str
) -> None:
    """Every window or session that ends by what is promised about the device is answered, and no other."""
    engine = engine_of(PLANS[name], promise)
    operator = next(n.operator for n in engine.graph.nodes if isinstance(n.operator, EarlySessionsOperator))
    for now, here in instants(rows):
        push(engine, here, now)
        engine.advance(now)
        given = engine.drain()
        bounds = engine.graph.sources["s"].promise
        assert isinstance(bounds, SourcesPromise)
        each = bounds.before_each(now + 1)
        for end, (device, *_) in events(given):
            assert end <= each[cells_of(pa.array([device]), bounds.by.cells)[0]]
        held = operator._sessions.table["group"][: operator._sessions.next]
        sessions = np.flatnonzero(held != EMPTY)
        devices = operator._groups.keys.take(held[sessions])[0]
        assert (operator._end_of(sessions) > each[cells_of(devices, bounds.by.cells)]).all()


@given(promises(), arrivals(), st.integers(1, 5), st.integers(0, 6), st.booleans(), st.data())
def test_no_window_is_answered_twice_if_sources_are_told_apart_in_another_way(
    promise: SourcesPromise,
    rows: list[Arrival],
    groups: int,
    disorder: int,
    live: bool,
    data: st.DataObject,
) -> None:
    """After a restart, or while running, with other groups or without: what was answered stays answered."""
    other: Promise = SourcesPromise(SourceGroups("device", groups, None, 1), disorder)
    engine, answers = engine_of(PLANS["tumbling"], promise), Counter[Event]()
    at = data.draw(st.integers(0, len(instants(rows))))
    for number, (now, here) in enumerate(instants(rows)):
        if number == at and live:
            assert isinstance(other, SourcesPromise)
            engine.streams.set_bounds(STREAMS[0].source, other, STRICT)
        elif number == at:
            other = data.draw(st.sampled_from([other, DisorderPromise(disorder)]))
            engine.drain_late()
            snapshot, engine = engine.snapshot(), engine_of(PLANS["tumbling"], other)
            engine.adopt([snapshot])
        push(engine, here, now)
        engine.advance(now)
        answers += events(engine.drain())
    engine.streams.end("s")
    answers += events(engine.drain())
    windows = Counter((end, row[0]) for end, row in answers.elements())
    assert max(windows.values(), default=1) == 1


def test_a_silent_device_delays_only_itself() -> None:
    engine = engine_of(PLANS["tumbling"], SourcesPromise(BY_HASH, 2))
    push(engine, [(100, FAST, 100), (100, SLOW, 100)], 100)
    found = Counter[Event]()
    for now in range(101, 160):
        push(engine, [(now, FAST, now)], now)
        engine.advance(now)
        found += events(engine.drain())
    assert engine.streams.known("s") == 98, "the stream waits for the silent device"
    assert {row[0] for _, row in found} == {FAST}
    assert sorted(end for end, _ in found) == list(range(104, 157, 5))
    engine.streams.end("s")
    assert {row[0] for _, row in events(engine.drain())} == {FAST, SLOW}


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sessions"])
def test_state_of_answered_groups_is_freed(kind: str) -> None:
    """The silent device keeps its windows; what the others have answered takes no room."""
    sizes = []
    for seconds in (200, 2_000):
        engine = engine_of(PLANS[kind], SourcesPromise(BY_HASH, 2))
        push(engine, [(100, SLOW, 100)], 100)
        for now in range(101, 101 + 4 * seconds, 4):
            push(engine, [(now, FAST, now)], now)
            engine.advance(now)
            engine.drain()
        sizes.append(sum(node.operator.memory.bytes() for node in engine.graph.nodes))
    assert sizes[1] < 1.2 * sizes[0]


def test_a_punctuation_closes_a_group_before_its_source_is_complete() -> None:
    engine = engine_of(PLANS["tumbling"], SourcesPromise(BY_HASH, 2))
    push(engine, [(100, FAST, 100), (100, SLOW, 101)], 100)
    engine.advance(100)
    engine.streams.punctuate("s", Punctuation(patterns=(("device", Constant(SLOW)),)))
    assert [row[0] for _, row in events(engine.drain())] == [SLOW]
    push(engine, [(107, FAST, 107)], 107)
    engine.advance(107)
    assert [row[0] for _, row in events(engine.drain())] == [FAST]


def test_estimated_bounds_answer_by_source_too() -> None:
    by = SourceGroups("device", 4, choose_after=None)
    engine = engine_of(PLANS["tumbling"], SourcesPromise(by, confidence=Confidence(0.02)))
    push(engine, [(99, SLOW, 99)], 99)
    found = Counter[Event]()
    for now in range(100, 400):
        push(engine, [(now, FAST, now)], now)
        engine.advance(now)
        found += events(engine.drain())
    assert len([row for _, row in found if row[0] == FAST]) > 30
    assert late_rows(engine) == []


def test_at_the_level_of_queries_a_group_waits_for_all_streams() -> None:
    engine = engine_of(PLANS["of a union"], SourcesPromise(BY_HASH, 0), ordered=True)
    engine.remove("q")
    engine.add("loose", PLANS["tumbling"], ordered=False)
    engine.add("both", PLANS["of a union"], ordered=False)
    engine.scheduling.set_level("query")
    push(engine, [(100, FAST, 100)], 100, "u")
    for now in range(101, 130):
        push(engine, [(now, FAST, now)], now)
        engine.advance(now)
    assert events(engine.drain("loose")) == Counter()
    engine.scheduling.set_level("operator")
    assert len(events(engine.drain("loose"))) == 6


PLAIN = DisorderPromise(2)


@pytest.mark.parametrize(
    ("text", "other", "rules", "follows"),
    [
        (TEXTS["tumbling"], None, STRICT, True),
        (TEXTS["two keys"], None, STRICT, True),
        (TEXTS["having"], None, STRICT, True),
        (TEXTS["of a union"], None, STRICT, True),
        (TEXTS["of a union"], PLAIN, STRICT, False),
        (TEXTS["of a union"], SourcesPromise(SourceGroups("device", 7), 3), STRICT, True),
        (TEXTS["tumbling"], None, Rules(disordered=True, enforce="admit"), False),
        (
            "SELECT v, count(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY v",
            None,
            STRICT,
            False,
        ),
        (
            "SELECT d, count(*) AS n FROM (SELECT upper(device) AS d FROM s) "
            "[RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY d",
            None,
            STRICT,
            False,
        ),
        (
            "SELECT d, count(*) AS n FROM (SELECT device AS d FROM s UNION ALL SELECT upper(device) FROM s) "
            "[RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY d",
            None,
            STRICT,
            False,
        ),
    ],
)
def test_which_queries_answer_by_source(
    text: str, other: Promise | None, rules: Rules, follows: bool
) -> None:
    plan, bounds = query(text, STREAMS).plan, SourcesPromise(BY_HASH, 2)
    engine = engine_of(plan, bounds, other=other, rules=rules)
    operators = [n.operator for n in engine.graph.nodes if isinstance(n.operator, EarlySessionsOperator)]
    assert [each.progress is not None for each in operators] == [follows]
    both = {"s": bounds, "u": other or bounds}
    inputs = Inputs(promises=both, rules=dict.fromkeys(both, rules))
    assert inputs.answers_early(plan) is follows
