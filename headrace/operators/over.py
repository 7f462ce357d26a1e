"""OVER: each row with aggregates of its frame, the rows of its partition up to it."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pyarrow as pa

from headrace.aggregates.instants.protocol import Layout, Steps
from headrace.arrays import Ints, Mask
from headrace.flow.batch import Batch, concat
from headrace.kernels.hashing import EMPTY
from headrace.kernels.newest import NONE
from headrace.operators import ticks
from headrace.operators.aggregate import AggregateOperator
from headrace.operators.content_order import by_content
from headrace.operators.contract import Operator
from headrace.operators.state.newest_rows import NewestRows
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.over import Over, RowsFrame
from headrace.state.part import Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME


def over(plan: Over) -> Operator:
    """The operator of an OVER, by its kind of frame."""
    return OverRowsOperator(plan) if isinstance(plan.frame, RowsFrame) else OverRangeOperator(plan)


class OverOperator(AggregateOperator):
    """Each row enters the frames of its partition, and leaves them later; what is kept is that of an
    aggregate, and a row is answered with the values after its own step.

    A row keeps its columns, so every punctuation passes; partitions that are closed are forgotten.
    """

    def __init__(self, plan: Over) -> None:
        super().__init__(plan.aggregate)
        self._schema = plan.schema
        self._taken: list[Batch] = []

    @abstractmethod
    def ingest(self, input: int, batch: Batch) -> None: ...

    def due(self) -> int:
        """Rows that leave change no answer that was given."""
        return MAX_TIME

    def _changes(self, steps: Steps) -> Batch | None:
        """The rows that came, in their order, with the values of their frames."""
        found = self._values.run(steps, len(self._groups))
        taken, self._taken = self._taken, []
        if not taken:
            return None
        batch = concat(taken)
        positions = np.empty(len(steps.order), np.int64)
        positions[steps.order] = steps.at
        own = pa.array(positions[: len(batch)])
        added = [each.make(found).take(own) for each in self._recipes]
        data = pa.RecordBatch.from_arrays([*batch.data.columns, *added], schema=self._schema)
        return batch.with_data(data)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        super().on_punctuation(input, punctuation)
        return punctuation


class OverRangeOperator(OverOperator):
    """Frames by time: a row leaves when the frame of its own time is over. Rows of one instant are one step,
    so it waits until the instant is complete.
    """

    def __init__(self, plan: Over) -> None:
        super().__init__(plan)
        self._preceding = plan.frame.preceding

    def ingest(self, input: int, batch: Batch) -> None:
        batch = by_content(batch) if self._sorts else batch
        self._taken.append(batch)
        AggregateOperator.ingest(self, input, Batch(batch.data, batch.start, self._leaving_at(batch.start)))

    def _leaving_at(self, times: Ints) -> Ints:
        """When rows of these times leave."""
        if self._preceding is None:
            return np.full(len(times), MAX_TIME)
        return ticks.add(times, self._preceding + 1)


class OverRowsOperator(OverOperator):
    """Frames by count: a row is displaced by a later one. Each row is a step of its own.

    If rows are ordered by arrival, it never waits; else it waits until the instant is complete.
    """

    def __init__(self, plan: Over) -> None:
        super().__init__(plan)
        self._sorts = not keeps_arrival_order(plan.input)
        self.eager = not self._sorts
        held = ("group", "nulls", "number", *self._layout.columns)
        self._places = (Layout.GROUP, Layout.NULLS, Layout.NUMBER, *range(Layout.FIXED, self._layout.width))
        self._fields = pa.schema([pa.field(f"{i} {name}", pa.int64()) for i, name in enumerate(held)])
        preceding = plan.frame.preceding
        self._held = None if preceding is None else NewestRows(self._fields, self._group_key, preceding + 1)

    @property
    def _group_key(self) -> list[str]:
        return [self._fields.names[0]]

    def ingest(self, input: int, batch: Batch) -> None:
        batch = by_content(batch) if self._sorts else batch
        self._taken.append(batch)
        self._starts.append(self._lines(Batch(batch.data, batch.start)))

    def _ended(self, starts: Ints, frontier: int) -> tuple[Ints, None]:
        """The rows that each new row displaces; times become the numbers of rows, so each is a step."""
        starts[:, Layout.TIME] = np.arange(len(starts))
        if self._held is None or not len(starts):
            return starts[:0], None
        columns = [pa.array(np.ascontiguousarray(starts[:, place])) for place in self._places]
        displaced = self._held.add(pa.RecordBatch.from_arrays(columns, schema=self._fields))
        by = np.flatnonzero(displaced != NONE)
        ends = np.zeros((len(by), self._layout.width), np.int64)
        for place, column in zip(self._places, self._held.rows.take(displaced[by]), strict=True):
            ends[:, place] = column.to_numpy()
        ends[:, Layout.TIME], ends[:, Layout.SIGN] = by, -1
        self._held.tidy()
        return ends, None

    def _forget_groups(self, keep: Mask) -> None:
        if self._held is not None:
            new = np.full(len(keep), EMPTY, np.int64)
            new[keep] = np.arange(np.count_nonzero(keep))
            self._held.remap(self._group_key[0], new)
        super()._forget_groups(keep)

    def _idle_groups(self) -> Ints:
        """Groups whose rows are held stay in memory."""
        return super()._idle_groups() if self._held is None else np.empty(0, np.int64)

    def _references(self) -> int:
        return 0 if self._held is None else len(self._held.rows)

    def _words(self, column: str) -> Ints:
        found = super()._words(column)
        if self._held is None:
            return found
        name = self._fields.names[self._places.index(self._layout.word(column))]
        return np.concatenate([found, self._held.values(name)])

    def state(self) -> dict[str, Part]:
        held: dict[str, Part] = {} if self._held is None else {"held": self._held}
        return {**super().state(), **held}
