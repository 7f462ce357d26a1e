"""The auction house at work: what has just happened goes to files that Spark reads, four times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from examples.auction import CATALOG, STREAMS, Auction, Pace, open_house
from headrace.testing.arrivals import SECOND

WINDOW = 5 * SECOND
EVERY = 0.25
"""Seconds from one file of a stream to the next."""

REHEARSAL = -1
"""The item of the rows that wake the queries up before the doors open."""


def pace(seconds: float) -> Pace:
    """Bids all the while, and a long silence of closings."""
    end = int(seconds * SECOND)
    return Pace(
        end,
        rate=25.0,
        opens=(SECOND, 4 * SECOND),
        closes=(9 * SECOND, 11 * SECOND),
        silence=(13 * SECOND, end - 12 * SECOND),
        delay=SECOND,
        late=(8 * SECOND, 14 * SECOND),
        rise=60.0,
    )


class House:
    """Writes the rows of an auction at their instants, counted from `opened`, a microsecond of the clock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.opened = 0
        self.auction: Auction | None = None
        self.written = dict.fromkeys(STREAMS, 0)
        self.newest = dict.fromkeys(STREAMS, 0)
        self._files = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        for name in STREAMS:
            (root / name).mkdir(parents=True)

    def rehearse(self) -> None:
        """One row on each stream."""
        for name in STREAMS:
            empty: dict[str, Any] = dict.fromkeys(CATALOG.streams[name].schema.names)
            self._write(name, [{**empty, "item": REHEARSAL}], [now()])

    def open(self, seconds: float) -> None:
        """Begin with the next window; the rows come from a thread."""
        self.auction = open_house(pace(seconds))
        self.opened = (now() // WINDOW + 1) * WINDOW
        self.written = dict.fromkeys(STREAMS, 0)
        self.newest = dict.fromkeys(STREAMS, self.opened)
        self._thread = threading.Thread(target=self._work, args=(self.auction,), daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether the last row is written."""
        return self._thread is not None and not self._thread.is_alive()

    def windows(self) -> range:
        """The ends of all windows of the auction."""
        end = 0 if self.auction is None else self.auction.end
        return range(self.opened + WINDOW, self.opened + end + 1, WINDOW)

    def leave(self) -> None:
        """Write no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self, auction: Auction) -> None:
        done = dict.fromkeys(STREAMS, 0)
        while any(done[name] < len(auction.streams[name]) for name in STREAMS):
            if self._stop.wait(EVERY):
                return
            elapsed = now() - self.opened
            for name, stream in auction.streams.items():
                stop = int(np.searchsorted(stream.arrival, elapsed, "right"))
                rows = stream.rows.slice(done[name], stop - done[name]).to_pylist()
                times = stream.times.slice(done[name], stop - done[name]).to_pylist()
                self._write(name, rows, [None if t is None else t + self.opened for t in times])
                done[name] = stop

    def _write(self, name: str, rows: Sequence[dict[str, Any]], times: Sequence[int | None]) -> None:
        """A file that Spark sees when it is whole."""
        if not rows:
            return
        table = pa.Table.from_pylist(list(rows), schema=CATALOG.streams[name].schema)
        table = table.append_column("at", pa.array(times, pa.timestamp("us", "UTC")))
        self._files += 1
        draft = self.root / name / f".{self._files:05}"
        pq.write_table(table, draft)
        draft.rename(self.root / name / f"{self._files:05}.parquet")
        self.written[name] += len(rows)
        self.newest[name] = now()


def now() -> int:
    """The clock, in microseconds."""
    return time.time_ns() // 1000
