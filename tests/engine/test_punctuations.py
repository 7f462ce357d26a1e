"""Punctuations on attributes free state and pass on, and change no answer (Tucker & Maier)."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.expressions import col
from headrace.flow.batch import Batch
from headrace.plan.nodes import (
    Aggregate,
    AggregateCall,
    IStream,
    Join,
    Plan,
    Project,
    Select,
    Source,
    Union,
    Window,
)
from headrace.plan.windows import Range, Unbounded
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.ets import TimerPromise
from headrace.time.punctuation import Between, Constant, OneOf, Pattern, Punctuation

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
OTHER = Project(B, (("k2", col("k")), ("v2", col("v"))))
CALLS = (AggregateCall("n", "count"), AggregateCall("m", "max", "v"))
JOIN = Join(Window(A, Unbounded()), Window(OTHER, Unbounded()), ("k",), ("k2",))
GROUPS = Aggregate(Window(Union((A, B)), Unbounded()), ("k",), CALLS)
PLANS: list[Plan] = [
    IStream(JOIN),
    IStream(GROUPS),
    IStream(Aggregate(Window(Select(A, col("v") > 2), Range(5)), ("k",), CALLS)),
    IStream(Join(Window(A, Range(4)), Window(OTHER, Range(6)), ("k",), ("k2",))),
]


def engine_of(plan: Plan) -> Engine:
    engine = Engine()
    for source in (A, B):
        engine.declare(source, promise=TimerPromise(0))
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
            engine.punctuate(stream, closing(closed))
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
    engine.punctuate("b", closing(Constant(7)))
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
    before = node.operator.state_bytes()
    for stream in ("a", "b"):
        engine.punctuate(stream, closing(Between(0, 4990)))
    engine.push("a", rows(*[(4999, 1)] * 600), [3] * 600)
    engine.advance(4)
    assert [b.data.to_pylist() for b in engine.drain()] == [[{"k": 4999, "n": 601, "m": 1}]]
    assert node.operator.state_bytes() < before / 4


def test_a_union_passes_a_punctuation_on_once_every_input_has_made_it() -> None:
    engine = engine_of(Union((A, B)))
    seen = engine.graph.nodes[0].operator.output.reader()
    for stream, expected in (("a", 0), ("b", 1)):
        engine.punctuate(stream, closing(Constant(7)))
        engine.run()
        assert seen.punctuations == expected
