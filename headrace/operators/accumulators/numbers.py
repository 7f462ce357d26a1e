"""Exact and doubled-precision arithmetic on arrays: limbs of whole numbers, pairs of reals."""

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
Pair = tuple[Reals, Reals]
_LOW = np.int64(0xFFFFFFFF)
_SPLITTER = 134217729.0


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


def rounded(pair: Pair) -> Reals:
    """A real sum as one float64: infinities and NaN show in the high part alone."""
    high, low = pair
    return np.where(np.isfinite(high), high + low, high)


def squared_distances(count: Ints, total: Pair, squares: Pair) -> Reals:
    """Σ(x − mean)² = Σx² − (Σx)²/n in doubled precision; NaN where a value was not finite."""
    high, low = total
    with np.errstate(all="ignore"):
        product, error = _two_product(high, high)
        error += 2.0 * high * low
        quotient = product / count
        back, rest = _two_product(quotient, count.astype(np.float64))
        remainder = ((product - back) - rest + error) / count
        difference, lost = _two_sum(squares[0], -quotient)
        distances = difference + (lost + squares[1] - remainder)
        return np.where(np.isfinite(distances), np.maximum(distances, 0.0), np.nan)


def _two_sum(a: Reals, b: Reals) -> Pair:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Reals, b: Reals) -> Pair:
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _split(a: Reals) -> Pair:
    t = _SPLITTER * a
    high = t - (t - a)
    return high, a - high
