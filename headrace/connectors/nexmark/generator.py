"""The generator: from positions to rows with event times and arrival instants, stream by stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask
from headrace.connectors.nexmark.draws import Numbers, below, draw, high, key, low
from headrace.connectors.nexmark.entities import (
    AUCTION_SCHEMA,
    BID_SCHEMA,
    PERSON_SCHEMA,
    auctions,
    bids,
    persons,
)
from headrace.connectors.nexmark.laws import ALL, AUCTIONS, MILLISECOND, PERSONS, Laws
from headrace.errors import InputError
from headrace.schema import Schema

# When events arrive, and in which order: disorder, delays, silence.
#
# All three are functions of the event's number and stream, so that a run can resume anywhere.


STRIDE: Final = 953


@dataclass(frozen=True)
class Silence:
    """A stream that is silent in [begin, end), in ticks since the first event.

    Its rows from that time are lost or, if `held`, all arrive late, at the end.
    """

    stream: str
    begin: int
    end: int
    held: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end:
            raise InputError(
                "HR-I110", f"the silence [{self.begin}, {self.end}) is not valid", hint="use 0 <= begin < end"
            )


@dataclass(frozen=True)
class Arrival:
    """How rows arrive: the p-th event to arrive is number `number(p)`, at the instant `instant`.

    `disorder` is the size of the groups of events inside which the order is scattered (1: none): p-th to
    arrive is ⌊p/n⌋·n + (953·p mod n). A share `delayed` of all events comes up to `delay` ticks later
    still.
    """

    seed: int
    laws: Laws
    disorder: int = 1
    delayed: float = 0.0
    delay: int = 3_000_000
    silences: tuple[Silence, ...] = ()

    def __post_init__(self) -> None:
        if self.disorder < 1 or (self.disorder > 1 and self.disorder % STRIDE == 0):
            hint = f"use a number of at least 1 that is not a multiple of {STRIDE}"
            raise InputError("HR-I110", f"disorder = {self.disorder} is not valid", hint=hint)
        if not 0 <= self.delayed <= 1 or not 0 < self.delay < 2**32:
            raise InputError(
                "HR-I110",
                f"delayed = {self.delayed} with delay = {self.delay} ticks is not valid",
                hint="use 0 <= delayed <= 1 and 0 < delay < 2^32",
            )

    def numbers(self, positions: Numbers) -> Numbers:
        """The numbers of the events that arrive at these positions: scattered within their group."""
        size = self.disorder
        return positions // size * size + positions * STRIDE % size if size > 1 else positions

    @property
    def slack(self) -> int:
        """How long after its turn an event arrives, so that no event arrives before it happens."""
        return -(-(self.disorder - 1) * self.laws.delay.numerator // self.laws.delay.denominator)

    def promised(self, position: int) -> int:
        """A lower bound on the times of events from this position on.

        Delayed and held rows can violate it.
        """
        first = np.array([position // self.disorder * self.disorder])
        return int(self.laws.times(first)[0])

    def instants(self, stream: str, positions: Numbers) -> tuple[Numbers, Mask]:
        """When the events at these positions arrive, and which of them arrive at all."""
        instants = self.laws.times(positions) + self.slack
        heard = np.ones(len(positions), np.bool_)
        for silence in self.silences:
            if silence.stream == stream:
                since = instants - self.laws.base
                quiet = (since >= silence.begin) & (since < silence.end)
                instants = np.where(quiet & silence.held, self.laws.base + silence.end, instants)
                heard &= ~quiet | silence.held
        return instants + self._delays(positions), heard

    def _delays(self, positions: Numbers) -> Numbers | int:
        """The extra delay of each event, in ticks."""
        if not self.delayed:
            return 0
        bits = draw(key(self.seed, "delay"), positions)
        return np.where(low(bits) < self.delayed * 2**32, 1 + below(high(bits), self.delay), 0)

    @property
    def longest(self) -> int:
        """The longest time after its turn at which an event can arrive."""
        held = sum(silence.end - silence.begin for silence in self.silences if silence.held)
        return self.slack + held + (self.delay + 1 if self.delayed else 0)

    @property
    def skew(self) -> int:
        """A bound on the skew: after a row with time τ, every later arrival has a time > τ − skew."""
        late = self.longest - self.slack
        if not self.slack and not late:
            return 1
        return self.slack + (self.slack + late if late else 0) + MILLISECOND + 1


Make = Callable[[int, Laws, Numbers, Numbers], pa.RecordBatch]


@dataclass(frozen=True)
class Stream:
    """One of the three streams.

    Its columns, its place in each group of 50 events, and how its rows are made.
    """

    schema: Schema
    first: int
    beyond: int
    make: Make


STREAMS: Final[dict[str, Stream]] = {
    "person": Stream(PERSON_SCHEMA, 0, PERSONS, persons),
    "auction": Stream(AUCTION_SCHEMA, PERSONS, PERSONS + AUCTIONS, auctions),
    "bid": Stream(BID_SCHEMA, PERSONS + AUCTIONS, ALL, bids),
}
TIME_COLUMN: Final = "date_time"


@dataclass(frozen=True)
class Rows:
    """Rows of one stream: their times (also in `date_time`), arrival instants and positions."""

    data: pa.RecordBatch
    times: Numbers
    arrivals: Numbers
    positions: Numbers

    def __len__(self) -> int:
        return len(self.times)


class NexmarkGenerator:
    """Events by number: the same seed gives the same event n, regardless of how many are requested at once.

    `disorder` is the size of the groups of events that arrive scattered, `delayed` the share of events
    that come up to `delay` ticks late, `silences` the times at which a stream is silent. `rate` and all
    other parameters are in `laws`. Times are microseconds since 1970.
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
                raise InputError(
                    "HR-I110",
                    f"the stream {silence.stream!r} does not exist",
                    hint=f"streams: {', '.join(STREAMS)}",
                )
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
        """The skew bound δ of every stream on every other, and on itself (Srivastava & Widom, §2)."""
        return self.arrival.skew

    def promised(self, position: int) -> int:
        """A lower bound on the times of rows from this position on, if none is delayed or held."""
        return self.arrival.promised(position)

    def _rows(self, stream: str, positions: Numbers, within: tuple[int, int] | None = None) -> Rows:
        """The rows of one stream among these positions.

        With `within`, those that arrive in that interval, sorted.
        """
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
