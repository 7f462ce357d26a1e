"""What the bounds of a stream say about how late its rows may be, as one number of each kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace.engine.timekeeper import GeneratedPromise
from headrace.time.ets import ClockPromise, DisorderPromise, SkewPromise, StrongestPromise, TimerPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import CombinedHeartbeats, LearnedHeartbeats
from headrace.time.sources import SourcesPromise


@dataclass(frozen=True)
class Declared:
    """How far rows may be behind the newest row of their stream, and behind the clock; None: nothing is said.

    `learned`: the bound is estimated from arrivals.
    """

    disorder: int | None = None
    latency: int | None = None
    learned: bool = False

    def also(self, other: Declared) -> Declared:
        """Both hold."""
        return Declared(
            _least(self.disorder, other.disorder),
            _least(self.latency, other.latency),
            self.learned or other.learned,
        )


def declared(promise: Any, stream: str) -> Declared:
    """What the promise of a stream says about its rows."""
    read = _PROMISES.get(type(promise))
    return Declared() if read is None else read(promise, stream)


def _strongest(promise: StrongestPromise, stream: str) -> Declared:
    found = Declared()
    for each in promise.promises:
        found = found.also(declared(each, stream))
    return found


def _at_most(limit: int) -> int:
    """How far a row may be behind if it must be less than `limit` behind."""
    return max(0, limit - 1)


_PROMISES: Final[dict[type[Any], Callable[[Any, str], Declared]]] = {
    TimerPromise: lambda promise, stream: Declared(latency=promise.offset),
    DisorderPromise: lambda promise, stream: Declared(_at_most(promise.delta), promise.latency),
    SkewPromise: lambda promise, stream: Declared(latency=promise.delta),
    ClockPromise: lambda promise, stream: Declared(latency=0),
    SourcesPromise: lambda promise, stream: Declared(
        None if promise.disorder is None else _at_most(promise.disorder), promise.latency, promise.counts_rows
    ),
    StrongestPromise: _strongest,
    GeneratedPromise: lambda promise, stream: _of_heartbeats(promise.generator, stream),
}


def _of_heartbeats(heartbeats: Any, stream: str) -> Declared:
    read = _HEARTBEATS.get(type(heartbeats))
    return Declared() if read is None or stream not in heartbeats.streams else read(heartbeats, stream)


def _combined(heartbeats: CombinedHeartbeats, stream: str) -> Declared:
    found = Declared()
    for each in heartbeats.generators:
        found = found.also(_of_heartbeats(each, stream))
    return found


def _generated(heartbeats: HeartbeatGenerator, stream: str) -> Declared:
    """A bound of a stream on itself; with groups of streams, nothing is said about a single one."""
    if stream not in heartbeats.bounds.streams:
        return Declared()
    own = [pair.delta - 1 for pair in heartbeats.bounds.skew[stream, stream] if pair.t == pair.n == 0]
    return Declared(disorder=max(0, min(own))) if own else Declared()


_HEARTBEATS: Final[dict[type[Any], Callable[[Any, str], Declared]]] = {
    CombinedHeartbeats: _combined,
    HeartbeatGenerator: _generated,
    LearnedHeartbeats: lambda heartbeats, stream: Declared(learned=True),
}


def _least(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return min(known, default=None)
