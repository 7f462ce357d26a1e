"""Keys as 64-bit words, so that grouping and matching run on integers.

A single fixed-width column is its own word (`exact`); several columns, or strings, become a hash, and the
caller checks the rows of equal words for equality.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Mask, Words
from headrace.kernels.hashing import fold_bytes, fold_words
from headrace.schema import DataType
from headrace.state.columns import byte_values, is_bytes, is_fixed, raw_values, valid_mask

_NULL = np.int64(0x5BD1E995A3C7F21D)
"""The word of null: a value that hardly any row has."""


@dataclass(frozen=True, slots=True)
class Keys:
    """One word per row; equal keys have equal words. `valid` is None if no key value is null."""

    words: Words
    valid: Mask | None


def is_exact(types: Sequence[DataType]) -> bool:
    """Whether different keys of these types always have different words."""
    return len(types) == 1 and not is_bytes(types[0]) and _is_word(types[0])


def encode_keys(columns: Sequence[pa.Array], rows: int, null_safe: Container[int] = ()) -> Keys:
    """The words of the rows of some key columns; without columns all rows are equal.

    In the columns at positions `null_safe` null is a value like any other; words are then not exact.
    """
    valid = _all_valid([c for i, c in enumerate(columns) if i not in null_safe])
    if not columns:
        return Keys(np.zeros(rows, np.int64), None)
    found = key64(columns[0]) if is_exact([c.type for c in columns]) else hash_rows(columns, rows)
    for i, column in enumerate(columns):
        if i in null_safe and column.null_count:
            known = found if len(columns) > 1 else np.where(valid_mask(column), found, 0)
            found = np.where(valid_mask(column), known, known ^ (_NULL >> i))
    return Keys(found, valid)


def hash_rows(columns: Sequence[pa.Array], rows: int) -> Words:
    """A 64-bit hash per row; all nulls have the same hash."""
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        _fold(column, hashes)
    return hashes.view(np.int64)


def _fold(column: pa.Array, hashes: npt.NDArray[np.uint64]) -> None:
    """Mix a column into the hash of each row; nulls count as zero or as empty."""
    if is_bytes(column.type):
        if column.null_count:
            column = pc.fill_null(column, pa.scalar("", pa.string()).cast(column.type))
            fold_bytes(*byte_values(column), hashes)
            return
        fold_bytes(*byte_values(column), hashes)
        return
    word = key64(column) if _is_word(column.type) else _object_words(column)
    if column.null_count:
        word = np.where(valid_mask(column), word, 0)
    fold_words(word.view(np.uint64), hashes)


def key64(array: pa.Array) -> Words:
    """Fixed-width values as int64: equal values have equal words, also −0.0 and 0.0, and all NaN."""
    if pt.is_boolean(array.type):
        flags = pc.fill_null(array, pa.scalar(False)).to_numpy(zero_copy_only=False)
        return np.asarray(flags, np.int64)
    if pt.is_floating(array.type):
        return _float_words(array)
    raw = raw_values(array)
    if raw.dtype.itemsize == 8:
        return raw.view(np.int64)
    signed = not pt.is_unsigned_integer(array.type)
    return raw.view(np.dtype(f"i{raw.dtype.itemsize}")).astype(np.int64) if signed else raw.astype(np.int64)


def _float_words(array: pa.Array) -> Words:
    """The bits of floats as integers; all zeros are equal, and all NaN."""
    raw = raw_values(array)
    values = raw.view(np.dtype(f"f{raw.dtype.itemsize}")).astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.int64)


def _is_word(type: DataType) -> bool:
    """True if every value of the type fits into 64 bits."""
    return bool(pt.is_boolean(type)) or (is_fixed(type) and type.bit_width <= 64)


def _object_words(column: pa.Array) -> Words:
    """Words of values of variable width; the same in every process, because snapshots keep them."""
    return np.array([_digest(repr(v)) for v in column.to_pylist()], np.int64)


def _digest(text: str) -> int:
    """A 64-bit hash that is the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _all_valid(columns: Sequence[pa.Array]) -> Mask | None:
    """The rows without a null in any column; None if all are."""
    masks = [valid_mask(c) for c in columns if c.null_count]
    return np.logical_and.reduce(masks) if masks else None


def equal_rows(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> Mask:
    """Which rows of two lists of columns are equal; null equals null, and NaN equals NaN."""
    same = np.ones(rows, np.bool_)
    for a, b in zip(left, right, strict=True):
        same &= _equal_column(a, b)
    return same


def _equal_column(a: pa.Array, b: pa.Array) -> Mask:
    """Row by row, whether two columns are equal; null equals null."""
    if _is_word(a.type):
        same: Mask = key64(a) == key64(b)
    elif is_bytes(a.type) or pt.is_decimal(a.type):
        same = pc.fill_null(pc.equal(a, b), pa.scalar(True)).to_numpy(zero_copy_only=False)
    else:
        same = np.array(
            [repr(x) == repr(y) for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], np.bool_
        )
    if a.null_count or b.null_count:
        there_a, there_b = valid_mask(a), valid_mask(b)
        same = np.where(there_a & there_b, same, there_a == there_b)
    return same
