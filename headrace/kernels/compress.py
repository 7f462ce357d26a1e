"""Rows that a mask keeps, without a branch: which rows those are cannot be predicted."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

_WORDS = nb.types.Array(nb.int64, 1, "C", readonly=True)
_MASK = nb.types.Array(nb.uint8, 1, "C", readonly=True)


@kernel(nb.void(_WORDS, _MASK, nb.int64[::1]))
def compress(words: npt.NDArray[np.int64], mask: npt.NDArray[np.uint8], out: npt.NDArray[np.int64]) -> None:
    """The words where `mask` is 1. `out` has room for one more: it is written, and means nothing."""
    k = 0
    for i in range(words.size):
        out[k] = words[i]
        k += mask[i]


@kernel(nb.types.Tuple((nb.int64, nb.int64, nb.boolean))(_WORDS))
def extent(times: npt.NDArray[np.int64]) -> tuple[int, int, bool]:
    """The least and the greatest of some times, and whether they are in order; there is at least one."""
    low = high = times[0]
    falls = False
    for i in range(1, times.size):
        falls |= times[i] < times[i - 1]
        low, high = min(low, times[i]), max(high, times[i])
    return low, high, not falls
