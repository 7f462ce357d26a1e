"""One heartbeat generator for all streams of an engine: what arrives on one may vouch for another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class Heartbeats(Protocol):
    """Declared bounds (`HeartbeatGenerator`) or learned ones (`LearnedHeartbeats`)."""

    @property
    def streams(self) -> tuple[str, ...]: ...

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None: ...

    def heartbeats(self, now: int) -> Times: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: Mapping[str, Any]) -> None: ...


class Timekeeper:
    """Tells each stream its heartbeat, asking the generator once an instant."""

    def __init__(self, generator: Heartbeats) -> None:
        self.generator = generator
        self._known: Times | None = None
        self._at = 0

    def arrive(self, stream: int, times: Times, now: int) -> None:
        """Rows with these times came in at `now` on a stream."""
        self.generator.arrive(np.full(len(times), stream, np.int64), times, now)
        self._known = None

    def heartbeat(self, stream: int, now: int) -> int:
        """The heartbeat of a stream at `now`."""
        if self._known is None or self._at != now:
            self._known, self._at = self.generator.heartbeats(now), now
        return int(self._known[stream])

    def promise_of(self, stream: int) -> GeneratedPromise:
        """The promise of one stream."""
        return GeneratedPromise(self, stream)

    def bytes(self) -> int:
        return sum(v.nbytes for v in self.generator.snapshot().values() if isinstance(v, np.ndarray))

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self.generator.snapshot()

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.generator.restore(chunk)
        self._known = None


class GeneratedPromise:
    """What the timekeeper can prove of one stream. Its state is the timekeeper's."""

    def __init__(self, keeper: Timekeeper, stream: int) -> None:
        self._keeper = keeper
        self._stream = stream

    def observe(self, times: Times, now: int) -> None:
        self._keeper.arrive(self._stream, times, now)

    def at(self, now: int) -> int:
        return self._keeper.heartbeat(self._stream, now)

    def snapshot(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        return None
