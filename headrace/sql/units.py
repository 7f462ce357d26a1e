"""Units of time, as seconds, under every name that a window may use."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

_NAMES: Final = {
    Fraction(1, 1_000_000): ("MICROSECOND", "US"),
    Fraction(1, 1000): ("MILLISECOND", "MS"),
    Fraction(1): ("SECOND", "SEC", "S"),
    Fraction(60): ("MINUTE", "MIN"),
    Fraction(3600): ("HOUR", "H"),
    Fraction(86_400): ("DAY", "D"),
    Fraction(604_800): ("WEEK", "W"),
}
TICKS: Final = frozenset({"", "TICK", "TICKS"})
"""A tick is no length of time: the one unit of sequence numbers, and allowed everywhere."""

UNITS: Final[dict[str, Fraction | None]] = {
    **{spelling: size for size, names in _NAMES.items() for name in names for spelling in (name, f"{name}S")},
    "TICK": None,
    "TICKS": None,
}
