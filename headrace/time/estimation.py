"""B' learned from arrivals (Srivastava & Widom §6): skew as seen here, source and network together.

δ_ij[t] for t = 0 … t_max coarse ticks starts at 0 and is the greatest skew max(τ_i^max[c − t] − τ + 1, 0) of
any tuple of j so far (§6.1), or decreases again if it has been too large for long (§6.2, Figures 3 and 4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.arrivals import batch, went_back
from headrace.time.bounds import Bounds
from headrace.time.skew import SkewMatrix
from headrace.time.timestamp import MIN_TIME

_MEMORY = ("window", "count", "limit", "hits", "trials", "falls", "last")


@dataclass(frozen=True)
class Adjusting:
    """Adaptive adaptivity (§6.2): W doubles if more than `exceeded` of a window's estimates were too low, and
    halves after the estimate has fallen in `falling` windows in a row; within [least, most]."""

    exceeded: float = 0.01
    falling: int = 4
    least: int = 16
    most: int = 1 << 20


@dataclass(frozen=True)
class Adaptivity:
    """W, the low estimates to see before lowering, and α, the weight of the old estimate then (Figure 4).

    α = 1, or W beyond the number of arrivals, is the non-adaptive estimate. With `in_time`, W is a time of
    the clock: an estimate falls at the first row for which it has been too large for longer than that.
    """

    window: int
    alpha: float
    adjusting: Adjusting | None = None
    in_time: bool = False

    def __post_init__(self) -> None:
        if self.window < 1 or not 0.0 <= self.alpha <= 1.0:
            message = f"adaptivity W = {self.window}, α = {self.alpha}"
            raise TimeError("HR-T030", message, hint="W ≥ 1 and 0 ≤ α ≤ 1")
        if self.in_time and self.adjusting is not None:
            message = "a window in time does not change by itself"
            raise TimeError("HR-T030", message, hint="leave out adjusting, or count rows")

    def rule(self) -> tuple[float, int, int, int]:
        """The parameters as the kernel takes them; −1 turns adjusting off."""
        if self.adjusting is None:
            return -1.0, 1, 1, 1
        a = self.adjusting
        return a.exceeded, a.falling, a.least, a.most


class SkewEstimator:
    """δ_ij[t] between every two streams, O(n · t_max) per arrival and O(n² · t_max) in memory (§6.1).

    Law (non-adaptive): none of the arrivals that a matrix was learned from would have violated it. Clocks are
    coarsened to `tick`; arrivals within one tick count in order of arrival.
    """

    def __init__(
        self, streams: Sequence[str], t_max: int, *, tick: int = 1, adaptivity: Adaptivity | None = None
    ) -> None:
        if t_max < 0 or tick < 1:
            raise TimeError("HR-T031", f"t_max = {t_max}, tick = {tick}", hint="t_max ≥ 0 and tick ≥ 1")
        self.streams, self.t_max, self.tick, self.adaptivity = tuple(streams), t_max, tick, adaptivity
        n = len(self.streams)
        self._delta = np.zeros((n, n, t_max + 1), dtype=np.int64)
        self._seen = np.full((n, t_max + 1), MIN_TIME, dtype=np.int64)
        self._memory = _memory(self._delta.shape, adaptivity, tick)
        self._clock, self._now = MIN_TIME, MIN_TIME

    @property
    def delta(self) -> Ints:
        """The estimates as an array [i, j, t]."""
        return self._delta.transpose(1, 0, 2)

    @property
    def settings(self) -> str:
        """The streams, the times covered and the adaptivity."""
        adaptivity = None if self.adaptivity is None else asdict(self.adaptivity)
        if adaptivity is not None and not adaptivity["in_time"]:
            del adaptivity["in_time"]  # as written before windows could be in time
        return json.dumps([self.streams, self.t_max, self.tick, adaptivity])

    def observe(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Learn from arrivals in order: stream number, time, and clock (one for all, or one each)."""
        from headrace.kernels import estimation as kernel

        s, x, c = batch(streams, times, clocks, len(self.streams), self._clock)
        if not len(s):
            return
        self._roll(int(c[0]))
        adaptive = self.adaptivity is not None
        alpha, rule = (
            (self.adaptivity.alpha, self.adaptivity.rule()) if self.adaptivity else (1.0, (-1.0, 1, 1, 1))
        )
        state = (self._now, self._seen, self._delta, adaptive, self._memory, alpha, rule)
        self._now = int(kernel.observe(s, x, c // self.tick, *state))
        self._clock = int(c[-1])

    def _roll(self, clock: int) -> None:
        """Advance the clock, and move the window of times seen along with it."""
        from headrace.kernels import estimation as kernel

        tick = clock // self.tick
        if self._now != MIN_TIME and tick > self._now:
            kernel.roll(self._seen, tick - self._now)
        self._now = max(tick, self._now)
        self._clock = max(clock, self._clock)

    def raise_to_due(self, now: int, promise: Ints) -> None:
        """Figure 2 as changed in §6: raise each stream's promise to τ_i^max[now − t] − δ_ij[t]."""
        from headrace.kernels import estimation as kernel

        if now < self._clock:
            raise went_back(now)
        self._roll(now)
        kernel.due(self._seen, self._delta, promise)

    def bounds(self, timeout: int | None = None) -> Bounds:
        """B' for a `HeartbeatGenerator`: measured skews include latency, and no closure is needed."""
        n = len(self.streams)
        i, j, t = (x.ravel().astype(np.int64) for x in np.indices((n, n, self.t_max + 1)))
        skew = SkewMatrix.build(self.streams, i, j, t * self.tick, np.zeros_like(t), self.delta.ravel())
        return Bounds.of(skew, 0, timeout)

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"delta": self._delta, "seen": self._seen, **dict(zip(_MEMORY, self._memory, strict=True))}

    def snapshot(self) -> dict[str, Any]:
        """All state as a plain dict of arrays and ints."""
        return {name: array.copy() for name, array in self._arrays().items()} | {
            "clock": self._clock,
            "now": self._now,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of an estimator with the same arguments."""
        arrays = {"delta": self._delta, "seen": self._seen, **dict(zip(_MEMORY, self._memory, strict=True))}
        for name, array in arrays.items():
            if name == "last" and name not in snapshot:
                continue  # of an earlier version, whose windows counted rows
            if np.shape(snapshot[name]) != array.shape:
                raise TimeError(
                    "HR-T024", f"a snapshot of another estimator ({name})", hint="use equal arguments"
                )
            array[:] = snapshot[name]
        self._clock, self._now = int(snapshot["clock"]), int(snapshot["now"])


def _memory(shape: tuple[int, ...], adaptivity: Adaptivity | None, tick: int) -> tuple[npt.NDArray[Any], ...]:
    """δ_win, num, W, the counters of adaptive adaptivity, and the last tick of each stream if W is a time.

    Almost empty if not adaptive.
    """
    held = shape if adaptivity is not None else (0, 0, 0)
    window = np.zeros(held, dtype=np.int64)
    count, limit, hits, trials, falls = (np.zeros(held, dtype=np.int32) for _ in range(5))
    in_time = adaptivity is not None and adaptivity.in_time
    last = np.full(shape[0] if in_time else 0, MIN_TIME, dtype=np.int64)
    if adaptivity is not None:
        steps = adaptivity.window // tick if in_time else adaptivity.window
        limit[:] = min(steps, np.iinfo(np.int32).max - 1)
    return window, count, limit, hits, trials, falls, last
