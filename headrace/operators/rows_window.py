"""Row windows: the n newest rows, of the stream or of each partition."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Ids, Indices
from headrace.flow.batch import Batch, concat, order_of
from headrace.operators.adaptable import Adaptable
from headrace.operators.content_order import by_content
from headrace.operators.contract import Operator, Stateless, Waiting
from headrace.operators.state.history import History
from headrace.operators.state.newest_rows import NewestRows, PendingRows, ResizedRows, is_true
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.core import Window
from headrace.plan.nodes.quality import bounds_of
from headrace.plan.nodes.windows import Rows, SlidingRows, Upserts
from headrace.state.part import Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME


def rows_window(plan: Window) -> Operator:
    """The operator of a row window: if rows are ordered by arrival, one that never waits."""
    never_waits = keeps_arrival_order(plan.input)
    if bounds_of(plan) is None:
        return (RowsWindowOperator if never_waits else OrderedRowsWindowOperator)(plan)
    return (AdaptableRowsOperator if never_waits else AdaptableOrderedRowsOperator)(plan)


class Displacing:
    """Each row starts at its time and is withdrawn at the time of the row that displaces it.

    A punctuation on partition keys alone passes, because a withdrawal has the keys of the row that causes it.
    If it holds forever, its partitions are forgotten. Any other punctuation is dropped: rows that match it
    may still be withdrawn.
    """

    def __init__(self, plan: Window) -> None:
        assert isinstance(plan.spec, Rows)
        bounds = bounds_of(plan)
        self.keys = frozenset(plan.spec.keys)
        self._deletes = plan.spec.deletes if isinstance(plan.spec, Upserts) else None
        self.history = None if bounds is None else History(bounds)
        self._resized = None if bounds is None else ResizedRows(plan.schema, plan.spec.keys)
        fixed = NewestRows(plan.schema, plan.spec.keys, plan.spec.count, self._deletes)
        self.newest = fixed if self._resized is None else self._resized
        slide = plan.spec.slide if isinstance(plan.spec, SlidingRows) else 1
        self._pending = None if slide == 1 else PendingRows(plan.schema, plan.spec.keys, slide)

    def displace(self, batch: Batch) -> Batch:
        """The insertions of some rows and the withdrawals that they cause, in order of time."""
        if self._pending is not None:
            batch = self._entering(self._pending, batch)
            if not len(batch):
                return Batch(batch.data, batch.start, batch.start)
        displaced, by = self._displaced(batch)
        came = Batch(batch.data, batch.start, np.full(len(batch), MAX_TIME), None, batch.arrival)
        out = self._stays(came)
        if len(by):
            out = _in_order(out, self._withdrawn(came, displaced, by))
        self.newest.tidy()
        return out

    def _displaced(self, batch: Batch) -> tuple[Ids, Indices]:
        """Add rows; the rows that they displace, and the positions of those that do."""
        if self._resized is None or self.history is None:
            return self.newest.push(batch.data)
        limits = self.history.of(batch.start)
        self.history.use(batch.last)
        return self._resized.push_under(batch.data, limits)

    def _entering(self, pending: PendingRows, batch: Batch) -> Batch:
        """The rows whose slide is complete, each at the time of the row that completes it."""
        released, by = pending.release_with(batch.data)
        arrival = None if batch.arrival is None else batch.arrival[by]
        entering = Batch(pending.rows.rows(released), batch.start[by], None, None, arrival)
        pending.tidy()
        return entering

    def state(self) -> dict[str, Part]:
        """What is in the window, and what waits for the end of its slide."""
        pending: dict[str, Part] = {} if self._pending is None else {"pending": self._pending}
        history: dict[str, Part] = {} if self.history is None else {"history": self.history}
        return {"rows": self.newest, **pending, **history}

    def held(self) -> tuple[int, int, int]:
        """What `ResizedRows.held` returns, of a window that may change."""
        assert self._resized is not None
        assert self.history is not None
        return self._resized.held(self.history.bounds.least)

    def _stays(self, came: Batch) -> Batch:
        """The rows that are in the window: those that delete are not."""
        return came if self._deletes is None else came.filter(~is_true(came.data.column(self._deletes)))

    def _withdrawn(self, came: Batch, ids: Indices, by: Indices) -> Batch:
        """The withdrawals of the rows `ids`; each happens at the time of the row at position `by`."""
        arrival = None if came.arrival is None else came.arrival[by]
        rows = self.newest.content(ids)
        return Batch(rows, came.start[by], np.full(len(by), MAX_TIME), np.full(len(by), -1, np.int8), arrival)

    def punctuate(self, punctuation: Punctuation) -> Punctuation | None:
        """The punctuation if it may be passed on, else None."""
        if not self.keys.issuperset(punctuation.columns):
            return None
        if punctuation.until == MAX_TIME:
            self.newest.close(punctuation)
            if self._pending is not None:
                self._pending.close(punctuation)
        return punctuation


class RowsWindowOperator(Stateless):
    """Row window over rows in the order of their source: answers at once, never waits."""

    order_sensitive = True

    def __init__(self, plan: Window) -> None:
        super().__init__()
        self._window = Displacing(plan)

    def apply(self, batch: Batch) -> Batch:
        return self._window.displace(batch)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return self._window.punctuate(punctuation)

    def state(self) -> dict[str, Part]:
        return self._window.state()


class OrderedRowsWindowOperator(Waiting):
    """Row window over rows in order of content within an instant: waits until the instant is complete."""

    def __init__(self, plan: Window) -> None:
        super().__init__()
        self._window = Displacing(plan)
        self._taken: list[Batch] = []

    def ingest(self, input: int, batch: Batch) -> None:
        self._taken.append(batch)

    def answer(self, frontier: int) -> Batch | None:
        taken, self._taken = self._taken, []
        return self._window.displace(by_content(concat(taken))) if taken else None

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return self._window.punctuate(punctuation)

    def state(self) -> dict[str, Part]:
        return self._window.state()


class AdaptableRows(Adaptable):
    """`[ROWS MIN …, MAX …]`: a row that comes leaves as many in its partition as are in force at its time."""

    _window: Displacing

    def __init__(self, plan: Window) -> None:
        super().__init__(plan)  # type: ignore[call-arg]
        assert self._window.history is not None
        self.history = self._window.history

    def held(self) -> tuple[int, int, int]:
        """How many rows it holds, how many partitions have the least number or more, and the other rows."""
        return self._window.held()


class AdaptableRowsOperator(AdaptableRows, RowsWindowOperator):
    """Over rows in the order of their source."""


class AdaptableOrderedRowsOperator(AdaptableRows, OrderedRowsWindowOperator):
    """Over rows in order of content within an instant."""


def _in_order(came: Batch, gone: Batch) -> Batch:
    """Both in order of start; at one instant, insertions before withdrawals."""
    both = concat([came, gone])
    return both.take(order_of(both.start))
