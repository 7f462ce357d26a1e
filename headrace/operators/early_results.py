"""Aggregates that answer a closed group at once, before its window or session ends (Tucker & Maier, §2).

Their results leave in any order of time, but later than every heartbeat that has left. They are used for
queries that allow it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Ints, Times
from headrace.flow.batch import Batch
from headrace.kernels.hashing import EMPTY
from headrace.operators.session_aggregate import MergingSessionsOperator
from headrace.operators.state.open_sessions import OpenMergingSessions
from headrace.operators.ticks import tick_after
from headrace.plan.nodes.early import EarlyWindows
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


class EarlySessionsOperator(MergingSessionsOperator):
    """Sessions of closed groups are over: no row can extend them, and none can begin another.

    A punctuation must be about the columns that define sessions. With a limit on time it ends the sessions
    that end by then.
    """

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        if not set(punctuation.columns) <= set(self._plan.partition_keys):
            return None
        assert isinstance(self._sessions, OpenMergingSessions)
        sessions = self._sessions.of_groups(self._groups.matching(punctuation))
        if punctuation.until != MAX_TIME:
            sessions = sessions[self._end_of(sessions) <= punctuation.until]
        if len(sessions):
            self.emit(self._closed(sessions[np.argsort(self._end_of(sessions), kind="stable")]))
        if self._sessions.none_open:
            self._forget()
        return self._passed(punctuation)

    def _forget(self) -> None:
        """Drop the ends of sessions that were answered early, too: nothing waits for them."""
        super()._forget()
        self._ends.discard(1, EMPTY)

    def _passed(self, punctuation: Punctuation) -> Punctuation | None:
        """A session that ends after the limit on time may still be reported, just before its end."""
        return punctuation if punctuation.until == MAX_TIME else None


class EarlyWindowsOperator(EarlySessionsOperator):
    """Windows as sessions of rows with the same time: the last tick of the window that a row is in.

    A row costs one probe and one addition per partial value, a window one line for each group in it. Rows of
    windows that are over are dropped; their source has already reported them.
    """

    _plan: EarlyWindows  # type: ignore[assignment]

    def _take_in(self, batch: Batch) -> None:
        window = self._plan.window
        ticks = ((batch.start - window.shift) // window.slide + 1) * window.slide + window.shift - 1
        kept = ticks > self.frontier
        data = batch.data if kept.all() else batch.data.filter(pa.array(kept))
        moved = Batch(data, ticks[kept])
        if len(moved):
            self._gather(moved, self._codes(moved))

    def map_heartbeat(self, heartbeat: int) -> int:
        """Nothing comes out between two ticks: the output's heartbeat is just before the next one."""
        if heartbeat in (MIN_TIME, MAX_TIME):
            return heartbeat
        return tick_after(heartbeat, self._plan.window.ticks) - 1

    def _bounds(self, sessions: Ints) -> tuple[Times, Times]:
        ends = self._end_of(sessions) + 1
        return ends - self._plan.window.size, ends

    def _results(self, data: pa.RecordBatch, ends: Times) -> Batch:
        lasts = self._plan.window.slide - 1
        return Batch(data, ends - 1, np.minimum(ends, MAX_TIME - lasts) + lasts)
