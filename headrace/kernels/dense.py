"""Groups of whole numbers that lie close together: each has a place in an array, and nothing is hashed.

Numba, because NumPy has no scatter-reduce in one pass.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

READ_I64 = nb.types.Array(nb.int64, 1, "C", readonly=True)
READ_F64 = nb.types.Array(nb.float64, 1, "C", readonly=True)
I64 = nb.int64[::1]
F64 = nb.float64[::1]
_TWO = [nb.void(I64, READ_I64, I64), nb.void(I64, READ_F64, F64)]


@nb.njit(nb.void(I64, READ_I64, nb.int64, nb.int64), cache=True)
def add_digit(places: Ints, values: Ints, least: int, width: int) -> None:
    """One more digit of each place: a value among the `width` values from `least` on."""
    for i in range(len(places)):
        places[i] = places[i] * width + (values[i] - least)


@nb.njit(nb.void(I64, I64), cache=True)
def count(places: Ints, out: Ints) -> None:
    """The rows of each place."""
    for i in range(len(places)):
        out[places[i]] += 1


@nb.njit(_TWO, cache=True)
def add(places: Ints, values: Ints | Reals, out: Ints | Reals) -> None:
    """The sum of each place."""
    for i in range(len(places)):
        out[places[i]] += values[i]


@nb.njit(_TWO, cache=True)
def least(places: Ints, values: Ints | Reals, out: Ints | Reals) -> None:
    """The least value of each place, of those and what is in `out`."""
    for i in range(len(places)):
        if values[i] < out[places[i]]:
            out[places[i]] = values[i]


@nb.njit(_TWO, cache=True)
def greatest(places: Ints, values: Ints | Reals, out: Ints | Reals) -> None:
    """The greatest value of each place, of those and what is in `out`."""
    for i in range(len(places)):
        if values[i] > out[places[i]]:
            out[places[i]] = values[i]
