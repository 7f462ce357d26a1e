"""Enabling Time-Stamps: what a silent source can promise, and when it does (Bai et al. 2007, §4–5).

A *promise* computes the heartbeat that holds now; a *policy* decides when the source turns it into an ETS.
Both can be chosen per source, because the papers' figures compare them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headrace.arrays import Times
from headrace.errors import TimeError
from headrace.time.durations import ticks
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus


class Promise(Protocol):
    """The largest heartbeat that a source can guarantee.

    The clock is about rows that have not reached their source. If rows wait at the source until they are
    read, `read` is the instant up to which everything has been read: the clock counts only up to there.
    """

    @property
    def by_clock(self) -> bool:
        """Whether it may grow without new rows of the stream."""
        ...

    def observe(self, times: Times, now: int, read: int | None = None) -> None:
        """Rows with these times, at least one, came in at `now`, in this order; `read` from before them."""
        ...

    def at(self, now: int, read: int | None = None) -> int:
        """The heartbeat at wall-clock instant `now`, read up to `read` or to now; never decreases."""
        ...

    def before(self, now: int) -> int:
        """The heartbeat that applies to rows that arrive at `now`: known before they came."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """The learned state, as scalars and arrays by name."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        ...


class Stateless:
    """The common part of promises without state."""

    by_clock = True

    def at(self, now: int, read: int | None = None) -> int:
        return MIN_TIME

    def before(self, now: int) -> int:
        return self.at(now - 1)

    def observe(self, times: Times, now: int, read: int | None = None) -> None:
        return None

    def snapshot(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        return None


class ClockPromise(Stateless):
    """Internal timestamps: future rows get times after now, so now is the heartbeat."""

    def at(self, now: int, read: int | None = None) -> int:
        return now


@dataclass
class SkewPromise:
    """External timestamps that keep up with the wall clock within `delta`: t + (now − arrival of t) − δ."""

    delta: int
    _latest: int = MIN_TIME
    _seen: int = MIN_TIME
    _best: int = MIN_TIME

    @property
    def by_clock(self) -> bool:
        return True

    def observe(self, times: Times, now: int, read: int | None = None) -> None:
        self._best = self.at(now, read)
        self._latest, self._seen = int(times.max()), now

    def at(self, now: int, read: int | None = None) -> int:
        clock = now if read is None else read
        if MIN_TIME in (self._latest, clock):
            return self._best
        return max(self._best, plus(self._latest, clock - self._seen - self.delta))

    def before(self, now: int) -> int:
        return self._best if now <= self._seen else self.at(now - 1)

    def snapshot(self) -> Mapping[str, Any]:
        return {"latest": self._latest, "seen": self._seen, "best": self._best}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._latest, self._seen, self._best = state["latest"], state["seen"], state["best"]


@dataclass
class TimerPromise(Stateless):
    """External timestamps at most `offset` behind the wall clock: now − offset (Tucker & Maier, §2)."""

    offset: int

    def __post_init__(self) -> None:
        if not isinstance(self.offset, int) or self.offset < 0:
            raise TimeError(
                "HR-T007",
                f"an offset of {self.offset!r}",
                hint="whole ticks, 0 or more: how far rows may lag",
            )

    def at(self, now: int, read: int | None = None) -> int:
        return plus(now if read is None else read, -self.offset)


@dataclass
class DisorderPromise:
    """External timestamps less than `delta` behind the newest of their stream, the bound of a watermark.

    `latency`: they are also at most this far behind the wall clock, which counts when the stream is silent.
    """

    delta: int
    latency: int | None = None
    _newest: int = MIN_TIME
    _before: int = MIN_TIME
    _seen: int = MIN_TIME

    def __post_init__(self) -> None:
        for bound in (self.delta, self.latency):
            if bound is not None and (not isinstance(bound, int) or bound < 0):
                raise TimeError("HR-T007", f"a bound of {bound!r}", hint="whole ticks, 0 or more")

    def observe(self, times: Times, now: int, read: int | None = None) -> None:
        if now > self._seen:
            self._before, self._seen = self._newest, now
        self._newest = max(self._newest, int(times.max()))

    def at(self, now: int, read: int | None = None) -> int:
        return self._behind(self._newest, now if read is None else read)

    def before(self, now: int) -> int:
        return self._behind(self._before if now <= self._seen else self._newest, now - 1)

    @property
    def by_clock(self) -> bool:
        return self.latency is not None

    def _behind(self, newest: int, clock: int) -> int:
        """The heartbeat by rows or, if `latency` is set and proves more, by the clock."""
        by_rows = plus(newest, -self.delta)
        return by_rows if self.latency is None else max(by_rows, plus(clock, -self.latency))

    def snapshot(self) -> Mapping[str, Any]:
        return {"newest": self._newest, "before": self._before, "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._newest, self._before, self._seen = state["newest"], state["before"], state["seen"]


@dataclass
class StrongestPromise:
    """The largest heartbeat of several promises; each of them holds on its own."""

    promises: tuple[Promise, ...]

    @property
    def by_clock(self) -> bool:
        return True

    def observe(self, times: Times, now: int, read: int | None = None) -> None:
        for promise in self.promises:
            promise.observe(times, now, read)

    def at(self, now: int, read: int | None = None) -> int:
        return max(promise.at(now, read) for promise in self.promises)

    def before(self, now: int) -> int:
        return max(promise.before(now) for promise in self.promises)

    def snapshot(self) -> Mapping[str, Any]:
        parts = enumerate(promise.snapshot() for promise in self.promises)
        return {f"{i}.{name}": value for i, part in parts for name, value in part.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for i, promise in enumerate(self.promises):
            prefix = f"{i}."
            promise.restore({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})


def follow(now: Promise, before: Promise) -> None:
    """Let a promise with other bounds continue after `before`: what that one learned of arrivals stays."""
    known = {type(each): each for each in _parts(before)}
    for each in _parts(now):
        if type(each) in known:
            each.restore(known[type(each)].snapshot())


def _parts(promise: Promise) -> Iterator[Promise]:
    """The promises of which one consists."""
    if isinstance(promise, StrongestPromise):
        for each in promise.promises:
            yield from _parts(each)
    else:
        yield promise


class DataPromise(Stateless):
    """External timestamps without any knowledge except the heartbeats that the source itself sends."""

    by_clock = False


class LatentPromise(Stateless):
    """Latent timestamps: no ETS is ever made or needed."""

    by_clock = False


@dataclass(frozen=True)
class Policy:
    """When a promise becomes an ETS: on demand, and/or every `interval` ticks, or never."""

    name: str
    demand: bool = False
    interval: int = MAX_TIME


NONE = Policy("none")
ON_DEMAND = Policy("on_demand", demand=True)


def periodic(interval: int) -> Policy:
    """An ETS every `interval` ticks of the wall clock, whether needed or not."""
    if interval <= 0:
        raise TimeError(
            "HR-T001", f"a period must be positive, not {interval}", hint="give ticks of the time domain"
        )
    return Policy("periodic", interval=interval)


_PERIODIC: Final = re.compile(r"\s*periodic\s*\((?P<interval>[^()]*)\)\s*")
_POLICIES: Final = {"on_demand": ON_DEMAND, "none": NONE}


def policy(written: str, per_second: int | None, place: str = "") -> Policy:
    """The policy as users write it: `on_demand`, `none`, or `periodic(5 seconds)`."""
    match = _PERIODIC.fullmatch(written)
    if match is not None:
        return periodic(ticks(match["interval"].strip(), per_second, place))
    found = _POLICIES.get(written.strip())
    if found is None:
        near = difflib.get_close_matches(written, [*_POLICIES, "periodic(5 seconds)"], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "write on_demand, none, or periodic(5 seconds)"
        raise TimeError("HR-T055", f"unknown policy for idle streams {written!r}", place=place, hint=hint)
    return found
