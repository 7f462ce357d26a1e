"""Enabling Time-Stamps: what a silent source may promise, and when it does (Bai et al. 2007, §4–5).

A *promise* says which heartbeat holds now; a *policy* says when the source turns it into an ETS. Both are
interchangeable per source, because the papers' figures compare them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import TimeError
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus

Times = npt.NDArray[np.int64]


class Promise(Protocol):
    """The largest heartbeat that a source can stand for.

    The clock speaks of rows that have not reached their source. Where rows wait at the source to be read,
    `read` is the instant up to which all that reached it has been: the clock counts as far as that.
    """

    @property
    def by_clock(self) -> bool:
        """Whether it may grow though no row of the stream comes."""
        ...

    def observe(self, times: Times, now: int, read: int | None = None) -> None:
        """Rows with these times, at least one, came in at `now`, in this order; `read` as before them."""
        ...

    def at(self, now: int, read: int | None = None) -> int:
        """The heartbeat at wall-clock instant `now`, read up to `read` or up to now; never decreases."""
        ...

    def before(self, now: int) -> int:
        """The heartbeat in force for rows that arrive at `now`: it was known before them."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """What it has learnt, as scalars and arrays by name."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `snapshot` gave."""
        ...


class Stateless:
    """What promises that learn nothing have in common."""

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
    """Internal timestamps: rows to come are stamped after now, so now is the heartbeat."""

    def at(self, now: int, read: int | None = None) -> int:
        return now


@dataclass
class SkewPromise:
    """External timestamps that keep up with the wall clock but for `delta`: t + (now − arrival of t) − δ."""

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

    `latency`: they are also at most so far behind the wall clock, which speaks when the stream is silent.
    """

    delta: int
    latency: int | None = None
    _newest: int = MIN_TIME
    _before: int = MIN_TIME
    _seen: int = MIN_TIME

    def __post_init__(self) -> None:
        for ticks in (self.delta, self.latency):
            if ticks is not None and (not isinstance(ticks, int) or ticks < 0):
                raise TimeError("HR-T007", f"a bound of {ticks!r}", hint="whole ticks, 0 or more")

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
        by_rows = plus(newest, -self.delta)
        return by_rows if self.latency is None else max(by_rows, plus(clock, -self.latency))

    def snapshot(self) -> Mapping[str, Any]:
        return {"newest": self._newest, "before": self._before, "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._newest, self._before, self._seen = state["newest"], state["before"], state["seen"]


@dataclass
class StrongestPromise:
    """The largest heartbeat of several promises: each stands by itself."""

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


class DataPromise(Stateless):
    """External timestamps about which nothing is known but what the source itself says by heartbeats."""

    by_clock = False


class LatentPromise(Stateless):
    """Latent timestamps: no ETS is ever made or needed."""

    by_clock = False


@dataclass(frozen=True)
class Policy:
    """When a promise becomes an ETS: on demand, and/or each `interval` ticks, or never."""

    name: str
    demand: bool = False
    interval: int = MAX_TIME


NONE = Policy("none")
ON_DEMAND = Policy("on_demand", demand=True)


def periodic(interval: int) -> Policy:
    """An ETS each `interval` ticks of the wall clock, wanted or not."""
    if interval <= 0:
        raise TimeError(
            "HR-T001", f"a period must be positive, not {interval}", hint="give ticks of the time domain"
        )
    return Policy("periodic", interval=interval)
