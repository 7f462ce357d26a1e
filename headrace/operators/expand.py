"""A copy of each row for each window that holds it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.flow.batch import Batch, Times, sort_by_start
from headrace.operators.contract import Stateless
from headrace.plan.ordering import Expand
from headrace.plan.windows import Sliding

Counts = npt.NDArray[np.int64]


class ExpandOperator(Stateless):
    """The copy for window [kS − T, kS) has the time kS − 1, at or after the row's own."""

    def __init__(self, plan: Expand) -> None:
        super().__init__()
        self._window = plan.window

    def apply(self, batch: Batch) -> Batch:
        first, copies = windows_of(batch.start, self._window)
        rows = np.repeat(np.arange(len(batch)), copies)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
        copied = batch.take(rows)
        times = (np.repeat(first, copies) + nth) * self._window.slide - 1
        return sort_by_start(Batch(copied.data, times, arrival=copied.arrival))


def windows_of(times: Times, window: Sliding) -> tuple[Counts, Counts]:
    """For each time, the least k with the time in [kS − T, kS), and how many such k there are."""
    first = times // window.slide + 1
    last = (times + window.size) // window.slide
    return first, np.maximum(last - first + 1, 0)
