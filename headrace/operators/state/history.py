"""The history of a window size or a grain: its values and since when (Cammert et al., §3.3)."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from headrace.arrays import Times
from headrace.plan.nodes.quality import Bounds
from headrace.state.part import Chunk
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Entries = tuple[tuple[int, int], ...]


class History:
    """Pairs (t, value) in order of t: rows with time ≥ t get the value, until the next pair.

    `answered` is the latest instant for which a value has been used. Changes apply only after it, so the past
    never changes.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.answered = MIN_TIME
        self._times = [MIN_TIME]
        self._values = [bounds.best]

    @property
    def entries(self) -> Entries:
        """All pairs so far, including planned changes."""
        return tuple(zip(self._times, self._values, strict=True))

    @property
    def value(self) -> int:
        """The newest value, in force already or planned."""
        return self._values[-1]

    @property
    def begun(self) -> bool:
        """Whether a value has been used."""
        return self.answered > MIN_TIME

    def at(self, time: int) -> int:
        """The value for rows of this time."""
        return self._values[bisect_right(self._times, time) - 1]

    def of(self, times: Times) -> Times:
        """The value for each time."""
        places = np.searchsorted(np.array(self._times, np.int64), times, side="right") - 1
        values: Times = np.array(self._values, np.int64)[places]
        return values

    def to_come(self) -> set[int]:
        """Every value that a future row may get."""
        first = bisect_right(self._times, self.answered) - 1
        return set(self._values[first:])

    def use(self, time: int) -> None:
        """Mark the values up to this time as used: they can no longer change."""
        if time < MAX_TIME:
            self.answered = max(self.answered, time)

    def change(self, at: int, value: int) -> None:
        """Change the value from `at` on; changes planned for later are dropped."""
        assert at > self.answered or not self.begun, (at, self.answered)
        keep = bisect_right(self._times, at - 1) if at > MIN_TIME else 0
        self._times, self._values = [*self._times[:keep], at], [*self._values[:keep], value]
        if keep and self._values[keep - 1] == value:
            self._times.pop()
            self._values.pop()

    def rebase(self, bounds: Bounds) -> None:
        """Use other bounds before any value was used: a value that was the best becomes the new best."""
        assert not self.begun
        best, self.bounds = self.bounds.best, bounds
        clamped = [min(max(value, bounds.least), bounds.most) for value in self._values]
        pairs = zip(self._values, clamped, strict=True)
        self._values = [bounds.best if value == best else kept for value, kept in pairs]

    def bytes(self) -> int:
        return 16 * len(self._times)

    def changes(self, full: bool) -> Chunk:
        return {
            "answered": self.answered,
            "times": np.array(self._times, np.int64),
            "values": np.array(self._values, np.int64),
        }

    def apply(self, chunk: Chunk) -> None:
        self.answered = chunk["answered"]
        self._times, self._values = chunk["times"].tolist(), chunk["values"].tolist()
