"""Heartbeats from several kinds of knowledge at once: declared bounds and learned ones.

The largest of what each proves holds, since each is a promise that stands by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.time.arrivals import columns
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import Ints
from headrace.time.timestamp import MIN_TIME


class Generator(Protocol):
    """What gives heartbeats to some of the streams."""

    @property
    def streams(self) -> tuple[str, ...]: ...

    def heard_by(self, streams: Collection[str]) -> frozenset[str]: ...

    def counts_rows(self, stream: str) -> bool: ...

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None: ...

    def read_up_to(self, clocks: npt.ArrayLike) -> None: ...

    def heartbeats(self, now: int) -> Ints: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: Mapping[str, Any]) -> None: ...


class CombinedHeartbeats:
    """The heartbeat of each stream: the largest that a generator that knows it proves."""

    def __init__(self, streams: Sequence[str], generators: Sequence[Generator]) -> None:
        self.streams = tuple(streams)
        self.generators = tuple(generators)
        places = {name: i for i, name in enumerate(self.streams)}
        self._theirs = [np.array([places[s] for s in g.streams], np.int64) for g in self.generators]
        self._by_time = [isinstance(g, HeartbeatGenerator) and not g.bounds.skew.n.any() for g in generators]
        self._promise = np.full(len(self.streams), MIN_TIME, np.int64)

    def heard_by(self, streams: Collection[str]) -> frozenset[str]:
        """The streams whose arrivals can move the heartbeat of one of `streams`."""
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
        """How far each stream has been read, where rows wait at their sources."""
        reads = np.asarray(clocks, np.int64)
        for generator, theirs in zip(self.generators, self._theirs, strict=True):
            generator.read_up_to(reads[theirs])

    def heartbeats(self, now: int) -> Ints:
        """The heartbeat of each stream at `now`; never decreases."""
        for generator, theirs in zip(self.generators, self._theirs, strict=True):
            self._promise[theirs] = np.maximum(self._promise[theirs], generator.heartbeats(now))
        return self._promise.copy()

    def snapshot(self) -> dict[str, Any]:
        """All state, that of the generators by number."""
        own: dict[str, Any] = {"promise": self._promise.copy()}
        for i, generator in enumerate(self.generators):
            own |= {f"{i}.{name}": value for name, value in generator.snapshot().items()}
        return own

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot made of the same streams and generators."""
        self._promise[:] = snapshot["promise"]
        for i, generator in enumerate(self.generators):
            prefix = f"{i}."
            generator.restore({k[len(prefix) :]: v for k, v in snapshot.items() if k.startswith(prefix)})


def _newest(streams: Ints, times: Ints, clocks: Ints) -> tuple[Ints, Ints, Ints]:
    """Of arrivals of one stream at one instant, the greatest time: by time it proves what all do."""
    if len(streams) < 2 or bool((streams != streams[0]).any()):
        return streams, times, clocks
    return streams[:1], times.max(keepdims=True), clocks[:1]
