"""Exact sums of numbers of any size: which limbs a table has for them (`headrace.kernels.exact_sums`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.flow.columns import raw_values
from headrace.flow.keys import words
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
from headrace.operators.accumulators.numbers import Ints, Reals, reals

_ADD = {1: add_reals, 2: add_squares}
_DIGIT = np.uint64(0xFFFFFFFF)
_BITS = np.uint64(32)


@dataclass(frozen=True)
class Digits:
    """A number per line: its digits, and the place of the first."""

    bases: Ints
    digits: Ints

    def squared(self) -> Digits:
        """Their squares; what is not finite has none."""
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
    """Digits of whole numbers without their sign, least first, and which are less than zero."""
    if pt.is_decimal(column.type):
        wide = column.cast(pa.decimal128(38, column.type.scale))
        low, high = raw_values(wide).view(np.uint64).reshape(-1, 2).T
        negative = high.view(np.int64) < 0 if high.flags.c_contiguous else high.astype(np.int64) < 0
        turned = np.where(low == 0, ~high + np.uint64(1), ~high)
        low, high = np.where(negative, ~low + np.uint64(1), low), np.where(negative, turned, high)
        return [low & _DIGIT, low >> _BITS, high & _DIGIT, high >> _BITS], negative
    values = words(column)
    negative = np.zeros(len(values), np.bool_) if pt.is_uint64(column.type) else values < 0
    whole = np.where(negative, -values, values).view(np.uint64)
    return [whole & _DIGIT, whole >> _BITS], negative


class Limbs:
    """The places that the columns of some lines are of: one more when a number first has a digit there."""

    def __init__(self, power: int) -> None:
        self.power = power
        self._set(np.array([power * POINT], np.int64))

    def _set(self, ids: Ints) -> None:
        self.ids = ids
        self.column = np.full(PLACES, -1, np.int64)
        self.column[ids] = np.arange(len(ids))

    def __len__(self) -> int:
        return len(self.ids)

    def cover(self, numbers: Digits) -> None:
        """Have a column for every digit of some numbers."""
        marked = np.zeros(PLACES, np.bool_)
        mark_places(numbers.bases, numbers.digits, marked)
        self.have(np.flatnonzero(marked))

    def add(self, column: pa.Array, slots: Ints, sums: Callable[[int], Ints]) -> None:
        """Add the numbers of a column to the sums of their slots; `sums` gives lines of at least a width."""
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
        """Have a column for these places."""
        fresh = ids[self.column[ids] < 0]
        if len(fresh):
            self._set(np.append(self.ids, fresh))

    def keep(self, used: Any) -> Any:
        """Do without columns that are not used, but for the first; those that stay, or None if all do."""
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
        """Each as the nearest float64; beyond the greatest it is an infinity."""
        out = np.empty(len(self.lines))
        round_sums(self.lines, self.ids, POINT, out)
        return out


def spreads(count: Ints, total: Sums, squares: Sums, free: int, scale: int) -> Reals:
    """Squared distances from the mean, summed, over n − `free`, to the nearest float64; 0 where that is none.

    Of decimals, whose numbers are unscaled, the `scale` says how much too large they are.
    """
    powers = [10 ** min(9, 2 * scale - done) for done in range(0, 2 * scale, 9)]
    divisors = np.array([1, 1, *powers], np.int64)
    out = np.empty(len(count))
    sums = (total.lines, total.ids, squares.lines, squares.ids)
    round_spreads(count, *sums, free, POINT, divisors, out)
    return out
