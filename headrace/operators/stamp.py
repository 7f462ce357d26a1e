"""Stamping latent rows with the instant at which an operator first needs one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.flow.batch import Batch
from headrace.operators.contract import Stateless
from headrace.plan.nodes.latent import Stamp
from headrace.time.timestamp import plus


class StampOperator(Stateless):
    """Times never decrease: a row gets the current instant, or a later one if that was already promised.

    Time begins here, so a waiting operator downstream demands its ETS here: the current instant, as on an
    internal stream.
    """

    makes_time = True

    def __init__(self, plan: Stamp, now: Callable[[], int]) -> None:
        super().__init__()
        self._now = now

    def apply(self, batch: Batch) -> Batch:
        stamp = max(self._now(), plus(self.promised, 1), plus(self.output.heartbeat, 1))
        return Batch(batch.data, np.full(len(batch), stamp, np.int64), arrival=batch.arrival)

    def demand(self, now: int) -> bool:
        if now <= self.promised:
            return False
        self.promised = now
        self.promise(now)
        return True
