"""What makes no sense is refused at once, with a code and a hint, and leaves the engine as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine import Engine, Snapshot
from headrace.errors import HeadraceError
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    Distinct,
    Except,
    Granularity,
    IStream,
    Join,
    Plan,
    RStream,
    Source,
    TimeKind,
    Union,
    Window,
)
from headrace.plan.nodes.windows import Range, Rows, Unbounded
from headrace.time.bounds import Bounds
from headrace.time.ets import TimerPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.skew import SkewMatrix

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
S, R = Source("s", SCHEMA), Source("r", pa.schema([("k2", pa.string()), ("f", pa.float64())]))
WS, WR = Window(S, Range(3)), Window(R, Range(3))
COUNT = (AggregateCall("n", "count"),)
PLANS: dict[str, tuple[str, Callable[[], Plan]]] = {
    "union of other columns": ("HR-P014", lambda: Union((S, R))),
    "union of nothing": ("HR-P012", lambda: Union(())),
    "union of a stream and a relation": ("HR-P013", lambda: IStream(Union((WS, S)))),
    "join on a column that is not there": ("HR-P005", lambda: IStream(Join(WS, WR, ("zz",), ("k2",)))),
    "join of keys that never match": ("HR-P017", lambda: IStream(Join(WS, WR, ("v",), ("f",)))),
    "join of keys in no pairs": ("HR-P016", lambda: IStream(Join(WS, WR, ("v",), ()))),
    "join of streams": ("HR-P015", lambda: IStream(Join(S, WR, ("k",), ("k2",)))),
    "aggregate of a stream": ("HR-P015", lambda: IStream(Aggregate(S, ("k",), COUNT))),
    "group by a column that is not there": ("HR-P005", lambda: IStream(Aggregate(WS, ("zz",), COUNT))),
    "partition by one": ("HR-P005", lambda: IStream(Window(S, Rows(2, ("zz",))))),
    "a name twice": ("HR-P011", lambda: IStream(Aggregate(WS, ("k",), (AggregateCall("k", "count"),)))),
    "a window on a window": ("HR-P018", lambda: IStream(Window(WS, Range(2)))),
    "istream of a stream": ("HR-P015", lambda: IStream(S)),
    "distinct of a stream": ("HR-P015", lambda: IStream(Distinct(S))),
    "except of other columns": ("HR-P014", lambda: IStream(Except(WS, WR))),
    "no grain": ("HR-P001", lambda: IStream(Granularity(WS, 0))),
    "grain of rows": ("HR-P019", lambda: IStream(Granularity(Window(S, Rows(2)), 5))),
    "no slide": ("HR-P001", lambda: RStream(WS, 0)),
    "millions of copies": ("HR-P020", lambda: RStream(Window(S, Range(60_000_000)), 1)),
    "half a tick": ("HR-P001", lambda: IStream(Window(S, Range(1.5)))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_without_meaning_is_refused_when_it_is_added(name: str) -> None:
    code, plan = PLANS[name]
    engine = Engine()
    with pytest.raises(HeadraceError, match=code) as caught:
        engine.add("q", plan())
    assert caught.value.hint
    assert not engine.graph.nodes
    assert not engine.graph.sinks


def rows(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": "a", "v": v} for v in values], schema=SCHEMA)


CALLS: dict[str, tuple[str, Callable[[Engine], Any]]] = {
    "not rows": ("HR-I075", lambda e: e.push("s", 7, [1])),
    "a table without a column": ("HR-I003", lambda e: e.push("s", pa.table({"k": ["a"]}), [1])),
    "a table with another type": ("HR-I003", lambda e: e.push("s", [{"k": "a", "v": "x"}], [1])),
    "times in two dimensions": ("HR-I007", lambda e: e.push("s", rows(1), [[1]])),
    "one time for all": ("HR-I007", lambda e: e.push("s", rows(1), 1)),
    "times beyond int64": ("HR-I007", lambda e: e.push("s", rows(1), np.array([2**64 - 1], np.uint64))),
    "a larger one": ("HR-I007", lambda e: e.push("s", rows(1), [2**63])),
    "times as text": ("HR-I007", lambda e: e.push("s", rows(1), ["x"])),
    "a heartbeat of half a tick": ("HR-I012", lambda e: e.streams.heartbeat("s", 1.5)),
    "a clock beyond the domain": ("HR-I012", lambda e: e.advance(2**70)),
    "a punctuation on no column": (
        "HR-I010",
        lambda e: e.streams.punctuate("s", Punctuation(patterns=(("zz", Constant(1)),))),
    ),
    "a punctuation of another type": (
        "HR-I010",
        lambda e: e.streams.punctuate("s", Punctuation(patterns=(("v", Constant("x")),))),
    ),
    "text for a plan": ("HR-G012", lambda e: e.add("z", "SELECT 1")),
    "a break at no operator": ("HR-S004", lambda e: e.scheduling.set_break("nowhere0")),
    "a strategy for no operator": ("HR-S004", lambda e: e.scheduling.use("rr", ["nowhere0"])),
    "an offset into the future": ("HR-T007", lambda e: TimerPromise(-5)),
    "half a tick of offset": ("HR-T007", lambda e: TimerPromise(2.5)),  # type: ignore[arg-type]
    "a guard behind the clock": ("HR-I008", lambda e: Rules(guard=-1)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_meaning_is_refused_and_the_engine_goes_on(name: str) -> None:
    code, call = CALLS[name]
    engine = Engine()
    engine.add("q", IStream(Aggregate(Window(S, Unbounded()), ("k",), COUNT)))
    with pytest.raises(HeadraceError, match=code) as caught:
        call(engine)
    assert caught.value.hint
    engine.push("s", rows(1, 2), [1, 2])
    engine.streams.end("s")
    assert sum(len(b) for b in engine.drain("q")) == 2


def test_times_on_an_internal_stream_are_refused() -> None:
    engine = Engine()
    engine.add("q", Source("s", SCHEMA, TimeKind.INTERNAL))
    with pytest.raises(HeadraceError, match="HR-I011"):
        engine.push("s", rows(1), [7])


@pytest.mark.parametrize(
    ("unit", "value"), [("s", 2), ("ms", 2_000), ("us", 2_000_000), ("ns", 2_000_000_000)]
)
def test_arrow_timestamps_of_any_unit_count_microseconds(unit: str, value: int) -> None:
    engine = Engine()
    engine.add("q", S)
    assert engine.push("s", rows(1), pa.array([value], pa.timestamp(unit))).start.tolist() == [2_000_000]


def test_times_that_no_window_can_be_added_to_are_rejected() -> None:
    engine = Engine()
    engine.add("q", S)
    engine.push("s", rows(1, 2, 3), [-(2**63), 5, 2**63 - 1])
    assert [(r.code, len(r)) for r in engine.drain_rejected()] == [("HR-R003", 2)]
    assert [b.start.tolist() for b in engine.drain()] == [[5]]


def test_a_list_of_times_with_a_hole_rejects_the_row_without_one() -> None:
    engine = Engine()
    engine.add("q", S)
    engine.push("s", rows(1, 2), [1, None])
    assert [(r.code, len(r)) for r in engine.drain_rejected()] == [("HR-R001", 1)]


@pytest.mark.parametrize("order", [[0, 2], [0, 1, 1], [1, 0], [2], [0, 0]])
def test_a_chain_of_snapshots_with_a_gap_is_refused(order: list[int]) -> None:
    def fresh() -> Engine:
        engine = Engine()
        engine.add("q", IStream(Aggregate(Window(S, Unbounded()), ("k",), COUNT)))
        return engine

    engine, chain = fresh(), list[Snapshot]()
    for time in range(3):
        engine.push("s", rows(time), [time])
        engine.drain()
        chain.append(engine.snapshot(chain[-1].version if chain else None))
    with pytest.raises(HeadraceError, match="HR-G010"):
        fresh().restore([chain[i] for i in order])
    fresh().restore(chain)
    fresh().restore(chain[0])


def test_a_second_input_manager_is_refused() -> None:
    def bounds() -> HeartbeatGenerator:
        return HeartbeatGenerator(Bounds.of(SkewMatrix.of(["s"], {("s", "s"): [(0, 3)]}), timeout=10))

    engine = Engine()
    engine.streams.manage(bounds(), {S: Rules(True, "strict")})
    with pytest.raises(HeadraceError, match="HR-G011"):
        engine.streams.manage(bounds(), {S: Rules(True, "strict")})


def test_declaring_a_stream_disordered_does_not_change_the_answer_of_simultaneous_rows() -> None:
    answers = []
    for disordered in (False, True):
        engine = Engine()
        engine.streams.declare(S, rules=Rules(disordered, "strict"))
        engine.add("q", IStream(Window(S, Rows(1))))
        engine.push("s", rows(9, 5, 7), [1, 1, 1])
        engine.streams.end("s")
        answers.append([b.data.to_pylist() for b in engine.drain()])
    assert answers[0] == answers[1] == [[{"k": "a", "v": 7}]]
