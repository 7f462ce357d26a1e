"""Random numbers by position: the k-th draw of event n is a hash of (seed, k, n), whatever was drawn before.

The hash is that of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014):
plain 64-bit arithmetic, so that a seed gives the same events on every machine and every version of NumPy.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

WORD: Final = 2**64
GOLDEN: Final = 0x9E3779B97F4A7C15
MIX: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST: Final = 31
HALF: Final = np.uint64(32)
LOW: Final = np.uint64(2**32 - 1)


def key(seed: int, salt: str) -> int:
    """A stream of draws of its own for each seed and salt."""
    state = seed % WORD
    for letter in salt.encode():
        state = _mixed((state + GOLDEN * (letter + 1)) % WORD)
    return state


def _mixed(state: int) -> int:
    for shift, factor in MIX:
        state = (state ^ (state >> shift)) * factor % WORD
    return state ^ (state >> LAST)


def draw(key: int, numbers: Numbers) -> Bits:
    """64 random bits for each event number."""
    state = numbers.astype(np.uint64)
    state *= np.uint64(GOLDEN)
    state += np.uint64(key)
    for shift, factor in MIX:
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(LAST)
    return state


def high(bits: Bits) -> Bits:
    """The upper 32 of 64 bits."""
    return bits >> HALF


def low(bits: Bits) -> Bits:
    """The lower 32 of 64 bits."""
    return bits & LOW


def below(bits32: Bits, bound: int | Numbers) -> Numbers:
    """A number in [0, bound) from 32 bits; `bound` is below 2^32."""
    limit = np.uint64(bound) if isinstance(bound, int) else bound.astype(np.uint64)
    return ((bits32 * limit) >> HALF).view(np.int64)
