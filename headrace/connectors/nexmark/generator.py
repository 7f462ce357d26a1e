"""The generator: positions in, rows with times and instants of arrival out, stream by stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.connectors.nexmark import auction, bid, person
from headrace.connectors.nexmark.arrival import Arrival, Silence
from headrace.connectors.nexmark.draws import Numbers
from headrace.connectors.nexmark.laws import ALL, AUCTIONS, PERSONS, Laws
from headrace.errors import InputError
from headrace.schema import Schema

Make = Callable[[int, Laws, Numbers, Numbers], pa.RecordBatch]


@dataclass(frozen=True)
class Stream:
    """One of the three streams: its columns, its place in each 50 events, and how its rows are made."""

    schema: Schema
    first: int
    beyond: int
    make: Make


STREAMS: Final[dict[str, Stream]] = {
    "person": Stream(person.SCHEMA, 0, PERSONS, person.persons),
    "auction": Stream(auction.SCHEMA, PERSONS, PERSONS + AUCTIONS, auction.auctions),
    "bid": Stream(bid.SCHEMA, PERSONS + AUCTIONS, ALL, bid.bids),
}
TIME_COLUMN: Final = "date_time"


@dataclass(frozen=True)
class Rows:
    """Rows of one stream: their times (also in `date_time`), the instants they arrive, their positions."""

    data: pa.RecordBatch
    times: Numbers
    arrivals: Numbers
    positions: Numbers

    def __len__(self) -> int:
        return len(self.times)


class NexmarkGenerator:
    """Events by number: the same seed gives the same event n, however many are asked for at once.

    `disorder` is the size of the groups of events that arrive scattered, `delayed` the share of events that
    come up to `delay` ticks late, `silences` the times at which a stream says nothing; `rate` and all else
    that may be chosen are in `laws`. Times are microseconds since 1970.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        rate: float | None = None,
        disorder: int = 1,
        delayed: float = 0.0,
        delay: int = 3_000_000,
        silences: tuple[Silence, ...] = (),
        laws: Laws | None = None,
    ) -> None:
        for silence in silences:
            if silence.stream not in STREAMS:
                raise InputError("HR-I110", f"no stream {silence.stream!r}", hint=", ".join(STREAMS))
        self.seed = seed
        given = laws or Laws()
        self.laws = given if rate is None else replace(given, rate=rate)
        self.arrival = Arrival(seed, self.laws, disorder, delayed, delay, silences)

    def batches(self, start: int, count: int) -> dict[str, Rows]:
        """The rows at the positions start … start + count − 1, in that order.

        That is the order of arrival, unless rows are delayed or held: use `arriving` then.
        """
        positions = np.arange(start, start + count, dtype=np.int64)
        return {stream: self._rows(stream, positions) for stream in STREAMS}

    def arriving(self, begin: int, end: int) -> dict[str, Rows]:
        """The rows that arrive at instants in [begin, end), in order of arrival."""
        first = self.laws.first_at(begin - self.arrival.longest)
        positions = np.arange(first, max(first, self.laws.first_at(end)), dtype=np.int64)
        return {stream: self._rows(stream, positions, (begin, end)) for stream in STREAMS}

    @property
    def skew(self) -> int:
        """The bound δ of every stream on every other, and on itself (Srivastava & Widom, §2)."""
        return self.arrival.skew

    def promised(self, position: int) -> int:
        """Rows from this position on have times of at least this, if none is delayed or held."""
        return self.arrival.promised(position)

    def _rows(self, stream: str, positions: Numbers, within: tuple[int, int] | None = None) -> Rows:
        of = STREAMS[stream]
        places = self.arrival.numbers(positions) % ALL
        positions = positions[(places >= of.first) & (places < of.beyond)]
        instants, taken = self.arrival.instants(stream, positions)
        if within is not None:
            taken &= (instants >= within[0]) & (instants < within[1])
        positions, instants = positions[taken], instants[taken]
        if within is not None:
            order = np.argsort(instants, kind="stable")
            positions, instants = positions[order], instants[order]
        numbers = self.arrival.numbers(positions)
        times = self.laws.times(numbers)
        return Rows(of.make(self.seed, self.laws, numbers, times), times, instants, positions)
