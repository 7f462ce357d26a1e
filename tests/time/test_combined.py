"""Heartbeats of several kinds of knowledge: each stream has the best of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.time.bounds import NEVER, Bounds
from headrace.time.declared import Declared, Lateness, Skew
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import CombinedHeartbeats, LearnedHeartbeats
from headrace.time.quantile import LEAST, Confidence, QuantileEstimator
from headrace.time.skew import Pair, SkewMatrix
from headrace.time.timestamp import MIN_TIME

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.integers(0, 200), min_size=1, max_size=5)), max_size=8
)


def generator(counted: bool) -> HeartbeatGenerator:
    pairs = [Pair.tuples(3, 2), Pair(0, 9)] if counted else [Pair(0, 4), Pair(5, 0)]
    skew = SkewMatrix.of(["a", "b"], {("a", "a"): [Pair(0, 3)], ("a", "b"): pairs, ("b", "b"): [Pair(2, 1)]})
    return HeartbeatGenerator(Bounds.of(skew, 1, 50))


@given(ARRIVALS, st.booleans())
def test_batches_of_an_instant_prove_what_their_rows_prove(
    arrivals: list[tuple[int, list[int]]], counted: bool
) -> None:
    alone, combined = generator(counted), CombinedHeartbeats(["a", "b"], [generator(counted)])
    for clock, (stream, times) in enumerate(arrivals):
        streams = np.full(len(times), stream, np.int64)
        alone.arrive(streams, np.array(times), clock)
        combined.arrive(streams, np.array(times), clock)
        assert combined.heartbeats(clock).tolist() == alone.heartbeats(clock).tolist()
    assert combined.heartbeats(90).tolist() == alone.heartbeats(90).tolist()


def test_each_stream_has_the_largest_of_its_promises() -> None:
    learned = LearnedHeartbeats(QuantileEstimator(["c"], Confidence(0.0, 2, 20)), NEVER)
    combined = CombinedHeartbeats(["c", "a", "b"], [generator(False), learned])
    combined.arrive([0] * LEAST, list(range(LEAST)), 99)
    combined.arrive([0, 1, 0], [100, 50, 95], 100)
    assert combined.heartbeats(100).tolist() == [94, MIN_TIME, MIN_TIME]
    assert combined.heartbeats(101).tolist() == [94, 47, 46]


def test_bounds_that_begin_to_count_rows_are_followed_with_their_settings() -> None:
    """Else a restart after a command that set `slack` would not know its own snapshot."""

    def declared(slack: int | None, tick: int = 1) -> CombinedHeartbeats:
        said = {"a": Lateness(disorder=3, slack=slack), "b": Lateness(disorder=5)}
        return Declared(said, Skew({("a", "b"): (Pair(1, 9),)}, tick=tick)).heartbeats()

    before, after = declared(None), declared(2)
    before.arrive([0], [100], 1)
    assert before.heartbeats(1).tolist() == [96, MIN_TIME]
    settings = after.settings
    after.follow(before)
    assert after.settings == settings
    assert after.heartbeats(2).tolist() == [96, 91]
    after.arrive([0, 0, 0], [101, 99, 100], 3)
    assert after.heartbeats(4).tolist() == [100, 92]
    coarser = declared(2, tick=4)
    coarser.follow(after)
    assert coarser.settings == declared(2, tick=4).settings
    assert coarser.heartbeats(5).tolist() == [100, 92]
