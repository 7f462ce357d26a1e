"""The clock of a run: the wall clock, held against a clock that cannot be set.

What the clock has promised cannot be taken back: rows from before that are late. So a wall clock that leaps
is not believed at once. Until it has stayed where it leapt to for a minute, time goes on at its pace if the
leap was ahead, and stands still if it was back. A clock that comes back before that has made no row late.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from headrace.time.clock import Clock

STEP: Final = 1_000_000
"""Ticks by which the wall clock may differ from what is expected without being taken to have leapt."""
LASTING: Final = 60_000_000
"""Ticks after which a leap is believed."""


class SteadyClock:
    """A wall clock without leaps; never decreases. `say` hears of leaps.

    `wall` may decrease; if it has a `monotonic`, in the same ticks, it is held against that.
    """

    def __init__(self, wall: Clock, say: Callable[[str], None] = lambda message: None) -> None:
        self._wall: Callable[[], int] = getattr(wall, "wall", wall.now)
        self._steady: Callable[[], int] = getattr(wall, "monotonic", _monotonic)
        self._say = say
        self._believed: int | None = None
        """How far the wall clock is ahead of the steady one."""
        self._leap: tuple[int, int] | None = None
        """How far it is after a leap, and the steady instant of that."""
        self._last: int | None = None

    def now(self) -> int:
        steady, wall = self._steady(), self._wall()
        found = self._instant(steady, wall)
        self._last = found if self._last is None else max(self._last, found)
        return self._last

    def _instant(self, steady: int, wall: int) -> int:
        offset = wall - steady
        if self._believed is None or abs(offset - self._believed) <= STEP:
            if self._leap is not None:
                self._leap = None
                self._say("the clock came back from its leap")
            self._believed = offset
            return wall
        if self._leap is None or abs(offset - self._leap[0]) > STEP:
            self._leap = (offset, steady)
            self._say(
                f"the clock leapt by {(offset - self._believed) // STEP:+,} s; not believed for a minute"
            )
        if steady - self._leap[1] >= LASTING:
            self._say(f"the clock stayed {(offset - self._believed) // STEP:+,} s off: believed from here on")
            self._believed, self._leap = offset, None
            return wall
        return steady + self._believed if offset > self._believed else wall


def _monotonic() -> int:
    return time.monotonic_ns() // 1000
