"""A row that reached its source within its bound is never late because Spark was late.

Spark starts late, stops and starts again, falls behind, is slow to ask its sources, asks them in any order,
reads a backlog in pieces, fails and runs a micro-batch again. None of it makes a row late.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.engine.inputs import Inputs
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import AggregateCall, Plan, RStream, SlidingAggregate, Source, Union
from headrace.plan.nodes.windows import Sliding
from headrace.runtimes.spark.driver.reading import ALL, FILES, LIMITED, WITHHELD
from headrace.runtimes.spark.worker.answers import LATE, RESULT, Outlet
from headrace.time.bounds import NEVER, Bounds
from headrace.time.ets import DisorderPromise, Promise, SkewPromise, TimerPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import Pair, SkewMatrix
from tests.spark.schedule import SOUND_CLOCKS, SPAN, Limit, reaching, schedule
from tests.spark.simulated import Cluster, MicroBatch, embedded_instants, on_spark

SCHEMA = pa.schema([("k", pa.int64())])
STREAMS = ("a", "b")


def _rows(times: list[int]) -> tuple[pa.RecordBatch, np.ndarray]:
    keys = [time % 3 for time in times]
    return pa.RecordBatch.from_pydict({"k": keys}, schema=SCHEMA), np.array(times, object)


def counted(names: tuple[str, ...]) -> Plan:
    sources = tuple(Source(name, SCHEMA) for name in names)
    below = sources[0] if len(sources) == 1 else Union(sources)
    calls = (AggregateCall("n", "count"),)
    return RStream(SlidingAggregate(below, ("k",), calls, Sliding(10, 10), ("w0", "w1")), 10)


LIMITS = {
    ALL: st.none(),
    LIMITED: st.builds(Limit, st.just("rows"), st.sampled_from([1, 5])),
    WITHHELD: st.builds(Limit, st.just("rows"), st.sampled_from([5, 50]), st.just(3)),
    FILES: st.builds(Limit, st.sampled_from(["files", "bytes"]), st.sampled_from([1, 3, 60])),
}
"""Limits, by how much a micro-batch is known to take: of rows as of a broker, or of files."""

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
    """What is known of the streams: each by itself, or what rows of one say of the others.

    Bounds between streams say "less than": two rows that reach a source at one instant may be a whole `bound`
    apart, and a rate limit may cut between them.
    """
    by_stream = dict.fromkeys(names, rules)
    if not kind.startswith("between"):
        return Inputs(promises={n: promise(kind, bound) for n in names}, rules=by_stream)
    pairs = [(0, bound + 1), (bound + 1, 0)]
    if "tuples" in kind:
        pairs = [Pair.tuples(2, bound + 1), (2 * bound + 1, 0)]
    skew = SkewMatrix.of(names, {(a, b): pairs for a in names for b in names})
    generator = HeartbeatGenerator(Bounds.of(skew, 0, NEVER))
    return Inputs(generator.unordered(), rules=by_stream)


def test_two_rows_of_one_instant_cut_by_a_rate_limit_are_in_time() -> None:
    """With seed 4129780234 the test below declared bounds that such rows break."""
    batches: list[MicroBatch] = [(40, {"a": _rows([34])}), (44, {"a": _rows([34])}), (60, {})]
    rules = Rules(disordered=True, enforce="strict")
    inputs = inputs_of("between", 0, ("a",), rules)
    plan, cluster = counted(("a",)), Cluster(random.Random(1))
    outcome = on_spark(plan, inputs, batches, {}, 1, cluster, ends=True, takes={"a": LIMITED})
    assert outcome.numbers[LATE] == 0
    assert [row[_N] for row in outcome.answers] == [2]


@given(st.data())
def test_no_row_is_late_because_spark_is(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    bound = data.draw(st.integers(0, 8))
    enforce = data.draw(st.sampled_from(["strict", "admit"]))
    kind = data.draw(PROMISES)
    names = STREAMS[: data.draw(st.integers(1, 2))]
    rows, times, limits, takes = {}, {}, {}, {}
    for name in names:
        takes[name] = data.draw(st.sampled_from([ALL, ALL, LIMITED, WITHHELD, FILES]))
        rows[name] = reaching(rng, rng.choice((0, 1, 30)), in_files=takes[name] == FILES)
        times[name] = [at - rng.randint(0, bound) for at in rows[name].at]
        limits[name] = data.draw(LIMITS[takes[name]])
    told = data.draw(st.booleans())
    clock = data.draw(st.sampled_from(sorted(SOUND_CLOCKS)))
    make = {name: lambda numbers, name=name: _rows([times[name][n] for n in numbers]) for name in names}
    found = schedule(rng, rows, make, limits, data.draw(st.booleans()), SOUND_CLOCKS[clock](rng))
    event(f"{enforce}, {kind}, {sorted(set(takes.values()))}, told {told}, clock {clock}")
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
    windows = Counter((time % 3, time // 10 * 10) for each in times.values() for time in each)
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


def test_how_files_are_split_into_tasks_changes_no_answer() -> None:
    """Regression: the task with the oldest files said how far a backlog was read.

    A micro-batch that was run again on another number of cores gave other answers than it had given.
    """
    plan = counted(("a",))
    inputs = Inputs(promises={"a": TimerPromise(3)}, rules={"a": Rules(disordered=True, enforce="strict")})
    batches: list[MicroBatch] = [(900 + i, {"a": _rows([10 * i + j for j in range(10)])}) for i in range(6)]
    reached = [{"a": np.array([10 * i + j + 1 for j in range(10)])} for i in range(6)]

    def answers(seed: int) -> list[list[tuple[int, ...]]]:
        cluster = Cluster(random.Random(seed))
        found = on_spark(plan, inputs, batches, {}, 1, cluster, takes={"a": FILES}, reached=reached)
        assert not found.late
        return [sorted(each) for each in found.by_batch]

    first = answers(0)
    assert any(first)
    assert all(answers(seed) == first for seed in range(1, 20))
