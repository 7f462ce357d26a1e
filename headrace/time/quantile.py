"""Probabilistic bounds: a quantile of the skew seen, with floor, ceiling and confidence 1 − ε.

Srivastava & Widom §2 name bounds "having a certain confidence" and leave them open. Here the skew of a tuple
is measured against the greatest time on *any* stream, so that one quantile per stream suffices: a bound δ_j
that a share 1 − ε of j's tuples kept loses a share ε of them, with no sum over pairs of streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import TimeError
from headrace.time.arrivals import batch, skews, went_back
from headrace.time.bounds import Bounds
from headrace.time.histogram import BUCKETS, Floats, bucket, quantiles
from headrace.time.skew import Ints, SkewMatrix
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Confidence:
    """Lose at most a share `epsilon` of each stream's rows; keep the bound within [floor, ceiling].

    With `half_life`, a row counts half as much after so many later rows of its stream.
    """

    epsilon: float = 0.001
    floor: int = 0
    ceiling: int = MAX_TIME
    half_life: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon < 1.0 or not 0 <= self.floor <= self.ceiling:
            raise TimeError("HR-T032", f"{self}", hint="0 ≤ ε < 1 and 0 ≤ floor ≤ ceiling")
        if self.half_life is not None and self.half_life < 1:
            raise TimeError("HR-T032", f"{self}", hint="a half-life is a number of rows ≥ 1")


class QuantileEstimator:
    """One bound per stream against the greatest time seen on any stream: O(1) per arrival.

    A stream is judged by the quantile of all streams together: by its own where that is smaller and it has
    shown the 1/ε rows that it takes to know, and by its own where it is surely later. "Surely" is its own
    quantile at a loss of ε + 2√(ε/r) + 2/r, two deviations more than ε explains in its r rows. Before any
    row, the bound is the ceiling, or the floor where no ceiling is set. Bounds are renewed
    when the rows have grown by a hundredth, so that their cost per row falls to nothing.
    """

    def __init__(self, streams: Sequence[str], confidence: Confidence | None = None) -> None:
        self.streams = tuple(streams)
        self.confidence = confidence or Confidence()
        self._counts: Floats = np.zeros((len(self.streams), BUCKETS))
        self._pooled: Floats = np.zeros(BUCKETS)
        self._rows = np.zeros(len(self.streams), dtype=np.int64)
        self._faded = np.zeros(len(self.streams), dtype=np.int64)
        self._newest, self._clock = MIN_TIME, MIN_TIME
        self._own = np.zeros(len(self.streams), dtype=np.int64)
        self._surely = np.zeros(len(self.streams), dtype=np.int64)
        c = self.confidence
        start = c.floor if c.ceiling == MAX_TIME else c.ceiling
        self._delta = np.full(len(self.streams), start, dtype=np.int64)
        self._renew_at = 1
        self._used = 1
        self._stale = np.zeros(len(self.streams), dtype=np.bool_)

    def observe(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Learn from arrivals in order."""
        s, x, c = batch(streams, times, clocks, len(self.streams), self._clock)
        if not len(s):
            return
        at = bucket(skews(x, self._newest))
        np.add.at(self._counts, (s, at), 1.0)
        np.add.at(self._pooled, at, 1.0)
        self._used = max(self._used, int(at.max()) + 1)
        np.add.at(self._rows, s, 1)
        self._newest = max(self._newest, int(x.max()))
        self._clock = int(c[-1])
        self._stale[s] = True
        self._fade()

    def _fade(self) -> None:
        """Halve the counts of streams that have shown another `half_life` rows (at the end of a batch)."""
        if self.confidence.half_life is not None:
            halvings = (self._rows - self._faded) // self.confidence.half_life
            if halvings.any():
                self._counts *= (0.5**halvings)[:, None]
                self._pooled = self._counts.sum(axis=0)
            self._faded += halvings * self.confidence.half_life

    @property
    def delta(self) -> Ints:
        """The bound of each stream behind the greatest time seen."""
        rows = int(self._rows.sum())
        if rows >= self._renew_at:
            self._delta = self._estimate()
            self._renew_at = rows + max(1, min(rows, self.confidence.half_life or rows) // 100)
        return self._delta.copy()

    def _estimate(self) -> Ints:
        c = self.confidence
        self._refresh()
        pooled = quantiles(self._pooled[: self._used], np.array(1.0 - c.epsilon))
        known = np.where(self._sample() * c.epsilon >= 1.0, np.minimum(self._own, pooled), pooled)
        return np.clip(np.maximum(known, self._surely), c.floor, c.ceiling)

    def _refresh(self) -> None:
        """Own quantiles of the streams that have spoken since: at ε, and at a loss that ε cannot explain."""
        stale, epsilon = np.flatnonzero(self._stale), self.confidence.epsilon
        self._stale[:] = False
        counts, rows = self._counts[stale, : self._used], self._sample()[stale]
        beyond = np.minimum(epsilon + 2.0 * np.sqrt(epsilon / rows) + 2.0 / rows, 1.0)
        self._own[stale] = quantiles(counts, np.full(len(stale), 1.0 - epsilon))
        self._surely[stale] = self._own[stale] if epsilon == 0.0 else quantiles(counts, 1.0 - beyond)

    def _sample(self) -> Ints:
        """How many rows each stream's counts stand for."""
        life = self.confidence.half_life
        return self._rows if life is None else np.minimum(self._rows, 2 * life)

    def raise_to_due(self, now: int, promise: Ints) -> None:
        """τ_j = greatest time on any stream − δ_j, at once."""
        if now < self._clock:
            raise went_back(now)
        self._clock = now
        if self._newest != MIN_TIME:
            reach = self._newest - MIN_TIME
            due = self._newest - np.minimum(self.delta.astype(np.uint64), np.uint64(reach)).astype(np.int64)
            np.maximum(promise, due, out=promise)

    def bounds(self, timeout: int | None = None) -> Bounds:
        """The same as a matrix: every stream gives (0, δ_j) on j."""
        n = len(self.streams)
        i, j = np.divmod(np.arange(n * n, dtype=np.int64), n)
        zero = np.zeros_like(i)
        return Bounds.of(SkewMatrix.build(self.streams, i, j, zero, zero, self.delta[j]), 0, timeout)

    def snapshot(self) -> dict[str, Any]:
        """All state as a plain dict of arrays and ints; only buckets in use are kept."""
        stream, at = np.nonzero(self._counts)
        held = {"stream": stream, "bucket": at, "count": self._counts[stream, at]}
        arrays = {"rows": self._rows.copy(), "faded": self._faded.copy()}
        arrays |= {"delta": self._delta.copy()}
        return held | arrays | {"newest": self._newest, "clock": self._clock, "renew_at": self._renew_at}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot of an estimator of the same streams."""
        if np.shape(snapshot["rows"]) != self._rows.shape:
            raise TimeError("HR-T024", "a snapshot of other streams", hint="restore with the same streams")
        self._counts[:] = 0.0
        self._counts[snapshot["stream"], snapshot["bucket"]] = snapshot["count"]
        self._rows[:], self._faded[:], self._delta[:] = (snapshot[k] for k in ("rows", "faded", "delta"))
        self._renew_at = int(snapshot["renew_at"])
        self._newest, self._clock = int(snapshot["newest"]), int(snapshot["clock"])
        self._pooled = self._counts.sum(axis=0)
        self._used = int(np.asarray(snapshot["bucket"]).max(initial=0)) + 1
        self._stale[:] = self._rows > 0
