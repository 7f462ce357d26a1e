"""Probabilistic bounds: a quantile of the skew seen, with floor, ceiling and confidence 1 − ε.

Srivastava & Widom §2 name bounds "having a certain confidence" and leave them open. Here the skew of a tuple
is measured against the greatest time on *any* stream, so that one quantile per stream suffices: a bound δ_j
that a share 1 − ε of j's tuples kept loses a share ε of them, without a sum over pairs of streams.

Guarantee. If skews are exchangeable (independent of each other, with a steady distribution), the
next row is later than the k-th smallest of n skews with a probability of at most (n + 1 − k)/(n + 1). So the
bound is the skew with k = ⌈(1 − ε)(n + 1)⌉, and the expected loss is at most ε. With fewer than 1/ε rows
there is no such k: the bound is then the greatest skew times √(1/(ε(n + 1))), which suffices for tails as
heavy as 1/x². Before `LEAST` rows nothing is promised. And while the time seen is less than `SPAN` times the
bound, rows with long delays have not all come: the bound is then twice the greatest skew.

If skews depend on each other (bursts, drift, an outage and its backlog), no share can be guaranteed: rows are
lost that were on their way when a promise was made. But the estimator reacts to losses. From a loss of ¾ε on,
it aims for less than ε. If clearly k times ε was lost, k > 1, the bound is at least k times the greatest skew
so far: then a row is lost only if it is later than that, or behind an earlier promise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.arrivals import batch, skews, went_back
from headrace.time.bounds import Bounds
from headrace.time.skew import SkewMatrix
from headrace.time.timestamp import MAX_TIME, MIN_TIME

LEAST: Final = 20
"""The rows of all streams together that must be seen before there is a promise without a ceiling."""

SPAN: Final = 4
"""Times the bound: how long the streams must be observed before the skews seen count as complete."""

NEARLY, TOO_MUCH = 0.75, 1.25
"""Times ε: the loss from which the aim is less than ε, and the loss from which it is a tenth of ε."""

PLAINLY = 3.0
"""Standard deviations beyond what ε explains, from which no further loss is accepted."""


@dataclass(frozen=True)
class Confidence:
    """Lose at most a share `epsilon` of each stream's rows, on average; keep the bound in [floor, ceiling].

    This holds for independent delays. With bursts or drift more may be lost until the bound has followed: see
    the module. A ceiling that is too low loses more.

    With `half_life`, the weight of a row halves after this many later rows of its stream.
    """

    epsilon: float = 0.001
    floor: int = 0
    ceiling: int = MAX_TIME
    half_life: int | None = None

    @property
    def promise(self) -> str:
        """The guarantee as text."""
        share = f"{self.epsilon:.2%}" if self.epsilon else "none"
        return f"to lose {share} of the rows if delays are independent; more in bursts, until it has followed"

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon < 1.0 or not 0 <= self.floor <= self.ceiling:
            raise TimeError("HR-T032", f"{self}", hint="0 ≤ ε < 1 and 0 ≤ floor ≤ ceiling")
        if self.half_life is not None and self.half_life < 1:
            raise TimeError("HR-T032", f"{self}", hint="a half-life is a number of rows ≥ 1")


class QuantileEstimator:
    """One bound per stream against the greatest time seen on any stream: O(1) per arrival.

    The bound of a stream is the quantile of all streams together. A stream's own quantile is used if it is
    smaller and the stream has had the 1/ε rows needed to know it, or if the stream is surely later. "Surely"
    is its own quantile at a loss of ε + 2√(ε/r) + 2/r, two deviations more than ε explains in its r rows.
    Before there are enough rows, the bound is the ceiling, or there is no promise if no ceiling is set.
    Bounds are recomputed when rows have grown by one percent or a row was lost, so the cost per row becomes
    negligible.
    """

    def __init__(self, streams: Sequence[str], confidence: Confidence | None = None) -> None:
        self.streams = tuple(streams)
        self.confidence = confidence or Confidence()
        self._counts: Floats = np.zeros((len(self.streams), BUCKETS))
        self._pooled: Floats = np.zeros(BUCKETS)
        self._rows = np.zeros(len(self.streams), dtype=np.int64)
        self._faded = np.zeros(len(self.streams), dtype=np.int64)
        self._worst = np.zeros(len(self.streams), dtype=np.int64)
        self._lost: Floats = np.zeros(len(self.streams))
        self._promised = np.full(len(self.streams), MIN_TIME, dtype=np.int64)
        self._newest, self._oldest, self._clock = MIN_TIME, MAX_TIME, MIN_TIME
        self._own = np.zeros(len(self.streams), dtype=np.int64)
        self._surely = np.zeros(len(self.streams), dtype=np.int64)
        self._delta = np.full(len(self.streams), self.confidence.ceiling, dtype=np.int64)
        self._renew_at = 1
        self._used = 1
        self._stale = np.zeros(len(self.streams), dtype=np.bool_)

    @property
    def settings(self) -> str:
        """The streams and the confidence."""
        return json.dumps([self.streams, list(astuple(self.confidence))])

    def observe(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Learn from arrivals in order."""
        s, x, c = batch(streams, times, clocks, len(self.streams), self._clock)
        if not len(s):
            return
        behind = skews(x, self._newest)
        at = bucket(behind)
        late = x <= self._promised[s]
        if late.any():
            np.add.at(self._lost, s[late], 1.0)
            self._renew_at = 1
        np.maximum.at(self._worst, s, behind)
        np.add.at(self._counts, (s, at), 1.0)
        np.add.at(self._pooled, at, 1.0)
        self._used = max(self._used, int(at.max()) + 1)
        np.add.at(self._rows, s, 1)
        self._newest, self._oldest = max(self._newest, int(x.max())), min(self._oldest, int(x.min()))
        self._clock = int(c[-1])
        self._stale[s] = True
        self._fade()

    def _fade(self) -> None:
        """Halve the counts of streams that have shown another `half_life` rows (at the end of a batch)."""
        if self.confidence.half_life is not None:
            halvings = (self._rows - self._faded) // self.confidence.half_life
            if halvings.any():
                self._counts *= (0.5**halvings)[:, None]
                self._lost *= 0.5**halvings
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
        """A bound per stream: its own quantile with enough rows, else the pooled one, within the limits."""
        c = self.confidence
        self._refresh()
        rows = float(self._pooled.sum())
        if rows < LEAST:
            return np.full(len(self.streams), c.ceiling, dtype=np.int64)
        own_rows = self._counts.sum(axis=1)
        enough = own_rows * c.epsilon >= 1.0
        level = _level(_left(c.epsilon, self._lost.sum(), rows), np.array(rows))
        pooled = quantiles(self._pooled[: self._used], level)
        loses = self._lost > c.epsilon * own_rows
        own = np.where(loses, self._own, np.minimum(self._own, pooled))
        known = np.maximum(np.where(enough, own, pooled), self._surely)
        worst = np.where(enough, self._worst, self._worst.max())
        care = np.maximum(self._care(enough, own_rows, rows), self._early(int(known.max(initial=0))))
        return np.clip(np.maximum(known, _times(worst, care)), c.floor, c.ceiling)

    def _care(self, enough: npt.NDArray[np.bool_], own_rows: Floats, rows: float) -> Floats:
        """The factor for the greatest skew where the quantile is not enough; 0 where it is."""
        epsilon = self.confidence.epsilon
        if epsilon == 0.0:
            return np.zeros(len(self.streams))
        all_over = _over(self._lost.sum(), epsilon * rows, PLAINLY)
        over = np.where(enough, _over(self._lost, epsilon * own_rows, PLAINLY), all_over)
        few = np.sqrt(1.0 / (epsilon * (rows + 1.0)))
        return np.maximum(np.where(over > 1.0, over, 0.0), few if few > 1.0 else 0.0)

    def _early(self, bound: int) -> float:
        """2 while the observed time is too short for rows with long delays to have come; else 0."""
        loses = self.confidence.epsilon > 0.0
        return 2.0 if loses and float(bound) * SPAN > self._newest - self._oldest else 0.0

    def _refresh(self) -> None:
        """Update the own quantiles of streams with new rows: at ε, and at a loss that ε cannot explain."""
        stale, epsilon = np.flatnonzero(self._stale), self.confidence.epsilon
        self._stale[:] = False
        counts, rows = self._counts[stale, : self._used], self._sample()[stale]
        beyond = np.minimum(epsilon + 2.0 * np.sqrt(epsilon / rows) + 2.0 / rows, 1.0)
        left = _left(epsilon, self._lost[stale], counts.sum(axis=1))
        self._own[stale] = quantiles(counts, _level(left, rows))
        self._surely[stale] = self._own[stale] if epsilon == 0.0 else quantiles(counts, 1.0 - beyond)

    def _sample(self) -> Ints:
        """The number of rows in each stream's counts."""
        life = self.confidence.half_life
        return self._rows if life is None else np.minimum(self._rows, 2 * life)

    def raise_to_due(self, now: int, promise: Ints) -> None:
        """τ_j = greatest time on any stream − δ_j, immediately."""
        if now < self._clock:
            raise went_back(now)
        self._clock = now
        if self._newest != MIN_TIME:
            reach = self._newest - MIN_TIME
            delta = self.delta
            due = self._newest - np.minimum(delta.astype(np.uint64), np.uint64(reach)).astype(np.int64)
            due[delta == MAX_TIME] = MIN_TIME
            np.maximum(self._promised, due, out=self._promised)
            np.maximum(promise, due, out=promise)

    def bounds(self, timeout: int | None = None) -> Bounds:
        """The same as a matrix: every stream has the bound (0, δ_j) on j."""
        n = len(self.streams)
        i, j = np.divmod(np.arange(n * n, dtype=np.int64), n)
        zero = np.zeros_like(i)
        return Bounds.of(SkewMatrix.build(self.streams, i, j, zero, zero, self.delta[j]), 0, timeout)

    def snapshot(self) -> dict[str, Any]:
        """All state as a plain dict of arrays and ints; only buckets in use are kept."""
        stream, at = np.nonzero(self._counts)
        held = {"stream": stream, "bucket": at, "count": self._counts[stream, at]}
        arrays: dict[str, Any] = {"rows": self._rows.copy(), "faded": self._faded.copy()}
        arrays |= {"delta": self._delta.copy(), "worst": self._worst.copy(), "lost": self._lost.copy()}
        arrays |= {"promised": self._promised.copy()}
        times = {"newest": self._newest, "oldest": self._oldest, "clock": self._clock}
        return held | arrays | times | {"renew_at": self._renew_at}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of an estimator of the same streams."""
        if np.shape(snapshot["rows"]) != self._rows.shape:
            raise TimeError("HR-T024", "a snapshot of other streams", hint="restore with the same streams")
        self._counts[:] = 0.0
        self._counts[snapshot["stream"], snapshot["bucket"]] = snapshot["count"]
        self._rows[:], self._faded[:], self._delta[:] = (snapshot[k] for k in ("rows", "faded", "delta"))
        self._worst[:], self._lost[:] = snapshot["worst"], snapshot["lost"]
        self._promised[:] = snapshot["promised"]
        self._renew_at = int(snapshot["renew_at"])
        self._newest, self._oldest, self._clock = (int(snapshot[k]) for k in ("newest", "oldest", "clock"))
        self._pooled = self._counts.sum(axis=0)
        self._used = int(np.asarray(snapshot["bucket"]).max(initial=0)) + 1
        self._stale[:] = self._rows > 0


def _over(lost: Any, allowed: Any, deviations: float) -> Any:
    """Lost rows divided by the rows that may be lost, without a few standard deviations of chance."""
    return np.maximum(lost - deviations * np.sqrt(allowed), 0.0) / np.maximum(allowed, 1e-300)


def _left(epsilon: float, lost: Any, rows: Any) -> Any:
    """The loss to aim for: ε while less was lost, then less, down to a tenth."""
    over = _over(lost, epsilon * rows, 1.0)
    return epsilon * np.clip((TOO_MUCH - over) / (TOO_MUCH - NEARLY), 0.1, 1.0)


def _level(epsilon: Any, rows: npt.NDArray[Any]) -> Floats:
    """The share of n skews that the bound must reach for the next row to be later with a chance of ε: k/n."""
    n = np.maximum(rows.astype(np.float64), 1.0)
    return np.asarray(np.minimum(np.ceil((1.0 - epsilon) * (n + 1.0)) / n, 1.0))


def _times(skew: Ints, factor: Floats) -> Ints:
    """Skews times factors, saturated."""
    return np.minimum(skew.astype(np.float64) * factor, float(MAX_TIME // 2)).astype(np.int64)


# Counts of skews in buckets of equal relative width: exact below 64, within 1/64 above, at any magnitude.


Floats = npt.NDArray[np.float64]

_BITS = 6
_SUB = 1 << _BITS
BUCKETS = (64 - _BITS) * _SUB


def bucket(values: Ints) -> Ints:
    """The bucket of each value ≥ 0; buckets ascend with values."""
    _, exponent = np.frexp(values.astype(np.float64))
    shift = np.maximum(exponent.astype(np.int64) - 1 - _BITS, 0)
    shift -= (values >> shift) < _SUB * (shift > 0)
    return np.where(values < _SUB, values, shift * _SUB + (values >> shift))


def upper(buckets: Ints) -> Ints:
    """The largest value of each bucket."""
    shift = np.maximum(buckets // _SUB - 1, 0)
    mantissa = buckets - shift * _SUB
    return np.where(buckets < _SUB, buckets, (mantissa << shift) + ((np.int64(1) << shift) - 1))


def quantiles(counts: Floats, share: Floats) -> Ints:
    """Per row, the least bucket top that at least `share` of its counts do not exceed; 0 if it has none."""
    running = np.cumsum(counts, axis=-1)
    total = running[..., -1]
    reached = running >= (share * total * (1 - 1e-12))[..., None]
    return np.where(total > 0, upper(np.asarray(np.argmax(reached, axis=-1), dtype=np.int64)), 0)
