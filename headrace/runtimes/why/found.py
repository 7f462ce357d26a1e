"""A cause, where it is looked for, and what is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headrace import tuning
from headrace.runtimes.status import QueryStatus, Status, StreamStatus, Wait
from headrace.runtimes.words import time_of_day
from headrace.time.timestamp import MIN_TIME


class Scope(Enum):
    """What a cause is looked for in."""

    RUN = "run"
    QUERY = "query"
    STREAM = "stream"


@dataclass(frozen=True)
class Case:
    """Where a cause is looked for: a run, a query of it, or a stream that the query reads.

    `age` is how many seconds ago the status was written. `waits` are those of the query; for a stream, those
    that the stream holds back.
    """

    status: Status
    age: float = 0.0
    query: str = ""
    stream: str = ""
    waits: tuple[Wait, ...] = ()

    @property
    def read(self) -> StreamStatus:
        """The stream."""
        return self.status.streams[self.stream]

    @property
    def asked(self) -> QueryStatus:
        """The query."""
        return self.status.queries[self.query]

    def longer(self, since: int | None, seconds: float) -> bool:
        """Whether more than so many seconds have passed since an instant."""
        return since is not None and self.status.seconds(self.status.now - since) > seconds

    @property
    def silent(self) -> bool:
        """Whether the stream has sent nothing for a while."""
        arrived = self.read.arrived if self.read.arrived is not None else self.status.begun
        return not self.read.ended and self.longer(arrived, tuning.current.silent_seconds)

    @property
    def holds_back(self) -> bool:
        """Whether the stream keeps the query from results that are due by the clock."""
        if self.status.ticks_per_second is None:
            return bool(self.waits)
        return any(wait.wanted < self.status.now for wait in self.waits)

    @property
    def behind(self) -> tuple[int, str]:
        """For sorting: the stream that is furthest behind comes first."""
        heartbeat = self.read.heartbeat
        return MIN_TIME if heartbeat is None else heartbeat, self.stream


@dataclass(frozen=True)
class Found:
    """A cause that holds, for one query or for several that wait for the same stream.

    `also`: other streams for which the same is true.
    """

    cause: Cause
    cases: tuple[Case, ...]
    also: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """The status that it was found in."""
        return self.cases[0].status

    @property
    def stream(self) -> str:
        """The stream that is the cause, if any."""
        return self.cases[0].stream

    @property
    def read(self) -> StreamStatus:
        """The stream that is the cause."""
        return self.cases[0].read

    @property
    def age(self) -> float:
        """How many seconds ago the status was written."""
        return self.cases[0].age

    @property
    def queries(self) -> tuple[str, ...]:
        """The queries that it keeps waiting."""
        return tuple(dict.fromkeys(case.query for case in self.cases if case.query))

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The waits that it explains; queries may share an operator."""
        by_operator = {wait.operator: wait for case in self.cases for wait in case.waits}
        return tuple(by_operator.values())

    @property
    def since(self) -> int | None:
        """The instant since which the first of its queries waits."""
        return min((wait.since for wait in self.waits if wait.since is not None), default=None)

    @property
    def waited(self) -> float | None:
        """How long they have waited, in seconds."""
        since = self.since
        return None if since is None else max(0.0, self.status.seconds(self.status.now - since))

    @property
    def rows(self) -> int:
        """The rows that wait."""
        return sum(wait.rows for wait in self.waits)

    @property
    def bytes(self) -> int:
        """The bytes of the operators that wait."""
        return sum(wait.bytes for wait in self.waits)

    @property
    def sentence(self) -> str:
        """What happens, in words."""
        return self.cause.sentence(self)

    @property
    def hint(self) -> str:
        """What would help."""
        return self.cause.hint(self)

    def at(self, tick: int) -> str:
        """An instant of the run's clock in words."""
        return time_of_day(tick, self.status.clock_per_second, self.status.now)

    def __str__(self) -> str:
        return f"{self.sentence} {self.hint}".strip()

    def plain(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "cause": self.cause.name,
            "normal": self.cause.normal,
            "queries": self.queries,
            "stream": self.stream or None,
            "also": self.also,
            "operators": [wait.operator for wait in self.waits],
            "since": self.since,
            "waited_seconds": self.waited,
            "wanted": max((wait.wanted for wait in self.waits), default=None),
            "heartbeat": self.read.heartbeat if self.stream else None,
            "rows": self.rows,
            "bytes": self.bytes,
            "sentence": self.sentence,
            "hint": self.hint,
        }


Words = Callable[[Found], str]


@dataclass(frozen=True)
class Cause:
    """A row of the table. `normal`: nothing is wrong. `alone`: it explains everything."""

    name: str
    scope: Scope
    holds: Callable[[Case], bool]
    sentence: Words
    hint: Words = lambda found: ""
    normal: bool = False
    alone: bool = False
