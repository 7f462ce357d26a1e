"""Merging sorted arrays: the order in which an ordered union takes the rows of two inputs."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)
_ROWS = nb.types.Array(nb.int64, 1, "C", readonly=True)


@kernel(nb.void(_READ, _READ, nb.int64[::1]))
def merge_order(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> None:
    """Positions in `left` followed by `right` in order of value; equal values: left first."""
    i, j, k, n = 0, 0, 0, left.size
    while i < n and j < right.size:  # no branch on the comparison: which side is next cannot be predicted
        first = left[i] <= right[j]
        order[k] = i if first else n + j
        i += first
        j += 1 - first
        k += 1
    while i < n:
        order[k] = i
        i, k = i + 1, k + 1
    while j < right.size:
        order[k] = n + j
        j, k = j + 1, k + 1


@kernel(nb.void(_ROWS, _ROWS, nb.uint8[::1], nb.int64[::1]))
def merge_sides(
    left: npt.NDArray[np.int64],
    right: npt.NDArray[np.int64],
    sides: npt.NDArray[np.uint8],
    out: npt.NDArray[np.int64],
) -> None:
    """Both in order of value, and the side of each value: 1 is `left`, which is first for equal values.

    Merges from both ends at once: each step depends on the one before, so two chains run in parallel.
    """
    i, j, k = 0, 0, 0
    p, q, z = left.size - 1, right.size - 1, out.size - 1
    while i <= p and j <= q and k < z:
        mine, its = left[i], right[j]
        first = mine <= its
        sides[k] = first
        out[k] = mine if first else its
        i += first
        j += 1 - first
        k += 1
        mine, its = left[p], right[q]
        last = mine > its
        sides[z] = last
        out[z] = mine if last else its
        p -= last
        q -= 1 - last
        z -= 1
    while i <= p and j <= q:
        first = left[i] <= right[j]
        sides[k] = first
        out[k] = left[i] if first else right[j]
        i += first
        j += 1 - first
        k += 1
    sides[k : z + 1] = i <= p
    if i <= p:
        out[k : z + 1] = left[i : p + 1]
    else:
        out[k : z + 1] = right[j : q + 1]


@kernel(nb.void(_ROWS, _ROWS, nb.uint8[::1], nb.int64[::1]))
def interleave(
    left: npt.NDArray[np.int64],
    right: npt.NDArray[np.int64],
    sides: npt.NDArray[np.uint8],
    out: npt.NDArray[np.int64],
) -> None:
    """The values of both, each side in its own order; `sides` is the side of each value."""
    i, j, k = 0, 0, 0
    while i < left.size and j < right.size:
        first = sides[k]
        out[k] = left[i] if first else right[j]
        i += first
        j += 1 - first
        k += 1
    if i < left.size:
        out[k:] = left[i:]
    else:
        out[k:] = right[j:]
