"""The online auction of Tucker & Maier, "Dealing with Disorder" (§1, Figure 1): its streams and their rows.

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
from headrace.testing.arrivals import SECOND, Arrivals, Rng, arrivals_at, disorder, late, poisson, silent

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


@dataclass(frozen=True)
class Stream:
    """The rows of one stream in order of arrival: the instant each comes, and the time it says it has."""

    rows: pa.RecordBatch
    times: pa.Array
    arrival: Times

    def __len__(self) -> int:
        return len(self.arrival)


@dataclass(frozen=True)
class Pace:
    """How a house goes, in ticks: pairs are the least and the most.

    An auction opens, and one closes, so long after the one before; in the `silence` none closes. A bid is
    up to `delay` on its way, and the late ones more by so much. Bids are dearer by `rise` a minute.
    """

    end: int
    rate: float = 5.0
    opens: tuple[int, int] = (15 * SECOND, 50 * SECOND)
    closes: tuple[int, int] = (100 * SECOND, 170 * SECOND)
    silence: tuple[int, int] = (0, 0)
    delay: int = 3 * SECOND
    late: tuple[int, int] = (5 * SECOND, 50 * SECOND)
    rise: float = 9.0


@dataclass(frozen=True)
class Auction:
    """What happens in an auction house until `end`, when it closes its doors."""

    end: int
    streams: dict[str, Stream]
    disorder: int


def open_house(pace: Pace, *, seed: int = 2003) -> Auction:
    """Auctions open and close now and then; bids come all the while."""
    rng = np.random.default_rng(seed)
    opened = _now_and_then(*pace.opens, pace.end, rng)
    closed = silent(_now_and_then(*pace.closes, pace.end - pace.closes[0] // 5, rng), *pace.silence)
    first = int(opened.time[0])
    bids = poisson(pace.rate, int(pace.rate * pace.end / SECOND), rng, start=first)
    bids = late(bids, pace.delay, rng)
    bids = bids.take(bids.arrival < pace.end)
    streams = {
        "bids": _bids(bids, _items(bids, opened.time, closed.time, rng), pace, rng),
        "auctions": _stream("auctions", opened, [np.arange(len(opened)), np.array(TITLES)[: len(opened)]]),
        "closings": _stream("closings", closed, [np.arange(len(closed))]),
    }
    return Auction(pace.end, streams, disorder(bids))


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


def _bids(bids: Arrivals, item: Times, pace: Pace, rng: Rng) -> Stream:
    """Prices that rise with time; four bids that come far too late, one with a mad clock, one with none."""
    price = np.round(10 + bids.time / MINUTE * pace.rise + rng.normal(0, 4, len(bids)), 2)
    bidder = np.char.add("p", rng.integers(1, 40, len(bids)).astype(str))
    odd = rng.choice(np.arange(len(bids) // 5, len(bids) // 2), 6, replace=False)
    arrival, time = bids.arrival.copy(), bids.time.copy()
    arrival[odd[:4]] += rng.integers(*pace.late, 4)
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
