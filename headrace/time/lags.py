"""How far the rows of a stream are behind its newest row, counted in a histogram while it runs.

Buckets are an eighth of their value wide, so that a few hundred numbers cover microseconds to days. Rows that
are not behind cost nothing but a comparison.
"""

from __future__ import annotations

import numpy as np

from headrace.arrays import Ints, Times
from headrace.time.quantile import BUCKETS, bucket, upper
from headrace.time.timestamp import MIN_TIME

_EXACT, _WIDER = 64, 3
"""Up to 64 ticks each number has its bucket. Beyond, eight buckets of `headrace.time.quantile` are one."""
_SHIFT = _EXACT - (_EXACT >> _WIDER)


class Lags:
    """Counts rows by the least bound on disorder that would keep them from being late."""

    def __init__(self) -> None:
        self.rows = 0
        self._counts: Ints = np.zeros((BUCKETS >> _WIDER) + _SHIFT, np.int64)
        self._newest = self._before = self._seen = MIN_TIME

    def observe(self, times: Times, now: int, low: int) -> None:
        """Rows with these times, all of them at least `low`, came in at `now`."""
        if not len(times):
            return
        if now > self._seen:
            self._before, self._seen = self._newest, now
        self.rows += len(times)
        if low <= self._before:
            behind = times[times <= self._before]
            at = bucket(self._before - behind + 1)
            wide = np.where(at < _EXACT, at, (at >> _WIDER) + _SHIFT)
            self._counts += np.bincount(wide, minlength=len(self._counts))
        self._newest = max(self._newest, int(times.max()))

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs (bound, rows): so many rows need a bound of up to that; rows that need none come first."""
        used = np.flatnonzero(self._counts)
        last = np.where(used < _EXACT, used, ((used - _SHIFT + 1) << _WIDER) - 1)
        needed = upper(last)
        counts = self._counts[used]
        none = ((0, self.rows - int(counts.sum())),) if self.rows else ()
        return none + tuple(zip(needed.tolist(), counts.tolist(), strict=True))
