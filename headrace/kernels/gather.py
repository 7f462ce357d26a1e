"""Moving variable-length values, as NumPy's `take` does for fixed-width columns."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)


@kernel(nb.void(_READ, nb.uint8[:], _READ, nb.uint8[::1]))
def gather_bytes(
    begins: npt.NDArray[np.int64],
    heap: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
) -> None:
    """Copy the bytes of each value, from `begins[i]` on, to `out[offsets[i]:offsets[i + 1]]`."""
    for i in range(begins.size):
        source = begins[i] - offsets[i]
        for target in range(offsets[i], offsets[i + 1]):
            out[target] = heap[source + target]


@kernel("int64(int64[:], int64)")
def first_above(values: npt.NDArray[np.int64], bound: int) -> int:
    """The first position whose value is > `bound`, or the size."""
    i = 0
    while i < values.size and values[i] <= bound:
        i += 1
    return i


# Selecting the rows of a mask without a branch, because which rows are kept cannot be predicted.


_WORDS = nb.types.Array(nb.int64, 1, "C", readonly=True)
_MASK = nb.types.Array(nb.uint8, 1, "C", readonly=True)


@kernel(nb.void(_WORDS, _MASK, nb.int64[::1]))
def compress(words: npt.NDArray[np.int64], mask: npt.NDArray[np.uint8], out: npt.NDArray[np.int64]) -> None:
    """The words where `mask` is 1. `out` has room for one more word, which is written but unused."""
    k = 0
    for i in range(words.size):
        out[k] = words[i]
        k += mask[i]


@kernel(nb.types.Tuple((nb.int64, nb.int64, nb.boolean))(_WORDS))
def extent(times: npt.NDArray[np.int64]) -> tuple[int, int, bool]:
    """The least and the greatest of one or more times, and whether they are in order."""
    low = high = times[0]
    falls = False
    for i in range(1, times.size):
        falls |= times[i] < times[i - 1]
        low, high = min(low, times[i]), max(high, times[i])
    return low, high, not falls
