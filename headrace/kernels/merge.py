"""Merging sorted arrays: the order in which an ordered union takes the rows of two inputs."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)


@nb.njit(nb.void(_READ, _READ, nb.int64[::1]), cache=True)
def merge_order(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> None:
    """Positions in `left` followed by `right` in order of value; equal values: left first."""
    i, j, n = 0, 0, left.size
    for k in range(order.size):
        if j == right.size or (i < n and left[i] <= right[j]):
            order[k] = i
            i += 1
        else:
            order[k] = n + j
            j += 1
