"""The three entities of NEXMark: persons, auctions and bids, and how rows of each are made."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.nexmark.draws import Bits, Numbers, below, draw, extra, high, key, low, name, pool
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

AUCTION_SCHEMA: Final = pa.schema(
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
AUCTION_BYTES: Final = 48


def auctions(seed: int, laws: Laws, numbers: Numbers, times: Numbers) -> pa.RecordBatch:
    """The auctions among the events `numbers`."""
    what, told, first, more, rest = (
        draw(key(seed, f"auction {each}"), numbers) for each in ("what", "told", "first", "more", "rest")
    )
    spaced = pool(seed, " ")
    item, description = name(spaced, what, 20), name(spaced, told, 100)
    initial = prices(first)
    used = AUCTION_BYTES + pc.binary_length(item).to_numpy() + pc.binary_length(description).to_numpy()
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
    return pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=AUCTION_SCHEMA)


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


# Prices: round(100 × 10^(6u)), u uniform in [0, 1).


STEPS: Final = 2**12
COARSE: Final = np.array([100 * 10 ** (6 * step / STEPS) for step in range(STEPS)])
FINE: Final = np.array([10 ** (6 * step / STEPS**2) for step in range(STEPS)])
"""10^(6u) for u of 24 bits is a product of two of these, the same on every machine."""


def prices(bits: Bits) -> Numbers:
    """A price in cents from the upper 24 of 64 bits."""
    coarse = COARSE[(bits >> np.uint64(52)).view(np.int64)]
    coarse *= FINE[(bits >> np.uint64(40) & np.uint64(STEPS - 1)).view(np.int64)]
    coarse += 0.5
    return coarse.astype(np.int64)


# Bids: who offers how much for what, and through which channel.


BID_SCHEMA: Final = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("date_time", pa.timestamp("us")),
        ("extra", pa.string()),
    ]
)
BID_BYTES: Final = 32
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS: Final = 10_000
WITH_ID: Final = 10
"""One in this many channels has no id in its url."""


def bids(seed: int, laws: Laws, numbers: Numbers, times: Numbers) -> pa.RecordBatch:
    """The bids among the events `numbers`."""
    what, who, much, how = (
        draw(key(seed, f"bid {each}"), numbers) for each in ("what", "who", "much", "how")
    )
    channel, url = _channels(seed)
    at = pa.array(_channel(how))
    columns = [
        pa.array(FIRST_ID + _auctions(laws, numbers, what)),
        pa.array(FIRST_ID + _bidders(laws, numbers, who)),
        pa.array(prices(much)),
        channel.take(at),
        url.take(at),
        pa.array(times).view(pa.timestamp("us")),
        extra(pool(seed), draw(key(seed, "bid extra"), numbers), BID_BYTES, laws.bid_bytes),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BID_SCHEMA)


def _auctions(laws: Laws, numbers: Numbers, bits: Bits) -> Numbers:
    """The hot auction is the first of the last batch; any other is in flight or about to open."""
    newest = np.maximum(last_auction(numbers), 0)
    oldest = np.maximum(newest - laws.in_flight, 0)
    some = oldest + below(high(bits), newest - oldest + 1 + LEAD)
    return np.where(below(low(bits), laws.hot_auctions) > 0, newest // BATCH * BATCH, some)


def _bidders(laws: Laws, numbers: Numbers, bits: Bits) -> Numbers:
    """The hot bidder is the second person of the last batch."""
    hot = last_person(numbers) // BATCH * BATCH + 1
    return np.where(below(low(bits), laws.hot_bidders) > 0, hot, some_person(laws, numbers, high(bits)))


def _channel(bits: Bits) -> Numbers:
    """Half of the bids come through one of the hot channels, which come first."""
    hot = below(low(bits), 2) > 0
    places = below(high(bits), np.where(hot, len(HOT_CHANNELS), CHANNELS))
    return places + np.where(hot, 0, len(HOT_CHANNELS))


@lru_cache(maxsize=8)
def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """All channels and their urls."""
    count = len(HOT_CHANNELS) + CHANNELS
    numbers = np.arange(count, dtype=np.int64)
    parts = [
        name(pool(seed, "_"), draw(key(seed, f"url {part}"), numbers), 5).to_pylist() for part in range(3)
    ]
    urls = [f"https://www.nexmark.com/{'/'.join(dirs)}/item.htm?query=1" for dirs in zip(*parts, strict=True)]
    has_id = below(low(draw(key(seed, "channel id"), numbers)), WITH_ID) > 0
    for number in range(CHANNELS):
        at = number + len(HOT_CHANNELS)
        if has_id[at]:
            urls[at] += f"&channel_id={_reversed(number)}"
    return pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]), pa.array(urls)


def _reversed(number: int) -> int:
    """The absolute value of the number with its 32 bits reversed."""
    turned = int(f"{number:032b}"[::-1], 2)
    return turned if turned < 2**31 else 2**32 - turned


# Persons: who registers with the auction house.


PERSON_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("email_address", pa.string()),
        ("credit_card", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("date_time", pa.timestamp("us")),
        ("extra", pa.string()),
    ]
)
FIRST_NAMES: Final = [
    "peter",
    "paul",
    "luke",
    "john",
    "saul",
    "vicky",
    "kate",
    "julie",
    "sarah",
    "deiter",
    "walter",
]
LAST_NAMES: Final = ["shultz", "abrams", "spencer", "white", "bartels", "walton", "smith", "jones", "noris"]
NAMES: Final = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
CITIES: Final = pa.array(
    [
        "phoenix",
        "los angeles",
        "san francisco",
        "boise",
        "portland",
        "bend",
        "redmond",
        "seattle",
        "kent",
        "cheyenne",
    ]
)
STATES: Final = pa.array(["az", "ca", "id", "or", "wa", "wy"])
FOUR_DIGITS: Final = pa.array([f"{number:04}" for number in range(10_000)])


def persons(seed: int, laws: Laws, numbers: Numbers, times: Numbers) -> pa.RecordBatch:
    """The persons among the events `numbers`."""
    who, mail, card, rest = (
        draw(key(seed, f"person {what}"), numbers) for what in ("who", "mail", "card", "rest")
    )
    spaced = pool(seed, " ")
    email = pc.binary_join_element_wise(
        name(spaced, mail, 7), pc.binary_join_element_wise(name(spaced, _turned(mail), 5), ".com", ""), "@"
    )
    digits = [_one_of(FOUR_DIGITS, bits) for bits in (low(card), high(card), low(rest), high(who))]
    columns = {
        "name": _one_of(NAMES, low(who)),
        "email_address": email,
        "credit_card": pc.binary_join_element_wise(*digits, " "),
        "city": _one_of(CITIES, low(_turned(who))),
        "state": _one_of(STATES, high(rest)),
    }
    used = 8 + sum(pc.binary_length(each).to_numpy() for each in columns.values())
    filling = extra(pool(seed), draw(key(seed, "person extra"), numbers), used, laws.person_bytes)
    made = [pa.array(FIRST_ID + last_person(numbers)), *columns.values(), _timestamps(times), filling]
    return pa.RecordBatch.from_arrays(made, schema=PERSON_SCHEMA)


def _turned(bits: Bits) -> Bits:
    """The same 64 bits in another order, usable as new bits where only a few were used."""
    return (bits << np.uint64(23)) | (bits >> np.uint64(41))


def _one_of(values: pa.Array, bits32: Bits) -> pa.Array:
    """A value for each draw, chosen uniformly."""
    return values.take(pa.array(below(bits32, len(values))))


def _timestamps(times: Numbers) -> pa.Array:
    return pa.array(times).view(pa.timestamp("us"))
