"""Seeded arrivals in nanoseconds: Poisson, and bursts of nearly simultaneous rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Instants = npt.NDArray[np.int64]
SECOND = 1_000_000_000
MILLI = 1_000_000


def poisson(rate: float, seconds: float, seed: int) -> Instants:
    """Independent arrivals, `rate` a second on average, until `seconds` have passed."""
    rng = np.random.default_rng(seed)
    likely = rate * seconds
    gaps = rng.exponential(SECOND / rate, int(likely + 10 * np.sqrt(likely) + 10))
    instants = np.cumsum(gaps).astype(np.int64)
    return instants[instants < seconds * SECOND]


def bursts(rate: float, size: int, seconds: float, seed: int) -> Instants:
    """Poisson bursts of `size` rows within nanoseconds of each other, `rate` rows a second on average."""
    begins = poisson(rate / size, seconds, seed)
    return np.sort((begins[:, None] + np.arange(size)).ravel())
