"""Ticks as the units that a person would write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

Span = Callable[[int], str]
"""Writes a duration in ticks."""

UNITS: Final = (
    (604_800, "WEEK"),
    (86_400, "DAY"),
    (3600, "HOUR"),
    (60, "MINUTE"),
    (1, "SECOND"),
)


def in_units(ticks_per_second: int | None) -> Span:
    """Durations in the largest unit that counts them exactly; None: in ticks."""
    return str if ticks_per_second is None else partial(span, ticks_per_second=ticks_per_second)


def span(ticks: int, ticks_per_second: int) -> str:
    """A duration in words."""
    for seconds, name in UNITS:
        count, rest = divmod(ticks, seconds * ticks_per_second)
        if rest == 0 and count:
            return f"{count} {name}{'S' if count > 1 else ''}"
    count, rest = divmod(ticks * 1000, ticks_per_second)
    return f"{count} MILLISECONDS" if rest == 0 else f"{ticks} TICKS"
