"""Which rows come next, and at which instant: by the system's clock, or by the instants of the rows.

A step is all that arrives at one instant. By the rows' own instants, a step is a function of the positions
alone: a restart makes the same steps, so the same rows are late and the same answers come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from headrace.runtimes.embedded.inflow import Inflow, Piece
from headrace.runtimes.embedded.shedding import Shedder
from headrace.time.clock import Clock
from headrace.time.timestamp import FARTHEST, MAX_TIME, MIN_TIME

LONGEST: Final = 1_000_000
"""Ticks for which a stream that is never slowed may be read before the engine has its turn."""


@dataclass(frozen=True)
class Step:
    """Everything that arrives at an instant, and the streams that end with it.

    `read`, where the system's clock rules: until when all that reached the source of a stream has been read.
    """

    now: int
    pieces: tuple[Piece, ...] = ()
    ends: tuple[str, ...] = ()
    read: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows, good or bad or shed."""
        return sum(len(piece) + len(piece.bad) + piece.shed for piece in self.pieces)


class Feed(Protocol):
    """Makes steps until all is read."""

    @property
    def finished(self) -> bool:
        """Whether no step will come any more."""
        ...

    def next(self) -> Step | None:
        """The next step; None if nothing comes now."""
        ...

    def state(self) -> dict[str, Any]:
        """Where it is, as JSON."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from where another feed of the same streams was."""
        ...

    def close(self) -> None: ...


@dataclass
class _Flowing:
    """What feeds have in common: inflows, and those that have ended."""

    inflows: Sequence[Inflow]
    now: int = -FARTHEST
    ended: set[str] = field(default_factory=set)

    @property
    def finished(self) -> bool:
        return len(self.ended) == len(self.inflows)

    def _ends(self) -> tuple[str, ...]:
        """The streams that have just run out, once each."""
        new = tuple(
            i.name for i in self.inflows if i.exhausted and not i.keep_open and i.name not in self.ended
        )
        self.ended |= set(new)
        return new

    def state(self) -> dict[str, Any]:
        positions = {inflow.name: inflow.position() for inflow in self.inflows}
        return {"now": self.now, "ended": sorted(self.ended), "streams": positions}

    def restore(self, state: dict[str, Any]) -> None:
        self.now, self.ended = state["now"], set(state["ended"])
        for inflow in self.inflows:
            inflow.seek(state["streams"][inflow.name])

    def close(self) -> None:
        for inflow in self.inflows:
            inflow.close()


@dataclass
class SystemFeed(_Flowing):
    """Rows arrive when they are read. `paced` streams have instants of their own and wait for them.

    Rows may have waited at their source: while we were not running, or because they come faster than they
    are read. A source that has nothing more to give has been read up to the instant before it was asked. A
    stream is read a block at a time, so it is slowed to what the engine and the sinks can do. One with a
    shedder is never slowed: all that is there is read, and what is too much is shed.
    """

    clock: Clock | None = None
    paced: frozenset[str] = frozenset()
    shedders: Mapping[str, Shedder] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)

    def next(self) -> Step | None:
        assert self.clock is not None
        self.now = max(self.now, self.clock.now())
        pieces = [piece for inflow in self.inflows for piece in self._read(inflow)]
        ends = self._ends()
        return Step(self.now, tuple(pieces), ends, dict(self.read)) if pieces or ends else None

    def _read(self, inflow: Inflow) -> list[Piece]:
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
        """What was asked and had nothing, or has only what is yet to come, is read up to now."""
        if dry or inflow.loaded:
            self.read[inflow.name] = self.now

    def _read_all(self, inflow: Inflow, shedder: Shedder) -> Iterator[Piece]:
        """All that is there now; of a stream that comes faster than it can be read, a while's worth."""
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
            shedder.number = state["shed"][name]


@dataclass
class EventFeed(_Flowing):
    """Rows arrive when they happen: streams are read side by side, none ahead of another.

    A step reaches to the least of the instants that the streams were read to. A stream that is open and
    silent holds nobody up.
    """

    def next(self) -> Step | None:
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
    """Rows arrive at the instants that were recorded with them: a step for each of those, exactly.

    Streams with rows at hand wait in a heap for the instant of their next; a step looks at those of its
    instant, and at those of which nothing is at hand.
    """

    _next: list[tuple[int, int]] = field(default_factory=list)
    _dry: set[int] = field(default_factory=set)
    _sorted: bool = False

    def next(self) -> Step | None:
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
        self._sorted, self._next, self._dry = True, [], set()
        for place, inflow in enumerate(self.inflows):
            if inflow.name not in self.ended:
                self._wait(place)

    def _wait(self, place: int) -> None:
        """Let a stream wait for the instant of its next row, or for there to be one."""
        first = self.inflows[place].first
        if first is None:
            self._dry.add(place)
        else:
            heappush(self._next, (first, place))

    def _read_dry(self) -> list[int]:
        """Read where nothing is at hand, up to a row; the streams that had something, if bad input only."""
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
        """Read until rows of this instant, or of an earlier one, are all at hand."""
        while (inflow.last is None or inflow.last <= self.now) and inflow.load():
            pass

    def _ends(self) -> tuple[str, ...]:
        over = [place for place in sorted(self._dry) if self.inflows[place].exhausted]
        self._dry.difference_update(over)
        names = tuple(self.inflows[place].name for place in over if not self.inflows[place].keep_open)
        self.ended |= set(names)
        return names

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._sorted = False
