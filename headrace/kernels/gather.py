"""Moving variable-length values: what NumPy's take is to fixed-width columns."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)


@kernel(nb.void(_READ, _READ, nb.uint8[:], _READ, _READ, nb.uint8[::1]))
def gather_bytes(
    begins: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    heap: npt.NDArray[np.uint8],
    indices: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
) -> None:
    """Copy value `indices[i]` to `out[offsets[i]:]`."""
    for i in range(indices.size):
        source = begins[indices[i]]
        target = offsets[i]
        for j in range(lengths[indices[i]]):
            out[target + j] = heap[source + j]


@kernel("int64(int64[:], int64)")
def first_above(values: npt.NDArray[np.int64], bound: int) -> int:
    """The first position whose value is > `bound`, or the size."""
    i = 0
    while i < values.size and values[i] <= bound:
        i += 1
    return i
