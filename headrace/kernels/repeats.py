"""Which rows repeat a key within a time. Numba, because a row that is kept decides about later ones."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.kernels.compiling import kernel

NEVER = -(2**63)
"""The time at which a key was kept that never was."""
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)


@kernel(nb.void(_READ_I64, _READ_I64, nb.int64, nb.int64[::1], nb.boolean[::1]))
def keep_first(codes: Ints, times: Ints, within: int, kept: Ints, keeps: npt.NDArray[np.bool_]) -> None:
    """Whether each row is kept: its key was not kept in (t − within, t]. `kept[code]` is when it last was."""
    for i in range(codes.size):
        last = kept[codes[i]]
        keeps[i] = last == NEVER or times[i] - last >= within
        if keeps[i]:
            kept[codes[i]] = times[i]
