"""Compares strategies on recorded arrivals: completeness, delay and late rows of an ordered union.

The paper leaves this experiment open (§6.2, "detailed experimentation … is left for future work").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.time.arrivals import batch, skews
from headrace.time.estimation import Adaptivity, Adjusting, SkewEstimator
from headrace.time.learned import LearnedHeartbeats
from headrace.time.quantile import BUCKETS, Confidence, Floats, QuantileEstimator, bucket, quantiles
from headrace.time.timestamp import MIN_TIME


class Heartbeats(Protocol):
    """Turns arrivals into an overall heartbeat."""

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Take arrivals in order."""
        ...

    def heartbeat(self, now: int) -> int:
        """The overall heartbeat at `now`."""
        ...


@dataclass(frozen=True)
class Outcome:
    """The result of an ordered union: late rows, and how long the others waited (clock ticks).

    `delay` has quantiles over *all* rows; a late row counts as never released (−1 if the quantile is such a
    row).
    """

    strategy: str
    rows: int
    late: int
    mean_delay: float
    delay: dict[float, int]

    @property
    def completeness(self) -> float:
        return 1.0 - self.late / self.rows if self.rows else 1.0


def replay(
    strategy: str, heartbeats: Heartbeats, streams: Ints, times: Ints, clocks: Ints, batch: int = 1
) -> Outcome:
    """Feed arrivals in batches; a row is late if it is not above the heartbeat before its batch.

    A row is released at the end of the first batch whose heartbeat has reached its time, or at the end of
    all.
    """
    cuts = np.arange(0, len(times), batch)
    reached = np.empty(len(cuts), dtype=np.int64)
    for k, lo in enumerate(cuts):
        part = slice(lo, lo + batch)
        heartbeats.arrive(streams[part], times[part], clocks[part])
        reached[k] = heartbeats.heartbeat(int(clocks[part][-1]))
    return _outcome(strategy, times, clocks, reached, batch)


def fixed_outcome(delta: int, times: Ints, clocks: Ints, batch: int = 1) -> Outcome:
    """The watermark of other systems: the greatest time on any stream minus a fixed bound."""
    ends = np.minimum(np.arange(batch, len(times) + batch, batch), len(times)) - 1
    reached = np.maximum.accumulate(times)[ends] - delta
    return _outcome(f"fixed {delta}", times, clocks, reached, batch)


def _outcome(strategy: str, times: Ints, clocks: Ints, reached: Ints, batch: int) -> Outcome:
    """Delays and late rows of one strategy, from the heartbeat that it reached after each batch."""
    mine = np.arange(len(times)) // batch
    in_force = np.concatenate(([MIN_TIME], reached))[mine]
    late = times <= in_force
    release = np.minimum(np.maximum(np.searchsorted(reached, times), mine), len(reached) - 1)
    ends = clocks[np.minimum((np.arange(len(reached)) + 1) * batch, len(clocks)) - 1]
    wait = ends[release] - clocks
    ranked = np.concatenate((np.sort(wait[~late]), np.full(late.sum(), -1)))
    delay = {q: int(ranked[min(len(ranked) - 1, int(q * len(ranked)))]) for q in (0.5, 0.9, 0.99)}
    mean = float(wait[~late].mean()) if (~late).any() else 0.0
    return Outcome(strategy, len(times), int(late.sum()), mean, delay)


def side_by_side(
    names: Sequence[str],
    streams: Ints,
    times: Ints,
    clocks: Ints,
    *,
    tick: int,
    timeout: int,
    t_max: int = 100,
    batch: int = 1,
) -> list[tuple[Outcome, Outcome]]:
    """Every estimator, each with the smallest fixed bound that loses no more rows than it does."""
    estimators: Mapping[str, SkewEstimator | QuantileEstimator] = {
        "no adaptivity": SkewEstimator(names, t_max, tick=tick),
        "adaptive": SkewEstimator(names, t_max, tick=tick, adaptivity=Adaptivity(50, 0.5)),
        "adaptive adaptivity": SkewEstimator(
            names, t_max, tick=tick, adaptivity=Adaptivity(50, 0.5, Adjusting(0.005))
        ),
        "quantile": QuantileEstimator(names, Confidence(epsilon=0.001)),
    }
    rows = []
    for strategy, estimator in estimators.items():
        mine = replay(strategy, LearnedHeartbeats(estimator, timeout), streams, times, clocks, batch)
        rows.append((mine, fixed_outcome(best_fixed(times, mine.late), times, clocks, batch)))
    return rows


def table(rows: Sequence[tuple[Outcome, Outcome]]) -> str:
    """The comparison as text: one line per strategy and one for its best fixed bound."""
    head = f"{'strategy':<22}{'complete':>10}{'late':>8}{'mean':>12}{'p50':>12}{'p90':>12}{'p99':>12}"
    return "\n".join([head, *(_line(o) for pair in rows for o in pair)])


def _line(o: Outcome) -> str:
    quantiles = "".join(f"{o.delay[q]:>12}" for q in (0.5, 0.9, 0.99))
    return f"{o.strategy:<22}{o.completeness:>10.3%}{o.late:>8}{o.mean_delay:>12.1f}{quantiles}"


# The bounds that the data so far would have needed to lose no row, 0.1 % or 1 % of the rows.


SHARES = (0.0, 0.001, 0.01)


@dataclass(frozen=True)
class Needed:
    """The number of rows and, for each share that may be lost, the least bound behind the greatest time.

    The bound for no loss is exact; the others may be up to 1/64 too large, never too small.
    """

    stream: str
    rows: int
    bound: dict[float, int]

    def __str__(self) -> str:
        words = {0.0: "no row"}
        said = ", ".join(f"{words.get(s, f'{s:.1%} of rows')}: {d}" for s, d in self.bound.items())
        return f"{self.stream} ({self.rows} rows): bound that would have lost {said}"


class NeededBounds:
    """Keeps the skew of every row against the greatest time before it on any stream, in buckets."""

    def __init__(self, streams: Sequence[str], shares: Sequence[float] = SHARES) -> None:
        self.streams = tuple(streams)
        self.shares = tuple(shares)
        self._counts: Floats = np.zeros((len(self.streams), BUCKETS))
        self._worst = np.zeros(len(self.streams), dtype=np.int64)
        self._newest, self._clock = MIN_TIME, MIN_TIME

    def observe(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Take arrivals in order."""
        s, x, c = batch(streams, times, clocks, len(self.streams), self._clock)
        if len(s):
            behind = skews(x, self._newest)
            np.add.at(self._counts, (s, bucket(behind)), 1.0)
            np.maximum.at(self._worst, s, behind)
            self._newest, self._clock = max(self._newest, int(x.max())), int(c[-1])

    def report(self) -> list[Needed]:
        """One line for all streams together, then one for each stream with rows."""
        overall = self._line("all streams", self._counts.sum(axis=0), int(self._worst.max(initial=0)))
        lines = zip(self.streams, self._counts, self._worst, strict=True)
        return [overall, *(self._line(name, row, int(w)) for name, row, w in lines if row.any())]

    def _line(self, name: str, counts: Floats, worst: int) -> Needed:
        """One line of the report; the bound for no loss is the worst skew itself."""
        bound = {
            s: min(worst, int(quantiles(counts, np.array(1.0 - s)))) if s else worst for s in self.shares
        }
        return Needed(name, int(counts.sum()), bound)

    def snapshot(self) -> dict[str, Any]:
        """All state as a plain dict of arrays and ints."""
        stream, at = np.nonzero(self._counts)
        held: dict[str, Any] = {"stream": stream, "bucket": at, "count": self._counts[stream, at]}
        return held | {"worst": self._worst.copy(), "newest": self._newest, "clock": self._clock}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the same streams."""
        self._counts[:] = 0.0
        self._counts[snapshot["stream"], snapshot["bucket"]] = snapshot["count"]
        self._worst[:] = snapshot["worst"]
        self._newest, self._clock = int(snapshot["newest"]), int(snapshot["clock"])


def best_fixed(times: Ints, lost: int) -> int:
    """The least single bound behind the greatest time seen that loses at most `lost` of these rows."""
    behind = np.sort(skews(times, MIN_TIME))
    return int(behind[len(behind) - 1 - lost]) if lost < len(behind) else 0
