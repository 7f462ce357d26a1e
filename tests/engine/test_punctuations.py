"""Punctuations on attributes free state and pass on, and change no answer (Tucker & Maier)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import tuning
from headrace.engine import Engine
from headrace.engine.reasons import Reasons
from headrace.engine.snapshot import SourcePart
from headrace.expressions import col
from headrace.flow.batch import Batch
from headrace.graph.admission import Rules
from headrace.memory.accounting import account
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    IStream,
    Join,
    Plan,
    Project,
    Select,
    SlidingAggregate,
    Source,
    Union,
    Window,
)
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.windows import Range, Sliding, Unbounded
from headrace.state.promises import to_bytes, to_plain
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.bounds import Bounds
from headrace.time.ets import TimerPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.punctuation import Between, Constant, OneOf, Pattern, Punctuation
from headrace.time.skew import SkewMatrix

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
OTHER = Project(B, (("k2", col("k")), ("v2", col("v"))))
CALLS = (AggregateCall("n", "count"), AggregateCall("m", "max", "v"))
TOP = (AggregateCall("most", "max", "n"),)
WINDOWS = ((4, 2), (5, 2), (3, 3), (2, 3))
JOIN = Join(Window(A, Unbounded()), Window(OTHER, Unbounded()), ("k",), ("k2",))
GROUPS = Aggregate(Window(Union((A, B)), Unbounded()), ("k",), CALLS)
PLANS: list[Plan] = [
    IStream(JOIN),
    IStream(GROUPS),
    IStream(Aggregate(Window(Select(A, col("v") > 2), Range(5)), ("k",), CALLS)),
    IStream(Join(Window(A, Range(4)), Window(OTHER, Range(6)), ("k",), ("k2",))),
    *(IStream(SlidingAggregate(A, ("k",), CALLS, Sliding(*window))) for window in WINDOWS),
    IStream(SessionAggregate(Union((A, B)), ("k",), CALLS, 3)),
    IStream(SessionAggregate(A, ("k", "v"), CALLS[:1], 2, None, ("k",))),
    # what is above a window gets the punctuation after the last answer
    IStream(
        Aggregate(
            Window(IStream(SlidingAggregate(A, ("k",), CALLS, Sliding(4, 2))), Unbounded()), ("k",), TOP
        )
    ),
    IStream(Aggregate(Window(IStream(SessionAggregate(A, ("k",), CALLS, 3)), Unbounded()), ("k",), TOP)),
]


def engine_of(plan: Plan) -> Engine:
    engine = Engine()
    for source in (A, B):
        engine.streams.declare(source, promise=TimerPromise(0))
    engine.add("q", plan)
    return engine


def rows(*pairs: tuple[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": k, "v": v} for k, v in pairs], schema=SCHEMA)


def closing(pattern: Pattern) -> Punctuation:
    return Punctuation(patterns=(("k", pattern),))


@given(st.data())
def test_a_punctuation_that_holds_changes_no_answer(data: st.DataObject) -> None:
    plan = data.draw(st.sampled_from(PLANS))
    engine = engine_of(plan)
    streams = [name for name in ("a", "b") if name in engine.graph.sources]
    came: dict[str, list[tuple[int, dict[str, int]]]] = {"a": [], "b": []}
    open_keys = {name: set(range(4)) for name in streams}
    answers: list[Batch] = []
    for time in range(1, data.draw(st.integers(2, 15))):
        stream = data.draw(st.sampled_from(streams))
        if open_keys[stream]:
            key, value = data.draw(st.sampled_from(sorted(open_keys[stream]))), data.draw(st.integers(0, 9))
            engine.push(stream, rows((key, value)), [time])
            came[stream].append((time, {"k": key, "v": value}))
        if data.draw(st.booleans()):
            closed = data.draw(st.sampled_from([Constant(1), OneOf((0, 2)), Between(2, 3), Constant(3)]))
            engine.streams.punctuate(stream, closing(closed))
            open_keys[stream] -= {k for k in range(4) if closed.matches(pa.array([k]))[0]}
        engine.advance(time)
        answers += engine.drain()
    engine.advance(100)
    answers += engine.drain()
    assert_same_stream(answers, [e for e in oracle.stream(plan, came) if e[0] <= 100], schema=plan.schema)


def test_a_join_key_closed_on_one_side_frees_the_rows_of_the_other() -> None:
    engine = engine_of(IStream(JOIN))
    engine.push("a", rows(*[(7, v) for v in range(5000)]), [1] * 5000)
    engine.push("b", rows((8, 0)), [1])
    engine.advance(2)
    engine.drain()
    before = engine.metrics().state_bytes
    engine.streams.punctuate("b", closing(Constant(7)))
    engine.advance(3)
    assert engine.metrics().state_bytes < before / 2


def test_a_closed_group_frees_its_state_and_the_last_answer_stands() -> None:
    plan = IStream(GROUPS)
    engine = engine_of(plan)
    keys = range(5000)
    engine.push("a", rows(*[(k, 1) for k in keys]), [1] * 5000)
    engine.advance(2)
    assert sum(len(b) for b in engine.drain()) == 5000
    node = next(n for n in engine.graph.nodes if isinstance(n.plan, Aggregate))
    before = node.operator.memory.bytes()
    for stream in ("a", "b"):
        engine.streams.punctuate(stream, closing(Between(0, 4990)))
    engine.push("a", rows(*[(4999, 1)] * 600), [3] * 600)
    engine.advance(4)
    assert [b.data.to_pylist() for b in engine.drain()] == [[{"k": 4999, "n": 601, "m": 1}]]
    assert node.operator.memory.bytes() < before / 4


def test_a_union_passes_a_punctuation_on_once_every_input_has_made_it() -> None:
    engine = engine_of(Union((A, B)))
    seen = engine.graph.nodes[0].operator.output.reader()
    for stream, expected in (("a", 0), ("b", 1)):
        engine.streams.punctuate(stream, closing(Constant(7)))
        engine.run()
        assert seen.punctuations == expected


# ------------------------------------------------------------------------------------- disordered streams

SLACK = 3
"""How far the rows of a disordered stream may be behind."""


def disordered_engine(plan: Plan) -> Engine:
    engine = Engine()
    skew = SkewMatrix.of(["a", "b"], {(s, s): [(0, SLACK + 1)] for s in ("a", "b")})
    rules = Rules(disordered=True, enforce="strict")
    engine.streams.manage(HeartbeatGenerator(Bounds.of(skew, timeout=10**6)), {A: rules, B: rules})
    engine.add("q", plan)
    return engine


ENGINES: dict[str, Callable[[Plan], Engine]] = {"ordered": engine_of, "disordered": disordered_engine}


@given(st.data())
def test_a_punctuation_on_a_disordered_stream_changes_no_answer(data: st.DataObject) -> None:
    """Rows that wait to be put in order come out before the punctuation, whatever is restored between."""
    plan = data.draw(st.sampled_from([*PLANS, Select(Union((A, B)), col("v") > 2)]))
    engine = disordered_engine(plan)
    streams = [name for name in ("a", "b") if engine.graph.sources[name].successors]
    came: dict[str, list[tuple[int, dict[str, int]]]] = {"a": [], "b": []}
    open_keys = {name: set(range(4)) for name in streams}
    newest = dict.fromkeys(streams, 0)
    answers: list[Batch] = []
    late = 0
    for now in range(1, data.draw(st.integers(2, 25))):
        stream = data.draw(st.sampled_from(streams))
        if open_keys[stream]:
            newest[stream] += data.draw(st.integers(0, 2))
            time = newest[stream] - data.draw(st.integers(0, SLACK))
            key, value = data.draw(st.sampled_from(sorted(open_keys[stream]))), data.draw(st.integers(0, 9))
            engine.push(stream, rows((key, value)), [time], now=now)
            came[stream].append((time, {"k": key, "v": value}))
        if data.draw(st.booleans()):
            closed = data.draw(st.sampled_from([Constant(1), OneOf((0, 2)), Between(2, 3), Constant(3)]))
            engine.streams.punctuate(stream, closing(closed))
            open_keys[stream] -= {k for k in range(4) if closed.matches(pa.array([k]))[0]}
        answers += engine.drain()
        late += sum(map(len, engine.drain_late()))
        if data.draw(st.sampled_from([False, False, False, True])):
            snapshot, engine = engine.snapshot(), disordered_engine(plan)
            engine.restore(snapshot)
    for stream in streams:
        engine.streams.end(stream)
    answers += engine.drain()
    assert late == 0
    assert_same_stream(answers, oracle.stream(plan, came), schema=plan.schema)


def state_after_closing(engine: Engine, streams: tuple[str, ...]) -> tuple[int, int]:
    """Bytes of state with many keys, and after all but a few of them were closed on some streams."""
    keys = range(2000)
    for stream in ("a", "b"):
        engine.push(stream, rows(*[(k, 1) for k in keys]), [10] * len(keys), now=1)
    for stream in ("a", "b"):
        engine.push(stream, rows((1999, 1)), [20], now=2)
    engine.advance(30)
    engine.drain()
    before = engine.metrics().state_bytes
    for stream in streams:
        engine.streams.punctuate(stream, closing(Between(0, 1990)))
    for now in range(31, 40):
        for stream in ("a", "b"):
            engine.push(stream, rows(*[(1999, 1)] * 9), [now] * 9, now=now)
        engine.advance(now)
        engine.drain()
    for stream in ("a", "b"):
        engine.streams.end(stream)
    engine.drain()
    return before, engine.metrics().state_bytes


@pytest.mark.parametrize(
    ("plan", "streams"), [(IStream(JOIN), ("a", "b")), (IStream(JOIN), ("b",)), (IStream(GROUPS), ("a", "b"))]
)
def test_a_disordered_stream_frees_state_as_an_ordered_one_does(plan: Plan, streams: tuple[str, ...]) -> None:
    (before, ordered), (_, disordered) = (
        state_after_closing(make(plan), streams) for make in ENGINES.values()
    )
    assert ordered < before / 2
    assert disordered <= ordered + before / 100


def passed_by(engine: Engine) -> list[int | Punctuation]:
    """What reaches the sink of the only query, in order: the times of rows, punctuations on attributes."""
    engine.run()
    reader = engine.graph.sinks["q"].reader
    seen: list[int | Punctuation] = []
    while (item := reader.take(10**6)) is not None:
        if isinstance(item, Batch):
            seen += item.start.tolist()
        elif item.patterns:
            seen.append(item)
    return seen


@pytest.mark.parametrize("restored", [False, True])
def test_a_punctuation_waits_for_the_rows_that_it_speaks_of_and_no_longer(restored: bool) -> None:
    plan = Select(A, col("v") > 0)
    engine = disordered_engine(plan)
    seven, eight, nine = (closing(Constant(k)) for k in (7, 8, 9))
    engine.push("a", rows((8, 1), (7, 1), (8, 1), (5, 1)), [10, 12, 11, 13], now=1)
    for punctuation in (seven, eight, nine):
        engine.streams.punctuate("a", punctuation)
    assert passed_by(engine) == [nine]
    if restored:
        snapshot, engine = engine.snapshot(), disordered_engine(plan)
        engine.restore(snapshot)
    engine.push("a", rows((5, 1)), [11 + SLACK + 1], now=2)
    assert passed_by(engine) == [10, 11, eight]
    engine.streams.end("a")
    assert passed_by(engine) == [12, 13, 15, seven]


LAST_ANSWERS: dict[str, tuple[Plan, int]] = {
    "sliding": (SlidingAggregate(A, ("k",), CALLS, Sliding(4, 2)), 13),
    "uneven": (SlidingAggregate(A, ("k",), CALLS, Sliding(5, 2)), 14),
    "tumbling": (SlidingAggregate(A, ("k",), CALLS, Sliding(4, 4)), 11),
    "sessions": (SessionAggregate(A, ("k",), CALLS, 3), 13),
}


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("name", LAST_ANSWERS)
def test_a_window_passes_a_punctuation_on_with_the_last_answer_of_its_group(
    name: str, restored: bool
) -> None:
    """Operators above free the group then; before, an answer of it could still come."""
    below, last = LAST_ANSWERS[name]
    plan = IStream(below)
    engine, seven, nine = engine_of(plan), closing(Constant(7)), closing(Constant(9))
    engine.push("a", rows((7, 1)), [10])
    engine.advance(9)
    for punctuation in (seven, nine):
        engine.streams.punctuate("a", punctuation)
    seen: dict[int, list[int | Punctuation]] = {}
    for now in range(10, 20):
        if restored:
            snapshot, engine = engine.snapshot(), engine_of(plan)
            engine.restore(snapshot)
        engine.advance(now)
        seen[now] = passed_by(engine)
    assert [now for now, items in seen.items() if nine in items] == [10]
    assert [now for now, items in seen.items() if seven in items] == [last]


@pytest.mark.parametrize(
    "plan", [SlidingAggregate(A, ("k",), CALLS, Sliding(4, 2)), SessionAggregate(A, ("k",), CALLS, 3)]
)
def test_groups_that_are_closed_are_freed_with_their_last_answer(plan: Plan) -> None:
    engine = engine_of(IStream(plan))
    keys = range(500)
    engine.push("a", rows(*[(k, 1) for k in keys]), [1] * len(keys))
    engine.advance(1)
    operator = next(n for n in engine.graph.nodes if n.plan == plan).operator
    for key in keys:
        engine.streams.punctuate("a", closing(Constant(key)))
    engine.advance(20)
    assert sum(map(len, engine.drain())) >= len(keys)
    assert len(operator._groups) == 0


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("plan", [Union((A, B)), IStream(JOIN)])
def test_what_one_input_has_promised_is_not_forgotten_over_a_snapshot(
    make: Callable[[Plan], Engine], plan: Plan
) -> None:
    engine, closed = make(plan), closing(Constant(7))
    first = engine.snapshot()
    engine.streams.punctuate("a", closed)
    assert passed_by(engine) == []
    second, engine = engine.snapshot(first.version), make(plan)
    engine.restore([first, second])
    engine.streams.punctuate("b", closed)
    assert passed_by(engine) == [closed]


@pytest.mark.parametrize("plan", [Union((A, B)), IStream(JOIN)])
def test_promises_that_only_one_input_makes_do_not_add_up(plan: Plan) -> None:
    """Regression: a union or a join kept all promises of one input, in case the other made them too."""
    engine = disordered_engine(plan)
    first, bytes = engine.snapshot(), []
    with tuning.using(promises_kept=10):
        for key in range(60):
            engine.streams.punctuate("a", closing(Constant(key)))
            engine.run()
            second = engine.snapshot(first.version)
            bytes.append(account(engine.graph, tight=True).state)
            engine = disordered_engine(plan)
            engine.restore([first, second])
            first = engine.snapshot()
        assert bytes[-1] == bytes[30]
        for key in (49, 50, 59):
            engine.streams.punctuate("b", closing(Constant(key)))
        engine.run()
        assert passed_by(engine) == [closing(Constant(50)), closing(Constant(59))]


# ------------------------------------------------------------------------------------------ what is enforced


def late_reasons(engine: Engine, *pairs: tuple[int, int]) -> list[str | None]:
    """Push rows that are in time; why each that is late is late."""
    engine.push("a", rows(*pairs), [10] * len(pairs), now=1)
    return [why for late in engine.drain_late() for why in late.reasons]


def test_a_late_row_names_the_punctuation_that_it_broke() -> None:
    engine = disordered_engine(Select(A, col("v") > 0))
    for patterns in ((("v", Constant(2)), ("k", Constant(1))), (("k", Between(5, None)),)):
        engine.streams.punctuate("a", Punctuation(patterns=patterns))
    assert late_reasons(engine, (1, 1), (1, 2), (2, 2), (6, 1)) == [
        "breaks the punctuation k = 1 and v = 2",
        "breaks the punctuation k in 5..",
    ]
    reasons = Reasons()
    engine.push("a", rows((6, 1), (7, 1)), [10, 10], now=1)
    reasons.add(engine.drain_late(), [])
    assert [str(each) for each in reasons.all()] == ["2 of a late: breaks the punctuation k in 5.."]


def test_closed_values_are_written_once_and_survive_increments() -> None:
    plan = Select(A, col("v") > 0)
    engine = disordered_engine(plan)
    engine.streams.punctuate("a", closing(Constant(1)))
    chain = [engine.snapshot()]
    sizes = []
    for first in (1000, 2000, 3000):
        for key in range(first, first + 200):
            engine.streams.punctuate("a", closing(Constant(key)))
        engine.run()
        chain.append(engine.snapshot(chain[-1].version))
        sizes.append(len(chain[-1].chunks["source/a"]))
    assert max(sizes) < 1.2 * min(sizes), "the cost of a snapshot follows the change"
    engine = disordered_engine(plan)
    engine.restore(chain)
    assert len(late_reasons(engine, (1, 1), (2, 1), (1000, 1), (2199, 1), (3100, 1))) == 4


def test_what_closed_numbers_take_follows_the_gaps_between_them() -> None:
    """Regression: each closed value took 123 bytes for good, twice that in a run without snapshots."""
    plan = Select(A, col("v") > 0)
    engine = disordered_engine(plan)
    for key in range(20_000):
        if key % 10_000 != 7:
            engine.streams.punctuate("a", closing(Constant(key)))
    engine.run()
    assert engine.graph.sources["a"].admission.punctuate.log is None, "kept for increments only"
    assert account(engine.graph).sources["a"] == account(engine.graph, tight=True).sources["a"] == 3 * 16
    snapshot = engine.snapshot()
    assert len(snapshot.chunks["source/a"]) < 2_000
    engine.streams.punctuate("a", closing(Constant(7)))
    increment = engine.snapshot(snapshot.version)
    engine = disordered_engine(plan)
    engine.restore([snapshot, increment])
    assert account(engine.graph).sources["a"] == 2 * 16
    assert len(late_reasons(engine, (7, 1), (8, 1), (10_007, 1), (19_999, 1), (20_000, 1))) == 3


def test_closed_values_of_an_earlier_version_still_hold() -> None:
    engine = disordered_engine(Select(A, col("v") > 0))
    part = SourcePart(engine.graph.sources["a"])
    chunk = {key: value for key, value in part.changes(True).items() if key not in ("punctuations", "spoken")}
    del chunk["reset"]
    part.apply({**chunk, "closed": to_bytes([[to_plain(closing(Between(8, 9)))], {"k": {1, 2}}])})
    assert len(late_reasons(engine, (1, 1), (2, 1), (3, 1), (8, 1))) == 3


def test_a_promise_that_was_read_waits_until_the_stream_has_been_read_so_far() -> None:
    plan = Select(A, col("v") > 0)
    engine = disordered_engine(plan)
    engine.streams.read_until("a", 5)
    engine.advance(5)
    engine.streams.promise("a", [closing(Constant(1))], read_at=5)
    engine.advance(6)
    assert late_reasons(engine, (1, 1)) == []
    snapshot, engine = engine.snapshot(), disordered_engine(plan)
    engine.restore(snapshot)
    engine.streams.read_until("a", 6)
    engine.advance(7)
    assert late_reasons(engine, (1, 1)) == ["breaks the punctuation k = 1"]
