"""Heartbeats from estimated bounds: the same face as the generator's, bounds that move underneath.

Estimates may fall and rise again; a heartbeat once given stands, so heartbeats still never decrease.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import TimeError
from headrace.time.arrivals import columns, went_back
from headrace.time.skew import Ints
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus


class Estimator(Protocol):
    """Learns bounds from arrivals and says what they prove."""

    streams: tuple[str, ...]

    def observe(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Learn from arrivals in order."""
        ...

    def raise_to_due(self, now: int, promise: Ints) -> None:
        """Raise each stream's promise to what the estimates prove at `now`."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """All state as a plain dict."""
        ...

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        ...


class LearnedHeartbeats:
    """Heartbeats under the bounds that `estimator` has learned so far (§6).

    A timeout is always declared: without one, a pause of all streams would hold rows for ever, and estimates
    cannot rule that out. `NEVER` declares that it may.
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
        """The streams whose arrivals can move the heartbeat of one of `streams`: one may bound another."""
        return frozenset(self.streams)

    def counts_rows(self, stream: str) -> bool:
        """Every row is learned from."""
        return True

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Learn from arrivals in order; refused whole if one is bad."""
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
        """The timeout may have struck before the batch or within it."""
        if int(clocks[-1]) <= plus(self._last, self.timeout):
            return
        before = np.concatenate(([self._last], clocks[:-1]))
        silent = np.flatnonzero(clocks - self.timeout > before)
        silent = silent[(silent > 0) | (self._newest != MIN_TIME)]
        if len(silent):
            newest = max(self._newest, int(times[: silent[-1]].max(initial=MIN_TIME)))
            np.maximum(self._promise, newest, out=self._promise)

    def read_up_to(self, clocks: npt.ArrayLike) -> None:
        """How far each stream has been read: only then is it known that all of them pause.

        Delays are learned as rows are read, with the time for which they waited to be.
        """
        self._read = int(np.min(np.asarray(clocks, np.int64), initial=MAX_TIME))

    def advance(self, now: int) -> bool:
        """Let what is due by `now` come due; whether any heartbeat rose."""
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

    def snapshot(self) -> dict[str, Any]:
        """All state, the estimator's included."""
        own = {"promise": self._promise.copy(), "newest": self._newest, "last": self._last, "at": self._now}
        own |= {} if self._read is None else {"read": self._read}
        return own | {f"estimator.{name}": value for name, value in self.estimator.snapshot().items()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot made with an equal estimator."""
        prefix = "estimator."
        self.estimator.restore({k[len(prefix) :]: v for k, v in snapshot.items() if k.startswith(prefix)})
        self._promise[:] = snapshot["promise"]
        self._newest, self._last, self._now = (int(snapshot[k]) for k in ("newest", "last", "at"))
        self._read = snapshot.get("read", self._read)
