"""Strategies side by side on recorded arrivals: completeness, delay and late rows of an ordered union.

The paper leaves this experiment open (§6.2, "detailed experimentation … is left for future work").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.time.estimation import Adaptivity, Adjusting, SkewEstimator
from headrace.time.learned import LearnedHeartbeats
from headrace.time.needed import best_fixed
from headrace.time.quantile import Confidence, QuantileEstimator
from headrace.time.skew import Ints
from headrace.time.timestamp import MIN_TIME


class Heartbeats(Protocol):
    """Whatever turns arrivals into an overall heartbeat."""

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Take arrivals in order."""
        ...

    def heartbeat(self, now: int) -> int:
        """The overall heartbeat at `now`."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How an ordered union fared: rows that came too late, and how long the others waited (clock ticks).

    `delay` holds the share-quantiles over *all* rows, a late row counting as never released (−1 where the
    quantile falls on such a row).
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
    """Feed arrivals in batches; a row is late if not above the heartbeat in force before its batch.

    It is released at the end of the first batch whose heartbeat has reached its time; what is left at the
    end is released then.
    """
    cuts = np.arange(0, len(times), batch)
    reached = np.empty(len(cuts), dtype=np.int64)
    for k, lo in enumerate(cuts):
        part = slice(lo, lo + batch)
        heartbeats.arrive(streams[part], times[part], clocks[part])
        reached[k] = heartbeats.heartbeat(int(clocks[part][-1]))
    return _outcome(strategy, times, clocks, reached, batch)


def fixed_outcome(delta: int, times: Ints, clocks: Ints, batch: int = 1) -> Outcome:
    """The watermark of other systems: the greatest time on any stream, less a fixed bound."""
    ends = np.minimum(np.arange(batch, len(times) + batch, batch), len(times)) - 1
    reached = np.maximum.accumulate(times)[ends] - delta
    return _outcome(f"fixed {delta}", times, clocks, reached, batch)


def _outcome(strategy: str, times: Ints, clocks: Ints, reached: Ints, batch: int) -> Outcome:
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
    """Every estimator, each beside the best fixed bound that loses no more rows than it did."""
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
    """The comparison in words: one line per strategy and one for its best fixed bound."""
    head = f"{'strategy':<22}{'complete':>10}{'late':>8}{'mean':>12}{'p50':>12}{'p90':>12}{'p99':>12}"
    return "\n".join([head, *(_line(o) for pair in rows for o in pair)])


def _line(o: Outcome) -> str:
    quantiles = "".join(f"{o.delay[q]:>12}" for q in (0.5, 0.9, 0.99))
    return f"{o.strategy:<22}{o.completeness:>10.3%}{o.late:>8}{o.mean_delay:>12.1f}{quantiles}"
