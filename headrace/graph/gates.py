"""What a row that comes late is too late for: the operators that have answered for its time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.flow.batch import Batch, concat, sort_by_start
from headrace.operators.expand import windows_of
from headrace.operators.loose_sessions import LooseSessionsOperator
from headrace.operators.order import OrderOperator
from headrace.plan.windows import Sliding

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Way = Callable[[Batch], Batch]
"""What becomes of rows between their source and a gate, at once."""


class Gate(ABC):
    """Where rows of a stream come to wait for a heartbeat.

    An answer counts as given once the heartbeats prove it could be, given yet or not: which rows are late
    depends on arrivals alone.
    """

    together = False
    """Whether the rows of an instant are judged together, whatever streams and pushes they come by."""

    def announce(self, batch: Batch) -> None:
        """Rows of this stream that are about to be judged."""
        return

    def judged(self) -> None:
        """All rows of the instant have been judged."""
        return

    @abstractmethod
    def missed(self, batch: Batch, now: int) -> tuple[Counts, Mask]:
        """How many answers each row is too late for, and whether one is left that it is in time for."""

    def settle(self, entering: Mask) -> None:
        """These of the rows just judged go in, for the sake of this gate or of another."""
        return


@dataclass(frozen=True)
class OrderGate(Gate):
    """Where rows are put in order: late is what comes after a heartbeat.

    With a `window`, a row counts once for each window that holds it, each answered at its own tick.
    """

    order: OrderOperator
    window: Sliding | None
    in_force: Callable[[int], int]

    def missed(self, batch: Batch, now: int) -> tuple[Counts, Mask]:
        frontier = max(self.order.frontier, self.in_force(now))
        if self.window is None:
            late = batch.start <= frontier
            return late.astype(np.int64), ~late
        first, copies = windows_of(batch.start, self.window)
        answered = (frontier + 1 - self.window.shift) // self.window.slide
        missed = np.clip(answered - first + 1, 0, copies)
        return missed, missed < copies


@dataclass
class SessionGate(Gate):
    """Where rows come to sessions: late is what would only make or extend one that is over.

    That depends on the sessions that are open and on the row's group, so the rows go the `ways` from the
    source to the operator beforehand. All rows of an instant are judged together, those of other streams
    that come to the same sessions too: a row is not late if one that came with it keeps its session open.
    """

    sessions: LooseSessionsOperator
    ways: list[Way]
    in_force: Callable[[int], int]
    together = True
    _announced: Batch | None = field(default=None, repr=False)
    _judged: tuple[Batch, Mask, Counts] | None = field(default=None, repr=False)

    def announce(self, batch: Batch) -> None:
        numbered = Batch(batch.data, batch.start, arrival=np.arange(len(batch)))
        self._announced = sort_by_start(concat([way(numbered) for way in self.ways]))
        self.sessions.announce(self._announced)

    def judged(self) -> None:
        self._announced = None
        self.sessions.announce(None)

    def missed(self, batch: Batch, now: int) -> tuple[Counts, Mask]:
        frontier = max(self.sessions.frontier, self.in_force(now))
        there, self._announced = self._announced, None
        assert there is not None
        late, codes = self.sessions.late(there, frontier)
        self._judged = there, late, codes
        rows = _numbers(there)
        missed = np.bincount(rows[late], minlength=len(batch)).astype(np.int64)
        alive = np.zeros(len(batch), np.bool_)
        alive[rows[~late]] = True
        return missed, alive

    def settle(self, entering: Mask) -> None:
        assert self._judged is not None
        there, late, codes = self._judged
        self._judged = None
        refused = late & entering[_numbers(there)]
        if refused.any():
            self.sessions.refuse(there.start[refused], codes[refused])


def _numbers(batch: Batch) -> npt.NDArray[Any]:
    assert batch.arrival is not None
    return batch.arrival
