"""One input stream: its source, and the blocks that are read but not yet pushed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.connectors.contract import Bad, Position, Source, Span, Times
from headrace.errors import ConnectorError
from headrace.runtimes.embedded.timing import Timed, Timing, running_newest
from headrace.schema import Schema
from headrace.time.row_promises import ticks_of
from headrace.time.timestamp import MIN_TIME


@dataclass(frozen=True)
class Piece:
    """Rows of a stream to push at one instant, bad input that came with them, and how many rows were shed."""

    stream: str
    data: pa.RecordBatch
    times: pa.Array | None
    bad: tuple[Bad, ...] = ()
    shed: int = 0

    def __len__(self) -> int:
        return int(self.data.num_rows)


@dataclass
class Loaded:
    """A block with its times and arrivals, its position in the source, and how many rows were taken."""

    timed: Timed
    arrival: Times
    bad: tuple[Bad, ...]
    begin: Position
    span: Span | None
    before: int
    taken: int = 0
    bad_taken: int = 0

    @property
    def left(self) -> int:
        """The number of rows not yet taken."""
        return len(self.arrival) - self.taken


class Inflow:
    """The rows of a source in order, each with the instant of its arrival; rows are taken up to an instant.

    The arrival comes from the source or from a column if there is one, else it is the newest time of the
    stream so far. Arrivals never go back; with a `grain` they are rounded up to a multiple of it.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        schema: Schema,
        timing: Timing | None,
        *,
        arrival: str | None = None,
        arrival_unit: int | None = None,
        grain: int = 1,
        keep_open: bool = False,
    ) -> None:
        self.name, self.source, self.schema, self.timing = name, source, schema, timing
        self.keep_open = keep_open
        self._arrival, self._arrival_unit, self._grain = arrival, arrival_unit, grain
        self._newest = MIN_TIME
        self.loaded: deque[Loaded] = deque()
        self.rows = 0

    @property
    def exhausted(self) -> bool:
        """Whether all rows are taken and no more will come."""
        return not self.loaded and self.source.ended

    @property
    def recorded(self) -> int | None:
        """The newest recorded arrival of the rows that were read; None if arrivals are not recorded."""
        return None if self._arrival is None or self._newest == MIN_TIME else self._newest

    def load(self) -> bool:
        """Read one more block; false if there was none."""
        begin = self.source.position()
        block = self.source.read()
        if block is None:
            return False
        timed, arrival = self._timed(block.data, block.arrival)
        before = self._newest
        if len(arrival):
            self._newest = int(arrival[-1])
        self.loaded.append(Loaded(timed, arrival, (*block.bad, *timed.bad), begin, block.span, before))
        return True

    def _timed(self, data: pa.RecordBatch, given: Times | None) -> tuple[Timed, Times]:
        """The rows with their times, and the arrival of each row, which never decreases."""
        arrival = given
        if self._arrival is not None:
            column = data.column(data.schema.get_field_index(self._arrival))
            ticks, known = ticks_of(column, self._arrival_unit)
            arrival = np.where(known, ticks, MIN_TIME)
        if arrival is not None:
            data = data.append_column("\0arrival", pa.array(arrival))
        timed = self._times(data)
        if arrival is not None:
            given = timed.data.column(timed.data.num_columns - 1).to_numpy()
            arrival = running_newest(given, np.ones(len(given), np.bool_), self._newest)
        else:
            arrival = running_newest(timed.ticks, timed.known, self._newest)
        if self._grain > 1:
            arrival = np.where(arrival == MIN_TIME, arrival, -(-arrival // self._grain) * self._grain)
        plain = timed.data.select(self.schema.names) if timed.data.schema != self.schema else timed.data
        return Timed(plain, timed.ticks, timed.known, timed.bad), arrival

    def _times(self, data: pa.RecordBatch) -> Timed:
        """The times of the rows; a stream without a time column has none."""
        if self.timing is not None:
            return self.timing.of(data)
        none = np.zeros(data.num_rows, np.int64)
        return Timed(data, none, none.astype(np.bool_))

    @property
    def first(self) -> int | None:
        """The arrival of the next row; None if no row is loaded."""
        block = next((b for b in self.loaded if b.left), None)
        return None if block is None else int(block.arrival[block.taken])

    @property
    def last(self) -> int | None:
        """The arrival of the last row that is loaded."""
        block = next((b for b in reversed(self.loaded) if b.left), None)
        return None if block is None else int(block.arrival[-1])

    @property
    def bad(self) -> bool:
        """Whether there is bad input to take."""
        return any(len(block.bad) > block.bad_taken for block in self.loaded)

    def take(self, until: int) -> list[Piece]:
        """The rows that arrive at `until` or before, and the bad input of their blocks."""
        pieces = []
        while self.loaded:
            block = self.loaded[0]
            stop = int(np.searchsorted(block.arrival, until, side="right"))
            pieces.append(self._piece(block, max(stop, block.taken)))
            if block.left:
                break
            self.loaded.popleft()
        return [piece for piece in pieces if len(piece) or piece.bad]

    def _piece(self, block: Loaded, stop: int) -> Piece:
        """Take the rows up to `stop`, and all bad input of the block that is still left."""
        begin, timed = block.taken, block.timed
        bad = block.bad[block.bad_taken :]
        block.taken, block.bad_taken = stop, len(block.bad)
        self.rows += stop - begin
        times = None if self.timing is None else timed.times.slice(begin, stop - begin)
        return Piece(self.name, timed.data.slice(begin, stop - begin), times, bad)

    def position(self) -> dict[str, Any]:
        """The position to continue from; within a block, its position and the number of rows taken."""
        if not self.loaded:
            return {"at": self.source.position(), "newest": self._newest}
        block = self.loaded[0]
        at = {"at": block.begin, "newest": block.before}
        if not block.taken and not block.bad_taken:
            return at
        return at | {"block": {"span": block.span, "rows": block.taken, "bad": block.bad_taken}}

    def seek(self, position: dict[str, Any]) -> None:
        """Continue from a `position`: read the block again and skip the rows that were taken."""
        taken = position.get("block")
        self.source.seek(position["at"], None if taken is None else taken["span"])
        self.loaded.clear()
        self._newest = position["newest"]
        if taken is None:
            return
        block = self.loaded[0] if self.load() else None
        if block is None or len(block.arrival) < taken["rows"] or len(block.bad) < taken["bad"]:
            raise ConnectorError(
                "HR-C002",
                f"the input has changed: {taken['rows']} rows and {taken['bad']} bad rows of a block were "
                "already processed, and the block now has fewer",
                place=f"streams.{self.name}",
                hint="restore the input, or delete the checkpoint and the outputs to start over",
            )
        block.taken, block.bad_taken = taken["rows"], taken["bad"]
        if not block.left and not self.bad:
            self.loaded.popleft()

    def close(self) -> None:
        self.source.close()
