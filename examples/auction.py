"""The online auction of Tucker & Maier, "Dealing with Disorder": its streams, its rows, its questions.

Everything is made from one seed, so that two runs see the same rows at the same instants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import Catalog
from headrace.flow.batch import Mask, Times
from headrace.testing.arrivals import SECOND, Arrivals, Rng, arrivals_at, disorder, late, poisson

MINUTE = 60 * SECOND
TITLES = (
    "lamp", "clock", "globe", "radio", "piano", "camera", "vase", "chess set", "telescope", "atlas",
    "violin", "kettle", "mirror", "compass", "samovar", "typewriter", "barometer", "gramophone",
)  # fmt: skip

CATALOG = Catalog(
    {
        "bids": pa.schema([("item", pa.int64()), ("bidder", pa.string()), ("price", pa.float64())]),
        "auctions": pa.schema([("item", pa.int64()), ("title", pa.string())]),
        "closings": pa.schema([("item", pa.int64())]),
    }
)
STREAMS = tuple(CATALOG.names)

QUERIES = {
    "log": """
        SELECT item, 'bid' AS what, price FROM bids
        UNION ALL
        SELECT item, 'closed' AS what, CAST(NULL AS DOUBLE) AS price FROM closings""",
    "sold": """
        SELECT a.title, max(b.price) AS price, count(*) AS bids
        FROM   closings [NOW] AS c, auctions [RANGE 1 HOUR] AS a,
               bids [RANGE 1 HOUR] AS b
        WHERE  c.item = a.item AND c.item = b.item
        GROUP  BY a.title""",
    "highest": """
        SELECT item, max(price) AS price, count(*) AS bids, window_end
        FROM   bids [RANGE 1 MINUTE SLIDE 1 MINUTE]
        GROUP  BY item""",
}


@dataclass(frozen=True)
class Stream:
    """The rows of one stream in order of arrival: the instant each comes, and the time it says it has."""

    rows: pa.RecordBatch
    times: pa.Array
    arrival: Times

    def __len__(self) -> int:
        return len(self.arrival)


@dataclass(frozen=True)
class Auction:
    """`minutes` of an auction house."""

    minutes: int
    streams: dict[str, Stream]
    disorder: int

    @property
    def end(self) -> int:
        """The instant at which the house closes its doors."""
        return self.minutes * MINUTE


def open_house(minutes: int = 10, *, rate: float = 5.0, seed: int = 2003) -> Auction:
    """An auction opens every half minute or so and one closes every two or three; bids come all the while."""
    rng = np.random.default_rng(seed)
    end = minutes * MINUTE
    opened = _now_and_then(15 * SECOND, 50 * SECOND, end, rng)
    closed = _now_and_then(100 * SECOND, 170 * SECOND, end - 20 * SECOND, rng)
    first = int(opened.time[0])
    bids = late(poisson(rate, int(rate * 60 * minutes), rng, start=first), 3 * SECOND, rng)
    bids = bids.take(bids.arrival < end)
    streams = {
        "bids": _bids(bids, _items(bids, opened.time, closed.time, rng), rng),
        "auctions": _stream("auctions", opened, [np.arange(len(opened)), np.array(TITLES)[: len(opened)]]),
        "closings": _stream("closings", closed, [np.arange(len(closed))]),
    }
    return Auction(minutes, streams, disorder(bids))


def _now_and_then(least: int, most: int, end: int, rng: Rng) -> Arrivals:
    """Rows far apart that arrive within a third of a second."""
    times = np.cumsum(rng.integers(least, most, end // least))
    return late(arrivals_at(times[times < end][: len(TITLES)]), SECOND // 3, rng)


def _items(bids: Arrivals, opened: Times, closed: Times, rng: Rng) -> Times:
    """For each bid an item that is open when it is made; the first to open is the first to close."""
    until = np.concatenate([closed, np.full(len(opened) - len(closed), np.iinfo(np.int64).max)])
    chance = rng.random((len(bids), len(opened)))
    chance[(bids.time[:, None] < opened) | (bids.time[:, None] > until)] = -1.0
    return chance.argmax(axis=1)


def _bids(bids: Arrivals, item: Times, rng: Rng) -> Stream:
    """Prices that rise with time; four bids that come far too late, one with a mad clock, one with none."""
    price = np.round(10 + bids.time / MINUTE * 9 + rng.normal(0, 4, len(bids)), 2)
    bidder = np.char.add("p", rng.integers(1, 40, len(bids)).astype(str))
    odd = rng.choice(np.arange(len(bids) // 5, len(bids) // 2), 6, replace=False)
    arrival, time = bids.arrival.copy(), bids.time.copy()
    arrival[odd[:4]] += rng.integers(5 * SECOND, 50 * SECOND, 4)
    time[odd[4]] += 24 * 60 * MINUTE
    missing = np.isin(np.arange(len(bids)), odd[5])
    order = np.argsort(arrival, kind="stable")
    columns = [item[order], bidder[order], price[order]]
    return _stream("bids", Arrivals(arrival[order], time[order], bids.stream), columns, missing[order])


def _stream(
    name: str, arrivals: Arrivals, columns: list[npt.NDArray[Any]], missing: Mask | None = None
) -> Stream:
    schema = CATALOG.streams[name].schema
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, schema, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Stream(rows, pa.array(arrivals.time, mask=missing), arrivals.arrival)
