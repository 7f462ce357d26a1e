"""Two engines, the same rows at the same instants, one difference: may a silent stream speak up?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from examples.auction import CATALOG, STREAMS, Auction
from headrace import Engine, Query, Rules, TimerPromise, query
from headrace.testing.arrivals import SECOND
from headrace.testing.compare import Row, events_of
from headrace.time.clock import ManualClock
from headrace.time.ets import NONE, ON_DEMAND, Policy
from headrace.time.punctuation import Late, Rejected

STEP = SECOND // 2
BEHIND = {"bids": 4 * SECOND, "auctions": SECOND, "closings": SECOND}
"""How far each stream may be behind the wall clock: the auction house's policy, enforced on arrival."""
GUARD = 60 * SECOND
QUIET = ("auctions", "closings")

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
class Answer:
    """A row of an answer: the time it speaks of, and the instant at which it came out."""

    time: int
    row: Row
    out: int

    @property
    def delay(self) -> int:
        """How long after its time it came out."""
        return self.out - self.time


@dataclass
class Runner:
    """One engine with what came out of it so far."""

    name: str
    engine: Engine
    answers: dict[str, list[Answer]] = field(default_factory=lambda: {q: [] for q in QUERIES})
    late: list[tuple[int, Late]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    def collect(self, now: int) -> dict[str, list[Answer]]:
        """Take what came out by `now`."""
        found = {
            name: [Answer(time, row, now) for time, row in events_of(batches)]
            for name, batches in self.engine.drain_all().items()
        }
        for name, answers in found.items():
            self.answers[name] += answers
        self.late += [(now, each) for each in self.engine.drain_late()]
        self.rejected += self.engine.drain_rejected()
        return found


def queries() -> list[Query]:
    """The questions of the auction, read from CQL."""
    return [query(text, CATALOG, name=name) for name, text in QUERIES.items()]


def engine_with(quiet: Policy) -> Engine:
    """An engine with all queries. Bids make ETS on demand; the quiet streams as `quiet` says."""
    engine = Engine()
    for name in STREAMS:
        engine.streams.declare(
            CATALOG.streams[name].source,
            policy=quiet if name in QUIET else ON_DEMAND,
            promise=TimerPromise(BEHIND[name]),
            rules=Rules(disordered=name == "bids", enforce="strict", guard=GUARD),
        )
    for each in queries():
        engine.add(each.name, each.plan)
    return engine


@dataclass(frozen=True)
class Tick:
    """What both engines gave out at one instant."""

    now: int
    prompt: dict[str, list[Answer]]
    silent: dict[str, list[Answer]]


class Duel:
    """Drives both engines over an auction, tick by tick of a clock that nobody waits for."""

    def __init__(self, auction: Auction) -> None:
        self.auction = auction
        self.prompt = Runner("on demand", engine_with(ON_DEMAND))
        self.silent = Runner("none", engine_with(NONE))
        self.clock = ManualClock()
        self._position = dict.fromkeys(STREAMS, 0)

    def run(self) -> Iterator[Tick]:
        """Every tick until the doors close; the streams have not ended then."""
        while self.clock.now() < self.auction.end:
            now = self.clock.advance(STEP)
            self._push(now)
            for runner in (self.prompt, self.silent):
                runner.engine.advance(now)
            yield Tick(now, self.prompt.collect(now), self.silent.collect(now))

    def _push(self, now: int) -> None:
        for name, stream in self.auction.streams.items():
            begin = self._position[name]
            stop = self._position[name] = int(np.searchsorted(stream.arrival, now, "right"))
            if stop > begin:
                rows, times = (x.slice(begin, stop - begin) for x in (stream.rows, stream.times))
                for runner in (self.prompt, self.silent):
                    runner.engine.push(name, rows, times, now=now)

    def end(self) -> Tick:
        """Say that nothing more comes; what was held back comes out."""
        for runner in (self.prompt, self.silent):
            for name in STREAMS:
                runner.engine.streams.end(name)
        now = self.clock.now()
        return Tick(now, self.prompt.collect(now), self.silent.collect(now))

    def held(self, name: str) -> list[Answer]:
        """Answers of a query that one engine has given out and the other still holds back."""
        return self.prompt.answers[name][len(self.silent.answers[name]) :]
