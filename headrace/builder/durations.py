"""Durations as a person has them: "10 minutes", a `timedelta`, or a number of ticks."""

from __future__ import annotations

import datetime as dt
from typing import Final

from headrace.errors import SqlError
from headrace.sql import fragments
from headrace.sql.codes import Code
from headrace.time.durations import Duration

MICROSECOND: Final = dt.timedelta(microseconds=1)
UNITS: Final = (
    (dt.timedelta(days=1), "DAYS"),
    (dt.timedelta(hours=1), "HOURS"),
    (dt.timedelta(minutes=1), "MINUTES"),
    (dt.timedelta(seconds=1), "SECONDS"),
    (dt.timedelta(milliseconds=1), "MILLISECONDS"),
    (MICROSECOND, "MICROSECONDS"),
)


def duration(of: Duration) -> str:
    """The duration as CQL writes it."""
    if isinstance(of, dt.timedelta):
        return _of_timedelta(of)
    if isinstance(of, int) and not isinstance(of, bool):
        return f"{_positive(of)} TICKS"
    if not isinstance(of, str):
        hint = 'give "10 minutes", a timedelta or a number of ticks'
        raise SqlError(Code.DURATION, f"{of!r} is no duration", hint=hint)
    return fragments.duration(of)


def _of_timedelta(of: dt.timedelta) -> str:
    """In the largest unit that counts it exactly."""
    size, unit = next((each for each in UNITS if of % each[0] == dt.timedelta(0)), UNITS[-1])
    return f"{_positive(of // size)} {unit}"


def _positive(count: int) -> int:
    if count < 1:
        raise SqlError(Code.DURATION, "a duration is at least one tick", hint='give "10 minutes", say')
    return count
