"""The bounds of a set of streams (skew B, latency L, timeout), and whether they ensure progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.skew import SkewMatrix
from headrace.time.timestamp import MAX_TIME

NEVER = MAX_TIME
"""A timeout that never happens: the user accepts that a pause of all streams holds rows back."""


@dataclass(frozen=True)
class Bounds:
    """A skew matrix, a latency bound per stream (§2), and optionally the timeout of §3.4.

    `fifo`: the streams, by number, whose rows arrive in the order in which they were sent (§2, refinement).
    """

    skew: SkewMatrix
    latency: tuple[int, ...]
    timeout: int | None = None
    fifo: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if len(self.latency) != self.skew.size:
            message = f"{len(self.latency)} latencies for {self.skew.size} streams"
            raise TimeError("HR-T004", message, hint="give one latency bound per stream")
        for name, ticks in zip(self.skew.streams, self.latency, strict=True):
            if ticks < 0:
                raise TimeError("HR-T004", f"latency {ticks} is negative", place=name, hint="use 0 for none")
        if self.timeout is not None and self.timeout < 0:
            raise TimeError("HR-T005", f"timeout {self.timeout} is negative", hint="leave it out for none")

    @classmethod
    def of(
        cls,
        skew: SkewMatrix,
        latency: int | Sequence[int] | Mapping[str, int] = 0,
        timeout: int | None = None,
    ) -> Bounds:
        """Build bounds with one latency for all streams, one per stream, or by name (0 if not named)."""
        return cls(skew, _latencies(skew, latency), timeout)

    @property
    def streams(self) -> tuple[str, ...]:
        return self.skew.streams

    def closed(self) -> Bounds:
        """The same promises with B* in place of B: as correct, and never later than with B (§3.2)."""
        return replace(self, skew=self.skew.closure())

    def waits(self) -> Ints:
        """How long after an arrival each pair holds: t + L_j.

        What j proves about itself at once, (0, δ), holds without L_j if its rows keep their order: what comes
        later was sent later.
        """
        skew, latency = self.skew, np.array(self.latency, np.int64)
        own = (skew.source == skew.target) & (skew.t == 0) & (skew.n == 0)
        sums = skew.t + np.where(own & np.isin(skew.target, list(self.fifo)), 0, latency[skew.target])
        return np.where(sums < 0, np.int64(MAX_TIME), sums)

    def horizon(self) -> int:
        """t_max + L_max: how far ahead a heartbeat can be scheduled (§5.1)."""
        if not len(self.skew.t):
            return 0
        return int(self.waits().max())


def timeout_needed(skew: SkewMatrix) -> bool:
    """Theorem 3.3: a timeout is not needed iff δ_min = 0 for every i, j of B*. Expects B*.

    δ_min is taken over time-based pairs; an entry without one counts as infinite.
    """
    return bool((skew.tightest() != 0).any())


def unbounded(skew: SkewMatrix) -> list[tuple[str, str]]:
    """The pairs (i, j) without a time-based bound of i on j: i cannot move a silent j. Expects B*."""
    return [(skew.streams[i], skew.streams[j]) for i, j in np.argwhere(skew.tightest() < 0)]


def ensure_progress(bounds: Bounds) -> None:
    """Refuse bounds under which rows could wait forever, unless there is a timeout (Srivastava & Widom,
    Theorem 3.3). Expects the closure B*."""
    if bounds.timeout is not None:
        return
    tightest = bounds.skew.tightest()
    for problem in (_silent, _stuck):
        problem(bounds, tightest)


def _silent(bounds: Bounds, tightest: Ints) -> None:
    """Raise HR-T011 if nothing bounds one stream by another."""
    for i, j in np.argwhere(tightest < 0)[:1]:
        a, b = bounds.streams[i], bounds.streams[j]
        raise TimeError(
            "HR-T011",
            f"nothing bounds how far {b!r} may lag behind {a!r}: rows of {a!r} could wait forever",
            place=f"skew ({a}, {b})",
            hint=f"declare a bound of {a!r} on {b!r}, directly or through another stream, or a timeout",
        )


def _stuck(bounds: Bounds, tightest: Ints) -> None:
    """Raise HR-T010 if the last rows before a pause of all streams would wait forever."""
    for i, j in np.argwhere(tightest > 0)[:1]:
        a, b, delta = bounds.streams[i], bounds.streams[j], tightest[i, j]
        raise TimeError(
            "HR-T010",
            f"when all streams pause, rows within {delta} of the last time on {a!r} wait for {b!r} forever",
            place=f"skew ({a}, {b})",
            hint=f"declare a timeout, or a pair (t, 0) of {a!r} on {b!r}: after t, {b!r} has caught up",
        )


def _latencies(skew: SkewMatrix, latency: int | Sequence[int] | Mapping[str, int]) -> tuple[int, ...]:
    """One latency per stream, from a number, a sequence or a mapping."""
    if isinstance(latency, int):
        return (latency,) * skew.size
    if isinstance(latency, Mapping):
        for name in latency:
            if name not in skew.streams:
                known = ", ".join(skew.streams[:8])
                raise TimeError("HR-T002", f"a latency for unknown stream {name!r}", hint=f"known: {known}")
        return tuple(latency.get(name, 0) for name in skew.streams)
    return tuple(int(x) for x in latency)
