"""Columns of 8-byte values, which a kernel can move without knowing their type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.arrays import Words
from headrace.schema import DataType

_WIDTH = 64


def is_plain(array: pa.Array) -> bool:
    """Whether each value has eight bytes and none is null."""
    of = array.type
    words = pt.is_integer(of) or pt.is_floating(of) or pt.is_timestamp(of) or pt.is_duration(of)
    return bool(words) and of.bit_width == _WIDTH and not array.null_count


def words_of(array: pa.Array) -> Words:
    """The words of a plain column, as they lie in memory."""
    if not len(array):
        return np.empty(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64, len(array), 8 * array.offset)


def empty(rows: int) -> Words:
    """Uninitialised words from Arrow's memory pool, which reuses freed memory and takes huge pages.

    In NumPy's own memory each new page is a fault: 590 µs per megabyte against 15 in a virtual machine.
    """
    return np.frombuffer(pa.allocate_buffer(8 * rows), np.int64) if rows else np.empty(0, np.int64)


def from_words(of: DataType, words: Words) -> pa.Array:
    """A column of these words, sharing their memory."""
    return pa.Array.from_buffers(of, len(words), [None, pa.py_buffer(words)])


def constant(value: int, rows: int) -> Words:
    """The same word for each row, in eight bytes for any number of rows. Read-only."""
    return np.ndarray((rows,), np.int64, np.array([value], np.int64), strides=(0,))


def is_constant(words: Words) -> bool:
    """Whether it was made by `constant`."""
    return words.strides == (0,)


def place_of(*words: Words) -> tuple[tuple[int, int], ...]:
    """The address of an array: arrays of one length at one address are the same. Times are often a column."""
    return tuple((each.__array_interface__["data"][0], each.strides[0]) for each in words)
