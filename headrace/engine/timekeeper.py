"""One heartbeat generator for all streams of an engine: what arrives on one may vouch for another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.time.timestamp import MAX_TIME, MIN_TIME

Times = npt.NDArray[np.int64]


class Heartbeats(Protocol):
    """Declared bounds (`HeartbeatGenerator`) or learned ones (`LearnedHeartbeats`)."""

    @property
    def streams(self) -> tuple[str, ...]: ...

    def heard_by(self, streams: Collection[str]) -> frozenset[str]: ...

    def counts_rows(self, stream: str) -> bool: ...

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None: ...

    def read_up_to(self, clocks: npt.ArrayLike) -> None: ...

    def heartbeats(self, now: int) -> Times: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: Mapping[str, Any]) -> None: ...


class Timekeeper:
    """Tells each stream its heartbeat, asking the generator once an instant."""

    def __init__(self, generator: Heartbeats) -> None:
        self.generator = generator
        self._known: Times | None = None
        self._at = MIN_TIME
        self._force: Times = np.full(len(generator.streams), MIN_TIME, np.int64)
        self._force_at = MIN_TIME
        self._places = {name: place for place, name in enumerate(generator.streams)}
        self._read: Times | None = None
        self._read_on = False

    def read_up_to(self, stream: str, instant: int) -> None:
        """All that reached the source of a stream by `instant` has come in.

        Rows of streams of which this is never said come in as they reach their source.
        """
        place = self._places.get(stream)
        if place is None:
            return
        if self._read is None:
            self._read = np.full(self.streams, MAX_TIME, np.int64)
        if self._read[place] == MAX_TIME or instant > self._read[place]:
            self._read[place] = instant
            self._read_on, self._known = True, None

    def _say_read(self) -> None:
        if self._read_on and self._read is not None:
            self.generator.read_up_to(self._read)
            self._read_on = False

    def arrive(self, stream: int, times: Times, now: int) -> None:
        """Rows with these times came in at `now` on a stream."""
        self._say_read()
        self.generator.arrive(np.full(len(times), stream, np.int64), times, now)
        self._known = None

    def heartbeat(self, stream: int, now: int) -> int:
        """The heartbeat of a stream at `now`."""
        return int(self.all(now)[stream])

    def all(self, now: int) -> Times:
        """The heartbeats of all streams at `now`."""
        if self._known is None or self._at != now:
            self._say_read()
            self._known, self._at = self.generator.heartbeats(now), now
        return self._known

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self.generator.streams)

    def before(self, stream: int, now: int) -> int:
        """The heartbeat in force for what arrives on a stream at `now`, whatever was asked or run before.

        Arrivals of one instant are judged alike, so which rows are late does not depend on how they are cut
        into batches, as long as all rows of an instant are pushed before it is run.
        """
        if self._force_at != now:
            self._force = self.generator.heartbeats(max(now - 1, self._at))
            self._force_at = now
        return int(self._force[stream])

    def promise_of(self, stream: int) -> GeneratedPromise:
        """The promise of one stream."""
        return GeneratedPromise(self, stream)

    def bytes(self) -> int:
        return sum(v.nbytes for v in self.generator.snapshot().values() if isinstance(v, np.ndarray))

    def changes(self, full: bool) -> Mapping[str, Any]:
        self._say_read()
        own = {"asked": self._at, "force": self._force, "force_at": self._force_at}
        if self._read is not None:
            own["read"] = self._read
        return {f"generator.{k}": v for k, v in self.generator.snapshot().items()} | own

    def apply(self, chunk: Mapping[str, Any]) -> None:
        prefix = "generator."
        self.generator.restore({k[len(prefix) :]: v for k, v in chunk.items() if k.startswith(prefix)})
        self._known, self._at = None, chunk["asked"]
        self._force, self._force_at = chunk["force"], chunk["force_at"]
        self._read, self._read_on = (np.array(chunk["read"]) if "read" in chunk else self._read), False


class GeneratedPromise:
    """What the timekeeper can prove of one stream. Its state is the timekeeper's."""

    def __init__(self, keeper: Timekeeper, stream: int) -> None:
        self._keeper = keeper
        self.place = stream

    by_clock = False

    def observe(self, times: Times, now: int, read: int | None = None) -> None:
        self._keeper.arrive(self.place, times, now)

    def at(self, now: int, read: int | None = None) -> int:
        return self._keeper.heartbeat(self.place, now)

    def before(self, now: int) -> int:
        return self._keeper.before(self.place, now)

    def snapshot(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        return None
