"""Exact sums of numbers of any size: which limbs a table has for them (`headrace.kernels.exact_sums`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Ints, Reals
from headrace.kernels.exact_sums import (
    NANS,
    PLACES,
    POINT,
    add_digits,
    add_reals,
    add_squares,
    mark_places,
    round_spreads,
    round_sums,
    split_reals,
    square_digits,
)
from headrace.state.columns import raw_values
from headrace.state.keys import key64

_ADD = {1: add_reals, 2: add_squares}
_DIGIT = np.uint64(0xFFFFFFFF)
_BITS = np.uint64(32)


@dataclass(frozen=True)
class Digits:
    """A number per line: its digits, and the place of the first."""

    bases: Ints
    digits: Ints

    def squared(self) -> Digits:
        """The squares; a number that is not finite has none."""
        out = np.empty((len(self.bases), 2 * self.digits.shape[1]), np.int64)
        square_digits(self.digits, out)
        special = self.bases >= NANS
        out[special] = 0
        return Digits(np.where(special, 0, 2 * self.bases), out)


def digits_of(column: pa.Array, power: int) -> Digits:
    """The numbers of a column, to a power; those of decimals are unscaled, those of nulls undefined."""
    if pt.is_floating(column.type):
        values = np.ascontiguousarray(reals(column))
        found = Digits(np.empty(len(values), np.int64), np.empty((len(values), 3), np.int64))
        split_reals(values, values.view(np.int64), found.bases, found.digits)
    else:
        parts, negative = _magnitudes(column)
        digits = np.stack([part.astype(np.int64) for part in parts], axis=1)
        found = Digits(np.full(len(digits), POINT), np.where(negative[:, None], -digits, digits))
    return found if power == 1 else found.squared()


def _magnitudes(column: pa.Array) -> tuple[list[Any], Any]:
    """Digits of the magnitudes of whole numbers, least significant first, and which are negative."""
    if pt.is_decimal(column.type):
        wide = column.cast(pa.decimal128(38, column.type.scale))
        low, high = raw_values(wide).view(np.uint64).reshape(-1, 2).T
        negative = high.view(np.int64) < 0 if high.flags.c_contiguous else high.astype(np.int64) < 0
        turned = np.where(low == 0, ~high + np.uint64(1), ~high)
        low, high = np.where(negative, ~low + np.uint64(1), low), np.where(negative, turned, high)
        return [low & _DIGIT, low >> _BITS, high & _DIGIT, high >> _BITS], negative
    values = key64(column)
    negative = np.zeros(len(values), np.bool_) if pt.is_uint64(column.type) else values < 0
    whole = np.where(negative, -values, values).view(np.uint64)
    return [whole & _DIGIT, whole >> _BITS], negative


class Limbs:
    """The place of each column of limbs; a column is added when a number first has a digit at its place."""

    def __init__(self, power: int) -> None:
        self.power = power
        self._set(np.array([power * POINT], np.int64))

    def _set(self, ids: Ints) -> None:
        """Use these places as columns, in this order."""
        self.ids = ids
        self.column = np.full(PLACES, -1, np.int64)
        self.column[ids] = np.arange(len(ids))

    def __len__(self) -> int:
        return len(self.ids)

    def cover(self, numbers: Digits) -> None:
        """Add the columns that the digits of some numbers need."""
        marked = np.zeros(PLACES, np.bool_)
        mark_places(numbers.bases, numbers.digits, marked)
        self.have(np.flatnonzero(marked))

    def add(self, column: pa.Array, slots: Ints, sums: Callable[[int], Ints]) -> None:
        """Add the numbers of a column to the sums of their slots; `sums(width)` returns lines wide enough."""
        if not pt.is_floating(column.type):
            numbers = digits_of(column, self.power)
            self.cover(numbers)
            add_digits(slots, numbers.bases, numbers.digits, self.column, sums(len(self)))
            return
        values, done = np.ascontiguousarray(reals(column)), 0
        while True:
            done = _ADD[self.power](slots, values, values.view(np.int64), done, self.column, sums(len(self)))
            if done == len(slots):
                return
            self.cover(digits_of(column.slice(done), self.power))

    def have(self, ids: Ints) -> None:
        """Add the columns that these places need."""
        fresh = ids[self.column[ids] < 0]
        if len(fresh):
            self._set(np.append(self.ids, fresh))

    def keep(self, used: Any) -> Any:
        """Drop unused columns, except the first; returns the columns that stay, or None if all do."""
        used[0] = True
        if used.all():
            return None
        self._set(self.ids[used])
        return used

    def bytes(self) -> int:
        return int(self.ids.nbytes + self.column.nbytes)

    def changes(self, full: bool) -> Mapping[str, Any]:
        return {"ids": self.ids.copy()}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._set(chunk["ids"])


@dataclass(frozen=True)
class Sums:
    """Exact sums, a line each, and the place of each column."""

    lines: Ints
    ids: Ints

    def rounded(self) -> Reals:
        """Each sum as the nearest float64; an infinity if it is out of range."""
        out = np.empty(len(self.lines))
        round_sums(self.lines, self.ids, POINT, out)
        return out


def spreads(count: Ints, total: Sums, squares: Sums, free: int, scale: int) -> Reals:
    """Squared distances from the mean, summed, over n − `free`, as the nearest float64; 0 where n ≤ `free`.

    The numbers of decimals are unscaled; `scale` corrects for that.
    """
    powers = [10 ** min(9, 2 * scale - done) for done in range(0, 2 * scale, 9)]
    divisors = np.array([1, 1, *powers], np.int64)
    out = np.empty(len(count))
    sums = (total.lines, total.ids, squares.lines, squares.ids)
    round_spreads(count, *sums, free, POINT, divisors, out)
    return out


# Exact arithmetic on arrays of whole numbers, by limbs.


_LOW = np.int64(0xFFFFFFFF)


def whole_limbs(column: pa.Array, limbs: int) -> list[Ints]:
    """A column's whole numbers (unscaled, of a decimal) as `limbs` pieces, least first; nulls undefined."""
    if pt.is_decimal(column.type):
        return _decimal_limbs(column)
    values = key64(column)
    if limbs == 1:
        return [values]
    high = values >> 32
    if pt.is_uint64(column.type):
        high = high & _LOW
    return [values & _LOW, high]


def _decimal_limbs(column: pa.Array) -> list[Ints]:
    """The unscaled numbers of a decimal column as four 32-bit pieces, least significant first."""
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
