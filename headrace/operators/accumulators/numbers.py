"""Exact arithmetic on arrays of whole numbers, by limbs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.flow.columns import raw_values
from headrace.flow.keys import words

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
_LOW = np.int64(0xFFFFFFFF)


def whole_limbs(column: pa.Array, limbs: int) -> list[Ints]:
    """A column's whole numbers (unscaled, of a decimal) as `limbs` pieces, least first; nulls undefined."""
    if pt.is_decimal(column.type):
        return _decimal_limbs(column)
    values = words(column)
    if limbs == 1:
        return [values]
    high = values >> 32
    if pt.is_uint64(column.type):
        high = high & _LOW
    return [values & _LOW, high]


def _decimal_limbs(column: pa.Array) -> list[Ints]:
    wide = column.cast(pa.decimal128(38, column.type.scale))
    halves = raw_values(wide).view(np.int64).reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    return [low & _LOW, (low >> 32) & _LOW, high & _LOW, high >> 32]


def _carried(limbs: Sequence[Ints]) -> list[Ints]:
    """The same number with all limbs but the last in 0 … 2^32 − 1."""
    done: list[Ints] = []
    carry: Ints = np.zeros(len(limbs[0]), np.int64)
    for limb in limbs[:-1]:
        full = limb + carry
        done.append(full & _LOW)
        carry = full >> 32
    return [*done, limbs[-1] + carry]


def to_decimal(limbs: Sequence[Ints], type: pa.DataType) -> pa.Array:
    """Sums of decimal limbs as decimals."""
    a, b, c, d = _carried(limbs)
    halves = np.empty((len(a), 2), np.int64)
    halves[:, 0] = a | (b << 32)
    halves[:, 1] = c | (d << 32)
    return pa.Array.from_buffers(type, len(a), [None, pa.py_buffer(halves)])


def to_real(limbs: Sequence[Ints]) -> Reals:
    """Sums of limbs as float64, rounded relative to their own size."""
    negative = _carried(limbs)[-1] < 0
    total = np.zeros(len(negative))
    for at, limb in enumerate(_carried([np.where(negative, -limb, limb) for limb in limbs])):
        total += np.ldexp(limb.astype(np.float64), 32 * at)
    return np.where(negative, -total, total)


def reals(column: pa.Array) -> Reals:
    """A column of numbers as float64; nulls undefined."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0).cast(column.type))
    values: Reals = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values
