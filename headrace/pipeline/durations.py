"""Lengths of time as a person writes them: "5 seconds", "1 hour 30 min", or a plain number of ticks."""

from __future__ import annotations

import re
from fractions import Fraction

from headrace.sql.units import TICKS, UNITS

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def ticks(text: str | int, per_second: int | None) -> int:
    """The ticks of a length of time; `per_second` None: sequence numbers, which know no seconds."""
    if isinstance(text, int):
        return _positive(text)
    at, total = 0, Fraction(0)
    while at < len(text) or at == 0:
        match = _PART.match(text, at)
        if match is None or not match[1]:
            raise ValueError(
                f"{text!r} is no length of time: write 5 seconds, 10 ms, 1 hour 30 min, 200 ticks"
            )
        total += Fraction(match[1]) * _size(match[2].upper(), per_second)
        at = match.end()
    if total.denominator != 1:
        raise ValueError(f"{text!r} is no whole number of ticks")
    return int(total)


def _size(unit: str, per_second: int | None) -> Fraction:
    if unit in TICKS:
        return Fraction(1)
    seconds = UNITS.get(unit)
    if seconds is None:
        raise ValueError(f"no unit {unit.lower()!r}: use us, ms, s, min, h, d, or ticks")
    if per_second is None:
        raise ValueError(f"{unit.lower()!r} is no length of sequence numbers: give ticks")
    return seconds * per_second


def _positive(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def seconds(text: str | int | float) -> float:
    """A length of time of the machine's own clock, in seconds; a plain number counts seconds."""
    return float(text) if isinstance(text, (int, float)) else ticks(text, 1_000_000) / 1e6
