"""Feeds: which rows come next, and at which instant, by the system clock or by the times of the rows.

A step contains everything that arrives at one instant. If the rows decide the instants, steps depend only on
positions: after a restart the steps are the same, so the same rows are late and the results are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from headrace.connectors.contract import Surveyed
from headrace.connectors.history import PAST, HistoryThenLive
from headrace.control import Entry
from headrace.runtimes.embedded.inflow import Inflow, Piece
from headrace.runtimes.embedded.shedding import Shedder
from headrace.time.clock import Clock
from headrace.time.timestamp import FARTHEST, MAX_TIME, MIN_TIME

LONGEST: Final = 1_000_000
"""Ticks for which a stream with load shedding may be read before the engine runs."""


@dataclass(frozen=True)
class Step:
    """Everything that arrives at an instant, and the streams that end with it.

    `read`, with the system clock: by stream, the instant up to which everything at its source has been read.
    A step with `commands` changes the pipeline between two others, at the instant of the first.
    """

    now: int
    pieces: tuple[Piece, ...] = ()
    ends: tuple[str, ...] = ()
    read: Mapping[str, int] = field(default_factory=dict)
    commands: tuple[Entry, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows: good, bad or shed."""
        return sum(len(piece) + len(piece.bad) + piece.shed for piece in self.pieces)


class Feed(Protocol):
    """Makes steps until everything is read."""

    @property
    def finished(self) -> bool:
        """Whether there are no more steps."""
        ...

    def next(self) -> Step | None:
        """The next step; None if there are no rows now."""
        ...

    def state(self) -> dict[str, Any]:
        """The position, as JSON."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the position of another feed; streams that it did not have begin."""
        ...

    def add(self, inflow: Inflow, shedder: Shedder | None, paced: bool) -> None:
        """Read one more stream, from its beginning."""
        ...

    @property
    def names(self) -> frozenset[str]:
        """The streams that are read."""
        ...

    def close(self) -> None: ...


@dataclass
class _Flowing:
    """The common part of all feeds: inflows, and the names of those that have ended."""

    inflows: Sequence[Inflow]
    now: int = -FARTHEST
    ended: set[str] = field(default_factory=set)

    @property
    def finished(self) -> bool:
        return len(self.ended) == len(self.inflows)

    def _ends(self) -> tuple[str, ...]:
        """The streams that have just ended, each reported once."""
        new = tuple(
            i.name for i in self.inflows if i.exhausted and not i.keep_open and i.name not in self.ended
        )
        self.ended |= set(new)
        return new

    @property
    def names(self) -> frozenset[str]:
        return frozenset(inflow.name for inflow in self.inflows)

    def add(self, inflow: Inflow, shedder: Shedder | None, paced: bool) -> None:
        self.inflows = [*self.inflows, inflow]

    def state(self) -> dict[str, Any]:
        positions = {inflow.name: inflow.position() for inflow in self.inflows}
        return {"now": self.now, "ended": sorted(self.ended), "streams": positions}

    def restore(self, state: dict[str, Any]) -> None:
        self.now, self.ended = state["now"], set(state["ended"]) & self.names
        for inflow in self.inflows:
            if inflow.name in state["streams"]:
                inflow.seek(state["streams"][inflow.name])

    def close(self) -> None:
        for inflow in self.inflows:
            inflow.close()


@dataclass
class SystemFeed(_Flowing):
    """Rows arrive when they are read. `paced` streams wait until the instants of their rows.

    Rows may wait at their source: while the pipeline was stopped, or because they come faster than they are
    read. A source that returns no more rows has been read up to the instant before the call. Streams are read
    one block at a time, which is backpressure from the engine and the sinks. A stream with a shedder gets no
    backpressure: all its rows are read, and those beyond the limit are shed.
    """

    clock: Clock | None = None
    paced: frozenset[str] = frozenset()
    shedders: Mapping[str, Shedder] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)

    def next(self) -> Step | None:
        """Read what every source has now; the instant is that of the clock."""
        assert self.clock is not None
        self.now = max(self.now, self.clock.now())
        pieces = [piece for inflow in self.inflows for piece in self._read(inflow)]
        ends = self._ends()
        return Step(self.now, tuple(pieces), ends, dict(self.read)) if pieces or ends else None

    def add(self, inflow: Inflow, shedder: Shedder | None, paced: bool) -> None:
        super().add(inflow, shedder, paced)
        self.shedders = self.shedders if shedder is None else {**self.shedders, inflow.name: shedder}
        self.paced |= {inflow.name} if paced else frozenset()

    def _read(self, inflow: Inflow) -> list[Piece]:
        """The rows of one stream for this step, shed if the stream has a shedding policy."""
        if inflow.name in self.ended:
            return []
        shedder = self.shedders.get(inflow.name)
        if shedder is not None:
            return list(self._read_all(inflow, shedder))
        dry = not inflow.loaded and not inflow.load()
        pieces = inflow.take(self.now if inflow.name in self.paced else MAX_TIME)
        self._note(inflow, dry)
        return pieces

    def _note(self, inflow: Inflow, dry: bool) -> None:
        """A source that had no rows, or only rows of the future, has been read up to now.

        One that reads its past has been read up to the newest recorded arrival, if arrivals are recorded.
        """
        if isinstance(inflow.source, HistoryThenLive) and inflow.source.part == PAST:
            if inflow.recorded is not None and not inflow.loaded:
                self.read[inflow.name] = inflow.recorded - 1
        elif isinstance(inflow.source, Surveyed):
            until = inflow.source.read_until()
            if until is not None and not inflow.loaded:
                self.read[inflow.name] = until
        elif dry or inflow.loaded:
            self.read[inflow.name] = self.now

    def _read_all(self, inflow: Inflow, shedder: Shedder) -> Iterator[Piece]:
        """All rows that are there now; if they come faster than they can be read, those of a limited time."""
        assert self.clock is not None
        shedder.begin()
        until = self.now if inflow.name in self.paced else MAX_TIME
        while (inflow.loaded or inflow.load()) and (pieces := inflow.take(until)):
            yield from (shedder.admit(piece) for piece in pieces)
            if self.clock.now() > self.now + LONGEST:
                return
        self._note(inflow, dry=True)

    def state(self) -> dict[str, Any]:
        shed = {name: shedder.number for name, shedder in self.shedders.items()}
        return super().state() | ({"shed": shed} if shed else {})

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        for name, shedder in self.shedders.items():
            shedder.number = state.get("shed", {}).get(name, 0)


@dataclass
class EventFeed(_Flowing):
    """Rows arrive at their own times: streams are read in step, none ahead of another.

    A step goes up to the earliest of the instants that the streams have been read to. An open stream without
    rows does not hold the others back.
    """

    def next(self) -> Step | None:
        """Advance to the earliest last instant of the loaded blocks, and take all rows up to it."""
        for inflow in self.inflows:
            if not inflow.loaded and inflow.name not in self.ended:
                inflow.load()
        reach = [inflow.last for inflow in self.inflows if inflow.last is not None]
        if not reach and not any(inflow.loaded for inflow in self.inflows):
            ends = self._ends()
            return Step(self.now, (), ends) if ends else None
        horizon = min((r for r in reach if r != MIN_TIME), default=self.now)
        self.now = max(self.now, horizon)
        pieces = [piece for inflow in self.inflows for piece in inflow.take(self.now)]
        return Step(self.now, tuple(pieces), self._ends())


@dataclass
class ArrivalFeed(_Flowing):
    """Rows arrive at recorded instants, with one step for each instant.

    Streams with loaded rows wait in a heap for the instant of their next row. A step looks only at the
    streams of its instant, and at those without loaded rows.
    """

    _next: list[tuple[int, int]] = field(default_factory=list)
    _dry: set[int] = field(default_factory=set)
    _sorted: bool = False

    def next(self) -> Step | None:
        """Advance to the earliest arrival in the heap, and take all rows that arrived up to it."""
        if not self._sorted:
            self._sort_out()
        read = self._read_dry()
        found = bool(self._next)
        if found:
            self.now = max(self.now, self._next[0][0])
        due = []
        while self._next and self._next[0][0] <= self.now:
            due.append(heappop(self._next)[1])
            self._read_on(self.inflows[due[-1]])
        pieces = [piece for place in sorted({*read, *due}) for piece in self.inflows[place].take(self.now)]
        for place in due:
            self._wait(place)
        ends = self._ends()
        return Step(self.now, tuple(pieces), ends) if found or pieces or ends else None

    def _sort_out(self) -> None:
        """Build the heap of next arrivals, at the start and after a restore."""
        self._sorted, self._next, self._dry = True, [], set()
        for place, inflow in enumerate(self.inflows):
            if inflow.name not in self.ended:
                self._wait(place)

    def _wait(self, place: int) -> None:
        """Put a stream into the heap under the instant of its next row, or note that it has none."""
        first = self.inflows[place].first
        if first is None:
            self._dry.add(place)
        else:
            heappush(self._next, (first, place))

    def _read_dry(self) -> list[int]:
        """Read streams without loaded rows until each has one; returns those with any rows or bad input."""
        read = []
        for place in sorted(self._dry):
            inflow, any_read = self.inflows[place], False
            while inflow.first is None and inflow.load():
                any_read = True
            if any_read:
                read.append(place)
            if inflow.first is not None:
                self._dry.discard(place)
                self._wait(place)
        return read

    def _read_on(self, inflow: Inflow) -> None:
        """Read until all rows of this instant or earlier are loaded."""
        while (inflow.last is None or inflow.last <= self.now) and inflow.load():
            pass

    def _ends(self) -> tuple[str, ...]:
        """Like the inherited method, but looks only at the inflows that have run dry."""
        over = [place for place in sorted(self._dry) if self.inflows[place].exhausted]
        self._dry.difference_update(over)
        names = tuple(self.inflows[place].name for place in over if not self.inflows[place].keep_open)
        self.ended |= set(names)
        return names

    def add(self, inflow: Inflow, shedder: Shedder | None, paced: bool) -> None:
        super().add(inflow, shedder, paced)
        self._dry.add(len(self.inflows) - 1)

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._sorted = False
