"""What bound the data so far would have needed: to lose no row, 0.1 % of them, 1 % of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.time.arrivals import batch, skews
from headrace.time.histogram import BUCKETS, Floats, bucket, quantiles
from headrace.time.skew import Ints
from headrace.time.timestamp import MIN_TIME

SHARES = (0.0, 0.001, 0.01)


@dataclass(frozen=True)
class Needed:
    """Rows seen and, for each share of them that may be lost, the least bound behind the greatest time seen.

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
        """One line for all streams together, then one for each that has shown a row."""
        overall = self._line("all streams", self._counts.sum(axis=0), int(self._worst.max(initial=0)))
        lines = zip(self.streams, self._counts, self._worst, strict=True)
        return [overall, *(self._line(name, row, int(w)) for name, row, w in lines if row.any())]

    def _line(self, name: str, counts: Floats, worst: int) -> Needed:
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
        """Go on from a snapshot of the same streams."""
        self._counts[:] = 0.0
        self._counts[snapshot["stream"], snapshot["bucket"]] = snapshot["count"]
        self._worst[:] = snapshot["worst"]
        self._newest, self._clock = int(snapshot["newest"]), int(snapshot["clock"])


def best_fixed(times: Ints, lost: int) -> int:
    """The least single bound behind the greatest time seen that loses at most `lost` of these rows."""
    behind = np.sort(skews(times, MIN_TIME))
    return int(behind[len(behind) - 1 - lost]) if lost < len(behind) else 0
