"""One stream with a finite past and a live continuation: the past is read to its end, then the live source.

The cut between them is exact. By time: with `until`, rows of the past before that instant count, and live
rows from it on, whatever else the two sources have. By position: the live source begins where its own keys
say, and both positions are in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from headrace.connectors.contract import Block, Position, Source, Span, Surveyed, empty
from headrace.schema import Schema
from headrace.time.row_promises import ticks_of

PAST: Final = "history"
LIVE: Final = "live"


@dataclass(frozen=True)
class Cut:
    """An instant: rows of the past before it count, and live rows from it on.

    `column` has the times, in units per second (None: ticks). Rows without a time are kept, so that they are
    rejected like any other.
    """

    column: str
    unit: int | None
    until: int

    def of(self, block: Block, part: str) -> Block:
        """The rows of a part that are on its side of the cut."""
        if not len(block):
            return block
        column = block.data.column(block.data.schema.get_field_index(self.column))
        ticks, known = ticks_of(column, self.unit)
        kept = ~known | ((ticks < self.until) if part == PAST else (ticks >= self.until))
        if kept.all():
            return block
        arrival = None if block.arrival is None else block.arrival[kept]
        return replace(block, data=block.data.filter(pa.array(kept)), arrival=arrival)


class HistoryThenLive:
    """Reads `history` to its end, and then `live`."""

    def __init__(self, history: Source, live: Source, schema: Schema, cut: Cut | None = None) -> None:
        self._parts = {PAST: history, LIVE: live}
        self._schema, self._cut = schema, cut
        self.part = PAST

    @property
    def bounded(self) -> bool:
        return self._parts[LIVE].bounded

    @property
    def ended(self) -> bool:
        return self.part == LIVE and self._parts[LIVE].ended

    def read(self) -> Block | None:
        block = self._parts[self.part].read()
        if block is None and self.part == PAST:
            if not self._parts[PAST].ended:
                return Block(empty(self._schema))  # not read to its end: the clock must not promise anything
            self.part = LIVE
            self._parts[PAST].close()
            block = self._parts[LIVE].read()
        if block is None:
            return None
        kept = block if self._cut is None else self._cut.of(block, self.part)
        return replace(kept, span={"part": self.part, "span": block.span})

    def position(self) -> Position:
        return {"part": self.part, **{name: part.position() for name, part in self._parts.items()}}

    def seek(self, position: Position, span: Span | None = None) -> None:
        """Continue in the part of the position; a block belongs to the part that it was read from."""
        self.part = position["part"]
        for name, part in self._parts.items():
            inside = span["span"] if span is not None and span["part"] == name else None
            if name == LIVE or self.part == PAST:
                part.seek(position[name], inside)
        if span is not None:
            self.part = span["part"]

    def close(self) -> None:
        for part in self._parts.values():
            part.close()


class HistoryThenSurveyed(HistoryThenLive):
    """With a live source that knows up to when it has been read, such as Kafka."""

    def read_until(self) -> int | None:
        """Nothing is known while the past is read."""
        live = self._parts[LIVE]
        return live.read_until() if self.part == LIVE and isinstance(live, Surveyed) else None


def history_then_live(history: Source, live: Source, schema: Schema, cut: Cut | None) -> Source:
    """One source of two."""
    kind = HistoryThenSurveyed if isinstance(live, Surveyed) else HistoryThenLive
    return kind(history, live, schema, cut)
