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
"""The only unit of sequence numbers, which have no length in time; allowed everywhere."""

UNITS: Final[dict[str, Fraction | None]] = {
    **{name: size for long, size in _LONG.items() for name in (long, f"{long}S")},
    **{short: _LONG[long] for short, long in _SHORT.items()},
    **dict.fromkeys(sorted(TICKS)),
}
"""Every name of a unit, in capitals, and its seconds; None for ticks."""

_PART: Final = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)\s*")
_EXAMPLES: Final = 'write "5 seconds", "10 ms", "5m", "1 hour 30 min" or "200 ticks"'

Parts = tuple[tuple[Fraction, str], ...]
"""Amounts and their units, as keys of `UNITS`; "" for a number without a unit."""


def split(text: str) -> Parts | None:
    """The parts of a duration; None if the text is not one. Units are not checked."""
    parts, at = [], 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            return None
        parts.append((Fraction(match[1]), match[2].upper()))
        at = match.end()
    return tuple(parts) or None


def ticks(duration: Duration, per_second: int | None, place: str = "") -> int:
    """A duration in ticks; an integer is already in ticks. `per_second` None: sequence numbers."""
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
    """A duration in seconds of the machine's clock; a plain number counts seconds."""
    return float(duration) if isinstance(duration, int | float) else ticks(duration, 1_000_000, place) / 1e6


def readable(ticks: int, per_second: int | None) -> str:
    """Ticks as readable text, such as "60 s"; `per_second` None: "60 ticks"."""
    if per_second is None:
        return f"{ticks:,} tick{'' if ticks == 1 else 's'}"
    for size, unit, most in _SHOWN:
        if ticks < most * per_second:
            return f"{float(ticks / size / per_second):.4g} {unit}"
    return f"{float(ticks / per_second / 86_400):.4g} d"


_SHOWN: Final = (
    (Fraction(1, 1_000_000), "us", Fraction(1, 1000)),
    (Fraction(1, 1000), "ms", Fraction(1)),
    (Fraction(1), "s", Fraction(600)),
    (Fraction(60), "min", Fraction(36_000)),
    (Fraction(3600), "h", Fraction(172_800)),
)
"""A unit, its name, and the seconds from which a longer unit is more readable."""


def _parts(duration: object, place: str) -> Parts:
    """The amounts and units of a duration; raises HR-T051 if it is not one."""
    if isinstance(duration, timedelta):
        return ((Fraction(duration // timedelta(microseconds=1), 1_000_000), "SECOND"),)
    parts = split(duration) if isinstance(duration, str) else None
    if parts is None:
        raise TimeError("HR-T051", f"{duration!r} is not a duration", place=place, hint=_EXAMPLES)
    return parts


def _size(whole: Duration, amount: Fraction, unit: str, per_second: int | None, place: str) -> Fraction:
    """One amount in ticks; raises HR-T051 if the unit is missing, unknown or does not fit the stream."""
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
