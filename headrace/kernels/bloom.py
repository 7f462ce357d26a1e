"""Sets of 64-bit words that may say yes too often, never no: twelve bits a word or more, four of them set."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

_BITS = 12
_HASHES = 4
_MIX_A = np.uint64(0x9E3779B97F4A7C15)
_MIX_B = np.uint64(0xD6E8FEB86659FD93)
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)


def new_filter(words: int) -> npt.NDArray[np.uint64]:
    """An empty set with room for so many words: about three in a thousand others pass for members."""
    bits = max(64, 1 << (max(1, words) * _BITS - 1).bit_length())
    return np.zeros(bits // 64, np.uint64)


@nb.njit(inline="always")
def _scatter(word: np.int64) -> tuple[np.uint64, np.uint64]:
    low = np.uint64(word) * _MIX_A
    low ^= low >> np.uint64(32)
    high = (low * _MIX_B) ^ (low >> np.uint64(29))
    return low, high | np.uint64(1)


@kernel(nb.void(nb.uint64[::1], _READ_I64))
def add_words(bits: npt.NDArray[np.uint64], words: npt.NDArray[np.int64]) -> None:
    """Put words into the set."""
    mask = np.uint64(bits.size * 64 - 1)
    for i in range(words.size):
        at, step = _scatter(words[i])
        for _ in range(_HASHES):
            bit = at & mask
            bits[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
            at += step


@kernel(nb.void(nb.uint64[::1], _READ_I64, nb.boolean[::1]))
def may_have(
    bits: npt.NDArray[np.uint64], words: npt.NDArray[np.int64], found: npt.NDArray[np.bool_]
) -> None:
    """Which words may be in the set; the others are not."""
    mask = np.uint64(bits.size * 64 - 1)
    for i in range(words.size):
        at, step = _scatter(words[i])
        found[i] = True
        for _ in range(_HASHES):
            bit = at & mask
            if not (bits[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
                found[i] = False
                break
            at += step
