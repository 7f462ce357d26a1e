"""Window clauses to window specifications: a table with one entry per clause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from sqlglot import exp

from headrace.plan.nodes.windows import Now, Range, Rows, Session, Sliding, SlidingRows, Unbounded, WindowSpec
from headrace.sql.parser.clauses import (
    Duration,
    NowClause,
    RangeClause,
    RowsClause,
    SessionClause,
    UnboundedClause,
    WindowClause,
)
from headrace.sql.place import Code, fail
from headrace.time.durations import TICKS, UNITS

LONGEST: Final = 2**62


@dataclass(frozen=True)
class Cumulating(Sliding):
    """Windows [b, b + kS) in blocks of the size, for each k: Flink's CUMULATE. Only for aggregates.

    They are sliding windows whose rows are only those of the last block; blocks begin at `begin` + j · size.
    """

    begin: int = 0


FindColumn = Callable[[exp.Column], str]


def specification(clause: WindowClause, ticks_per_second: int | None, column: FindColumn) -> WindowSpec:
    """The window of a clause, in ticks; `column` resolves the columns of PARTITION BY."""
    return SPECIFICATIONS[type(clause)](clause, ticks_per_second, column)


def _range(clause: RangeClause, ticks_per_second: int | None, _: FindColumn) -> WindowSpec:
    size = ticks(clause.size, ticks_per_second)
    least = None if clause.least is None else least_of(clause.least, size, "MIN", "MAX", ticks_per_second)
    if clause.slide is None:
        return Range(size, least)
    slide = ticks(clause.slide, ticks_per_second)
    if clause.least is not None and least is not None and (size - least) % slide:
        hint = "choose bounds that are both multiples of the SLIDE"
        message = "MIN and MAX of windows that slide must differ by a multiple of the SLIDE"
        fail(Code.QUALITY, message, clause.least.span, hint)
    offset = 0 if clause.offset is None else _signed(clause.offset, ticks_per_second)
    if not clause.grows:
        return Sliding(size, slide, offset % slide, least)
    if size % slide:
        hint = "choose a size that is a multiple of the step"
        fail(Code.WINDOW, "the windows of CUMULATE grow in whole steps", clause.size.span, hint)
    return Cumulating(size, slide, offset % slide, begin=offset % size)


def least_of(least: Duration, most: int, low: str, high: str, ticks_per_second: int | None) -> int:
    """The lower of two bounds in ticks; an error if it is not lower."""
    found = ticks(least, ticks_per_second)
    if found > most:
        fail(Code.QUALITY, f"{low} is greater than {high}", least.span, "swap the two")
    return found


def _rows(clause: RowsClause, _: int | None, column: FindColumn) -> WindowSpec:
    keys = tuple(dict.fromkeys(column(key) for key in clause.keys))
    if clause.least is not None and clause.least > clause.count:
        fail(Code.QUALITY, "MIN is greater than MAX", clause.span, "swap the two")
    if clause.slide == 1:
        return Rows(clause.count, keys, clause.least)
    return SlidingRows(clause.count, keys, slide=clause.slide)


def _session(clause: SessionClause, ticks_per_second: int | None, column: FindColumn) -> WindowSpec:
    keys = None if clause.keys is None else tuple(dict.fromkeys(map(column, clause.keys)))
    return Session(ticks(clause.gap, ticks_per_second), keys)


SPECIFICATIONS: Final[dict[type[Any], Callable[[Any, int | None, FindColumn], WindowSpec]]] = {
    RangeClause: _range,
    RowsClause: _rows,
    SessionClause: _session,
    NowClause: lambda clause, ticks_per_second, column: Now(),
    UnboundedClause: lambda clause, ticks_per_second, column: Unbounded(),
}


def _signed(duration: Duration, ticks_per_second: int | None) -> int:
    """An offset in ticks: a whole number that may be 0 or negative."""
    total = _total(duration, ticks_per_second)
    if total.denominator != 1 or abs(total) >= LONGEST:
        hint = "choose a rounder duration"
        fail(
            Code.DURATION,
            f"an offset must be a whole number of ticks, not {_shown(total)}",
            duration.span,
            hint,
        )
    return int(total)


def _total(duration: Duration, ticks_per_second: int | None) -> Fraction:
    return sum((_part(*part, ticks_per_second, duration) for part in duration.parts), Fraction(0))


def ticks(duration: Duration, ticks_per_second: int | None) -> int:
    """A duration in ticks: a whole number, at least one."""
    total = _total(duration, ticks_per_second)
    if total.denominator != 1 or not 1 <= total < LONGEST:
        fail(
            Code.DURATION,
            f"a duration must be a whole number of ticks from 1 to 2^62, and this is {_shown(total)}",
            duration.span,
            "choose a longer or rounder duration" if total < LONGEST else "use [UNBOUNDED] for no limit",
        )
    return int(total)


def _part(amount: Fraction, unit: str, ticks_per_second: int | None, duration: Duration) -> Fraction:
    """One amount of a duration in ticks."""
    seconds = UNITS.get(unit)
    if seconds is not None and ticks_per_second is None:
        hint = "write a number without a unit, as in [RANGE 100]"
        fail(
            Code.DURATION,
            "this stream counts sequence numbers, so a duration cannot have a unit of time",
            duration.span,
            hint,
        )
    if seconds is not None and ticks_per_second is not None:
        return amount * seconds * ticks_per_second
    if unit in TICKS or (not unit and ticks_per_second is None):
        return amount
    hint = f"write [RANGE {_shown(amount)} SECONDS], or {_shown(amount)} TICKS"
    fail(Code.DURATION, "this duration has no unit", duration.span, hint)


def _shown(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else f"{float(number):g}"
