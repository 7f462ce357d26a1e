"""One stream of NEXMark as a source: rows in order of arrival, the same from any position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.connectors.conform import fit
from headrace.connectors.contract import Block, Position, Span
from headrace.connectors.nexmark.generator import STREAMS, NexmarkGenerator
from headrace.errors import ConnectorError
from headrace.schema import Schema

EVENTS: Final = 20_000
"""A block covers about the time in which this many events, of all streams, happen."""


@dataclass
class NexmarkSource:
    """The rows of `stream` among the first `events` of an auction house; None: endless.

    A position is the instant up to which rows have arrived.
    """

    house: NexmarkGenerator
    stream: str
    schema: Schema
    events: int | None = None

    def __post_init__(self) -> None:
        known = STREAMS[self.stream].schema.names
        missing = next((name for name in self.schema.names if name not in known), None)
        if missing is not None:
            raise ConnectorError(
                "HR-C003",
                f"the NEXMark stream {self.stream} has no column {missing!r}",
                place=self.stream,
                hint=f"columns: {', '.join(known)}",
            )
        laws = self.house.laws
        self._at = laws.base
        self._width = max(1, EVENTS * laws.delay.numerator // laws.delay.denominator)
        self._end: int | None = None
        if self.events is not None:
            last = int(laws.times(np.array([max(self.events - 1, 0)], np.int64))[0])
            self._end = last + self.house.arrival.longest + 1

    @property
    def bounded(self) -> bool:
        return self._end is not None

    @property
    def ended(self) -> bool:
        return self._end is not None and self._at >= self._end

    def read(self) -> Block | None:
        while not self.ended:
            begin, self._at = self._at, self._at + self._width
            rows = self.house.arriving(begin, self._at)[self.stream]
            mine = np.ones(len(rows), np.bool_) if self.events is None else rows.positions < self.events
            if mine.any():
                data = fit(rows.data.filter(pa.array(mine)), self.schema).data
                return Block(data, (), rows.arrivals[mine])
        return None

    def position(self) -> Position:
        return {"at": self._at}

    def seek(self, position: Position, span: Span | None = None) -> None:
        self._at = position["at"]

    def close(self) -> None:
        return None
