"""Lengths of time as people write them, in ticks."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from headrace.errors import TimeError
from headrace.sql.units import UNITS

Duration = int | str | timedelta

_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_HINT = "write '10 seconds', a timedelta, or a whole number of ticks"


def ticks(duration: Duration, ticks_per_second: int | None, place: str = "") -> int:
    """A duration in ticks; a whole number is in ticks already."""
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    seconds = _seconds(duration, place)
    if ticks_per_second is None:
        raise TimeError(
            "HR-T051",
            f"{duration!r} of sequence numbers",
            place=place,
            hint="count ticks: they know no seconds",
        )
    exact = seconds * ticks_per_second
    if exact.denominator != 1:
        raise TimeError("HR-T051", f"{duration!r} is no whole number of ticks", place=place, hint=_HINT)
    return int(exact)


def _seconds(duration: object, place: str) -> Fraction:
    if isinstance(duration, timedelta):
        return Fraction(duration // timedelta(microseconds=1), 1_000_000)
    form = _FORM.fullmatch(duration) if isinstance(duration, str) else None
    unit = None if form is None else UNITS.get(form[2].upper())
    if form is None or unit is None:
        raise TimeError("HR-T051", f"{duration!r} is no length of time", place=place, hint=_HINT)
    return Fraction(form[1]) * unit
