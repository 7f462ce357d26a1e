"""The n newest rows of each partition, as chains of row ids."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

NONE = -1
GONE = -2
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_READ_BOOL = nb.types.Array(nb.boolean, 1, "A", readonly=True)


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


@kernel(
    nb.int64(
        *(_READ_I64, _READ_I64, nb.int64, nb.int64[:], nb.int64[:], nb.int64[:], nb.int64[:]),
        *(nb.int64[:], nb.int64[:]),
    ),
)
def enqueue_each(
    codes: npt.NDArray[np.int64],
    limits: npt.NDArray[np.int64],
    first: int,
    heads: npt.NDArray[np.int64],
    tails: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    following: npt.NDArray[np.int64],
    displaced: npt.NDArray[np.int64],
    by: npt.NDArray[np.int64],
) -> int:
    """Like `enqueue`, but row `first + i` leaves at most `limits[i]` rows in its chain, itself included.

    `displaced` gets the rows that leave, oldest first, and `by` the i that displaces each; returns how many.
    """
    count = 0
    for i in range(codes.size):
        code, row = codes[i], first + i
        if sizes[code] > 0:
            following[tails[code]] = row
        else:
            heads[code] = row
        tails[code] = row
        following[row] = NONE
        sizes[code] += 1
        while sizes[code] > limits[i]:
            old = heads[code]
            heads[code] = following[old]
            following[old] = GONE
            displaced[count], by[count] = old, i
            count += 1
            sizes[code] -= 1
    return count


@kernel(
    nb.int64(
        *(_READ_I64, nb.int64, nb.int64, nb.int64[:], nb.int64[:], nb.int64[:], nb.int64[:]),
        *(nb.int64[:], nb.int64[:]),
    ),
)
def gather(
    codes: npt.NDArray[np.int64],
    first: int,
    slide: int,
    heads: npt.NDArray[np.int64],
    tails: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    following: npt.NDArray[np.int64],
    released: npt.NDArray[np.int64],
    by: npt.NDArray[np.int64],
) -> int:
    """Put row `first + i` at the tail of chain `codes[i]`; a chain of `slide` rows is released at once.

    `released` gets the rows, chain by chain, and `by` the i that released each; returns how many. Released
    rows are GONE.
    """
    count = 0
    for i in range(codes.size):
        code, row = codes[i], first + i
        if sizes[code] > 0:
            following[tails[code]] = row
        else:
            heads[code] = row
        tails[code] = row
        following[row] = NONE
        sizes[code] += 1
        if sizes[code] == slide:
            at = heads[code]
            for _ in range(slide):
                released[count], by[count] = at, i
                count += 1
                after = following[at]
                following[at] = GONE
                at = after
            sizes[code] = 0
    return count


@kernel(nb.void(_READ_I64, _READ_BOOL, nb.int64, nb.int64[:], nb.int64[:], nb.int64[:], nb.int64[:]))
def upsert(
    codes: npt.NDArray[np.int64],
    deletes: npt.NDArray[np.bool_],
    first: int,
    heads: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    following: npt.NDArray[np.int64],
    displaced: npt.NDArray[np.int64],
) -> None:
    """Chains of at most one row: row `first + i` takes the place of the row of chain `codes[i]`.

    A row that `deletes` leaves the chain empty, and is GONE at once. `displaced[i]` is the row that leaves,
    or NONE.
    """
    for i in range(codes.size):
        code, row = codes[i], first + i
        displaced[i] = NONE
        if sizes[code] > 0:
            displaced[i] = heads[code]
            following[heads[code]] = GONE
        heads[code] = row
        sizes[code] = 0 if deletes[i] else 1
        following[row] = GONE if deletes[i] else NONE
