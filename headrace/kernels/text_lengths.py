"""Lengths of texts in a page of a Parquet file. Numba, because each length says where the next one is."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

READ_U8 = nb.types.Array(nb.uint8, 1, "C", readonly=True)


@kernel(nb.int64(READ_U8))
def longest_text(page: npt.NDArray[np.uint8]) -> int:
    """The greatest of the lengths in front of the texts, four bytes each; -1 if the last one is cut off."""
    longest, at, size = 0, 0, len(page)
    while at < size:
        if at + 4 > size:
            return -1
        length = 0
        for i in range(4):
            length |= int(page[at + i]) << (8 * i)
        longest = max(longest, length)
        at += 4 + length
    return longest
