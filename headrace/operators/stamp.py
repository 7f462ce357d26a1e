"""Stamping latent rows with the instant at which an operator first needs one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.flow.batch import Batch
from headrace.operators.contract import Stateless
from headrace.plan.latent import Stamp
from headrace.time.timestamp import MIN_TIME


class StampOperator(Stateless):
    """Times never decrease: a row is stamped now, or with the last stamp if the clock has not moved."""

    def __init__(self, plan: Stamp, now: Callable[[], int]) -> None:
        super().__init__()
        self._now = now
        self._last = MIN_TIME

    def apply(self, batch: Batch) -> Batch:
        self._last = max(self._last, self._now())
        stamps = np.full(len(batch), self._last, np.int64)
        return Batch(batch.data, stamps, arrival=batch.arrival)
