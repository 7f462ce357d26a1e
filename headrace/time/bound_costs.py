"""What a bound costs: for each candidate, the late rows, the delay of answers, and the error of windows.

It is computed from rows that have arrived. A row needs a bound of K − x + 1, where K is what was known before
its instant: the greatest time so far, or the clock before it. Under `strict`, x is the time of the row. Under
`admit`, x is the last tick of its window, because the row still counts if nothing was answered for it. So one
number for each row says under which bounds it is lost, and each candidate costs one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints, Times
from headrace.errors import TimeError
from headrace.time.timestamp import MIN_TIME

Floats = npt.NDArray[np.float64]
NEVER: Final = MIN_TIME
"""The instant of an answer that does not come before the last arrival."""


@dataclass(frozen=True)
class Arrived:
    """The rows of a stream in order of arrival: their times, when they arrived, and values (NaN for NULL)."""

    times: Times
    arrivals: Times
    values: Floats | None = None

    def __post_init__(self) -> None:
        if len(self.arrivals) != len(self.times) or (np.diff(self.arrivals) < 0).any():
            raise TimeError(
                "HR-T060",
                "arrivals must have one instant for each row and never go back",
                hint="sort the rows by arrival",
            )

    def __len__(self) -> int:
        return len(self.times)

    @staticmethod
    def in_order(times: Times, values: Floats | None = None) -> Arrived:
        """Rows of which only the order is known: the clock is the greatest time so far.

        A row behind it arrives a tick later, so that it is judged by all rows before it.
        """
        newest = np.maximum.accumulate(times) if len(times) else times
        return Arrived(times, np.maximum.accumulate(newest + (times < newest)), values)

    def slice(self, rows: slice) -> Arrived:
        """Some of the rows."""
        values = None if self.values is None else self.values[rows]
        return Arrived(self.times[rows], self.arrivals[rows], values)


@dataclass(frozen=True)
class Error:
    """The relative error of an aggregate: the mean over windows, and that of the worst window."""

    mean: float
    worst: float


@dataclass(frozen=True)
class Cost:
    """What one bound costs.

    `delay`: how long after the last tick of its window an answer comes, on average, and `delay_p99` the 99th
    percentile; None if no window was answered. An aggregate of a window that lost all rows has an error of 1.
    """

    bound: int
    rows: int
    late: int
    delay: float | None = None
    delay_p99: float | None = None
    count: Error | None = None
    sum: Error | None = None
    avg: Error | None = None

    @property
    def late_share(self) -> float:
        """The share of the rows that are late."""
        return self.late / self.rows if self.rows else 0.0


# What is known before a row: by the rows before its instant, or by the clock.


def _newest_before(arrived: Arrived) -> Times:
    """The greatest time of the rows that arrived at earlier instants."""
    if not len(arrived):
        return arrived.times
    before = np.concatenate(([MIN_TIME], np.maximum.accumulate(arrived.times)[:-1]))
    first = np.searchsorted(arrived.arrivals, arrived.arrivals, side="left")
    known: Times = before[first]
    return known


def _answered_by_rows(arrived: Arrived, ends: Times, bound: int) -> Times:
    """When windows with these ends are answered: when a row has come that is `bound` beyond."""
    newest = np.maximum.accumulate(arrived.times)
    at = np.searchsorted(newest, ends - 1 + bound, side="left")
    return np.where(at < len(newest), arrived.arrivals[np.minimum(at, len(newest) - 1)], NEVER)


def _clock_before(arrived: Arrived) -> Times:
    return arrived.arrivals - 1


def _answered_by_clock(arrived: Arrived, ends: Times, bound: int) -> Times:
    """When windows with these ends are answered: when the clock says so, up to the last arrival."""
    at = ends - 1 + bound
    return np.where(at <= arrived.arrivals[-1], at, NEVER)


@dataclass(frozen=True)
class Against:
    """What a bound is measured against."""

    known: Callable[[Arrived], Times]
    answered: Callable[[Arrived, Times, int], Times]


AGAINST: Final = {
    "newest": Against(_newest_before, _answered_by_rows),
    "clock": Against(_clock_before, _answered_by_clock),
}
"""`newest`: `disorder`, behind the newest row. `clock`: `latency`, behind the clock."""

LATE: Final[dict[str, Callable[[Times, Times], Times]]] = {
    "strict": lambda times, ends: times,
    "admit": lambda times, ends: ends - 1,
}
"""By what happens to late rows: what must not have been passed when a row comes."""


@dataclass(frozen=True)
class Replay:
    """How bounds are judged: tumbling windows of `window` ticks, against what, and which rows are lost."""

    window: int
    against: str = "newest"
    late: str = "strict"

    def __post_init__(self) -> None:
        if self.window < 1:
            raise TimeError("HR-T060", f"windows of {self.window} ticks", hint="1 tick or more")
        for given, known in ((self.against, AGAINST), (self.late, LATE)):
            if given not in known:
                raise TimeError("HR-T060", f"{given!r} is not known here", hint=f"use {' or '.join(known)}")

    def needs(self, arrived: Arrived) -> Ints:
        """For each row, the least bound under which it is not lost."""
        known = AGAINST[self.against].known(arrived)
        ends = (arrived.times // self.window + 1) * self.window
        x = LATE[self.late](arrived.times, ends)
        return np.where(known < x, 0, known - np.minimum(x, known) + 1)

    def costs(self, arrived: Arrived, bounds: Iterable[int]) -> list[Cost]:
        """What each of the bounds costs."""
        if not len(arrived):
            return [Cost(bound, 0, 0) for bound in bounds]
        windows = _Windows.of(arrived, self.window)
        needs = self.needs(arrived)
        return [self._cost(arrived, windows, needs, bound) for bound in bounds]

    def _cost(self, arrived: Arrived, windows: _Windows, needs: Ints, bound: int) -> Cost:
        lost = needs > bound
        answered = AGAINST[self.against].answered(arrived, windows.ends, bound)
        delays = (answered - (windows.ends - 1))[answered != NEVER]
        return Cost(
            bound,
            len(arrived),
            int(np.count_nonzero(lost)),
            float(delays.mean()) if len(delays) else None,
            float(np.quantile(delays, 0.99)) if len(delays) else None,
            *windows.errors(arrived.values, lost),
        )


@dataclass(frozen=True)
class _Windows:
    """The windows that have rows, and which one each row is in."""

    of_row: Ints
    ends: Times

    @staticmethod
    def of(arrived: Arrived, window: int) -> _Windows:
        numbers, of_row = np.unique(arrived.times // window, return_inverse=True)
        return _Windows(of_row, (numbers + 1) * window)

    def errors(self, values: Floats | None, lost: npt.NDArray[np.bool_]) -> Sequence[Error | None]:
        """The errors of count, and of sum and avg if there are values."""
        kept = ~lost
        count, counted = self._sum(np.ones(len(lost))), self._sum(kept.astype(np.float64))
        found = [_relative(counted, count), None, None]
        if values is None:
            return found
        known = ~np.isnan(values)
        plain = np.where(known, values, 0.0)
        total, summed = self._sum(plain), self._sum(plain * kept)
        n, left = self._sum(known.astype(np.float64)), self._sum((known & kept).astype(np.float64))
        found[1] = _relative(np.where(left > 0, summed, 0.0), total)
        with np.errstate(divide="ignore", invalid="ignore"):
            found[2] = _relative(np.where(left > 0, summed / left, 0.0), np.where(n > 0, total / n, 0.0))
        return found

    def _sum(self, of: Floats) -> Floats:
        """The sum in each window."""
        return np.bincount(self.of_row, weights=of, minlength=len(self.ends)).astype(np.float64)


def _relative(found: Floats, exact: Floats) -> Error:
    """The relative error; windows whose exact value is 0 are left out."""
    some = exact != 0
    if not some.any():
        return Error(0.0, 0.0)
    error = np.abs(found[some] - exact[some]) / np.abs(exact[some])
    return Error(float(error.mean()), float(error.max()))


def least_bound(needs: Ints, share: float) -> int:
    """The least bound that loses at most this share of the rows."""
    if not len(needs):
        return 0
    spare = int(share * len(needs))
    return (
        int(np.partition(needs, len(needs) - 1 - spare)[len(needs) - 1 - spare]) if spare < len(needs) else 0
    )


# Candidates: round numbers from a bound that loses many rows to one that loses none.


MOST: Final = 12
"""The greatest number of candidates that are chosen."""
_SECONDS: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18_000, 43_200, 86_400)
"""Round durations from a second to a day."""


def candidates(needs: Ints, per_second: int | None, most: int = MOST) -> list[int]:
    """Round bounds: from one that loses about half of the rows that are behind, to the least without loss."""
    behind = needs[needs > 0]
    if not len(behind):
        return [0]
    worst = int(behind.max())
    first = int(np.quantile(behind, 0.5))
    between = [bound for bound in _round(worst, per_second) if first <= bound < worst]
    step = -(-len(between) // max(1, most - 2))
    return sorted({0, worst, *between[:: max(1, step)]})


def _round(worst: int, per_second: int | None) -> list[int]:
    """Round numbers up to `worst`: 1, 2, 5, 10, … ticks or, from a second on, round durations."""
    second = per_second or 0
    small = [m * 10**k for k in range(19) for m in (1, 2, 5) if not second or m * 10**k < second]
    large = [s * second for s in _SECONDS] + [d * 86_400 * second for d in (2, 5, 10, 20, 50, 100)]
    return [each for each in sorted({*small, *(large if second else ())}) if each <= worst]
