"""Streams out of order: in order within their bounds, late rows kept apart, every row accounted for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine, Snapshot
from headrace.errors import GraphError, InputError, PlanError
from headrace.expressions import col, lit
from headrace.flow.batch import Batch
from headrace.graph.admission import Rules
from headrace.plan.analysis.ordering import Disorder, Expand, Merge, Order, place_orders
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    Distinct,
    DStream,
    Except,
    Granularity,
    IStream,
    Join,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    Union,
    Window,
)
from headrace.plan.nodes.session import MergingSessions, SessionAggregate
from headrace.plan.nodes.top_n import TopN, descending
from headrace.plan.nodes.trees import sources_of, walk
from headrace.plan.nodes.unsorted import UnsortedWindows
from headrace.plan.nodes.user_aggregates import user_call
from headrace.plan.nodes.windows import Range, Sliding
from headrace.sql import StreamDef, query
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.punctuation import Constant, Late, Punctuation
from headrace.time.skew import SkewMatrix
from tests.strategies.plans import slidings
from tests.strategies.user_aggregates import TWO_LARGEST, calls_on

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
RENAMED = Project(B, (("k2", col("k")), ("v2", col("v"))))
UNION = Union((Select(A, col("v") < 8), B))
CALLS = (AggregateCall("n", "count"), AggregateCall("s", "sum", "v"), AggregateCall("m", "max", "v"))
SORTS = AggregateCall("d", "count_distinct", "v")
LARGEST = user_call("two", TWO_LARGEST, ["v"])
FLOATS = Project(UNION, (("k", col("k")), ("v", col("v")), ("x", col("v") * lit(0.1))))
SPREADS = (
    AggregateCall("sx", "sum", "x"),
    AggregateCall("sd", "stddev", "x"),
    AggregateCall("least", "min", "x"),
)
PLANS: list[Plan] = [
    UNION,
    Select(UNION, col("k") > 0),
    IStream(Join(Window(Select(A, col("v") < 8), Range(5)), Window(RENAMED, Range(4)), ("k",), ("k2",))),
    RStream(SlidingAggregate(UNION, ("k",), CALLS, Sliding(6, 2), ("from", "to")), 2),
    RStream(SlidingAggregate(A, (), (*CALLS, SORTS), Sliding(4, 4)), 4),
    RStream(SlidingAggregate(FLOATS, ("k",), SPREADS, Sliding(5, 3), ("from", "to")), 3, 2),
    RStream(SlidingAggregate(FLOATS, ("k",), (*SPREADS, SORTS, LARGEST), Sliding(2, 5)), 5, 2),
    RStream(SlidingAggregate(UNION, ("k",), (*CALLS, SORTS), Sliding(5, 3)), 3, 2),
    RStream(SessionAggregate(UNION, ("k",), CALLS, 2, ("from", "to")), 1),
    RStream(SessionAggregate(Select(A, col("v") < 8), ("k",), (*CALLS, SORTS), 3, ("from", "to"), ()), 1),
]
Arrival = tuple[str, int, int, dict[str, int]]


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    answers: list[Batch]
    late: list[Late]
    engine: Engine


def generator(delta: int, between: int | None = None) -> HeartbeatGenerator:
    """Each stream's disorder is less than `delta`; the streams are `between` apart, if that is known."""
    skew: dict[tuple[str, str], list[tuple[int, int]]] = {("a", "a"): [(0, delta)], ("b", "b"): [(0, delta)]}
    if between is not None:
        skew |= {("a", "b"): [(0, between)], ("b", "a"): [(0, between)]}
    return HeartbeatGenerator(Bounds.of(SkewMatrix.of(["a", "b"], skew), timeout=10**6), close=True)


def arrivals(draw: st.DrawFn, lateness: int) -> list[Arrival]:
    """Rows in order of arrival, each up to `lateness` ticks behind the newest of its stream."""
    rows: list[Arrival] = []
    clock, newest = 0, {"a": 0, "b": 0}
    for _ in range(draw(st.integers(0, 30))):
        clock += draw(st.integers(1, 3))
        stream = draw(st.sampled_from(["a", "b"]))
        newest[stream] += draw(st.integers(0, 4))
        time = newest[stream] - draw(st.integers(0, lateness))
        row = {"k": draw(st.integers(0, 2)), "v": draw(st.integers(0, 9))}
        rows.append((stream, clock, time, row))
    return rows


def drive(
    plan: Plan,
    heartbeats: HeartbeatGenerator,
    came: list[Arrival],
    rules: Rules,
    *,
    level: str = "operator",
    restarts: frozenset[int] = frozenset(),
    fresh: Any = None,
) -> Outcome:
    """Push arrivals one by one at their clocks, draining as it goes, then end all streams."""
    engine = _engine(plan, heartbeats, rules, level)
    answers: list[Batch] = []
    late: list[Late] = []
    chain: list[Snapshot] = []
    for i, (stream, clock, time, row) in enumerate(came):
        if i in restarts:
            chain.append(engine.snapshot(chain[-1].version if chain else None))
            engine = _engine(plan, fresh(), rules, level)
            engine.restore(chain)
        engine.push(stream, pa.RecordBatch.from_pylist([row], schema=SCHEMA), [time], now=clock)
        answers += engine.drain()
        late += engine.drain_late()
    for stream in ("a", "b"):
        if stream in engine.streams:
            engine.streams.end(stream)
    answers += engine.drain()
    return Outcome(answers, late, engine)


def _engine(plan: Plan, heartbeats: HeartbeatGenerator, rules: Rules, level: str) -> Engine:
    engine = Engine()
    engine.streams.manage(heartbeats, {A: rules, B: rules})
    engine.add("q", plan)
    engine.scheduling.set_level(level)
    return engine


def rows_of(came: list[Arrival]) -> Mapping[str, list[tuple[int, dict[str, int]]]]:
    """The rows by stream, in order of arrival."""
    return {s: [(t, row) for stream, _, t, row in came if stream == s] for s in ("a", "b")}


def without(came: list[Arrival], late: list[Late]) -> list[Arrival]:
    """The arrivals that were not set apart as late and not admitted either."""
    gone = Counter(
        (each.stream, time, tuple(row.items()))
        for each in late
        for time, row, admitted in zip(each.times.tolist(), each.rows.to_pylist(), each.admitted, strict=True)
        if not admitted
    )
    kept: list[Arrival] = []
    for arrival in came:
        key = (arrival[0], arrival[2], tuple(arrival[3].items()))
        if gone[key]:
            gone[key] -= 1
        else:
            kept.append(arrival)
    return kept


def accounted(engine: Engine) -> bool:
    """rows in = rows processed + late + rejected, on every stream."""
    sources = engine.metrics().sources.values()
    return all(s.rows_in == s.rows_processed + s.rows_late + s.rows_rejected for s in sources)


@given(st.data())
def test_within_their_bounds_disordered_streams_give_the_oracles_answer(data: st.DataObject) -> None:
    delta = data.draw(st.integers(1, 6))
    came = arrivals(data.draw, delta - 1)
    plan = data.draw(st.sampled_from(PLANS))
    level = data.draw(st.sampled_from(["query", "operator", "memory"]))
    restarts = data.draw(st.frozensets(st.integers(0, 29), max_size=2))
    rules = Rules(disordered=True, enforce=data.draw(st.sampled_from(["strict", "admit"])))
    found = drive(
        plan, generator(delta), came, rules, level=level, restarts=restarts, fresh=lambda: generator(delta)
    )
    assert not found.late
    assert_same_stream(found.answers, oracle.stream(plan, rows_of(came)), schema=plan.schema)
    assert accounted(found.engine)


@given(st.data())
def test_rows_that_break_the_bounds_are_late_and_the_rest_is_still_ordered_and_right(
    data: st.DataObject,
) -> None:
    delta = data.draw(st.integers(1, 3))
    came = arrivals(data.draw, 10)
    plan = data.draw(st.sampled_from(PLANS))
    found = drive(plan, generator(delta), came, Rules(disordered=True, enforce="strict"))
    kept = without(came, found.late)
    assert len(kept) + sum(len(each) for each in found.late) == len(came)
    assert_same_stream(found.answers, oracle.stream(plan, rows_of(kept)), schema=plan.schema)
    assert accounted(found.engine)
    for each in found.late:
        assert (each.times <= each.heartbeat).all()
        assert (each.lateness == each.heartbeat - each.times + 1).all()


@given(st.data())
def test_which_rows_are_late_does_not_depend_on_when_the_engine_runs(data: st.DataObject) -> None:
    came = arrivals(data.draw, 10)
    rules = Rules(disordered=True, enforce=data.draw(st.sampled_from(["strict", "admit"])))
    plan = data.draw(st.sampled_from(PLANS))
    ran, quiet = (
        _engine(plan, generator(2), rules, "operator"),
        _engine(plan, generator(2), rules, "operator"),
    )
    for stream, clock, time, row in came:
        for engine in (ran, quiet):
            if stream in engine.streams:
                engine.push(stream, pa.RecordBatch.from_pylist([row], schema=SCHEMA), [time], now=clock)
        ran.run()
    late = [
        [(each.stream, each.times.tolist(), each.missed.tolist()) for each in e.drain_late()]
        for e in (ran, quiet)
    ]
    assert late[0] == late[1]


@given(st.data())
def test_an_admitted_row_counts_in_every_window_that_is_not_answered_yet(data: st.DataObject) -> None:
    """Flink's law: a (row, window) pair is late when the window's last tick ≤ the heartbeat."""
    delta = data.draw(st.integers(1, 3))
    came = [a for a in arrivals(data.draw, 10) if a[0] == "a"]
    window = data.draw(st.sampled_from([Sliding(4, 4), Sliding(6, 2), Sliding(5, 3), Sliding(2, 5)]))
    plan = RStream(
        SlidingAggregate(A, ("k",), CALLS, window, ("from", "to")), window.slide, window.ticks.phase
    )
    found = drive(plan, generator(delta), came, Rules(disordered=True, enforce="admit"))
    expected, missed = _flink(came, delta, window)
    assert_same_stream(found.answers, expected, schema=plan.schema)
    assert sum(int(each.missed.sum()) for each in found.late) == missed
    assert accounted(found.engine)


def _flink(came: list[Arrival], delta: int, window: Sliding) -> tuple[list[tuple[int, tuple[int, ...]]], int]:
    """Windows filled row by row under a heartbeat of newest − δ."""
    filled: dict[tuple[int, int], list[int]] = {}
    missed = 0
    for i, (_, _, time, row) in enumerate(came):
        last = max((t for _, _, t, _ in came[:i]), default=None)
        heartbeat = None if last is None else last - delta
        newest = time // window.slide * window.slide
        for begin in range(newest, time - window.size, -window.slide):
            end = begin + window.size
            if heartbeat is not None and end - 1 <= heartbeat:
                missed += 1
            else:
                filled.setdefault((end, row["k"]), []).append(row["v"])
    rows = [(e - 1, (k, len(v), sum(v), max(v), e - window.size, e)) for (e, k), v in filled.items()]
    return sorted(rows), missed


Relations = Callable[[Plan, Plan], Plan]
RELATIONS: dict[str, Relations] = {
    "row by row": lambda a, b: a,
    "chosen": lambda a, b: Project(Select(a, col("v") < 8), (("k", col("k")),)),
    "distinct": lambda a, b: Distinct(Project(a, (("k", col("k")),))),
    "ranked": lambda a, b: TopN(a, ("k",), (descending("v"),), 2, "rank"),
    "joined": lambda a, b: Join(a, b, ("k",), ("k2",)),
    "less": lambda a, b: Except(Project(a, (("k", col("k")),)), Project(b, (("k", col("k2")),)), all=True),
    "both": lambda a, b: Union((a, Project(b, (("k", col("k2")), ("v", col("v2")))))),
    "counted again": lambda a, b: Aggregate(Distinct(a), ("k",), CALLS),
}
REPORTS: list[Callable[[Plan], Plan]] = [IStream, DStream, RStream, lambda plan: RStream(plan, 3, 1)]


@given(st.data(), st.sampled_from(sorted(RELATIONS)))
def test_an_admitted_row_is_in_every_open_window_whatever_is_made_of_it(
    data: st.DataObject, name: str
) -> None:
    """As of aggregates: a row is late for a sliding window when its last tick ≤ the heartbeat."""
    delta = data.draw(st.integers(1, 3))
    came = arrivals(data.draw, 10)
    report = data.draw(st.sampled_from(REPORTS))
    specs = [data.draw(slidings(8, 4)), data.draw(slidings(8, 4) | st.builds(Range, st.integers(1, 6)))]
    timely = [_in_time(came, stream, delta, spec) for stream, spec in zip("ab", specs, strict=True)]
    plan = report(RELATIONS[name](Window(A, specs[0]), Window(RENAMED, specs[1])))
    found = drive(plan, generator(delta), came, Rules(disordered=True, enforce="admit"))
    held = [Sliding(w.slide, w.slide, w.ticks.phase) if isinstance(w, Sliding) else w for w in specs]
    meant = report(RELATIONS[name](Window(A, held[0]), Window(RENAMED, held[1])))
    expected = oracle.stream(meant, {stream: rows for stream, (rows, _) in zip("ab", timely, strict=True)})
    assert_same_stream(found.answers, expected, schema=plan.schema)
    read = {source.name for source in sources_of(plan)}
    lost = sum(lost for stream, (_, lost) in zip("ab", timely, strict=True) if stream in read)
    assert sum(int(np.count_nonzero(~each.admitted)) for each in found.late if each.stream in read) == lost
    assert accounted(found.engine)


def _in_time(
    came: list[Arrival], stream: str, delta: int, window: Sliding | Range
) -> tuple[list[tuple[int, dict[str, int]]], int]:
    """The rows that come before the answer for which they count, and how many are in time for none.

    A copy for each sliding window, at its answer; under a heartbeat of newest − δ.
    """
    timely: list[tuple[int, dict[str, int]]] = []
    newest, lost = None, 0
    for time, row in rows_of(came)[stream]:
        heartbeat = -(10**9) if newest is None else newest - delta
        ticks = _answers_of(time, window) if isinstance(window, Sliding) else [time]
        timely += [(tick, row) for tick in ticks if tick > heartbeat]
        lost += bool(ticks) and time <= heartbeat and max(ticks) <= heartbeat
        newest = time if newest is None else max(newest, time)
    return sorted(timely, key=lambda each: each[0]), lost


def _answers_of(time: int, window: Sliding) -> list[int]:
    """When the windows that hold a time are answered."""
    starts = range(time - window.size + 1, time + 1)
    return [start + window.size - 1 for start in starts if (start - window.offset) % window.slide == 0]


def test_istream_reports_an_admitted_row_once_where_its_time_is_among_its_columns() -> None:
    """ISTREAM holds nothing there, unless a row comes in pieces, one for each window."""
    s = StreamDef("s", pa.schema([("at", pa.int64())]), time_column="at", ticks_per_second=None)
    engine = Engine()
    bounds = Bounds.of(SkewMatrix.of(["s"], {("s", "s"): [(0, 1)]}), timeout=10**6)
    engine.streams.manage(HeartbeatGenerator(bounds), {s.source: Rules(disordered=True, enforce="admit")})
    engine.add("q", query("ISTREAM(SELECT at FROM s [RANGE 6 SLIDE 2])", [s], ticks_per_second=None))
    for now, time in enumerate((7, 3, 8), 1):
        engine.push("s", pa.RecordBatch.from_pylist([{"at": time}], s.schema), [time], now=now)
        engine.run()
    engine.streams.end("s")
    found = [
        (int(t), v) for b in engine.drain() for t, v in zip(b.start, b.data["at"].to_pylist(), strict=True)
    ]
    assert sorted(found) == [(7, 3), (7, 7), (9, 8)]


def test_what_asks_since_when_a_row_is_valid_takes_no_late_row() -> None:
    """`first` over a join, and granularity, need whole rows: there a row is late after the heartbeat."""
    joined = Join(Window(A, Sliding(6, 2)), Window(RENAMED, Sliding(6, 2)), ("k",), ("k2",))
    first = IStream(Aggregate(joined, ("k",), (AggregateCall("f", "first", "v"),)))
    rounded = IStream(Aggregate(Granularity(joined, 3), ("k",), CALLS))
    disorder = Disorder(frozenset("ab"), frozenset("ab"))
    for plan in (first, rounded):
        assert not any(isinstance(each, Expand) for each in walk(place_orders(plan, disorder)))
    assert any(isinstance(each, Expand) for each in walk(place_orders(IStream(joined), disorder)))


@given(st.data())
def test_an_admitted_row_comes_to_every_session_that_is_not_reported_yet(data: st.DataObject) -> None:
    """Flink's law for windows that merge, in every query by its own sessions; restarts change nothing."""
    delta = data.draw(st.integers(1, 3))
    came = [a for a in arrivals(data.draw, 10) if a[0] == "a"]
    gaps = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=2, unique=True))
    partition = data.draw(st.sampled_from([None, ()]))
    restarts = data.draw(st.frozensets(st.integers(0, 29), max_size=2))
    chosen, calls = Select(A, col("v") < 8), (*CALLS, SORTS, LARGEST)
    plans = {
        str(gap): RStream(SessionAggregate(chosen, ("k",), calls, gap, ("from", "to"), partition), 1)
        for gap in gaps
    }
    engine = _several(plans, delta)
    answers: dict[str, list[Batch]] = {name: [] for name in plans}
    missed, chain = 0, list[Snapshot]()
    for i, (stream, clock, time, row) in enumerate(came):
        if i in restarts:
            chain.append(engine.snapshot(chain[-1].version if chain else None))
            engine = _several(plans, delta)
            engine.restore(chain)
        engine.push(stream, pa.RecordBatch.from_pylist([row], schema=SCHEMA), [time], now=clock)
        if data.draw(st.booleans()):
            for name, batches in engine.drain_all().items():
                answers[name] += batches
        missed += sum(int(each.missed.sum()) for each in engine.drain_late())
    engine.streams.end("a")
    for name, batches in engine.drain_all().items():
        answers[name] += batches
    wanted = [_flink_sessions(came, delta, gap, partition is None) for gap in gaps]
    for (name, plan), (rows, _) in zip(plans.items(), wanted, strict=True):
        assert_same_stream(answers[name], rows, schema=plan.schema)
    assert missed == sum(late for _, late in wanted)
    assert accounted(engine)


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 4), st.sampled_from([None, ()]))
def test_how_the_rows_of_an_instant_are_pushed_changes_no_session(
    seed: int, delta: int, gap: int, partition: tuple[str, ...] | None
) -> None:
    """One push a stream, or one a row, in any order of rows and streams: they are judged together."""
    rng = random.Random(seed)
    sessions = SessionAggregate(UNION, ("k",), CALLS, gap, ("from", "to"), partition)
    whole, cut = (_several({"q": RStream(sessions, 1)}, delta) for _ in range(2))
    for clock in range(1, 9):
        came = [
            (rng.choice("ab"), rng.randint(4 * clock - 14, 4 * clock), {"k": rng.randint(0, 1), "v": i % 9})
            for i in range(rng.randint(4, 10))
        ]
        for stream in "ab":
            mine = [each for each in came if each[0] == stream]
            batch = pa.RecordBatch.from_pylist([row for _, _, row in mine], schema=SCHEMA)
            whole.push(stream, batch, np.array([time for _, time, _ in mine], np.int64), now=clock)
        for stream, time, row in rng.sample(came, len(came)):
            cut.push(stream, pa.RecordBatch.from_pylist([row], schema=SCHEMA), [time], now=clock)
        assert _taken(whole, clock) == _taken(cut, clock)


def _taken(engine: Engine, clock: int) -> list[Any]:
    """The answers and the late rows of an instant, in one order."""
    engine.advance(clock)
    answers = [
        (int(t), str(r)) for b in engine.drain() for t, r in zip(b.start, b.data.to_pylist(), strict=True)
    ]
    late = [
        (each.stream, time, str(row), missed, admitted)
        for each in engine.drain_late()
        for time, row, missed, admitted in zip(
            each.times.tolist(),
            each.rows.to_pylist(),
            each.missed.tolist(),
            each.admitted.tolist(),
            strict=True,
        )
    ]
    return [sorted(answers), sorted(late)]


def _several(plans: dict[str, Plan], delta: int) -> Engine:
    engine = Engine()
    rules = Rules(disordered=True, enforce="admit")
    engine.streams.manage(generator(delta), {A: rules, B: rules})
    for name, plan in plans.items():
        engine.add(name, plan)
    return engine


def _flink_sessions(
    came: list[Arrival], delta: int, gap: int, by_key: bool
) -> tuple[list[tuple[int, tuple[Any, ...]]], int]:
    """Windows that merge, row by row, fired when the watermark reaches their last tick.

    A row exactly `gap` after another belongs to it, so what a heartbeat τ = newest − δ says of sessions is
    what a watermark of τ − 1 says of windows: Flink's own bounded-out-of-orderness watermark is that.
    """
    held: dict[int, list[tuple[int, int, list[tuple[int, int]]]]] = {}
    fired: list[tuple[int, int, list[tuple[int, int]]]] = []
    watermark, missed = -(10**9), 0
    for _, _, time, row in came:
        if row["v"] < 8:
            windows = held.setdefault(row["k"] if by_key else 0, [])
            met = [w for w in windows if w[0] <= time + gap and time <= w[1]]
            begin, end = min([time, *(w[0] for w in met)]), max([time + gap, *(w[1] for w in met)])
            if end - 1 <= watermark:
                missed += 1
            else:
                rows = [(row["k"], row["v"]), *(each for w in met for each in w[2])]
                windows[:] = [w for w in windows if w not in met] + [(begin, end, rows)]
        watermark = max(watermark, time - delta - 1)
        for windows in held.values():
            fired += [w for w in windows if w[1] - 1 <= watermark]
            windows[:] = [w for w in windows if w[1] - 1 > watermark]
    fired += [w for windows in held.values() for w in windows]
    found = []
    for begin, end, rows in fired:
        for k in {k for k, _ in rows}:
            v = [v for of, v in rows if of == k]
            two = ", ".join(map(str, sorted(v, reverse=True)[:2]))
            found.append((end - 1, (k, len(v), sum(v), max(v), len(set(v)), two, begin, end)))
    return sorted(found), missed


def test_rows_that_come_together_come_to_a_session_together() -> None:
    """The row at 1 is too late alone; that at 4, which comes with it, links it to the session at 7."""
    plan = RStream(SessionAggregate(A, ("k",), CALLS[:1], 3, ("from", "to")), 1)
    for pushes, counts in (([[4, 1]], [3]), ([[1], [4]], [2])):
        engine = _several({"q": plan}, 1)
        for now, times in enumerate([[7], [8], *pushes], start=1):
            rows = pa.RecordBatch.from_pylist(
                [{"k": 0 if t != 8 else 1, "v": t} for t in times], schema=SCHEMA
            )
            engine.push("a", rows, times, now=now)
        missed = sum(int(each.missed.sum()) for each in engine.drain_late())
        engine.streams.end("a")
        found = [row for b in engine.drain() for row in b.data.to_pylist() if row["k"] == 0]
        assert ([row["n"] for row in found], missed) == (counts, 3 - counts[0])


def test_one_stream_vouches_for_another_through_the_skew_between_them() -> None:
    """All of stream b is silent; a's rows prove how far b can be behind (§3)."""
    came: list[Arrival] = [("a", t, t, {"k": 0, "v": t % 9}) for t in range(1, 20)]
    engine = _engine(UNION, generator(1, between=3), Rules(disordered=True, enforce="strict"), "operator")
    out: list[int] = []
    for stream, clock, time, row in came:
        engine.push(stream, pa.RecordBatch.from_pylist([row], schema=SCHEMA), [time], now=clock)
        out += [int(t) for b in engine.drain() for t in b.start]
        released = [t for _, _, t, r in came if t <= time - 3 + 1 and r["v"] < 8]
        assert out == released, "as early as the bounds prove, and no earlier"


def test_a_stream_that_never_spoke_holds_the_union_until_the_timeout_and_no_longer() -> None:
    skew = SkewMatrix.of(["a", "b"], {("a", "a"): [(0, 1)], ("b", "b"): [(0, 1)]})
    engine = _engine(
        UNION, HeartbeatGenerator(Bounds.of(skew, timeout=50)), Rules(True, "strict"), "operator"
    )
    engine.advance(1)
    engine.push("a", pa.RecordBatch.from_pylist([{"k": 0, "v": 1}], schema=SCHEMA), [7])
    assert engine.drain() == []
    engine.advance(50)
    assert engine.drain() == []
    engine.advance(51)
    assert [b.start.tolist() for b in engine.drain()] == [[7]]


def test_a_clock_gone_wild_is_rejected_and_poisons_no_heartbeat() -> None:
    engine = _engine(UNION, generator(2, between=2), Rules(True, "strict", guard=100), "operator")
    engine.advance(10)
    rows = pa.RecordBatch.from_pylist([{"k": 0, "v": 1}, {"k": 1, "v": 1}], schema=SCHEMA)
    engine.push("a", rows, [10, 10**15])
    engine.push("a", rows, pa.array([None, 11], pa.int64()))
    rejected = engine.drain_rejected()
    assert [(r.code, len(r)) for r in rejected] == [("HR-R002", 1), ("HR-R001", 1)]
    assert "more than 100 ticks ahead of the clock" in rejected[0].reason
    engine.streams.reject("a", ["{not json"], "HR-R010", "malformed JSON")
    assert engine.drain_rejected()[0].raw == ("{not json",)
    assert engine.metrics().sources["a"].promised < 100
    assert accounted(engine)


def test_a_closed_value_lets_no_later_row_in() -> None:
    engine = _engine(UNION, generator(5), Rules(True, "strict"), "operator")
    engine.streams.punctuate("a", Punctuation(patterns=(("k", Constant(7)),)))
    rows = pa.RecordBatch.from_pylist([{"k": 7, "v": 1}, {"k": 8, "v": 1}], schema=SCHEMA)
    assert len(engine.push("a", rows, [1, 2])) == 1
    assert engine.drain_late()[0].rows.to_pylist() == [{"k": 7, "v": 1}]


def test_order_is_restored_as_late_as_it_may_be() -> None:
    disorder = Disorder(frozenset({"a", "b"}))
    selected = Select(A, col("v") < 8)
    assert place_orders(IStream(Window(selected, Range(5))), disorder) == IStream(
        Window(Order(selected), Range(5))
    )
    assert place_orders(UNION, disorder) == Union((Order(selected), Order(B)))
    admitted = Disorder(disorder.streams, disorder.streams)
    assert place_orders(UNION, Disorder(frozenset())) == UNION
    for window in (Sliding(4, 4), Sliding(6, 2)):
        for given_up in (disorder, admitted):
            placed = place_orders(SlidingAggregate(UNION, ("k",), CALLS, window), given_up)
            assert isinstance(placed, UnsortedWindows)
            assert not any(isinstance(each, Order) for each in walk(placed))
            assert any(isinstance(each, Merge) for each in walk(placed))
            copied = any(isinstance(each, Expand) for each in walk(placed))
            assert copied == (given_up is admitted and window.size > window.slide)
    sessions = place_orders(SessionAggregate(UNION, ("k",), CALLS, 3), disorder)
    assert isinstance(sessions, MergingSessions)
    assert isinstance(sessions.input, Merge)


@pytest.mark.parametrize(
    "calls",
    [
        (AggregateCall("f", "first", "v"),),
        (LARGEST,),
        (AggregateCall("d", "count_distinct", "v"),),
    ],
    ids=["first", "user-defined", "distinct values of windows that overlap"],
)
def test_aggregates_that_need_order_still_sort(calls: tuple[AggregateCall, ...]) -> None:
    disorder = Disorder(frozenset({"a", "b"}))
    placed = place_orders(SlidingAggregate(UNION, ("k",), calls, Sliding(6, 2)), disorder)
    assert not isinstance(placed, UnsortedWindows)
    assert sum(isinstance(each, Order) for each in walk(placed)) == 2


@pytest.mark.parametrize("window", ["sliding", "session", "user"])
def test_what_needs_order_under_admit_is_refused(window: str) -> None:
    first = (AggregateCall("f", "first", "v"),)
    kept = next(c for c in calls_on(SCHEMA, ordered=False) if not c.definition.merges)
    plans = {
        "sliding": SlidingAggregate(A, (), first, Sliding(4, 4)),
        "session": SessionAggregate(A, (), first, 4),
        "user": SessionAggregate(A, (), (kept,), 4),
    }
    with pytest.raises(PlanError, match="HR-P010"):
        place_orders(plans[window], Disorder(frozenset({"a"}), frozenset({"a"})))


@pytest.mark.parametrize(
    ("code", "times"),
    [("HR-I006", [1]), ("HR-I007", [1.5, 2.5]), ("HR-I001", None)],
)
def test_times_that_are_none_are_refused_and_nothing_goes_in(code: str, times: Any) -> None:
    engine = _engine(UNION, generator(2), Rules(True, "strict"), "operator")
    two = pa.RecordBatch.from_pylist([{"k": 0, "v": 1}, {"k": 1, "v": 1}], schema=SCHEMA)
    with pytest.raises(InputError, match=code) as caught:
        engine.push("a", two, times)
    assert caught.value.hint
    assert engine.metrics().sources["a"].rows_processed == 0
    assert accounted(engine)


def test_rules_are_checked_when_they_are_made_and_before_they_are_used() -> None:
    with pytest.raises(InputError, match="did you mean strict"):
        Rules(enforce="strikt")
    engine = Engine()
    engine.add("q", UNION)
    with pytest.raises(GraphError, match="HR-G009"):
        engine.streams.declare(A, rules=Rules(True, "strict"))


def test_a_snapshot_does_not_swallow_late_rows() -> None:
    engine = _engine(UNION, generator(1), Rules(True, "strict"), "operator")
    for clock, time in ((1, 10), (2, 3)):
        row = pa.RecordBatch.from_pylist([{"k": 0, "v": 1}], schema=SCHEMA)
        engine.push("a", row, np.array([time]), now=clock)
    with pytest.raises(GraphError, match="HR-G008"):
        engine.snapshot()
    assert len(engine.drain_late()) == 1
    assert engine.snapshot().version == 1
