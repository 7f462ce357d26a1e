"""The arithmetic of NEXMark: the kind of each event, which ids exist at that point, and when it happens.

Of each 50 events the first is a person, the next three are auctions, the rest are bids.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from headrace.connectors.nexmark.draws import Numbers
from headrace.errors import InputError

PERSONS: Final = 1
AUCTIONS: Final = 3
BIDS: Final = 46
ALL: Final = PERSONS + AUCTIONS + BIDS
FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
BATCH: Final = 100
"""The hot auction, seller and bidder come from the last full batch of this many ids."""
LEAD: Final = 10
"""References may go this many ids beyond those that exist."""
LONGEST: Final = 800
"""Of the sizes of a row that can be asked for."""
SECOND: Final = 1_000_000
MILLISECOND: Final = 1_000


@dataclass(frozen=True)
class Laws:
    """The parameters of the generator; the defaults are Flink's.

    An ordinary auction of a bid is one of the last `in_flight`, an ordinary person one of the last
    `active_people`. A ratio of r means that the hot choice is taken with probability (r − 1) / r.
    """

    rate: float = 10_000
    base: int = 1_436_918_400 * SECOND
    hot_auctions: int = 2
    hot_sellers: int = 4
    hot_bidders: int = 4
    in_flight: int = 100
    active_people: int = 1000
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.rate <= SECOND * 1000:
            raise InputError(
                "HR-I110", f"the rate {self.rate} is not valid", hint="use a rate above 0 and at most 10^9"
            )
        least = min(self.hot_auctions, self.hot_sellers, self.hot_bidders, self.in_flight, self.active_people)
        if least < 1:
            raise InputError("HR-I110", "ratios and numbers of ids must be at least 1", hint="see Laws")
        if max(self.person_bytes, self.auction_bytes, self.bid_bytes) > LONGEST:
            raise InputError("HR-I110", "the size of a row is too large", hint=f"use at most {LONGEST} bytes")

    @property
    def delay(self) -> Fraction:
        """Ticks between two events."""
        return SECOND / Fraction(self.rate).limit_denominator(1_000_000)

    def times(self, numbers: Numbers) -> Numbers:
        """The times of events, in whole milliseconds: base + n × delay."""
        delay = self.delay
        ticks = numbers * delay.numerator // delay.denominator
        return self.base + ticks // MILLISECOND * MILLISECOND

    def first_at(self, time: int) -> int:
        """The number of the first event whose time is at least `time`."""
        ahead = max(0, -(-(time - self.base) // MILLISECOND) * MILLISECOND)
        return -(-ahead * self.delay.denominator // self.delay.numerator)


def last_person(numbers: Numbers) -> Numbers:
    """The newest person at the time of the event, counted from 0."""
    return numbers // ALL * PERSONS + np.minimum(numbers % ALL, PERSONS - 1)


def last_auction(numbers: Numbers) -> Numbers:
    """The newest auction at the time of the event, counted from 0; −1: none yet."""
    offset = np.minimum(numbers % ALL - PERSONS, AUCTIONS - 1)
    return numbers // ALL * AUCTIONS + np.maximum(offset, -1)
