"""The order of words that stand for values of any size: by the first eight bytes, then by all of them.

A word without such an order is compared as the number that it is. Words turned by ^ −1 are in the reverse
order, and the greatest int64, which stands for no value, comes after all others. Numba, because NumPy does
not compare byte strings in a heap.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Order = tuple[Ints, Ints, Ints, Ints, Bytes]
"""Of each word the first bytes and the code of its value; of each code where its bytes begin and how many
there are; the bytes. All empty: words are numbers."""

_I64 = nb.int64[::1]
_U8 = nb.uint8[::1]
ORDER = nb.types.Tuple((_I64, _I64, _I64, _I64, _U8))
_NOTHING: Ints = np.empty(0, np.int64)
NUMBERS: Order = (_NOTHING, _NOTHING, _NOTHING, _NOTHING, np.empty(0, np.uint8))
UNUSED = np.iinfo(np.int64).min
"""The first bytes of a word that stands for nothing: such words come before all others."""
_NONE = np.iinfo(np.int64).max
_SIGN = np.uint64(1 << 63)


@kernel(nb.boolean(nb.int64, nb.int64, ORDER))
def _less_by_bytes(a: int, b: int, order: Order) -> bool:
    """Words whose first eight bytes are equal; a word that is not in use is less than one that is."""
    _, codes, begins, lengths, heap = order
    if codes[a] == EMPTY or codes[b] == EMPTY:
        return a < b if codes[a] == codes[b] else codes[a] == EMPTY
    begin_a, begin_b = begins[codes[a]], begins[codes[b]]
    length_a, length_b = lengths[codes[a]], lengths[codes[b]]
    for i in range(min(length_a, length_b)):
        x, y = heap[begin_a + i], heap[begin_b + i]
        if x != y:
            return bool(x < y)
    return bool(length_a < length_b)


@nb.njit(inline="always")
def less(a: int, b: int, order: Order) -> bool:
    """Whether the value of one word comes before that of the other."""
    first = order[0]
    if first.size == 0:
        return a < b
    if a in (b, _NONE) or b == _NONE:
        return a != b and b == _NONE
    if a < 0:
        a, b = ~b, ~a
    if first[a] != first[b]:
        return bool(first[a] < first[b])
    return _less_by_bytes(a, b, order)


@kernel(nb.void(_I64, _I64, _I64, _U8, _I64))
def first_bytes(codes: Ints, begins: Ints, lengths: Ints, heap: Bytes, out: Ints) -> None:
    """The first eight bytes of each value as a number in the same order, zeros after its end."""
    for i in range(codes.size):
        if codes[i] == EMPTY:
            out[i] = UNUSED
            continue
        number = np.uint64(0)
        begin, length = begins[codes[i]], lengths[codes[i]]
        for j in range(8):
            number <<= np.uint64(8)
            if j < length:
                number |= np.uint64(heap[begin + j])
        out[i] = np.int64(number ^ _SIGN)
