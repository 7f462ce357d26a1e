"""Durations as people write them: "5 s", "5m", "1 hour 30 min", "200 ticks", a timedelta, a number of ticks.

One grammar for pipeline files, CQL, the builder, `bounds=`, timers and the command line.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

from headrace.errors import TimeError

Duration = int | str | timedelta

_LONG: Final = {
    "MICROSECOND": Fraction(1, 1_000_000),
    "MILLISECOND": Fraction(1, 1000),
    "SECOND": Fraction(1),
    "MINUTE": Fraction(60),
    "HOUR": Fraction(3600),
    "DAY": Fraction(86_400),
    "WEEK": Fraction(604_800),
}
_SHORT: Final = {
    "US": "MICROSECOND",
    "MS": "MILLISECOND",
    "S": "SECOND",
    "SEC": "SECOND",
    "SECS": "SECOND",
    "M": "MINUTE",
    "MIN": "MINUTE",
    "MINS": "MINUTE",
    "H": "HOUR",
    "D": "DAY",
    "W": "WEEK",
}
TICKS: Final = frozenset({"TICK", "TICKS"})
"""The one unit of sequence numbers, which are counted and do not pass; allowed everywhere."""

UNITS: Final[dict[str, Fraction | None]] = {
    **{name: size for long, size in _LONG.items() for name in (long, f"{long}S")},
    **{short: _LONG[long] for short, long in _SHORT.items()},
    **dict.fromkeys(sorted(TICKS)),
}
"""Every name of a unit, in capitals, and its seconds; None for ticks."""

_PART: Final = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)\s*")
_EXAMPLES: Final = 'write "5 seconds", "10 ms", "5m", "1 hour 30 min" or "200 ticks"'

Parts = tuple[tuple[Fraction, str], ...]
"""Amounts and their units, as keys of `UNITS`; "" where a number has none."""


def split(text: str) -> Parts | None:
    """The parts of a duration; None if the text is not one. A unit may be one that does not exist."""
    parts, at = [], 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            return None
        parts.append((Fraction(match[1]), match[2].upper()))
        at = match.end()
    return tuple(parts) or None


def ticks(duration: Duration, per_second: int | None, place: str = "") -> int:
    """A duration in ticks; a whole number is in ticks already. `per_second` None: sequence numbers."""
    if isinstance(duration, int) and not isinstance(duration, bool):
        if duration < 0:
            raise TimeError("HR-T051", f"the duration {duration} is negative", place=place, hint=_EXAMPLES)
        return duration
    total = sum((_size(duration, *part, per_second, place) for part in _parts(duration, place)), Fraction(0))
    if total.denominator != 1 or total < 0:
        found = "is negative" if total < 0 else "is not a whole number of ticks"
        raise TimeError("HR-T051", f"{duration!r} {found}", place=place, hint=_EXAMPLES)
    return int(total)


def seconds(duration: Duration | float, place: str = "") -> float:
    """A duration by the machine's own clock; a plain number counts seconds."""
    return float(duration) if isinstance(duration, int | float) else ticks(duration, 1_000_000, place) / 1e6


def _parts(duration: object, place: str) -> Parts:
    if isinstance(duration, timedelta):
        return ((Fraction(duration // timedelta(microseconds=1), 1_000_000), "SECOND"),)
    parts = split(duration) if isinstance(duration, str) else None
    if parts is None:
        raise TimeError("HR-T051", f"{duration!r} is not a duration", place=place, hint=_EXAMPLES)
    return parts


def _size(whole: Duration, amount: Fraction, unit: str, per_second: int | None, place: str) -> Fraction:
    if unit in TICKS or (not unit and (per_second is None or not amount)):
        return amount
    if not unit:
        hint = f'write "{amount} seconds" or "{amount} ticks"'
        raise TimeError("HR-T051", f"the duration {whole!r} has no unit", place=place, hint=hint)
    size = UNITS.get(unit)
    if size is None:
        hint = "units: us, ms, s, min, h, d, w, or ticks"
        message = f"{whole!r} is not a duration: there is no unit {unit.lower()!r}"
        raise TimeError("HR-T051", message, place=place, hint=hint)
    if per_second is None:
        message = f"{whole!r} is a time, but this stream is ordered by sequence numbers"
        raise TimeError("HR-T051", message, place=place, hint='count ticks: "200 ticks"')
    return amount * size * per_second
