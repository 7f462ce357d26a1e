"""When Spark asks its sources, what it takes of them, and what its clocks say meanwhile.

Rows reach a source in files (a file of one row stands for a broker's row). Spark starts late, pauses, is down
for a while, asks its sources one after the other, in any order, and a rate limit leaves a backlog. The clock
of the driver, which stamps micro-batches and ticks, may stop, go back or jump ahead; rows do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from tests.spark.simulated import MicroBatch

SPAN: Final = 120
"""Ticks within which rows reach their sources."""

Make = Callable[[list[int]], tuple[pa.RecordBatch, np.ndarray]]
"""Of the numbers of rows of a stream, the rows and their times."""


@dataclass(frozen=True)
class Limit:
    """A micro-batch takes at most `most` rows, files or bytes, and waits a while for `least` files."""

    unit: str = "rows"
    most: int = 1
    least: int = 0


BYTES: Final = 10
"""Of a row."""


@dataclass
class Reached:
    """The rows of a stream in the order in which they reached its source: when, and in which files."""

    at: list[int]
    files: list[int] = field(default_factory=list)
    taken: int = 0
    waited: int = 0

    def __post_init__(self) -> None:
        self.files = self.files or [1] * len(self.at)
        assert sum(self.files) == len(self.at)

    @property
    def left(self) -> int:
        return len(self.at) - self.taken

    def take(self, asked: int, limit: Limit | None) -> slice:
        """What the source gives when it is asked at an instant. Rows alone are limited to the row."""
        ends = [end for end in accumulate(self.files) if self.at[end - 1] <= asked]
        fresh = [end for end in ends if end > self.taken]
        if limit is not None and len(fresh) < limit.least and self.waited < 2:
            self.waited += 1
            return slice(self.taken, self.taken)
        self.waited = 0
        stop = fresh[-1] if fresh else self.taken
        if limit is not None and fresh:
            stop = _STOPS[limit.unit](limit.most, self.taken, fresh)
        given = slice(self.taken, stop)
        self.taken = stop
        return given


def _rows(most: int, taken: int, fresh: list[int]) -> int:
    return min(fresh[-1], taken + most)


def _files(most: int, taken: int, fresh: list[int]) -> int:
    return fresh[min(most, len(fresh)) - 1]


def _bytes(most: int, taken: int, fresh: list[int]) -> int:
    """At least one file, however large."""
    return max((end for end in fresh if (end - taken) * BYTES <= most), default=fresh[0])


_STOPS: Final[dict[str, Callable[[int, int, list[int]], int]]] = {
    "rows": _rows,
    "files": _files,
    "bytes": _bytes,
}

Drift = Callable[[random.Random], Callable[[int], int]]
"""A clock of the driver: what it says at an instant."""


def _right(rng: random.Random) -> Callable[[int], int]:
    return lambda instant: instant


def _stopped(rng: random.Random) -> Callable[[int], int]:
    begin = rng.randint(0, SPAN)
    end = begin + rng.randint(10, 100)
    return lambda instant: begin if begin < instant < end else instant


def _back(rng: random.Random) -> Callable[[int], int]:
    """It is set back, and stays behind."""
    since, by = rng.randint(0, SPAN), rng.randint(1, 80)
    return lambda instant: instant - by * (instant >= since)


def _behind_for_a_while(rng: random.Random) -> Callable[[int], int]:
    begin, by = rng.randint(0, SPAN), rng.randint(1, 80)
    end = begin + rng.randint(1, 60)
    return lambda instant: instant - by * (begin <= instant < end)


def _ahead(rng: random.Random) -> Callable[[int], int]:
    """It jumps ahead, and is set right again, or not."""
    begin, by = rng.randint(0, SPAN), rng.randint(1, 80)
    end = begin + rng.choice((5, 50, 10_000))
    return lambda instant: instant + by * (begin <= instant < end)


SOUND_CLOCKS: Final[dict[str, Drift]] = {
    "right": _right,
    "stopped": _stopped,
    "back": _back,
    "behind for a while": _behind_for_a_while,
}
"""Clocks that never run ahead: they may delay answers, and make no row late."""
CLOCKS: Final[dict[str, Drift]] = {**SOUND_CLOCKS, "ahead": _ahead}


@dataclass
class Schedule:
    """What Spark did: micro-batches, what the timer said with each, when rows had reached their source."""

    batches: list[MicroBatch] = field(default_factory=list)
    said: list[int | None] = field(default_factory=list)
    reached: list[dict[str, np.ndarray]] = field(default_factory=list)


def schedule(
    rng: random.Random,
    rows: Mapping[str, Reached],
    make: Mapping[str, Make],
    limits: Mapping[str, Limit | None],
    once: bool,
    clock: Callable[[int], int] = lambda instant: instant,
) -> Schedule:
    """Runs and downtimes until all is read. With `once`, a run asks its sources only when it starts."""
    made, now, tick = Schedule(), rng.randint(0, SPAN), None
    while any(each.left for each in rows.values()):
        now += rng.choice((1, 1, 2, 30))  # a slow trigger, or nobody at work
        asked, now = _asked(rng, [*rows, "timer"], now)
        for _ in range(rng.randint(1, 6) if once else 1):
            arrived, since = {}, {}
            for name, each in rows.items():
                given = each.take(asked[name], limits.get(name))
                if given.stop > given.start:
                    numbers = list(range(given.start, given.stop))
                    rng.shuffle(numbers)  # Spark packs files into tasks by their size
                    arrived[name] = make[name](numbers)
                    since[name] = np.array([each.at[number] for number in numbers])
            told = clock(asked["timer"])
            ticks = tick is None or told != tick
            said = (told if tick is None else tick) if ticks else None
            tick = told
            now += rng.randint(0, 4)
            if arrived or ticks:
                made.batches.append((clock(now), arrived))
                made.said.append(said if made.said else min(clock(each) for each in asked.values()))
                made.reached.append(since)
    return made


def _asked(rng: random.Random, sources: list[str], now: int) -> tuple[dict[str, int], int]:
    """Sources are asked one after the other, and that takes time."""
    asked = {}
    for name in rng.sample(sources, len(sources)):
        asked[name] = now
        now += rng.choice((0, 0, 1, 5))
    return asked, now


def reaching(rng: random.Random, rows: int, in_files: bool) -> Reached:
    """Rows that reach their source at any instants, one by one or in files that are there at once."""
    files = list[int]()
    while sum(files) < rows:
        files.append(min(rng.randint(1, 6) if in_files else 1, rows - sum(files)))
    instants = sorted(rng.randint(0, SPAN) for _ in files)
    return Reached([at for at, size in zip(instants, files, strict=True) for _ in range(size)], files)
