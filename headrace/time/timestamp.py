"""The time domain: int64 ticks, with the two ends reserved.

A heartbeat of `MIN_TIME` promises nothing; one of `MAX_TIME` promises that no more rows come. A row's
validity `[start, end)` with `end == MAX_TIME` is open: it lasts until it is withdrawn.
"""

from __future__ import annotations

from typing import Final

MIN_TIME: Final = -(2**63)
MAX_TIME: Final = 2**63 - 1
FARTHEST: Final = 2**62
"""Rows have times between −FARTHEST and FARTHEST, so that windows can be added to them."""
BEGINNING: Final = -FARTHEST
"""The instant before any row, at which rows of tables start."""


def plus(time: int, ticks: int) -> int:
    """`time + ticks` within the domain: MIN_TIME and MAX_TIME stay as they are."""
    if time in (MIN_TIME, MAX_TIME):
        return time
    return max(MIN_TIME, min(MAX_TIME, time + ticks))
