"""Arrivals: columns of streams, times and clock readings, in order of the clock."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.timestamp import MAX_TIME, MIN_TIME

RULES = {
    1: ("HR-T020", "the clock of an arrival went back", "give arrivals in clock order"),
    2: ("HR-T021", "no such stream", "number the streams as the bounds name them, from 0"),
    3: (
        "HR-T022",
        "a time at a reserved end of the domain",
        "reject the row before it comes here",
    ),
}


def columns(streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> tuple[Ints, Ints, Ints]:
    """Three int64 columns of one length; a single clock value applies to all rows."""
    s = np.ascontiguousarray(streams, dtype=np.int64).reshape(-1)
    x = np.ascontiguousarray(times, dtype=np.int64).reshape(-1)
    c = np.asarray(clocks, dtype=np.int64)
    c = np.full(len(s), c, dtype=np.int64) if c.ndim == 0 else np.ascontiguousarray(c)
    if not len(s) == len(x) == len(c):
        message = f"{len(s)} streams, {len(x)} times, {len(c)} clocks"
        raise TimeError("HR-T023", message, hint="one of each per arrival")
    return s, x, c


def batch(
    streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike, sources: int, last: int
) -> tuple[Ints, Ints, Ints]:
    """`columns`; raises an error if any arrival breaks a rule. `last` is the latest clock so far."""
    from headrace.kernels.heartbeat import check

    s, x, c = columns(streams, times, clocks)
    rule, at = check(s, x, c, sources, last)
    if rule:
        code, message, hint = RULES[int(rule)]
        place = f"arrival {at}: stream {s[at]}, time {x[at]}, clock {c[at]}"
        raise TimeError(code, message, place=place, hint=hint)
    return s, x, c


def went_back(now: int) -> TimeError:
    """The error for a question about an instant that has already passed."""
    return TimeError("HR-T020", "the clock went back", place=f"now {now}", hint="ask with a monotone clock")


def skews(times: Ints, newest: int) -> Ints:
    """How far each time is behind the greatest one before it: the least δ that would have admitted it.

    max(M − τ + 1, 0), saturated; M is the greatest of `newest` and the times before.
    """
    before = np.maximum.accumulate(np.concatenate(([newest], times)))[:-1]
    behind = before - times
    behind = np.where((behind < 0) & (before > times), MAX_TIME - 1, behind)
    return np.where((before == MIN_TIME) | (before < times), 0, behind + 1)
