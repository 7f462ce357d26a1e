"""A row that reached its source within its bound is never late because Spark was late.

Spark starts late, stops and starts again, falls behind, is slow to ask its sources, asks them in any order,
reads a backlog in pieces, fails and runs a micro-batch again. None of it makes a row late.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.engine.inputs import Inputs
from headrace.graph.admission import Rules
from headrace.plan.nodes import AggregateCall, Plan, RStream, SlidingAggregate, Source, Union
from headrace.plan.windows import Sliding
from headrace.runtimes.spark.answers import Outlet
from headrace.runtimes.spark.notes import LATE, RESULT
from headrace.runtimes.spark.reading import ALL, LIMITED, WITHHELD
from headrace.time.bounds import NEVER, Bounds
from headrace.time.ets import DisorderPromise, Promise, SkewPromise, TimerPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import Pair, SkewMatrix
from tests.spark.simulated import Cluster, MicroBatch, embedded_instants, on_spark

SCHEMA = pa.schema([("k", pa.int64())])
STREAMS = ("a", "b")
SPAN = 120


@dataclass
class Reached:
    """The rows of one stream in the order in which they reached its source: when, and their times."""

    at: list[int]
    times: list[int]
    taken: int = 0

    def take(self, asked: int, most: int | None) -> slice:
        """What the source gives when it is asked at an instant."""
        there = sum(at <= asked for at in self.at)
        stop = there if most is None else min(there, self.taken + most)
        given = slice(self.taken, stop)
        self.taken = stop
        return given


@dataclass
class World:
    """What Spark did: micro-batches, what the timer said with each, when rows had reached their source."""

    batches: list[MicroBatch] = field(default_factory=list)
    said: list[int | None] = field(default_factory=list)
    reached: list[dict[str, np.ndarray]] = field(default_factory=list)


def world(rng: random.Random, rows: dict[str, Reached], limits: dict[str, int | None], once: bool) -> World:
    """Runs and downtimes until all is read. With `once`, a run asks its sources only when it starts."""
    made, clock, tick = World(), rng.randint(0, SPAN), None
    while any(each.taken < len(each.at) for each in rows.values()):
        clock += rng.choice((1, 1, 2, 30))  # a slow trigger, or nobody at work
        asked, clock = _asked(rng, [*rows, "timer"], clock)
        for _ in range(rng.randint(1, 6) if once else 1):
            arrived, since = {}, {}
            for name, each in rows.items():
                given = each.take(asked[name], limits[name])
                if given.stop > given.start:
                    arrived[name] = _rows(each.times[given])
                    since[name] = np.array(each.at[given])
            ticks = tick is None or asked["timer"] > tick
            said = (asked["timer"] if tick is None else tick) if ticks else None
            tick = asked["timer"]
            clock += rng.randint(0, 4)
            if arrived or ticks:
                made.batches.append((clock, arrived))
                made.said.append(said if made.said else min(asked.values()))
                made.reached.append(since)
    return made


def _asked(rng: random.Random, sources: list[str], clock: int) -> tuple[dict[str, int], int]:
    """Sources are asked one after the other, and that takes time."""
    asked = {}
    for name in rng.sample(sources, len(sources)):
        asked[name] = clock
        clock += rng.choice((0, 0, 1, 5))
    return asked, clock


def _rows(times: list[int]) -> tuple[pa.RecordBatch, np.ndarray]:
    keys = [time % 3 for time in times]
    return pa.RecordBatch.from_pydict({"k": keys}, schema=SCHEMA), np.array(times, object)


def counted(names: tuple[str, ...]) -> Plan:
    sources = tuple(Source(name, SCHEMA) for name in names)
    below = sources[0] if len(sources) == 1 else Union(sources)
    calls = (AggregateCall("n", "count"),)
    return RStream(SlidingAggregate(below, ("k",), calls, Sliding(10, 10), ("w0", "w1")), 10)


PROMISES = st.sampled_from(["latency", "latency and disorder", "skew", "between", "between, by tuples"])


def promise(kind: str, bound: int) -> Promise:
    """Rows reach their source at most `bound` after their time, and never before it."""
    made: dict[str, Promise] = {
        "latency": TimerPromise(bound),
        "latency and disorder": DisorderPromise(SPAN, bound),
        "skew": SkewPromise(2 * bound),
    }
    return made[kind]


def inputs_of(kind: str, bound: int, names: tuple[str, ...], rules: Rules) -> Inputs:
    """What is known of the streams: each by itself, or what rows of one say of the others."""
    by_stream = dict.fromkeys(names, rules)
    if not kind.startswith("between"):
        return Inputs(promises={n: promise(kind, bound) for n in names}, rules=by_stream)
    pairs = [(0, bound), (bound, 0)]
    if "tuples" in kind:
        pairs = [Pair.tuples(2, bound), (2 * bound, 0)]
    skew = SkewMatrix.of(names, {(a, b): pairs for a in names for b in names})
    generator = HeartbeatGenerator(Bounds.of(skew, 0, NEVER))
    return Inputs(generator.unordered(), rules=by_stream)


@given(st.data())
def test_no_row_is_late_because_spark_is(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    bound = data.draw(st.integers(0, 8))
    enforce = data.draw(st.sampled_from(["strict", "admit"]))
    kind = data.draw(PROMISES)
    names = STREAMS[: data.draw(st.integers(1, 2))]
    rows, limits, takes = {}, {}, {}
    for name in names:
        at = sorted(rng.randint(0, SPAN) for _ in range(rng.randint(1, 30)))
        rows[name] = Reached(at, [t - rng.randint(0, bound) for t in at])
        limits[name] = data.draw(st.sampled_from([None, None, 1, 5]))
        takes[name] = ALL if limits[name] is None else data.draw(st.sampled_from([LIMITED, WITHHELD]))
    times = sorted(time for each in rows.values() for time in each.times)
    told = data.draw(st.booleans())
    found = world(rng, rows, limits, once=data.draw(st.booleans()))
    event(f"{enforce}, {kind}, {sorted(set(takes.values()))}, told {told}")
    rules = Rules(disordered=True, enforce=enforce)
    inputs = inputs_of(kind, bound, names, rules)
    plan, cluster = counted(names), Cluster(random.Random(rng.random()))
    outlet = data.draw(st.sampled_from([Outlet("__t"), Outlet("__t", kinds=frozenset((RESULT,)))]))
    outcome = on_spark(
        *(plan, inputs, found.batches, {}, data.draw(st.integers(1, 3)), cluster, outlet),
        ends=True,
        said=found.said,
        takes=takes,
        reached=found.reached if told else None,
    )
    assert outcome.numbers[LATE] == 0
    windows = Counter((time % 3, time // 10 * 10) for time in times)
    assert {(k, begin): n for k, n, begin, *_ in _in_order(outcome.answers)} == dict(windows)


def _in_order(answers: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The answers, which name the key, the count and the window in the order of the plan's columns."""
    return [(row[0], row[_N], row[_BEGIN]) for row in answers]


_COLUMNS = counted(("a",)).schema.names
_N, _BEGIN = _COLUMNS.index("n"), _COLUMNS.index("w0")


def test_a_silent_source_holds_nobody_back() -> None:
    """What the clock proves comes out, one tick later than it would if a tick told its own instant."""
    names, plan = STREAMS, counted(STREAMS)
    inputs = Inputs(
        promises=dict.fromkeys(names, TimerPromise(3)),
        rules=dict.fromkeys(names, Rules(disordered=True, enforce="strict")),
    )
    batches: list[MicroBatch] = [(5, {"a": _rows([4])}), (12, {}), (13, {}), (14, {}), (15, {})]
    whole = [len(each.answers) for each in embedded_instants(plan, inputs, batches, {}, waited=True)]
    assert whole == [0, 0, 1, 0, 0]
    assert len(on_spark(plan, inputs, batches, {}, 2, Cluster(random.Random(1))).answers) == 1


def test_a_backlog_in_pieces_comes_out_as_far_as_rows_say_when_they_came() -> None:
    """Behind a rate limit the clock says nothing, but rows that tell when they reached their source do."""
    plan = counted(("a",))
    rules = Rules(disordered=True, enforce="strict")
    inputs = Inputs(promises={"a": TimerPromise(3)}, rules={"a": rules})
    batches: list[MicroBatch] = [(900 + i, {"a": _rows([10 * i])}) for i in range(6)]
    reached = [{"a": np.array([10 * i + 1])} for i in range(6)]

    def answers(reached: list[dict[str, np.ndarray]] | None) -> int:
        cluster = Cluster(random.Random(1))
        found = on_spark(plan, inputs, batches, {}, 1, cluster, takes={"a": LIMITED}, reached=reached)
        assert not found.late
        return len(found.answers)

    assert answers(None) == 0
    assert answers(reached) == 4
