"""Ticks in a text as the units that a person would write."""

from __future__ import annotations

import re
from typing import Final

SPAN: Final = re.compile(
    r"\b(RANGE|SLIDE|OFFSET|MIN|MAX|SESSION|WITHIN|each|granularity|coarsest|finest) (\d+)\b"
)
UNITS: Final = (
    (604_800, "WEEK"),
    (86_400, "DAY"),
    (3600, "HOUR"),
    (60, "MINUTE"),
    (1, "SECOND"),
)


def with_units(text: str, ticks_per_second: int | None) -> str:
    """`text` with its lengths of time in the largest unit that counts them exactly; None: left in ticks."""
    if ticks_per_second is None:
        return text
    return SPAN.sub(lambda found: f"{found[1]} {span(int(found[2]), ticks_per_second)}", text)


def span(ticks: int, ticks_per_second: int) -> str:
    """A length of time in words."""
    for seconds, name in UNITS:
        count, rest = divmod(ticks, seconds * ticks_per_second)
        if rest == 0 and count:
            return f"{count} {name}{'S' if count > 1 else ''}"
    count, rest = divmod(ticks * 1000, ticks_per_second)
    return f"{count} MILLISECONDS" if rest == 0 else f"{ticks} TICKS"
