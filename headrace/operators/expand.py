"""A copy of each row for each window that holds it."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Counts, Times
from headrace.flow.batch import Batch, sort_by_start
from headrace.operators.contract import Stateless
from headrace.plan.analysis.ordering import Expand
from headrace.plan.nodes.windows import Sliding
from headrace.time.punctuation import Punctuation


class ExpandOperator(Stateless):
    """The copy for a window has the time of its answer, its last instant: at or after the row's own."""

    def __init__(self, plan: Expand) -> None:
        super().__init__()
        self._window = plan.window

    def apply(self, batch: Batch) -> Batch:
        first, copies = windows_of(batch.start, self._window)
        rows = np.repeat(np.arange(len(batch)), copies)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
        copied = batch.take(rows)
        times = (np.repeat(first, copies) + nth) * self._window.slide + self._window.shift - 1
        return sort_by_start(Batch(copied.data, times, arrival=copied.arrival))

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """It holds for the copies too: none is earlier than its row."""
        return punctuation


def windows_of(times: Times, window: Sliding) -> tuple[Counts, Counts]:
    """For each time, the first window that holds it, and how many do."""
    first = (times - window.shift) // window.slide + 1
    last = (times - window.offset) // window.slide + window.size // window.slide
    return first, np.maximum(last - first + 1, 0)
