"""The laws of a heartbeat, and the generator against Figure 2 written down naively."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TimeError
from headrace.time.bounds import NEVER, Bounds
from headrace.time.grouping import group_bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import Pair, SkewMatrix
from headrace.time.timestamp import MAX_TIME, MIN_TIME
from tests.time.simulation import Arrivals, Figure2, bounds, emit, seeds
from tests.time.test_grouping import grouping


def instants(arrivals: Arrivals, bounds: Bounds) -> range:
    """Every instant from the first arrival until all has come due."""
    if not len(arrivals):
        return range(0)
    return range(int(arrivals.clocks[0]), int(arrivals.clocks[-1]) + bounds.horizon() + 8)


def trace(generator: HeartbeatGenerator, arrivals: Arrivals, horizon: range) -> list[list[int]]:
    """Heartbeats at each instant, asked after all arrivals of that instant."""
    seen = []
    for now in horizon:
        at = arrivals.clocks == now
        generator.arrive(arrivals.streams[at], arrivals.times[at], now)
        seen.append(generator.heartbeats(now).tolist())
    return seen


@given(bounds(timeout=9), seeds)
def test_heartbeats_equal_figure_2_at_every_instant(declared: Bounds, rng: np.random.Generator) -> None:
    closed = declared.closed()
    arrivals = emit(closed, rng, 25)
    naive, generator = Figure2(closed), HeartbeatGenerator(declared)
    for now in instants(arrivals, closed):
        for row in arrivals.rows():
            if row[2] == now:
                naive.arrive(*row)
        at = arrivals.clocks == now
        generator.arrive(arrivals.streams[at], arrivals.times[at], now)
        assert generator.heartbeats(now).tolist() == naive.heartbeats(now)


@given(bounds(), seeds)
def test_no_heartbeat_is_violated_while_the_bounds_hold(declared: Bounds, rng: np.random.Generator) -> None:
    arrivals = emit(declared.closed(), rng, 40)
    generator = HeartbeatGenerator(declared)
    promised = np.full(len(declared.streams), MIN_TIME)
    for now in instants(arrivals, declared):
        at = arrivals.clocks == now
        assert (arrivals.times[at] > promised[arrivals.streams[at]]).all()
        generator.arrive(arrivals.streams[at], arrivals.times[at], now)
        promised = generator.heartbeats(now)


@given(bounds(), seeds, st.booleans())
def test_no_heartbeat_is_violated_where_the_order_within_a_clock_is_not_known(
    declared: Bounds, rng: np.random.Generator, in_groups: bool
) -> None:
    """As of a micro-batch: first all rows of one stream, then all rows of the next; in groups or not."""
    closed = declared.closed()
    arrivals, first = emit(closed, rng, 40), rng.permutation(len(closed.streams))
    group = rng.permutation(grouping(rng, len(first)))
    known = group_bounds(closed, group) if in_groups else closed
    generator = HeartbeatGenerator(known, close=False).unordered()
    promised = np.full(len(first), MIN_TIME)
    for now in instants(arrivals, closed):
        at = np.flatnonzero(arrivals.clocks == now)
        at = at[np.argsort(first[arrivals.streams[at]], kind="stable")]
        assert (arrivals.times[at] > promised[arrivals.streams[at]]).all()
        generator.arrive(arrivals.streams[at], arrivals.times[at], now)
        promised = generator.heartbeats(now)


def test_a_row_of_the_same_clock_does_not_count_as_one_that_came_after() -> None:
    """One row of b may be behind a. Of 39 and 40 at one clock nobody knows which came first: it may be 39."""
    skew = SkewMatrix.of(["a", "b"], {("a", "b"): [Pair(0, 0, 1)]})
    generator = HeartbeatGenerator(Bounds.of(skew, 0, NEVER), ordered=False)
    generator.arrive([0, 1], [40, 39], 18)
    assert generator.heartbeats(18).tolist() == [MIN_TIME, MIN_TIME]
    generator.arrive([1], [33], 24)
    assert generator.heartbeats(24).tolist() == [MIN_TIME, 40]


@given(bounds(timeout=5), seeds)
def test_heartbeats_never_decrease(declared: Bounds, rng: np.random.Generator) -> None:
    arrivals = emit(declared, rng, 30)
    seen = trace(HeartbeatGenerator(declared), arrivals, instants(arrivals, declared))
    assert all(a <= b for before, after in pairwise(seen) for a, b in zip(before, after, strict=True))


@given(bounds(timeout=5), seeds)
def test_b_in_place_of_its_closure_is_only_later(declared: Bounds, rng: np.random.Generator) -> None:
    arrivals = emit(declared.closed(), rng, 30)
    horizon = instants(arrivals, declared)
    late = trace(HeartbeatGenerator(declared, close=False), arrivals, horizon)
    early = trace(HeartbeatGenerator(declared), arrivals, horizon)
    assert all(a <= b for x, y in zip(late, early, strict=True) for a, b in zip(x, y, strict=True))


@given(bounds(timeout=7), seeds, st.integers(0, 2**32 - 1))
def test_a_batch_equals_its_arrivals_one_at_a_time(
    declared: Bounds, rng: np.random.Generator, cut: int
) -> None:
    arrivals = emit(declared, rng, 40)
    one, many, mixed = (HeartbeatGenerator(declared) for _ in range(3))
    for stream, time, clock in arrivals.rows():
        one.arrive([stream], [time], clock)
    many.arrive(arrivals.streams, arrivals.times, arrivals.clocks)
    for part in np.array_split(np.arange(len(arrivals)), 1 + cut % 7):
        mixed.arrive(arrivals.streams[part], arrivals.times[part], arrivals.clocks[part])
    for now in instants(arrivals, declared)[-declared.horizon() - 8 :]:
        assert one.heartbeats(now).tolist() == many.heartbeats(now).tolist() == mixed.heartbeats(now).tolist()


@given(bounds(timeout=7), seeds, st.integers(0, 30))
def test_a_restored_generator_goes_on_as_if_nothing_happened(
    declared: Bounds, rng: np.random.Generator, cut: int
) -> None:
    arrivals = emit(declared, rng, 30)
    straight, broken = HeartbeatGenerator(declared), HeartbeatGenerator(declared)
    for k, (stream, time, clock) in enumerate(arrivals.rows()):
        straight.arrive([stream], [time], clock)
        broken.arrive([stream], [time], clock)
        if k == cut:
            snapshot = broken.snapshot()
            broken.arrive([stream], [time + 1000], clock)
            broken = HeartbeatGenerator(declared)
            broken.restore(snapshot)
    last = int(arrivals.clocks[-1])
    for now in range(last, last + declared.horizon() + 9):
        assert straight.heartbeats(now).tolist() == broken.heartbeats(now).tolist()
        assert straight.next_change(now) == broken.next_change(now)


@given(bounds(timeout=11), seeds)
def test_next_change_is_the_next_instant_at_which_a_heartbeat_rises(
    declared: Bounds, rng: np.random.Generator
) -> None:
    arrivals = emit(declared, rng, 12)
    generator = HeartbeatGenerator(declared)
    generator.arrive(arrivals.streams, arrivals.times, arrivals.clocks)
    last = int(arrivals.clocks[-1])
    seen = {now: generator.heartbeats(now).tolist() for now in range(last, last + 60)}
    generator.restore(HeartbeatGenerator(declared).snapshot())
    generator.arrive(arrivals.streams, arrivals.times, arrivals.clocks)
    now: int | None = last
    rises = [t for t in range(last + 1, last + 60) if seen[t] != seen[t - 1]]
    for rise in rises:
        assert now is not None
        now = generator.next_change(now)
        assert now == rise
    assert now is not None
    assert generator.next_change(now) is None


@given(bounds(counted=False), seeds, st.integers(2, 9))
def test_a_coarser_tick_delays_a_heartbeat_by_less_than_the_tick(
    declared: Bounds, rng: np.random.Generator, tick: int
) -> None:
    arrivals = emit(declared, rng, 30)
    horizon = range(int(arrivals.clocks[-1]) + declared.horizon() + 2 * tick)
    fine = trace(HeartbeatGenerator(declared), arrivals, horizon)
    coarse = trace(HeartbeatGenerator(declared, tick=tick), arrivals, horizon)
    for now in horizon:
        assert all(a <= b for a, b in zip(coarse[now], fine[now], strict=True))
        if now >= tick - 1:
            assert all(a >= b for a, b in zip(coarse[now], fine[now - tick + 1], strict=True))


@given(bounds(), seeds, st.integers(2, 9))
def test_a_coarser_tick_violates_nothing_with_tuple_based_pairs(
    declared: Bounds, rng: np.random.Generator, tick: int
) -> None:
    arrivals = emit(declared, rng, 30)
    horizon = range(int(arrivals.clocks[-1]) + 20)
    fine = trace(HeartbeatGenerator(declared), arrivals, horizon)
    coarse = trace(HeartbeatGenerator(declared, tick=tick), arrivals, horizon)
    assert all(a <= b for x, y in zip(coarse, fine, strict=True) for a, b in zip(x, y, strict=True))


def test_a_channel_that_keeps_the_order_does_not_wait_for_its_latency() -> None:
    """Srivastava & Widom, §2, refinement: a row at 10 promises 10 at once, and about others after L."""
    skew = SkewMatrix.of(["a", "b"], {("a", "a"): [(0, 0)], ("a", "b"): [(0, 3)]})
    plain = Bounds.of(skew, 5, NEVER)
    found = {}
    for name, declared in (("any", plain), ("fifo", replace(plain, fifo=frozenset({0, 1})))):
        generator = HeartbeatGenerator(declared)
        generator.arrive([0], [10], 100)
        found[name] = [generator.heartbeats(now).tolist() for now in (100, 105)]
    assert found["any"] == [[MIN_TIME, MIN_TIME], [10, 7]]
    assert found["fifo"] == [[10, MIN_TIME], [10, 7]]


def test_memory_is_bounded_by_the_horizon_in_ticks() -> None:
    skew = SkewMatrix.of(["a", "b"], {("a", "b"): [(1000, 0)], ("a", "a"): [(0, 0)], ("b", "b"): [(0, 0)]})
    generator = HeartbeatGenerator(Bounds.of(skew, 0, NEVER), tick=100)
    every = np.arange(200_000, dtype=np.int64)
    for part in np.array_split(every, 50):
        generator.arrive(np.zeros(len(part), dtype=np.int64), part, part)
        generator.heartbeats(int(part[-1]))
    assert sum(np.asarray(v).nbytes for v in generator.snapshot().values()) < 2_000


def test_the_ends_of_the_domain_saturate() -> None:
    skew = SkewMatrix.of(["a"], {("a", "a"): [(0, 10), (MAX_TIME, 0)]})
    generator = HeartbeatGenerator(Bounds.of(skew, MAX_TIME - 5))
    generator.arrive([0], [MIN_TIME + 3], 7)
    assert generator.heartbeats(MAX_TIME - 1).tolist() == [MIN_TIME]
    near = HeartbeatGenerator(Bounds.of(SkewMatrix.of(["a"], {("a", "a"): [(0, 10), (5, 0)]})))
    near.arrive([0], [MIN_TIME + 3], MAX_TIME - 9)
    assert near.heartbeats(MAX_TIME - 9).tolist() == [MIN_TIME]
    assert near.next_change(MAX_TIME - 9) == MAX_TIME - 4
    assert near.heartbeats(MAX_TIME - 4).tolist() == [MIN_TIME + 3]


def simple() -> HeartbeatGenerator:
    return HeartbeatGenerator(Bounds.of(SkewMatrix.of(["a"], {("a", "a"): [(0, 0)]})))


@pytest.mark.parametrize(
    ("arrival", "code"),
    [
        (([0, 0], [1, 2], [5, 4]), "HR-T020"),
        (([0, 1], [1, 2], [5, 5]), "HR-T021"),
        (([0, -1], [1, 2], [5, 5]), "HR-T021"),
        (([0, 0], [1, MAX_TIME], [5, 5]), "HR-T022"),
        (([0, 0], [1], [5, 5]), "HR-T023"),
    ],
)
def test_a_batch_with_a_bad_arrival_is_refused_whole(arrival: tuple[list[int], ...], code: str) -> None:
    generator = simple()
    with pytest.raises(TimeError) as refused:
        generator.arrive(*arrival)
    assert refused.value.code == code
    assert generator.heartbeats(9).tolist() == [MIN_TIME]


def test_the_clock_never_goes_back() -> None:
    generator = simple()
    generator.arrive([0], [1], 10)
    with pytest.raises(TimeError, match="HR-T020"):
        generator.heartbeats(9)


def test_a_source_may_promise_by_itself() -> None:
    generator = simple()
    generator.promise(0, 40)
    generator.promise(0, 30)
    assert generator.heartbeat(0) == 40


def test_why_names_the_stream_the_pair_and_the_next_rise() -> None:
    skew = SkewMatrix.of(
        ["fast", "slow"],
        {("fast", "fast"): [(0, 0)], ("slow", "slow"): [(0, 0)], ("fast", "slow"): [(0, 50), (20, 5)]},
    )
    generator = HeartbeatGenerator(Bounds.of(skew, {"slow": 3}, timeout=1000))
    generator.arrive([0], [100], 10)
    held = generator.why(13)
    assert (held.stream, held.heartbeat, held.next_at, held.next_proves) == ("slow", 50, 33, 95)
    assert held.holder is not None
    assert (held.holder.source, held.holder.pair) == ("fast", Pair(0, 50))
    assert "it never spoke" in str(held)
    assert generator.explain(0, 13).unbounded == ("slow",)
    assert generator.why(33).next_at == 1010


@given(bounds(), seeds)
def test_rebinding_to_other_bounds_never_takes_a_promise_back(
    declared: Bounds, rng: np.random.Generator
) -> None:
    arrivals = emit(declared, rng, 20)
    generator = HeartbeatGenerator(declared)
    generator.arrive(arrivals.streams, arrivals.times, arrivals.clocks)
    last = int(arrivals.clocks[-1])
    before = generator.heartbeats(last)
    looser = SkewMatrix.build(
        declared.streams,
        *(getattr(declared.skew, k) for k in ("source", "target", "t", "n")),
        declared.skew.delta + 9,
    )
    generator.rebind(replace(declared, skew=looser, timeout=None))
    assert (generator.heartbeats(last) >= before).all()
    tight = SkewMatrix.of(declared.streams, {(a, a): [(0, 0)] for a in declared.streams})
    generator.rebind(Bounds.of(tight, 0))
    newest = [max((t for s, t, _ in arrivals.rows() if s == k), default=MIN_TIME) for k in range(len(before))]
    assert (generator.heartbeats(last + 1) >= np.array(newest)).all()
