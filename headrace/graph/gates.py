"""Decides for which operators a late row is too late: those that have answered for its time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.arrays import Counts, Mask
from headrace.flow.batch import Batch, concat, sort_by_start
from headrace.operators.expand import windows_of
from headrace.operators.order import InputManager
from headrace.operators.session_aggregate import MergingSessionsOperator
from headrace.plan.nodes.windows import Sliding

Way = Callable[[Batch], Batch]
"""Applies the operators between a source and a gate to rows."""


class Gate(ABC):
    """The place where rows of a stream wait for a heartbeat.

    An answer counts as given as soon as the heartbeats allow it, even if it is not out yet: so which rows are
    late depends on arrivals alone.
    """

    together = False
    """Whether the rows of an instant are judged together, even if they come from several streams and
    pushes."""

    def announce(self, batch: Batch) -> None:
        """Take note of rows of this stream that are about to be judged."""
        return

    def judged(self) -> None:
        """All rows of the instant have been judged."""
        return

    @abstractmethod
    def missed(self, batch: Batch, now: int) -> tuple[Counts, Mask]:
        """How many answers each row is too late for, and whether it is in time for another one."""

    def settle(self, entering: Mask) -> None:
        """Note which of the rows just judged go in, because of this gate or another one."""
        return


@dataclass(frozen=True)
class OrderGate(Gate):
    """Where rows are put in order: a row at or before the heartbeat is late.

    With a `window`, a row counts once for each window that holds it, each answered at its own tick.
    """

    order: InputManager
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


class OpenGate(Gate):
    """Where rows leave for a result at once and in any order: none is too late."""

    def missed(self, batch: Batch, now: int) -> tuple[Counts, Mask]:
        return np.zeros(len(batch), np.int64), np.ones(len(batch), np.bool_)


@dataclass
class SessionGate(Gate):
    """Where rows enter sessions: a row is late if it would only create or extend one that is over.

    That depends on the open sessions and on the row's group, so rows are first taken along the `ways` from
    the source to the operator. All rows of an instant are judged together, with those of other streams
    that enter the same sessions: a row is not late if one that came with it keeps its session open.
    """

    sessions: MergingSessionsOperator
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
