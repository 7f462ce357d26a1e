"""Sort keys of any types as lines of int64 words, and their comparison.

A word compares as a number. A text is three words: its first eight bytes as a number, where the rest of it
begins in a heap of bytes, and how many bytes it has; they compare as the text does, byte by byte.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

WORD, TEXT, TEXT_DOWN = 0, 1, 2
"""The kinds of words; the two words after a TEXT are read with it. TEXT_DOWN: greater ones come first."""

PREFIX = 8
_SIGN = np.uint64(1 << 63)
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_READ_U8 = nb.types.Array(nb.uint8, 1, "A", readonly=True)


@kernel(nb.int64(nb.int64[:, ::1], nb.uint8[::1], nb.int64, nb.int64, nb.int64))
def _compare_tails(lines: Ints, heap: Bytes, word: int, a: int, b: int) -> int:
    """Texts that begin alike: by the rest, then the shorter first."""
    size_a, size_b = lines[a, word + 2], lines[b, word + 2]
    begin_a, begin_b = lines[a, word + 1], lines[b, word + 1]
    for i in range(min(size_a, size_b) - PREFIX):
        if heap[begin_a + i] != heap[begin_b + i]:
            return -1 if heap[begin_a + i] < heap[begin_b + i] else 1
    return -1 if size_a < size_b else int(size_a > size_b)


@kernel(nb.int64(nb.int64[:, ::1], nb.int64[::1], nb.uint8[::1], nb.int64, nb.int64))
def compare(lines: Ints, kinds: Ints, heap: Bytes, a: int, b: int) -> int:
    """Below 0, 0 or above 0 as line `a` comes before, with or after line `b`."""
    word = 0
    while word < kinds.size:
        if lines[a, word] != lines[b, word]:
            return -1 if lines[a, word] < lines[b, word] else 1
        if kinds[word] == WORD:
            word += 1
            continue
        found = _compare_tails(lines, heap, word, a, b)
        if found != 0:
            return found if kinds[word] == TEXT else -found
        word += 3
    return 0


@kernel(nb.int64(_READ_I64, _READ_U8, nb.boolean, nb.int64, nb.int64[:, :], nb.uint8[::1]))
def write_texts(offsets: Ints, data: Bytes, down: bool, begin: int, lines: Ints, tails: Bytes) -> int:
    """Fill the three words of each text; what is beyond its prefix goes to `tails`, which lie at `begin`."""
    used = 0
    for i in range(offsets.size - 1):
        size = offsets[i + 1] - offsets[i]
        prefix = np.uint64(0)
        for j in range(PREFIX):
            prefix <<= np.uint64(8)
            if j < size:
                prefix |= np.uint64(data[offsets[i] + j])
        word = np.int64(prefix ^ _SIGN)
        lines[i, 0] = ~word if down else word
        lines[i, 1] = begin + used
        lines[i, 2] = size
        for j in range(PREFIX, size):
            tails[used] = data[offsets[i] + j]
            used += 1
    return used


@kernel(nb.int64(nb.int64[:, ::1], nb.int64, nb.uint8[::1], nb.int64, nb.uint8[::1]))
def move_tails(lines: Ints, word: int, heap: Bytes, begin: int, tails: Bytes) -> int:
    """Copy the tails of all lines' texts to `tails`, which will lie at `begin`, and note where they are."""
    used = 0
    for i in range(lines.shape[0]):
        size = max(lines[i, word + 2] - PREFIX, 0)
        at = lines[i, word + 1]
        lines[i, word + 1] = begin + used
        for j in range(size):
            tails[used] = heap[at + j]
            used += 1
    return used
