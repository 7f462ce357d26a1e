"""Comparing sort keys of any type, without Python objects.

Two forms are compared here. `less` compares two words that represent values of one column. `compare` compares
two rows of a `KeyTable`, which holds the values of all columns of an ORDER BY as lines of int64 words.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from headrace.arrays import Bytes, Ints
from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY

# --- words of one column --------------------------------------------------------------------------------
#
# A word is a number, or the index of a value of any length (a string, bytes). Values are compared by their
# first eight bytes, then by all bytes. An inverted word (~word) sorts in reverse order. The greatest int64
# means "no value" and comes last. This is a kernel because NumPy cannot compare byte strings in a heap.

Order = tuple[Ints, Ints, Ints, Ints, Bytes]
"""How words are compared: the first bytes and the code of each word; where the bytes of each code begin and
how many there are; the bytes. If all are empty, words are numbers."""

_I64 = nb.int64[::1]
_U8 = nb.uint8[::1]
ORDER = nb.types.Tuple((_I64, _I64, _I64, _I64, _U8))
_NOTHING: Ints = np.empty(0, np.int64)
NUMBERS: Order = (_NOTHING, _NOTHING, _NOTHING, _NOTHING, np.empty(0, np.uint8))
UNUSED = np.iinfo(np.int64).min
"""The first bytes of a word that is not in use: such words come before all others."""
_NONE = np.iinfo(np.int64).max
_SIGN = np.uint64(1 << 63)


@kernel(nb.boolean(nb.int64, nb.int64, ORDER))
def _less_by_bytes(a: int, b: int, order: Order) -> bool:
    """Compare two words whose first eight bytes are equal; a word that is not in use comes first."""
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
    """Whether the value of word `a` comes before that of word `b`."""
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
    """Write the first eight bytes of each value as a number that sorts like them; short values are padded
    with zeros."""
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


# --- rows of sort keys ----------------------------------------------------------------------------------

WORD, TEXT, TEXT_DOWN = 0, 1, 2
"""The kinds of words: a number, the first word of a text, the first word of a text in descending order."""

TEXT_PREFIX, TEXT_TAIL, TEXT_SIZE = 0, 1, 2
"""The three words of a text: its first bytes as a number, where the other bytes begin in the heap, and how
many bytes it has in all."""
TEXT_WORDS = 3

PREFIX = 8
"""How many bytes of a text are in its first word."""


class KeyTable(NamedTuple):
    """The sort keys of rows, one line of words for each row. All lines have the same layout.

    `ORDER BY price DESC, name` with the rows (7, "transatlantic") and (9, NULL):

                  price          name
                  null?  value   null?  prefix      tail  size
        line 0      0     ~7       1    "transatl"    0    13       heap: a n t i c
        line 1      0     ~9       0    ""            5     0             ^ tail of line 0
        kinds     WORD   WORD    WORD   TEXT        (read with TEXT)

    Lines are compared word by word from the left. Descending numbers are inverted. The word null? is 0 or 1,
    such that nulls sort where NULLS FIRST or NULLS LAST puts them (here last for price, first for name). Two
    texts with the same prefix are compared by their tails in the heap.
    """

    words: Ints
    kinds: Ints
    heap: Bytes


KEY_TABLE = nb.types.NamedTuple((nb.int64[:, ::1], nb.int64[::1], nb.uint8[::1]), KeyTable)
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_READ_U8 = nb.types.Array(nb.uint8, 1, "A", readonly=True)


@kernel(nb.int64(nb.int64[:, ::1], nb.uint8[::1], nb.int64, nb.int64, nb.int64))
def _compare_tails(words: Ints, heap: Bytes, text: int, a: int, b: int) -> int:
    """Compare two texts with the same prefix: by their other bytes, then the shorter one comes first.

    `text` is the index of the first of their three words.
    """
    size_a, size_b = words[a, text + TEXT_SIZE], words[b, text + TEXT_SIZE]
    tail_a, tail_b = words[a, text + TEXT_TAIL], words[b, text + TEXT_TAIL]
    for i in range(min(size_a, size_b) - PREFIX):
        if heap[tail_a + i] != heap[tail_b + i]:
            return -1 if heap[tail_a + i] < heap[tail_b + i] else 1
    return -1 if size_a < size_b else int(size_a > size_b)


@kernel(nb.int64(nb.int64[:, ::1], nb.int64[::1], nb.uint8[::1], nb.int64, nb.int64))
def _compare_lines(words: Ints, kinds: Ints, heap: Bytes, a: int, b: int) -> int:
    """Compare two lines word by word; returns -1, 0 or 1."""
    word = 0
    while word < kinds.size:
        if words[a, word] != words[b, word]:
            return -1 if words[a, word] < words[b, word] else 1
        if kinds[word] == WORD:
            word += 1
            continue
        found = _compare_tails(words, heap, word, a, b)
        if found != 0:
            return found if kinds[word] == TEXT else -found
        word += TEXT_WORDS
    return 0


@nb.njit(inline="always")
def compare(table: KeyTable, a: int, b: int) -> int:
    """-1, 0 or 1 if line `a` comes before, equals or comes after line `b`."""
    return int(_compare_lines(table.words, table.kinds, table.heap, a, b))


@kernel(nb.int64(_READ_I64, _READ_U8, nb.boolean, nb.int64, nb.int64[:, :], nb.uint8[::1]))
def write_texts(offsets: Ints, data: Bytes, down: bool, begin: int, words: Ints, tails: Bytes) -> int:
    """Write the three words of each text. Returns how many bytes it wrote to `tails`.

    `offsets` and `data` are the texts as Arrow has them; `tails` is the part of the heap that starts at
    `begin`. `down` is for descending order.
    """
    used = 0
    for i in range(offsets.size - 1):
        size = offsets[i + 1] - offsets[i]
        prefix = np.uint64(0)
        for j in range(PREFIX):
            prefix <<= np.uint64(8)
            if j < size:
                prefix |= np.uint64(data[offsets[i] + j])
        word = np.int64(prefix ^ _SIGN)
        words[i, TEXT_PREFIX] = ~word if down else word
        words[i, TEXT_TAIL] = begin + used
        words[i, TEXT_SIZE] = size
        for j in range(PREFIX, size):
            tails[used] = data[offsets[i] + j]
            used += 1
    return used


@kernel(nb.int64(nb.int64[:, ::1], nb.int64, nb.uint8[::1], nb.int64, nb.uint8[::1]))
def move_tails(words: Ints, text: int, heap: Bytes, begin: int, tails: Bytes) -> int:
    """Copy the tails of a column's texts from `heap` to `tails`, and write where they are now.

    `text` is the index of the first of the column's three words, `begin` is where `tails` starts in the new
    heap. Returns how many bytes it wrote.
    """
    used = 0
    for i in range(words.shape[0]):
        size = max(words[i, text + TEXT_SIZE] - PREFIX, 0)
        old = words[i, text + TEXT_TAIL]
        words[i, text + TEXT_TAIL] = begin + used
        for j in range(size):
            tails[used] = heap[old + j]
            used += 1
    return used
