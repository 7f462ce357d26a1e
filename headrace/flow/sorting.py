"""The order of rows by time, as fast as the disorder allows."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

FEW: Final = 1024
"""Rows below which it makes no difference."""
RUN: Final = 32
"""The mean length of runs from which on merging them is faster than sorting."""


def order_of(times: Ints) -> Ints:
    """What puts times in order; equal ones stay as they are.

    NumPy's stable sort merges runs, and is slow where there are none. There, each time and its place are
    packed into one word, if they fit: words are sorted several at once, and no two are equal.
    """
    rows = len(times)
    if rows < FEW or RUN * int(np.count_nonzero(times[1:] < times[:-1])) < rows:
        return np.argsort(times, kind="stable")
    bits = (rows - 1).bit_length()
    low = int(times.min())
    if int(times.max()) - low >= 1 << (63 - bits):
        return np.argsort(times, kind="stable")
    words = (times - low) << bits
    words |= np.arange(rows)
    words.sort()
    words &= (1 << bits) - 1
    return words


def order_of_changes(times: Ints, signs: npt.NDArray[np.int8] | None) -> Ints:
    """What puts changes of a relation in order: at each instant, what comes before what is withdrawn.

    So wherever they are cut, no withdrawal comes before the row that it withdraws.
    """
    if signs is None:
        return order_of(times)
    gone = signs < 0
    comings_first = np.concatenate([np.flatnonzero(~gone), np.flatnonzero(gone)])
    order: Ints = comings_first[order_of(times[comings_first])]
    return order
