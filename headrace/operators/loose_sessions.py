"""Sessions of rows in any order: late rows come to those that are open, as they do in Flink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.flow.batch import Batch, concat
from headrace.flow.state import Part
from headrace.operators.order import InputManager
from headrace.operators.session_aggregate import SessionAggregateOperator
from headrace.operators.sessions import MergingSessions
from headrace.plan.session import SessionAggregate

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class LooseSessionsOperator(InputManager, SessionAggregateOperator):
    """A row extends a session, joins two, or begins one; it is late if the outcome would be over already.

    Which rows are late is asked (`late`) when they arrive, before anything else has happened. The operator
    takes whatever comes to it then, except rows that it was told to `refuse`: another query takes those.
    """

    keeping = MergingSessions

    def __init__(self, plan: SessionAggregate) -> None:
        super().__init__(plan)
        self._refused = Refused()
        self._coming: list[Batch] = []

    def announce(self, batch: Batch | None) -> None:
        """Rows that come at this instant, before any is judged; None: all of them have been."""
        self._coming = [] if batch is None else [*self._coming, batch]

    def late(self, batch: Batch, frontier: int) -> tuple[Mask, Ints]:
        """Which rows of a batch come too late; and the code of each row's group.

        The rows are taken together with all others that were announced.
        """
        others = [each for each in self._coming if each is not batch]
        all_rows = concat([batch, *others]) if others else batch
        codes = self._codes(all_rows)
        assert isinstance(self._sessions, MergingSessions)
        late = self._sessions.late(all_rows.start, codes, len(self._groups), self._plan.gap, frontier)
        return late[: len(batch)], codes[: len(batch)]

    def refuse(self, times: Ints, codes: Ints) -> None:
        """Rows with these times and groups are on their way, and too late."""
        self._refused.add(times, codes)

    def _take_in(self, batch: Batch) -> None:
        codes = self._codes(batch)
        if len(self._refused):
            kept = self._refused.without(batch.start, codes)
            batch, codes = batch.filter(kept), codes[kept]
        if len(batch):
            self._gather(batch, codes)

    def _leaving(self, frontier: int) -> int:
        """A late row may begin a session that ends right after the frontier."""
        return self.map_heartbeat(frontier)

    def _awaited(self) -> Ints:
        return self._refused.codes()

    def _regroup(self, new: Ints) -> None:
        super()._regroup(new)
        self._refused.regroup(new)

    def state(self) -> dict[str, Part]:
        return {**super().state(), "refused": self._refused}


class Refused:
    """Rows on their way that are not to be taken, by time and group, with how many there are of each."""

    def __init__(self) -> None:
        self._count: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._count)

    def add(self, times: Ints, codes: Ints) -> None:
        """One more row of each."""
        for each in zip(times.tolist(), codes.tolist(), strict=True):
            self._count[each] = self._count.get(each, 0) + 1

    def without(self, times: Ints, codes: Ints) -> Mask:
        """Which rows are left; the others are counted off."""
        kept = np.ones(len(times), np.bool_)
        awaited = np.array(sorted({time for time, _ in self._count}), np.int64)
        for row in np.flatnonzero(np.isin(times, awaited)).tolist():
            each = (int(times[row]), int(codes[row]))
            left = self._count.get(each, 0)
            if left:
                kept[row] = False
                self._put(each, left - 1)
        return kept

    def _put(self, each: tuple[int, int], count: int) -> None:
        if count:
            self._count[each] = count
        else:
            del self._count[each]

    def codes(self) -> Ints:
        """The groups of the rows."""
        return np.array([code for _, code in self._count], np.int64)

    def regroup(self, new: Ints) -> None:
        """Groups have new codes."""
        self._count = {(time, int(new[code])): count for (time, code), count in self._count.items()}

    def bytes(self) -> int:
        return 200 * len(self._count)

    def changes(self, full: bool) -> Mapping[str, Any]:
        rows = [(*each, count) for each, count in self._count.items()]
        return {"rows": np.array(rows, np.int64).reshape(-1, 3)}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._count = {(time, code): count for time, code, count in chunk["rows"].tolist()}
