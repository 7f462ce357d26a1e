"""Every "now" comes from an injected clock; the engine has none of its own."""

from __future__ import annotations

import time as _time
from typing import Protocol


class Clock(Protocol):
    """Says what time it is, in ticks of the query's time domain."""

    def now(self) -> int:
        """The current instant; never decreases."""
        ...


class SystemClock:
    """Wall-clock microseconds since the epoch, held monotone."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, self.wall())
        return self._last

    def wall(self) -> int:
        """What the machine says; it may be set, ahead or back."""
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
    """Advances by the CPU time really used, and jumps over idle gaps (`design.md` §2).

    Hours of a sparse stream are thereby measured honestly in seconds: work costs what it costs on this
    machine, waiting costs nothing. `ticks_per_second` is that of the query's time domain.
    """

    def __init__(self, start: int = 0, ticks_per_second: int = 1_000_000) -> None:
        self._offset = start
        self._ticks_per_ns = ticks_per_second / 1e9
        self._cpu_origin = _time.process_time_ns()

    def now(self) -> int:
        used = _time.process_time_ns() - self._cpu_origin
        return self._offset + int(used * self._ticks_per_ns)

    def jump_to(self, instant: int) -> int:
        """Skip the idle gap up to `instant`; a jump into the past is no jump."""
        self._offset += max(0, instant - self.now())
        return self.now()
