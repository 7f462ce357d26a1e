"""Bids: who offers how much for what, and through which channel."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.connectors.nexmark.auction import some_person
from headrace.connectors.nexmark.draws import Bits, Numbers, below, draw, high, key, low
from headrace.connectors.nexmark.laws import BATCH, FIRST_ID, LEAD, Laws, last_auction, last_person
from headrace.connectors.nexmark.price import prices
from headrace.connectors.nexmark.text import extra, name, pool

SCHEMA: Final = pa.schema(
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
NUMBERS_BYTES: Final = 32
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS: Final = 10_000
WITH_ID: Final = 10
"""All but one in so many channels have their id in the url."""


def bids(seed: int, laws: Laws, numbers: Numbers, times: Numbers) -> pa.RecordBatch:
    """The bids that the events `numbers` are."""
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
        extra(pool(seed), draw(key(seed, "bid extra"), numbers), NUMBERS_BYTES, laws.bid_bytes),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


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
    """Half of the bids come through one of the hot channels, which stand first."""
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
    """The size of the number whose 32 bits stand in reverse order."""
    turned = int(f"{number:032b}"[::-1], 2)
    return turned if turned < 2**31 else 2**32 - turned
