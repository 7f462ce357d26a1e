"""Auctions: what is for sale, by whom and for how long."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.nexmark.draws import Bits, Numbers, below, draw, high, key, low
from headrace.connectors.nexmark.laws import (
    ALL,
    AUCTIONS,
    BATCH,
    CATEGORIES,
    FIRST_CATEGORY,
    FIRST_ID,
    LEAD,
    MILLISECOND,
    Laws,
    last_auction,
    last_person,
)
from headrace.connectors.nexmark.price import prices
from headrace.connectors.nexmark.text import extra, name, pool

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("item_name", pa.string()),
        ("description", pa.string()),
        ("initial_bid", pa.int64()),
        ("reserve", pa.int64()),
        ("date_time", pa.timestamp("us")),
        ("expires", pa.timestamp("us")),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
NUMBERS_BYTES: Final = 48


def auctions(seed: int, laws: Laws, numbers: Numbers, times: Numbers) -> pa.RecordBatch:
    """The auctions that the events `numbers` are."""
    what, told, first, more, rest = (
        draw(key(seed, f"auction {each}"), numbers) for each in ("what", "told", "first", "more", "rest")
    )
    spaced = pool(seed, " ")
    item, description = name(spaced, what, 20), name(spaced, told, 100)
    initial = prices(first)
    used = NUMBERS_BYTES + pc.binary_length(item).to_numpy() + pc.binary_length(description).to_numpy()
    columns = [
        FIRST_ID + last_auction(numbers),
        item,
        description,
        initial,
        initial + prices(more),
        pa.array(times).view(pa.timestamp("us")),
        pa.array(times + _lengths(laws, numbers, times, low(rest))).view(pa.timestamp("us")),
        FIRST_ID + _sellers(laws, numbers, draw(key(seed, "auction seller"), numbers)),
        FIRST_CATEGORY + below(high(rest), CATEGORIES),
        extra(pool(seed), draw(key(seed, "auction extra"), numbers), used, laws.auction_bytes),
    ]
    return pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=SCHEMA)


def _lengths(laws: Laws, numbers: Numbers, times: Numbers, bits32: Bits) -> Numbers:
    """1 ms to twice the time in which as many auctions open as are in flight."""
    horizon = (laws.times(numbers + laws.in_flight * ALL // AUCTIONS) - times) // MILLISECOND
    return (1 + below(bits32, np.maximum(2 * horizon, 1))) * MILLISECOND


def _sellers(laws: Laws, numbers: Numbers, bits: Bits) -> Numbers:
    """The hot seller is the first person of the last batch."""
    hot = last_person(numbers) // BATCH * BATCH
    return np.where(below(low(bits), laws.hot_sellers) > 0, hot, some_person(laws, numbers, high(bits)))


def some_person(laws: Laws, numbers: Numbers, bits32: Bits) -> Numbers:
    """One of the active people, or one who is about to register."""
    people = last_person(numbers) + 1
    active = np.minimum(people, laws.active_people)
    return people - active + below(bits32, active + LEAD)
