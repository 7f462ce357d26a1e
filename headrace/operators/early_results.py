"""Aggregates that answer a group as soon as it is complete: its results leave out of order.

A punctuation that closes a group answers it at once, before its window or session ends (Tucker & Maier, §2).
Where each group has one source and its stream has bounds for each source, a window is answered when it is
over for this source: a silent source delays no other group. Results are later than every heartbeat that has
left. Such operators are used for queries that allow it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Ints, Times
from headrace.flow.batch import Batch
from headrace.kernels.hashing import EMPTY
from headrace.operators.group_progress import GroupProgress
from headrace.operators.order import no_label
from headrace.operators.session_aggregate import MergingSessionsOperator
from headrace.operators.state.open_sessions import OpenMergingSessions
from headrace.operators.ticks import tick_after
from headrace.plan.nodes.early import EarlyWindows
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import FARTHEST, MAX_TIME, MIN_TIME


class EarlySessionsOperator(MergingSessionsOperator):
    """Sessions of closed groups are over: no row can extend them, and none can begin another.

    A punctuation must be about the columns that define sessions. With a limit on time it ends the sessions
    that end by then.
    """

    progress: GroupProgress | None = None
    """How far the source of each group is; None if all groups wait for all sources."""

    @property
    def more(self) -> bool:
        return super().more or self._may_progress

    @property
    def _may_progress(self) -> bool:
        """Whether sources are further than when they were last looked at. A label waits for whole streams."""
        return self.progress is not None and self.label is no_label and self.progress.news

    def execute(self, limit: int) -> int:
        taken = super().execute(limit)
        if self._may_progress:
            self._answer_by_source()
        return taken

    def _answer_by_source(self) -> None:
        """Answer the sessions that are over for the source of their group."""
        assert self.progress is not None
        complete = self.progress.complete(self._groups, self._last_end)
        if complete is None:
            return
        sessions = np.flatnonzero(self._sessions.table["group"][: self._sessions.next] != EMPTY)
        groups = self._sessions.table["group"][sessions]
        self._answer_now(sessions[self._end_of(sessions) <= complete[groups]])

    def _last_end(self, times: Times) -> Times:
        """The last instant up to these times at which a session may end."""
        return times

    def _answer_now(self, sessions: Ints) -> None:
        """Answer these sessions before all others that end at the same time are over."""
        if len(sessions):
            self.emit(self._closed(sessions[np.argsort(self._end_of(sessions), kind="stable")]))
        if self._sessions.none_open:
            self._forget()

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        if not set(punctuation.columns) <= set(self._plan.partition_keys):
            return None
        assert isinstance(self._sessions, OpenMergingSessions)
        sessions = self._sessions.of_groups(self._groups.matching(punctuation))
        if punctuation.until != MAX_TIME:
            sessions = sessions[self._end_of(sessions) <= punctuation.until]
        self._answer_now(sessions)
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

    def _last_end(self, times: Times) -> Times:
        window = self._plan.window
        known = np.clip(times, -FARTHEST, FARTHEST)
        ends: Times = (known + 1 - window.shift) // window.slide * window.slide + window.shift - 1
        return ends

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
