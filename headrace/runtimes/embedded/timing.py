"""The times of rows: a column in some unit, converted to ticks; rows with impossible times are rejected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.connectors.conform import row_texts
from headrace.connectors.contract import Bad, Code, Times, shown
from headrace.time.row_promises import ticks_of
from headrace.time.timestamp import FARTHEST, MIN_TIME

TOO_EARLY = (
    "column {column}: time {tick} is before the earliest allowed time {limit}; check the unit of the column"
)
TOO_LATE = (
    "column {column}: time {tick} is after the latest allowed time {limit}; check the unit of the column"
)


@dataclass(frozen=True)
class Timed:
    """Rows with their ticks; a row without a time has 0 and is not `known`."""

    data: pa.RecordBatch
    ticks: Times
    known: npt.NDArray[np.bool_]
    bad: tuple[Bad, ...] = ()

    @cached_property
    def times(self) -> pa.Array:
        """The times for the engine: null where a row has none."""
        return pa.array(self.ticks, mask=None if self.known.all() else ~self.known)


@dataclass(frozen=True)
class Timing:
    """How to compute the times of a stream: the column, its units per second (None: ticks), and the limits.

    `columns` are those of the stream: the data may have more, which a rejected row does not show.
    """

    column: str
    unit: int | None
    columns: tuple[str, ...]
    earliest: int | None = None
    latest: int | None = None

    def of(self, data: pa.RecordBatch) -> Timed:
        """The rows with their times; those outside the limits are bad."""
        ticks, known = ticks_of(data.column(data.schema.get_field_index(self.column)), self.unit)
        outside = np.zeros(len(ticks), np.bool_)
        if self.earliest is not None:
            outside |= known & (ticks < self.earliest)
        if self.latest is not None:
            outside |= known & (ticks > self.latest)
        if not outside.any():
            return Timed(data, ticks, known)
        bad = tuple(self._implausible(data, int(i), int(ticks[i])) for i in np.flatnonzero(outside))
        kept = data.filter(pa.array(~outside))
        return Timed(kept, ticks[~outside], known[~outside], bad)

    def _implausible(self, data: pa.RecordBatch, i: int, tick: int) -> Bad:
        """The rejected row i, whose time is before the earliest or after the latest allowed time."""
        early = self.earliest is not None and tick < self.earliest
        text, limit = (TOO_EARLY, self.earliest) if early else (TOO_LATE, self.latest)
        reason = text.format(column=self.column, tick=tick, limit=limit)
        return Bad(Code.IMPLAUSIBLE, reason, shown(row_texts(data.slice(i, 1).select(self.columns))[0]))


def running_newest(ticks: Times, known: npt.NDArray[np.bool_], before: int) -> Times:
    """The greatest time so far at each row, which is its arrival if rows arrive in order of time."""
    if not len(ticks):
        return ticks
    if not known.all() or int(ticks.max()) >= FARTHEST:
        ticks = np.where(known & (ticks < FARTHEST), ticks, MIN_TIME)
    newest: Times = np.maximum.accumulate(ticks)
    return newest if newest[0] >= before else np.maximum(newest, before)
