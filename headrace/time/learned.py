"""Heartbeats from estimated bounds: the interface of the generator, with bounds that change.

Estimates may fall and rise again, but heartbeats are never taken back: they still never decrease.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.arrivals import columns, went_back
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus


class Estimator(Protocol):
    """Learns bounds from arrivals, and computes the heartbeats that they imply."""

    streams: tuple[str, ...]

    def observe(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Learn from arrivals in order."""
        ...

    @property
    def settings(self) -> str:
        """What the estimates depend on besides the arrivals."""
        ...

    def raise_to_due(self, now: int, promise: Ints) -> None:
        """Raise each stream's promise to what the estimates imply at `now`."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """All state as a plain dict."""
        ...

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        ...


class LearnedHeartbeats:
    """Heartbeats under the bounds that `estimator` has learned so far (§6).

    A timeout must be declared: without one, a pause of all streams could hold rows forever, and estimates
    cannot rule that out. `NEVER` accepts it.
    """

    def __init__(self, estimator: Estimator, timeout: int) -> None:
        if timeout < 0:
            raise TimeError("HR-T005", f"timeout {timeout} is negative", hint="use NEVER for none")
        self.estimator = estimator
        self.timeout = timeout
        self._promise = np.full(len(estimator.streams), MIN_TIME, dtype=np.int64)
        self._newest, self._last, self._now = MIN_TIME, MIN_TIME, MIN_TIME
        self._read: int | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        return self.estimator.streams

    def heard_by(self, streams: Collection[str]) -> frozenset[str]:
        """The streams whose arrivals can move a heartbeat of one of `streams`: all, with learned bounds."""
        return frozenset(self.streams)

    def counts_rows(self, stream: str) -> bool:
        """True: the estimator learns from every row."""
        return True

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Learn from arrivals in order; raises an error for the whole batch if one is bad."""
        s, x, c = columns(streams, times, clocks)
        if len(c) and c[0] < self._now:
            raise went_back(int(c[0]))
        self.estimator.observe(s, x, c)
        if len(s):
            if self._read is None:
                self._pause(x, c)
            self._newest = max(self._newest, int(x.max()))
            self._last = int(c[-1])

    def _pause(self, times: Ints, clocks: Ints) -> None:
        """Check whether the timeout passed before the batch or within it."""
        if int(clocks[-1]) <= plus(self._last, self.timeout):
            return
        before = np.concatenate(([self._last], clocks[:-1]))
        silent = np.flatnonzero(clocks - self.timeout > before)
        silent = silent[(silent > 0) | (self._newest != MIN_TIME)]
        if len(silent):
            newest = max(self._newest, int(times[: silent[-1]].max(initial=MIN_TIME)))
            np.maximum(self._promise, newest, out=self._promise)

    def read_up_to(self, clocks: npt.ArrayLike) -> None:
        """How far each stream has been read: a pause of all streams is certain only up to there.

        Delays are learned when rows are read, so they include the time at the source.
        """
        self._read = int(np.min(np.asarray(clocks, np.int64), initial=MAX_TIME))

    def advance(self, now: int) -> bool:
        """Advance to `now`; whether any heartbeat rose."""
        before = self._promise.copy()
        self.estimator.raise_to_due(now, self._promise)
        self._now = now
        silent = now if self._read is None else min(now, self._read)
        if self._newest != MIN_TIME and self.timeout != MAX_TIME and silent >= plus(self._last, self.timeout):
            np.maximum(self._promise, self._newest, out=self._promise)
        return not np.array_equal(before, self._promise)

    def heartbeats(self, now: int) -> Ints:
        """The heartbeat of each stream at `now`."""
        self.advance(now)
        return self._promise.copy()

    def heartbeat(self, now: int) -> int:
        """The overall heartbeat: the least over the streams."""
        self.advance(now)
        return int(self._promise.min(initial=MAX_TIME))

    @property
    def settings(self) -> str:
        """The streams, the timeout and the settings of the estimator."""
        return json.dumps([self.streams, self.timeout, self.estimator.settings])

    def sent(self) -> Ints:
        """The heartbeats given so far."""
        return self._promise.copy()

    def begin_at(self, heartbeats: Ints) -> None:
        """Continue with heartbeats that were given before; they are never taken back."""
        np.maximum(self._promise, heartbeats, out=self._promise)

    def resume(self, settings: str, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot that was made under `settings`, if they are the same."""
        if settings == self.settings:
            self.restore(snapshot)

    def snapshot(self) -> dict[str, Any]:
        """All state, including the estimator's."""
        own = {"promise": self._promise.copy(), "newest": self._newest, "last": self._last, "at": self._now}
        own |= {} if self._read is None else {"read": self._read}
        return own | {f"estimator.{name}": value for name, value in self.estimator.snapshot().items()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot made with an equal estimator."""
        prefix = "estimator."
        self.estimator.restore({k[len(prefix) :]: v for k, v in snapshot.items() if k.startswith(prefix)})
        self._promise[:] = snapshot["promise"]
        self._newest, self._last, self._now = (int(snapshot[k]) for k in ("newest", "last", "at"))
        self._read = snapshot.get("read", self._read)


# Heartbeats from several generators at once: declared bounds and learned ones.
#
# The largest heartbeat wins, since each of the promises holds on its own.


class Generator(Protocol):
    """A source of heartbeats for some of the streams."""

    @property
    def streams(self) -> tuple[str, ...]: ...

    def heard_by(self, streams: Collection[str]) -> frozenset[str]: ...

    def counts_rows(self, stream: str) -> bool: ...

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None: ...

    def read_up_to(self, clocks: npt.ArrayLike) -> None: ...

    def heartbeats(self, now: int) -> Ints: ...

    @property
    def settings(self) -> str: ...

    def sent(self) -> Ints: ...

    def begin_at(self, heartbeats: Ints) -> None: ...

    def resume(self, settings: str, snapshot: Mapping[str, Any]) -> None: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: Mapping[str, Any]) -> None: ...


class CombinedHeartbeats:
    """The heartbeat of each stream: the largest of all generators that know the stream."""

    def __init__(self, streams: Sequence[str], generators: Sequence[Generator]) -> None:
        self.streams = tuple(streams)
        self.generators = tuple(generators)
        places = {name: i for i, name in enumerate(self.streams)}
        self._theirs = [np.array([places[s] for s in g.streams], np.int64) for g in self.generators]
        self._by_time = [isinstance(g, HeartbeatGenerator) and not g.bounds.skew.n.any() for g in generators]
        self._promise = np.full(len(self.streams), MIN_TIME, np.int64)

    def heard_by(self, streams: Collection[str]) -> frozenset[str]:
        """The streams whose arrivals can move a heartbeat of one of `streams`."""
        found: frozenset[str] = frozenset()
        for generator in self.generators:
            if theirs := [name for name in streams if name in generator.streams]:
                found |= generator.heard_by(theirs)
        return found

    def counts_rows(self, stream: str) -> bool:
        """Whether every row of a stream matters, or only the greatest time of an instant."""
        return any(each.counts_rows(stream) for each in self.generators if stream in each.streams)

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Arrivals in order: stream number, time and clock."""
        s, x, c = columns(streams, times, clocks)
        newest = _newest(s, x, c) if np.ndim(clocks) == 0 else (s, x, c)
        for generator, theirs, by_time in zip(self.generators, self._theirs, self._by_time, strict=True):
            s, x, c = newest if by_time else columns(streams, times, clocks)
            own = np.full(len(self.streams), -1, np.int64)
            own[theirs] = np.arange(len(theirs))
            mine = own[s]
            known = mine >= 0
            if known.all():
                generator.arrive(mine, x, c)
            elif known.any():
                generator.arrive(mine[known], x[known], c[known])

    def read_up_to(self, clocks: npt.ArrayLike) -> None:
        """How far each stream has been read, if rows wait at their sources."""
        reads = np.asarray(clocks, np.int64)
        for generator, theirs in zip(self.generators, self._theirs, strict=True):
            generator.read_up_to(reads[theirs])

    def heartbeats(self, now: int) -> Ints:
        """The heartbeat of each stream at `now`; never decreases."""
        for generator, theirs in zip(self.generators, self._theirs, strict=True):
            self._promise[theirs] = np.maximum(self._promise[theirs], generator.heartbeats(now))
        return self._promise.copy()

    def follow(self, before: CombinedHeartbeats) -> None:
        """Continue after `before`, whose bounds held so far; bounds of streams that stay keep what they know.

        Heartbeats do not go back. Generators over the same streams continue with the arrivals they know; any
        other one knows only arrivals from now on.
        """
        old = dict(zip(before.streams, before._promise, strict=True))
        self._promise[:] = [old.get(name, MIN_TIME) for name in self.streams]
        known = {(type(each), each.streams): each for each in before.generators}
        found = [_followed(each, known.get((type(each), each.streams))) for each in self.generators]
        self.generators = tuple(found)

    @property
    def settings(self) -> str:
        """The streams, and the settings of every generator."""
        return json.dumps([self.streams, [generator.settings for generator in self.generators]])

    def sent(self) -> Ints:
        """The heartbeats given so far."""
        return self._promise.copy()

    def begin_at(self, heartbeats: Ints) -> None:
        """Continue with heartbeats that were given before; they are never taken back."""
        np.maximum(self._promise, heartbeats, out=self._promise)

    def resume(self, settings: str, snapshot: Mapping[str, Any]) -> None:
        """Restore the generators that have the same settings as one of those in the snapshot."""
        _, theirs = json.loads(settings)
        for generator in self.generators:
            if generator.settings in theirs:
                prefix = f"{theirs.index(generator.settings)}."
                own = {k.removeprefix(prefix): v for k, v in snapshot.items() if k.startswith(prefix)}
                generator.restore(own)

    def snapshot(self) -> dict[str, Any]:
        """All state; the generators' under their numbers."""
        own: dict[str, Any] = {"promise": self._promise.copy()}
        for i, generator in enumerate(self.generators):
            own |= {f"{i}.{name}": value for name, value in generator.snapshot().items()}
        return own

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the same streams and generators."""
        self._promise[:] = snapshot["promise"]
        for i, generator in enumerate(self.generators):
            prefix = f"{i}."
            generator.restore({k[len(prefix) :]: v for k, v in snapshot.items() if k.startswith(prefix)})


def _newest(streams: Ints, times: Ints, clocks: Ints) -> tuple[Ints, Ints, Ints]:
    """The greatest time of each stream and instant: for time-based bounds it proves as much as all rows."""
    if len(streams) < 2 or bool((streams != streams[0]).any()):
        return streams, times, clocks
    return streams[:1], times.max(keepdims=True), clocks[:1]


def _followed(new: Generator, old: Generator | None) -> Generator:
    """The generator that continues `old` under the bounds of `new`, or `new` if that is not possible."""
    if isinstance(new, HeartbeatGenerator) and isinstance(old, HeartbeatGenerator):
        if (new.groups, new.tick) == (old.groups, old.tick):
            old.follow(new)
            return old
    elif isinstance(new, LearnedHeartbeats) and isinstance(old, LearnedHeartbeats):
        new.restore(old.snapshot())
    return new
