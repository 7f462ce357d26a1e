"""Rows that wait at their sources: what rows of one stream prove of another, however late either is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.time import staircases
from headrace.time.bounds import NEVER, Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix
from headrace.time.timestamp import MAX_TIME, MIN_TIME
from tests.time.simulation import Arrivals, bounds, emit, seeds
from tests.time.test_grouping import group_bounds, grouping


@dataclass
class Reading:
    """Streams read late and in pieces: at each instant some rows of each, and how far each is read then."""

    arrivals: Arrivals
    rng: np.random.Generator
    streams: int
    taken: np.ndarray = field(init=False)
    said: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.taken = np.zeros(self.streams, np.int64)
        self.said = np.full(self.streams, MIN_TIME, np.int64)

    def __iter__(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The instant, the rows that are read then, stream by stream, and how far each stream has been."""
        own = [np.flatnonzero(self.arrivals.streams == j) for j in range(self.streams)]
        now, last = 0, int(self.arrivals.clocks.max(initial=0))
        while any(self.taken[j] < len(own[j]) for j in range(self.streams)):
            now += int(self.rng.choice([0, 1, 2, 15]))
            rows = [self._of(j, own[j], now, last) for j in self.rng.permutation(self.streams)]
            yield now, np.concatenate(rows), self.said.copy()

    def _of(self, j: int, own: np.ndarray, now: int, last: int) -> np.ndarray:
        clocks = self.arrivals.clocks[own]
        there = int(np.searchsorted(clocks, now, side="right"))
        most = int(self.rng.choice([0, 1, 3, len(own)]))
        begin = int(self.taken[j])
        end = min(there, begin + most)
        while 0 < end < there and clocks[end] == clocks[end - 1]:
            end += 1  # what reached a source at one clock is read together
        self.taken[j] = end
        known = int(clocks[end]) - 1 if end < len(own) else now
        lag = int(self.rng.choice([0, 0, 2, 40]))
        self.said[j] = max(self.said[j], min(known, now) - lag)
        return own[begin:end]


@given(bounds(), seeds, st.booleans())
def test_no_unread_row_breaks_a_heartbeat(
    declared: Bounds, rng: np.random.Generator, in_groups: bool
) -> None:
    closed = replace(declared, skew=declared.skew.closure(), timeout=NEVER)
    arrivals, n = emit(closed, rng, 40), len(closed.streams)
    known = group_bounds(closed, rng.permutation(grouping(rng, n))) if in_groups else closed
    generator = HeartbeatGenerator(known, close=False)
    generator.read_up_to(np.full(n, MIN_TIME))
    promised = np.full(n, MIN_TIME)
    for now, at, read in Reading(arrivals, rng, n):
        assert (arrivals.times[at] > promised[arrivals.streams[at]]).all()
        generator.arrive(arrivals.streams[at], arrivals.times[at], now)
        generator.read_up_to(read)
        assert (generator.heartbeats(now) >= promised).all()
        promised = generator.heartbeats(now)


@given(bounds(), seeds)
def test_streams_that_are_read_at_once_wait_for_nothing(declared: Bounds, rng: np.random.Generator) -> None:
    closed = declared.closed()
    arrivals = emit(closed, rng, 30)
    plain, reading = (HeartbeatGenerator(closed, ordered=False) for _ in range(2))
    for now in sorted({int(c) for c in arrivals.clocks}):
        at = arrivals.clocks == now
        # What is read at this instant reached its source after the one before it.
        reading.read_up_to(np.full(len(closed.streams), now - 1))
        for each in (plain, reading):
            each.arrive(arrivals.streams[at], arrivals.times[at], now)
        reading.read_up_to(np.full(len(closed.streams), now))
        assert plain.heartbeats(now).tolist() == reading.heartbeats(now).tolist()


@given(bounds(), seeds, st.booleans())
def test_a_restored_generator_goes_on_where_rows_wait(
    declared: Bounds, rng: np.random.Generator, knows: bool
) -> None:
    arrivals, n = emit(declared.closed(), rng, 25), len(declared.streams)
    straight, broken = (HeartbeatGenerator(declared) for _ in range(2))
    for each in (straight, broken):
        each.read_up_to(np.full(n, MIN_TIME))
    for now, at, read in Reading(arrivals, rng, n):
        if rng.random() < 0.3:
            saved, broken = broken.snapshot(), HeartbeatGenerator(declared)
            if knows:
                broken.read_up_to(np.full(n, MIN_TIME))
            broken.restore(saved)
        for each in (straight, broken):
            each.arrive(arrivals.streams[at], arrivals.times[at], now)
            each.read_up_to(read)
        assert straight.heartbeats(now).tolist() == broken.heartbeats(now).tolist()


def vouching() -> HeartbeatGenerator:
    """Rows of b come no more than 5 behind those of a."""
    skew = SkewMatrix.of(["a", "b"], {("a", "a"): [(0, 1)], ("b", "b"): [(0, 1)], ("a", "b"): [(0, 5)]})
    generator = HeartbeatGenerator(Bounds.of(skew, 0, NEVER))
    generator.read_up_to([MIN_TIME, MIN_TIME])
    return generator


def test_a_row_vouches_for_a_stream_once_that_is_read_so_far() -> None:
    generator = vouching()
    generator.arrive([0], [100], 20)
    assert generator.heartbeats(20).tolist() == [99, MIN_TIME]
    generator.read_up_to([20, 19])
    assert generator.heartbeats(21).tolist() == [99, MIN_TIME]
    generator.read_up_to([21, 20])
    assert generator.heartbeats(21).tolist() == [99, 95]


def test_a_stream_whose_rows_do_not_wait_is_vouched_for_at_once() -> None:
    generator = vouching()
    generator.read_up_to([MIN_TIME, MAX_TIME])
    generator.arrive([0], [100], 20)
    assert generator.heartbeats(20).tolist() == [99, 95]


def test_a_snapshot_of_rows_that_did_not_wait_goes_on_where_they_do() -> None:
    """A checkpoint of a version that did not know of waiting."""
    skew = vouching().bounds
    before = HeartbeatGenerator(skew)
    before.arrive([0], [100], 20)
    assert before.heartbeats(20).tolist() == [99, 95]
    after = vouching()
    after.restore(before.snapshot())
    after.arrive([0], [200], 30)
    assert after.heartbeats(30).tolist() == [199, 95]
    after.read_up_to([30, 30])
    assert after.heartbeats(31).tolist() == [199, 195]


def test_a_stream_that_is_not_read_on_costs_no_more_than_so_many_steps() -> None:
    generator = vouching()
    for clock in range(4 * staircases.MOST):
        generator.arrive([0], [10 * clock], clock)
    assert generator._steps.clock.shape[1] == staircases.MOST
    last = 4 * staircases.MOST - 1
    generator.read_up_to([last, last // 2])
    (_, half) = generator.heartbeats(last).tolist()
    assert 10 * (last // 2) - 5 - 10 * 16 <= half <= 10 * (last // 2) - 5
    generator.read_up_to([last, last])
    assert generator.heartbeats(last).tolist() == [10 * last - 1, 10 * last - 5]


def test_all_streams_pause_when_all_are_read_so_far() -> None:
    skew = SkewMatrix.of(["a", "b"], {("a", "a"): [(0, 1)], ("b", "b"): [(0, 1)]})
    generator = HeartbeatGenerator(Bounds.of(skew, 0, 10))
    generator.read_up_to([MIN_TIME, MIN_TIME])
    generator.arrive([0], [100], 20)
    generator.read_up_to([90, 29])
    assert generator.heartbeats(90).tolist() == [99, MIN_TIME]
    generator.arrive([1], [60], 95)  # nobody knows that b was silent for so long
    assert generator.heartbeats(95).tolist() == [99, 59]
    generator.read_up_to([105, 105])
    assert generator.heartbeats(105).tolist() == [100, 100]
