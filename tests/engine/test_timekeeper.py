"""One heartbeat generator for all streams: what rows of an instant are held to."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from headrace.engine.timekeeper import Timekeeper
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from tests.time.simulation import Arrivals, bounds, emit, seeds


def judged(declared: Bounds, arrivals: Arrivals, read: np.ndarray, order: np.random.Generator) -> list[int]:
    """What each row is held to, streams of an instant pushed in some order; those in `read` are read late."""
    keeper = Timekeeper(HeartbeatGenerator(declared, ordered=False))
    held = np.zeros(len(arrivals.times), np.int64)
    for now in sorted({int(clock) for clock in arrivals.clocks}):
        at = arrivals.clocks == now
        for stream in order.permutation(len(declared.streams)):
            rows = np.flatnonzero(at & (arrivals.streams == stream))
            if len(rows):
                if not read[stream]:
                    held[rows] = keeper.before(int(stream), now)
                keeper.arrive(int(stream), arrivals.times[rows], now)
        for stream in np.flatnonzero(read):
            keeper.read_up_to(declared.streams[stream], now)
        keeper.all(now)
    return held.tolist()


@given(bounds(counted=False), seeds)
def test_rows_of_an_instant_are_judged_alike_whichever_stream_comes_first(
    declared: Bounds, rng: np.random.Generator
) -> None:
    """Seed 4048 of the simulator: a stream that is read late came first, the other could not be judged.

    Bounds that count rows are left out: for them the order of arrival is evidence, also within an instant.
    """
    closed = declared.closed()
    arrivals = emit(closed, rng, 30)
    read = rng.random(len(closed.streams)) < 0.5
    first, second = (judged(closed, arrivals, read, np.random.default_rng(seed)) for seed in (1, 2))
    assert first == second
