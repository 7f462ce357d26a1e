"""Rates of streams in rows a tick of application time, from counts alone: no clock is looked at."""

from __future__ import annotations

from typing import Any

_KEPT = 64
_FEW = 64


class Arrivals:
    """How many rows had come when the newest had a time: pairs (time, rows), the oldest thinned out."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.newest: int | None = None
        self._times: list[int] = []
        self._counts: list[int] = []

    def note(self, rows: int, bytes: int, first: int, last: int) -> None:
        """Rows came, with times from `first` to `last`."""
        if self.newest is None:
            self.newest = first - 1
            self.mark()
        self.rows += rows
        self.bytes += bytes
        self.newest = max(self.newest, last)

    def mark(self) -> None:
        """Remember how many there are now."""
        if self.newest is None:
            return
        if self._times and self._times[-1] >= self.newest:
            self._counts[-1] = self.rows
            return
        self._times.append(self.newest)
        self._counts.append(self.rows)
        if len(self._times) > _KEPT:
            keep = [0, *range(2, _KEPT // 2, 2), *range(_KEPT // 2, len(self._times))]
            self._times = [self._times[i] for i in keep]
            self._counts = [self._counts[i] for i in keep]

    @property
    def first(self) -> int:
        """The time before the first row."""
        return self._times[0] if self._times else 0

    def rate(self, short: int, long: int) -> float:
        """Rows a tick of late: over the last `short` ticks or the last `long`, whichever is more.

        So a burst is seen at once, and its end when it is one. Few rows in a short time say nothing.
        """
        if not self._times:
            return 0.0
        elapsed = max(1, self._times[-1] - self._times[0])
        return max(self._over(long, long), *(self._over(h, min(h, elapsed), _FEW) for h in (short, long)))

    def _over(self, horizon: int, ticks: int, least: int = 0) -> float:
        """The rate of the last `horizon` ticks, of which `ticks` are known; 0 for fewer than `least` rows."""
        rows = self._since(horizon)
        return rows / ticks if rows >= least else 0.0

    def _since(self, horizon: int) -> float:
        """Rows of the last `horizon` ticks up to the last mark."""
        return self._counts[-1] - self._rows_by(self._times[-1] - horizon)

    def _rows_by(self, time: int) -> float:
        """How many rows had come by a time; between two marks they came evenly."""
        times, counts = self._times, self._counts
        if time <= times[0]:
            return 0.0 if time < times[0] else float(counts[0])
        at = next(i for i in range(len(times) - 1, -1, -1) if times[i] <= time)
        if at == len(times) - 1:
            return float(counts[at])
        share = (time - times[at]) / (times[at + 1] - times[at])
        return counts[at] + share * (counts[at + 1] - counts[at])

    def state(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "newest": self.newest,
            "times": self._times,
            "counts": self._counts,
        }

    @classmethod
    def of(cls, state: dict[str, Any]) -> Arrivals:
        """What `state` gave."""
        made = cls()
        made.rows, made.bytes, made.newest = state["rows"], state["bytes"], state["newest"]
        made._times, made._counts = list(state["times"]), list(state["counts"])
        return made
