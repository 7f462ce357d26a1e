"""Sources by a column: a row is late if it breaks the promise of its group, and only then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.engine.inputs import STRICT, Inputs
from headrace.errors import HeadraceError, TimeError
from headrace.flow.batch import Batch
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import AggregateCall, Plan, RStream, SlidingAggregate, Source
from headrace.plan.nodes.windows import Sliding
from headrace.state.source_cells import cells_of
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.bounds import Bounds
from headrace.time.ets import DisorderPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.punctuation import Late
from headrace.time.quantile import Confidence
from headrace.time.row_promises import PunctuationRows, RowPromises
from headrace.time.skew import SkewMatrix
from headrace.time.sources import SlowestGroup, SourceGroups, SourcesPromise
from headrace.time.timestamp import MIN_TIME

SCHEMA = pa.schema([("device", pa.string()), ("v", pa.int64())])
SOURCE = Source("s", SCHEMA)
DEVICES = [f"d{i}" for i in range(12)]
CALLS = (AggregateCall("n", "count"), AggregateCall("t", "sum", "v"))
PLAN: Plan = RStream(SlidingAggregate(SOURCE, ("device",), CALLS, Sliding(10, 5)), 5)

Arrival = tuple[int, str, int]
"""The instant, the device and the time of a row."""


@st.composite
def promises(draw: st.DrawFn) -> SourcesPromise:
    idle, latency = draw(st.none() | st.integers(1, 12)), draw(st.none() | st.integers(0, 30))
    choose = draw(st.none() | st.integers(1, 3))
    by = SourceGroups("device", draw(st.integers(1, 5)), idle, choose)
    return SourcesPromise(by, draw(st.integers(0, 6)), latency)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Devices whose clocks are slow by a steady amount, with some jitter, and pauses."""
    slow = draw(st.lists(st.sampled_from([0, 0, 0, 3, 15]), min_size=len(DEVICES), max_size=len(DEVICES)))
    found, now = [], 10
    for _ in range(draw(st.integers(1, 12))):
        now += draw(st.sampled_from([1, 1, 2, 7, 20]))
        for device in draw(st.lists(st.integers(0, len(DEVICES) - 1), max_size=6)):
            jitter = draw(st.integers(0, 4))
            found.append((now, DEVICES[device], now - slow[device] - jitter))
    return found


@dataclass
class Reference:
    """What the bounds of groups imply, row by row and tick by tick."""

    promise: SourcesPromise
    rows: list[Arrival] = field(default_factory=list)
    best: int = MIN_TIME
    clock: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    """By device, what was promised about its group: it holds also if the device changes groups."""

    def group(self, device: str) -> int:
        by = self.promise.by
        cell = int(cells_of(pa.array([device]), by.cells)[0])
        return int(self.promise.group_of_cells[cell])

    def of_group(self, group: int, clock: int) -> int:
        assert self.promise.disorder is not None
        newest = [time for _, device, time in self.rows if self.group(device) == group]
        by_rows = max(newest) - self.promise.disorder if newest else MIN_TIME
        return max(by_rows, MIN_TIME if self.promise.latency is None else clock - self.promise.latency)

    def of_stream(self, clock: int) -> int:
        """The least of the groups that have rows and are not idle; of idle ones alone, the largest."""
        least = MIN_TIME if self.promise.latency is None else clock - self.promise.latency
        last = {self.group(device): instant for instant, device, _ in self.rows}
        idle = self.promise.by.idle
        active = [g for g, at in last.items() if idle is None or clock - at < idle]
        found = [self.of_group(group, clock) for group in active]
        if not found and last:
            return max(least, *(self.of_group(group, clock) for group in last))
        return max(least, min(found)) if found else least

    def pass_until(self, clock: int) -> int:
        """The heartbeat of the stream after all ticks up to `clock`."""
        for tick in range(self.clock, clock + 1):
            self.best = max(self.best, self.of_stream(tick))
        self.clock = clock + 1
        return self.best

    def judge(self, now: int, rows: Iterable[Arrival]) -> list[bool]:
        """Which rows of an instant are late."""
        best = self.pass_until(now - 1)
        for device in DEVICES:
            of_group = self.of_group(self.group(device), now - 1)
            self.kept[device] = max(of_group, self.kept.get(device, MIN_TIME))
        return [time <= max(best, self.kept[device]) for _, device, time in rows]


def engine_of(promise: SourcesPromise, rules: Rules = STRICT, plan: Plan = PLAN) -> Engine:
    engine = Engine()
    inputs = Inputs(promises={"s": promise}, rules={"s": rules})
    inputs.check([SOURCE])
    inputs.install(engine, [SOURCE])
    engine.add("q", plan)
    return engine


def promise_in(engine: Engine) -> SourcesPromise:
    found = engine.graph.sources["s"].promise
    assert isinstance(found, SourcesPromise)
    return found


def push(engine: Engine, rows: list[Arrival], now: int) -> None:
    data = pa.RecordBatch.from_pylist([{"device": d, "v": t} for _, d, t in rows], schema=SCHEMA)
    engine.push("s", data, [time for *_, time in rows], now=now)


def late_rows(engine: Engine) -> list[tuple[str, int]]:
    return [
        (row["device"], int(time))
        for late in engine.drain_late()
        for row, time in zip(late.rows.to_pylist(), late.times, strict=True)
    ]


def instants(rows: list[Arrival]) -> list[tuple[int, list[Arrival]]]:
    return [(now, list(each)) for now, each in groupby(rows, key=lambda row: row[0])]


@given(promises(), arrivals(), st.data())
def test_rows_are_judged_by_their_group_and_answers_are_exact(
    promise: SourcesPromise, rows: list[Arrival], data: st.DataObject
) -> None:
    """By the reference in plain Python, in any cut of an instant into batches, after restarts too."""
    engine, answers = engine_of(promise), list[Batch]()
    kept: list[tuple[int, dict[str, Any]]] = []
    expected_late: list[tuple[str, int]] = []
    found_late: list[tuple[str, int]] = []
    reference = Reference(promise_in(engine))
    for now, here in instants(rows):
        reference.promise = promise_in(engine)
        late = reference.judge(now, here)
        expected_late += [(d, t) for (_, d, t), is_late in zip(here, late, strict=True) if is_late]
        kept += [
            (t, {"device": d, "v": t}) for (_, d, t), is_late in zip(here, late, strict=True) if not is_late
        ]
        cut = data.draw(st.integers(0, len(here)))
        for part in (here[:cut], here[cut:]):
            if part:
                push(engine, part, now)
        reference.rows += here
        reference.promise = promise_in(engine)
        assert engine.streams.known("s") == max(reference.best, reference.of_stream(now))
        if data.draw(st.booleans()):
            engine.advance(now)
            answers += engine.drain()
        found_late += late_rows(engine)
        if data.draw(st.integers(0, 3)) == 0:
            snapshot, engine = engine.snapshot(), engine_of(promise)
            engine.restore(snapshot)
    event("some late" if expected_late else "none late")
    assert found_late == expected_late
    counts = engine.graph.sources["s"].admission
    assert (counts.rows_in, counts.rows_late) == (len(rows), len(expected_late))
    engine.streams.end("s")
    engine.run()
    answers += engine.drain()
    assert_same_stream(answers, oracle.stream(PLAN, {"s": kept}), schema=PLAN.schema)


@given(promises(), arrivals(), st.integers(1, 9))
def test_the_heartbeat_never_falls_and_does_not_depend_on_being_asked(
    promise: SourcesPromise, rows: list[Arrival], step: int
) -> None:
    asked, quiet = SourcesPromise(promise.by, promise.disorder, promise.latency), promise
    last = MIN_TIME
    for now, here in instants(rows):
        cells = cells_of(pa.array([d for _, d, _ in here]), promise.by.cells)
        times = np.array([t for *_, t in here])
        for each in (asked, quiet):
            assert (asked.before_each(now) == each.before_each(now)).all()
            each.observe(times, now, None, cells)
        for clock in range(now, now + step):
            assert asked.at(clock) >= last
            last = asked.at(now)
        assert asked.at(now) == quiet.at(now)
    assert asked.group_of_cells.tolist() == quiet.group_of_cells.tolist()


@given(arrivals(), st.integers(0, 6))
def test_one_group_is_a_plain_stream(rows: list[Arrival], disorder: int) -> None:
    """With one group, rows are late and answers come as with the same bound on the whole stream."""
    grouped = engine_of(SourcesPromise(SourceGroups("device", 1), disorder))
    plain = Engine()
    Inputs(promises={"s": DisorderPromise(disorder)}, rules={"s": STRICT}).install(plain, [SOURCE])
    plain.add("q", PLAN)
    for now, here in instants(rows):
        for engine in (grouped, plain):
            push(engine, here, now)
            engine.advance(now)
        assert late_rows(grouped) == late_rows(plain)
        assert grouped.streams.known("s") == plain.streams.known("s")
    ours, theirs = (
        [(b.start.tolist(), b.data.to_pylist()) for b in engine.drain()] for engine in (grouped, plain)
    )
    assert ours == theirs


@given(arrivals(), promises(), st.booleans())
def test_admitted_rows_are_those_that_no_answer_has_missed(
    rows: list[Arrival], promise: SourcesPromise, ends: bool
) -> None:
    """Under `admit` the heartbeat of the stream decides; the accounts balance."""
    engine = engine_of(promise, Rules(disordered=True, enforce="admit"))
    for now, here in instants(rows):
        push(engine, here, now)
        engine.advance(now)
    late = [each for each in engine.drain_late() for _ in range(len(each))]
    counts = engine.graph.sources["s"].admission
    assert counts.rows_in == len(rows)
    assert counts.rows_late <= len(late) <= len(rows)


# --- what it is for -----------------------------------------------------------------------------------------


def device_in(cell_group: int, groups: int, but: Iterable[str] = ()) -> str:
    """A device whose cell is in a group by hash."""
    cells = groups * 8
    names = (f"x{i}" for i in range(10_000))
    return next(
        n for n in names if n not in but and int(cells_of(pa.array([n]), cells)[0]) % groups == cell_group
    )


FAST, SLOW = device_in(0, 4), device_in(1, 4)
BY_HASH = SourceGroups("device", 4, choose_after=None)


def test_a_slow_device_is_not_late_because_a_fast_one_is_ahead() -> None:
    rows = [(now, device, now - lag) for now in range(100, 200) for device, lag in ((FAST, 0), (SLOW, 50))]
    engine, plain = engine_of(SourcesPromise(BY_HASH, 5)), Engine()
    Inputs(promises={"s": DisorderPromise(5)}, rules={"s": STRICT}).install(plain, [SOURCE])
    plain.add("q", PLAN)
    for now, here in instants(rows):
        for each in (engine, plain):
            push(each, here, now)
            each.advance(now)
    assert late_rows(engine) == []
    assert len(late_rows(plain)) == 99
    assert engine.streams.known("s") == 199 - 50 - 5


def test_a_silent_device_delays_by_what_the_bounds_say_and_makes_nobody_late() -> None:
    """Without `idle` it holds the stream back; with it, until it has been silent for so long."""
    for idle, heartbeat in ((None, 100 - 5), (30, 199 - 5)):
        engine = engine_of(SourcesPromise(SourceGroups("device", 4, idle, None), 5))
        push(engine, [(100, FAST, 100), (100, SLOW, 100)], 100)
        for now in range(101, 200):
            push(engine, [(now, FAST, now)], now)
            engine.advance(now)
            if idle is not None and now < 130:
                assert engine.streams.known("s") == 95
        assert engine.streams.known("s") == heartbeat
        assert late_rows(engine) == []
        push(engine, [(200, SLOW, 120), (200, FAST, 196)], 200)
        engine.advance(200)
        # The promise of the stream was made without the silent device: what it broke is late.
        assert late_rows(engine) == ([] if idle is None else [(SLOW, 120)])


def test_latency_bounds_how_long_a_silent_device_holds_the_stream() -> None:
    engine = engine_of(SourcesPromise(BY_HASH, 5, latency=40))
    push(engine, [(100, FAST, 100), (100, SLOW, 100)], 100)
    for now in range(101, 200):
        push(engine, [(now, FAST, now)], now)
        engine.advance(now)
        assert engine.streams.known("s") == max(95, now - 40)


def test_a_new_device_is_judged_by_the_heartbeat_of_the_stream() -> None:
    engine = engine_of(SourcesPromise(BY_HASH, 5))
    push(engine, [(100, FAST, 100)], 100)
    engine.advance(100)
    push(engine, [(101, SLOW, 96), (101, SLOW, 95)], 101)
    engine.advance(101)
    assert late_rows(engine) == [(SLOW, 95)]


def test_the_engine_groups_devices_that_are_slow_alike() -> None:
    """By hash, slow devices are in groups with fast ones, and their rows are late. In chosen groups they are
    not, as soon as they have passed the promise that was made before. Cells are not divided."""
    slow = {f"device {i}": 60 if i % 10 == 0 else 0 for i in range(200)}
    cell = {d: int(cells_of(pa.array([d]), 128)[0]) for d in slow}
    fast = {cell[d] for d, lag in slow.items() if not lag}
    alone = {d for d, lag in slow.items() if lag and cell[d] not in fast}
    lost = {}
    for choose_after in (8, None):
        engine = engine_of(SourcesPromise(SourceGroups("device", 16, choose_after=choose_after), 20))
        for now in range(1_000, 1_120):
            push(engine, [(now, d, now - lag) for d, lag in slow.items()], now)
            engine.advance(now)
            found = {d for d, _ in late_rows(engine)}
        lost[choose_after] = found
        assert engine.streams.known("s") == now - 20 - (60 if choose_after else 0)
    assert len(alone) > 3
    assert lost[None] == {d for d, lag in slow.items() if lag}
    assert lost[8] == lost[None] - alone


def test_estimated_bounds_follow_each_group() -> None:
    rng = np.random.default_rng(3)
    by = SourceGroups("device", 4, choose_after=None)
    engine = engine_of(SourcesPromise(by, confidence=Confidence(0.02)))
    plain = engine_of(
        SourcesPromise(SourceGroups("device", 1, choose_after=None), confidence=Confidence(0.02))
    )
    for now in range(1_000, 2_000):
        late_by = {FAST: int(rng.integers(0, 5)), SLOW: int(rng.integers(0, 300))}
        for each in (engine, plain):
            push(each, [(now, d, now - lag) for d, lag in late_by.items()], now)
            each.advance(now)
    lost = {d: sum(name == d for name, _ in late_rows(engine)) for d in (FAST, SLOW)}
    assert max(lost.values()) <= 1_000 * 0.04
    bars = promise_in(engine).before_each(2_000)
    fast, slow = (int(bars[cells_of(pa.array([d]), by.cells)[0]]) for d in (FAST, SLOW))
    assert fast > 1_990
    assert 1_600 < slow < 1_800
    assert engine.streams.known("s") == slow


@pytest.mark.parametrize("brings_cells", [False, True])
def test_a_row_that_is_only_a_promise_does_not_count_as_a_row_of_its_source(brings_cells: bool) -> None:
    """The row at 900 closes a device; as data, it would make all later rows of the group late."""
    schema = pa.schema([*SCHEMA, ("closed", pa.bool_())])
    source, engine = Source("s", schema), Engine()
    plan = RStream(SlidingAggregate(source, ("device",), CALLS, Sliding(10, 5)), 5)
    rows = RowPromises({"s": (PunctuationRows("s", (("device", "device"),), "closed"),)})
    bounds = {"s": SourcesPromise(SourceGroups("device", 1, choose_after=None), 5)}
    Inputs(promises=bounds, rules={"s": STRICT}).install(engine, [source])
    engine.streams.recognise(rows)
    engine.add("q", plan)

    def came(now: int, *given_rows: tuple[str, bool, int]) -> None:
        made = [{"device": device, "v": 1, "closed": closed} for device, closed, _ in given_rows]
        data = pa.RecordBatch.from_pylist(made, schema=schema)
        cells = cells_of(data.column("device"), 8) if brings_cells else None
        engine.push("s", data, [time for *_, time in given_rows], now=now, cells=cells)
        engine.advance(now)

    came(100, (SLOW, True, 900), (FAST, False, 100))
    assert engine.streams.known("s") == 95
    came(101, (FAST, False, 98), (SLOW, False, 99), (FAST, False, 90))
    late = engine.drain_late()
    found = [(d, t, why) for each in late for d, t, why in reported(each)]
    assert found == [(SLOW, 99, f"breaks the punctuation device = {SLOW!r}"), (FAST, 90, None)]
    assert engine.streams.known("s") == 95


def reported(late: Late) -> list[tuple[str, int, str | None]]:
    """The device and the time of late rows, and the punctuation that each broke."""
    return list(zip(late.rows.column("device").to_pylist(), late.times.tolist(), late.reasons, strict=True))


@given(arrivals(), st.integers(0, 6), st.integers(0, 6), st.integers(1, 5), st.integers(1, 5))
def test_changed_sources_keep_the_promises_that_were_made(
    rows: list[Arrival], disorder: int, other: int, groups: int, others: int
) -> None:
    """Over a restart with another bound, number of groups, or none."""
    engine = engine_of(SourcesPromise(SourceGroups("device", groups, None, 1), disorder))
    for now, here in instants(rows):
        push(engine, here, now)
        engine.advance(now)
    engine.drain_late()
    before, snapshot = engine.graph.sources["s"].promised, engine.snapshot()
    for promise in (SourcesPromise(SourceGroups("device", others, None, 1), other), DisorderPromise(other)):
        again = Engine()
        Inputs(promises={"s": promise}, rules={"s": STRICT}).install(again, [SOURCE])
        again.add("q", PLAN)
        again.adopt([snapshot])
        assert again.graph.sources["s"].promised == before
        if before > MIN_TIME and rows:
            push(again, [(now + 1, FAST, before), (now + 1, FAST, before + 10**6)], now + 1)
            assert late_rows(again) == [(FAST, before)]


def test_bounds_changed_while_running_keep_what_was_learned() -> None:
    engine = engine_of(SourcesPromise(BY_HASH, 5))
    push(engine, [(100, FAST, 100), (100, SLOW, 50)], 100)
    engine.advance(100)
    engine.streams.set_bounds(SOURCE, SourcesPromise(BY_HASH, 20), STRICT)
    assert engine.streams.known("s") == 45
    push(engine, [(101, FAST, 81), (101, SLOW, 45)], 101)
    assert late_rows(engine) == [(SLOW, 45)]


# --- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("promise", "hint"),
    [
        (lambda: SourcesPromise(SourceGroups("devise"), 5), "did you mean device?"),
        (lambda: SourcesPromise(SourceGroups("device"), latency=5), "give disorder"),
        (lambda: SourcesPromise(SourceGroups("device", 0), 5), "from 1 to 8192"),
        (lambda: SourcesPromise(SourceGroups("device", idle=0), 5), "1 or more"),
        (lambda: SourcesPromise(SourceGroups("device"), -1), "0 or more"),
    ],
)
def test_mistakes_have_a_hint(promise: Any, hint: str) -> None:
    with pytest.raises(HeadraceError) as error:
        Inputs(promises={"s": promise()}).check([SOURCE])
    assert hint in error.value.hint


def test_sources_and_bounds_between_streams_exclude_each_other() -> None:
    skew = HeartbeatGenerator(Bounds.of(SkewMatrix.of(["s"], {("s", "s"): [(0, 3)]}), 0, 9))
    inputs = Inputs(skew, {"s": SourcesPromise(SourceGroups("device"), 5)})
    with pytest.raises(TimeError, match="bounds between streams"):
        inputs.check([SOURCE])


def test_a_column_of_nested_values_is_refused() -> None:
    nested = Source("s", pa.schema([("device", pa.list_(pa.int64()))]))
    with pytest.raises(TimeError, match="list<"):
        Inputs(promises={"s": SourcesPromise(SourceGroups("device"), 5)}).check([nested])


def test_the_slowest_group_is_the_one_with_the_least_heartbeat() -> None:
    """Only groups that have had rows and are not idle count; alone, a group holds nobody back."""
    promise = SourcesPromise(SourceGroups("device", 3, idle=20, numbered=True), 5)
    cells = np.arange(3, dtype=np.uint16)
    assert promise.slowest(0) is None
    promise.observe(np.array([100]), 100, cells=cells[:1])
    assert promise.slowest(100) is None
    promise.observe(np.array([100, 101]), 101, cells=cells[1:])
    promise.observe(np.array([108, 107]), 110, cells=cells[[0, 2]])
    slowest = promise.slowest(110)
    assert slowest == SlowestGroup("device", 1, 3, True, 95, 101, 110)
    assert slowest.heartbeat == promise.at(110)
    assert promise.slowest(122) == SlowestGroup("device", 2, 2, True, 102, 110, 110), "group 1 is idle"
