"""Moving variable-length values: what NumPy's take is to fixed-width columns."""

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
