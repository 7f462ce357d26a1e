"""Clocks: every "now" comes from a clock that is passed in; the engine never reads the system time."""

from __future__ import annotations

import time
import time as _time
from collections.abc import Callable
from typing import Final, Protocol


class Clock(Protocol):
    """Returns the current time, in ticks of the query's time domain."""

    def now(self) -> int:
        """The current instant; never decreases."""
        ...


class SystemClock:
    """Wall-clock microseconds since the epoch; never decreases."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, self.wall())
        return self._last

    def wall(self) -> int:
        """The system time; it may be set forward or back."""
        return _time.time_ns() // 1000

    def monotonic(self) -> int:
        """Microseconds of a clock that cannot be set."""
        return _time.monotonic_ns() // 1000


class ManualClock:
    """A clock that a test moves by hand."""

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, ticks: int) -> int:
        """Move forward by `ticks` (never back) and return the new instant."""
        self._now += max(0, ticks)
        return self._now

    def advance_to(self, instant: int) -> int:
        """Move forward to `instant`, or stay if that is in the past."""
        self._now = max(self._now, instant)
        return self._now


class SimulatedClock:
    """Advances by the CPU time really used, and jumps over idle gaps.

    So hours of a sparse stream can be measured in seconds: work costs its real time on this machine, waiting
    costs nothing. `ticks_per_second` is that of the query's time domain.
    """

    def __init__(self, start: int = 0, ticks_per_second: int = 1_000_000) -> None:
        self._offset = start
        self._ticks_per_ns = ticks_per_second / 1e9
        self._cpu_origin = _time.process_time_ns()

    def now(self) -> int:
        used = _time.process_time_ns() - self._cpu_origin
        return self._offset + int(used * self._ticks_per_ns)

    def jump_to(self, instant: int) -> int:
        """Skip the idle gap up to `instant`; does nothing if `instant` is in the past."""
        self._offset += max(0, instant - self.now())
        return self.now()


# The clock of a run: the wall clock, checked against the monotonic clock.
#
# A heartbeat that follows the clock cannot be taken back: earlier rows are late. So a jump of the wall clock
# is not used immediately. Until it has lasted for a minute, time continues at its own pace after a jump
# ahead, and stops after a jump back. If the clock jumps back to the expected time before that, no row is
# late.


STEP: Final = 1_000_000
"""Ticks by which the wall clock may differ from the expected time before that counts as a jump."""
LASTING: Final = 60_000_000
"""Ticks after which a jump is accepted."""


class SteadyClock:
    """A wall clock without jumps, which never decreases. `say` is called with notes about jumps.

    `wall` may decrease; if it has a `monotonic` in the same ticks, it is checked against that.
    """

    def __init__(self, wall: Clock, say: Callable[[str], None] = lambda message: None) -> None:
        self._wall: Callable[[], int] = getattr(wall, "wall", wall.now)
        self._steady: Callable[[], int] = getattr(wall, "monotonic", _monotonic)
        self._say = say
        self._believed: int | None = None
        """The expected difference between the wall clock and the monotonic one."""
        self._leap: tuple[int, int] | None = None
        """After a jump: the new difference, and the monotonic time of the jump."""
        self._last: int | None = None

    def now(self) -> int:
        steady, wall = self._steady(), self._wall()
        found = self._instant(steady, wall)
        self._last = found if self._last is None else max(self._last, found)
        return self._last

    def _instant(self, steady: int, wall: int) -> int:
        """The time of the wall clock, unless it jumped ahead less than a minute ago."""
        offset = wall - steady
        if self._believed is None or abs(offset - self._believed) <= STEP:
            if self._leap is not None:
                self._leap = None
                self._say("the system clock jumped back to the expected time")
            self._believed = offset
            return wall
        if self._leap is None or abs(offset - self._leap[0]) > STEP:
            self._leap = (offset, steady)
            self._say(
                f"the system clock jumped by {(offset - self._believed) // STEP:+,} s; "
                "the jump is ignored unless it lasts for a minute"
            )
        if steady - self._leap[1] >= LASTING:
            self._say(
                f"the system clock stayed {(offset - self._believed) // STEP:+,} s off for a minute: "
                "it is used from now on"
            )
            self._believed, self._leap = offset, None
            return wall
        return steady + self._believed if offset > self._believed else wall


def _monotonic() -> int:
    return time.monotonic_ns() // 1000


def seconds() -> float:
    """Seconds of a clock that cannot be set: for intervals, not for instants of rows."""
    return _time.monotonic_ns() / 1e9
