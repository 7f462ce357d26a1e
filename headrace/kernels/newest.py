"""The n newest rows of each partition, as chains of row ids."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

NONE = -1
GONE = -2
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)


@kernel(
    nb.void(_READ_I64, nb.int64, nb.int64, nb.int64[:], nb.int64[:], nb.int64[:], nb.int64[:], nb.int64[:]),
)
def enqueue(
    codes: npt.NDArray[np.int64],
    first: int,
    limit: int,
    heads: npt.NDArray[np.int64],
    tails: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    following: npt.NDArray[np.int64],
    displaced: npt.NDArray[np.int64],
) -> None:
    """Put row `first + i` at the tail of chain `codes[i]`; `displaced[i]` is the row that leaves it, or NONE.

    `following[id]` is the next row of the same chain, NONE for the last, GONE for a displaced row. No chain
    is longer than `limit`.
    """
    for i in range(codes.size):
        code, row = codes[i], first + i
        if sizes[code] > 0:
            following[tails[code]] = row
        else:
            heads[code] = row
        tails[code] = row
        following[row] = NONE
        if sizes[code] < limit:
            sizes[code] += 1
            displaced[i] = NONE
        else:
            old = heads[code]
            heads[code] = following[old]
            following[old] = GONE
            displaced[i] = old
