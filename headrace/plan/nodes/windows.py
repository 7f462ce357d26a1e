"""Window specifications: how a stream becomes a relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from headrace.errors import PlanError


@dataclass(frozen=True)
class Range:
    """`[RANGE T]`: rows with time in (now − T, now]; a row at t is valid in [t, t + T).

    `[RANGE MIN least, MAX size]` starts at `size` and may be changed at run time, never below `least`
    (Cammert et al., §3.1).
    """

    size: int
    least: int | None = None

    def __post_init__(self) -> None:
        _positive("RANGE", self.size)
        if self.least is not None:
            _positive("RANGE MIN", self.least)
            ordered("RANGE", "MIN", self.least, "MAX", self.size)


@dataclass(frozen=True, order=True)
class Ticks:
    """The instants k·slide + phase − 1, at which sliding windows are reported."""

    slide: int
    phase: int = 0


EVERY: Final = Ticks(1, 1)
"""Every instant; the instant 0 is number 0."""


@dataclass(frozen=True)
class Sliding:
    """`[RANGE T SLIDE S]`: windows [jS, jS + T), each reported at its last instant, jS + T − 1.

    Between two reports the relation stays the same, so a row is valid from the report of the first window
    that contains it to that of the first that does not; in a gap (T < S) it is in no window. With an
    `offset`, windows start at jS + offset. A window is numbered by its end, k·S + `shift`.

    `[RANGE MIN least, MAX size SLIDE S]` starts at `size` and may be changed at run time by whole slides, so
    that reports stay where they are; each row is in the windows of the size in force at its time.
    """

    size: int
    slide: int
    offset: int = 0
    least: int | None = None

    def __post_init__(self) -> None:
        _positive("RANGE", self.size)
        _positive("SLIDE", self.slide)
        if not 0 <= self.offset < self.slide:
            raise PlanError(
                "HR-P001",
                f"the offset of a window must be less than its SLIDE {self.slide}, not {self.offset}",
                hint="write an offset from 0 to SLIDE − 1",
            )
        if self.least is not None:
            _positive("RANGE MIN", self.least)
            ordered("RANGE", "MIN", self.least, "MAX", self.size)
            if (self.size - self.least) % self.slide:
                raise PlanError(
                    "HR-P001",
                    f"RANGE MIN {self.least} and MAX {self.size} must differ by a multiple of the SLIDE "
                    f"{self.slide}",
                    hint="choose bounds that are both multiples of the slide",
                )

    @property
    def shift(self) -> int:
        """Window k ends at k·S + shift."""
        return self.size % self.slide + self.offset

    @property
    def ticks(self) -> Ticks:
        """When windows are reported."""
        return Ticks(self.slide, self.shift % self.slide)


@dataclass(frozen=True)
class Rows:
    """`[ROWS n]`, or `[PARTITION BY keys ROWS n]`: the n newest rows (of each partition).

    A row is valid from its time until the n-th newer row (of its partition) comes. Simultaneous rows
    are ordered by `headrace.plan.analysis.ordering`.

    `[ROWS MIN least, MAX count]` starts at `count` and may be changed at run time, never below `least`: when
    a row comes, all rows of its partition leave that are not among the newest ones, as many as are in force
    at the time of the row that comes.
    """

    count: int
    keys: tuple[str, ...] = ()
    least: int | None = None

    def __post_init__(self) -> None:
        _positive("ROWS", self.count)
        if self.least is not None:
            _positive("ROWS MIN", self.least)
            ordered("ROWS", "MIN", self.least, "MAX", self.count)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return self.keys

    def over(self, columns: Sequence[str]) -> Self:
        """The same window with other columns."""
        return replace(self, keys=tuple(columns))


@dataclass(frozen=True)
class SlidingRows(Rows):
    """`[ROWS n SLIDE m]`: the n newest rows, as of the last row whose number is a multiple of m.

    Rows wait until m of them (of their partition) have come; all m enter at the time of the last one (Bai et
    al., query graphs, Figure 16: a result is returned once some number of rows are processed).
    """

    slide: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("SLIDE", self.slide)


@dataclass(frozen=True)
class Upserts(Rows):
    """`CREATE TABLE … PRIMARY KEY (keys)`: the newest row of each key, unless it deletes the key.

    A row is valid from its time until the next row of its key comes. A row in which the boolean column
    `deletes` is true is never valid. Without such a column, this is `Rows(1, keys)`.
    """

    count: int = 1
    deletes: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, self.deletes)

    def over(self, columns: Sequence[str]) -> Self:
        return replace(self, keys=tuple(columns[:-1]), deletes=columns[-1])


@dataclass(frozen=True)
class Now:
    """`[NOW]`: a row at t is valid in [t, t + 1)."""


@dataclass(frozen=True)
class Unbounded:
    """`[UNBOUNDED]`: a row at t is valid from t on."""


@dataclass(frozen=True)
class Session:
    """`[SESSION T]`: rows of a group that follow each other within T. Only for aggregates.

    `[PARTITION BY keys SESSION T]`: rows that are equal in `keys`; GROUP BY may use other columns.
    """

    gap: int
    keys: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _positive("SESSION", self.gap)


WindowSpec = Range | Sliding | Rows | Now | Unbounded | Session


def ordered(clause: str, low: str, least: int, high: str, most: int) -> None:
    """Raise an error if the lower bound is above the upper one."""
    if least > most:
        raise PlanError(
            "HR-P023",
            f"{clause} {low} {least} is more than {high} {most}",
            hint="write the smaller one first",
        )


def _positive(clause: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(
            "HR-P001", f"{clause} must be a whole number, not {value!r}", hint="count ticks or rows"
        )
    if value <= 0:
        raise PlanError(
            "HR-P001", f"{clause} must be positive, not {value}", hint="write at least one tick or row"
        )
