"""Rounding times to multiples of a step within the time domain; times beyond its end become MAX_TIME."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Times
from headrace.plan.nodes.windows import Ticks
from headrace.time.timestamp import MAX_TIME, MIN_TIME


def ceil_to(times: Times, step: int | Times) -> Times:
    """The least multiple of `step` that is not less, or MAX_TIME where the domain has none."""
    return scale(-(-times // step), step)


def floor_to(times: Times, step: int | Times) -> Times:
    """The greatest multiple of `step` that is not greater; MAX_TIME is open and stays."""
    return np.where(times == MAX_TIME, MAX_TIME, times // step * step)


def add(times: Times, ticks: int) -> Times:
    """`times + ticks` for ticks ≥ 0."""
    ticks = min(ticks, MAX_TIME)
    return np.where(times > MAX_TIME - ticks, MAX_TIME, times + ticks)


def add_each(times: Times, ticks: Times) -> Times:
    """`times + ticks`, each its own, for 0 ≤ ticks < MAX_TIME."""
    return np.where(times > MAX_TIME - ticks, MAX_TIME, times + ticks)


def scale(counts: Times, step: int | Times) -> Times:
    """`counts · step`."""
    return np.where(counts > MAX_TIME // step, MAX_TIME, counts * step)


def tick_after(time: int, ticks: Ticks) -> int:
    """The first of the ticks that is later than `time`; the two ends of the domain absorb."""
    if time in (MIN_TIME, MAX_TIME):
        return time
    return min(MAX_TIME, (ticks_until(time, ticks) + 1) * ticks.slide + ticks.phase - 1)


def ticks_until(time: int, ticks: Ticks) -> int:
    """The number k of the last tick at or before `time`."""
    return (time + 1 - ticks.phase) // ticks.slide
