"""Exact sums of numbers: adding a number and subtracting it again leaves no rounding error.

A number is a few *digits* of 32 bits: value = Σ digits[j] · 2^(32 · (base + j − point)), each of the value's
sign. A sum is a row of int64 *limbs*, each the sum of the digits of one place; 2³¹ numbers add up with no
overflow. `ids` is the place of each limb, `column` the column of each place. Numbers that are not finite are
counted in separate places. Squares have twice the digits, and their point at twice the place. Numba, because
each number touches a few limbs of one row.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints, Lines, Reals
from headrace.kernels.aggregate_panes import I32, I64, READ_F64, READ_I64
from headrace.kernels.compiling import kernel

POINT = 34
"""The place of whole numbers below 2³²: a double has 1074 bits behind the point."""
NANS, UPPER, LOWER = 252, 253, 254
"""The places in which NaN, ∞ and −∞ are counted."""
PLACES = LOWER + 3
"""Two more places than are used, because kernels read three digits from any place on."""
_ROOM = 4
"""Extra digits beyond the greatest place, for carries."""
_BITS = nb.uint64(32)
_DIGIT = nb.uint64(0xFFFFFFFF)
_LINES = nb.int64[:, ::1]
_READ_LINES = nb.types.Array(nb.int64, 2, "A", readonly=True)
_U64 = nb.uint64[::1]
_F64 = nb.float64[::1]


@nb.njit(inline="always")
def _split(value: float, bits: int) -> tuple[int, np.uint64, np.uint64, np.uint64]:
    """The base and the digits of the magnitude of a float64; `bits` are its bits."""
    exponent = (bits >> 52) & 0x7FF
    mantissa = np.uint64(bits & 0xFFFFFFFFFFFFF)
    if exponent == 0x7FF:
        place = NANS if np.isnan(value) else (UPPER if value > 0 else LOWER)
        return place, np.uint64(1), np.uint64(0), np.uint64(0)
    if exponent:
        mantissa |= np.uint64(1 << 52)
        exponent -= 1
    place = exponent - 1074 + 32 * POINT
    shift = np.uint64(place & 31)
    high = mantissa >> (_BITS - shift)
    return place >> 5, (mantissa << shift) & _DIGIT, high & _DIGIT, high >> _BITS


@kernel(nb.void(READ_F64, READ_I64, I64, _LINES))
def split_reals(values: Reals, bits: Ints, bases: Ints, digits: Lines) -> None:
    """The three digits of each float64."""
    for i in range(values.size):
        bases[i], a, b, c = _split(values[i], bits[i])
        sign = -1 if bits[i] < 0 and bases[i] < NANS else 1
        digits[i, 0], digits[i, 1], digits[i, 2] = sign * np.int64(a), sign * np.int64(b), sign * np.int64(c)


@kernel(nb.int64(READ_I64, READ_F64, READ_I64, nb.int64, READ_I64, _LINES))
def add_reals(slots: Ints, values: Reals, bits: Ints, begin: int, column: Ints, sums: Lines) -> int:
    """Add each float64 from `begin` on to the sum of its slot; returns the first that has no limb."""
    mask = sums.shape[0] - 1
    for i in range(begin, slots.size):
        base, a, b, c = _split(values[i], bits[i])
        s, sign = slots[i] & mask, (bits[i] >> 63) | 1
        at_a, at_b, at_c = column[base], column[base + 1], column[base + 2]
        if at_a | at_b | at_c < 0:
            if (a and at_a < 0) or (b and at_b < 0) or (c and at_c < 0):
                return i
            at_a, at_b, at_c = max(at_a, 0), max(at_b, 0), max(at_c, 0)
        sums[s, at_a] += np.int64(a) if base >= NANS else sign * np.int64(a)
        sums[s, at_b] += sign * np.int64(b)
        sums[s, at_c] += sign * np.int64(c)
    return int(slots.size)


@kernel(nb.int64(READ_I64, READ_F64, _F64, _F64))
def add_doubles(slots: Ints, values: Reals, sums: Reals, rests: Reals) -> int:
    """Add each float64 to the sum of its slot while that needs no more than two float64; returns how many.

    A sum is `sums[slot]` and the `rests[slot]` that its rounding lost, together exact (Knuth's TwoSum). It
    stops before the first value whose sum needs more, such as one that is not finite.
    """
    mask = sums.size - 1
    for i in range(slots.size):
        s = slots[i] & mask
        value, before, rest = values[i], sums[s], rests[s]
        after = before + value
        shown = after - before
        lost = (before - (after - shown)) + (value - shown)
        whole = rest + lost
        shown = whole - rest
        if (rest - (whole - shown)) + (lost - shown) != 0.0:
            return i
        sums[s], rests[s] = after, whole
    return int(slots.size)


@kernel(nb.int64(READ_I64, READ_F64, READ_I64, nb.int64, READ_I64, _LINES))
def add_squares(slots: Ints, values: Reals, bits: Ints, begin: int, column: Ints, sums: Lines) -> int:
    """Like `add_reals` with the squares; numbers that are not finite are skipped."""
    mask = sums.shape[0] - 1
    digits = np.empty(6, np.int64)
    for i in range(begin, slots.size):
        base, a, b, c = _split(values[i], bits[i])
        if base >= NANS:
            continue
        term = a * a
        digits[0] = np.int64(term & _DIGIT)
        cross = a * b
        term = (term >> _BITS) + (cross & _DIGIT) * np.uint64(2)
        digits[1] = np.int64(term & _DIGIT)
        wide = a * c
        term = (term >> _BITS) + (cross >> _BITS) * np.uint64(2) + (wide & _DIGIT) * np.uint64(2)
        square = b * b
        term += square & _DIGIT
        digits[2] = np.int64(term & _DIGIT)
        cross = b * c
        term = (term >> _BITS) + (wide >> _BITS) * np.uint64(2) + (square >> _BITS)
        term += (cross & _DIGIT) * np.uint64(2)
        digits[3] = np.int64(term & _DIGIT)
        square = c * c
        term = (term >> _BITS) + (cross >> _BITS) * np.uint64(2) + (square & _DIGIT)
        digits[4] = np.int64(term & _DIGIT)
        digits[5] = np.int64((term >> _BITS) + (square >> _BITS))
        for j in range(6):
            if digits[j] and column[2 * base + j] < 0:
                return i
        s = slots[i] & mask
        for j in range(6):
            if digits[j]:
                sums[s, column[2 * base + j]] += digits[j]
    return int(slots.size)


@kernel(nb.void(_READ_LINES, _LINES))
def square_digits(digits: Lines, out: Lines) -> None:
    """The digits of the square of each number."""
    width = digits.shape[1]
    for i in range(digits.shape[0]):
        for j in range(2 * width):
            out[i, j] = 0
        for j in range(width):
            factor, carry = np.uint64(abs(digits[i, j])), np.uint64(0)
            for k in range(width):
                term = np.uint64(abs(digits[i, k])) * factor + np.uint64(out[i, j + k]) + carry
                out[i, j + k] = np.int64(term & _DIGIT)
                carry = term >> _BITS
            out[i, j + width] = np.int64(carry)


@kernel(nb.void(READ_I64, _READ_LINES, nb.boolean[::1]))
def mark_places(bases: Ints, digits: Lines, marked: npt.NDArray[np.bool_]) -> None:
    """Mark the places of all digits that are not zero."""
    for i in range(bases.size):
        for j in range(digits.shape[1]):
            if digits[i, j]:
                marked[bases[i] + j] = True


@kernel(nb.void(READ_I64, READ_I64, _READ_LINES, READ_I64, _LINES))
def add_digits(slots: Ints, bases: Ints, digits: Lines, column: Ints, sums: Lines) -> None:
    """Add each number to the sum of its slot."""
    mask = sums.shape[0] - 1
    for i in range(slots.size):
        s = slots[i] & mask
        for j in range(digits.shape[1]):
            if digits[i, j]:
                sums[s, column[bases[i] + j]] += digits[i, j]


@kernel(nb.void(READ_I64, READ_I64, _READ_LINES, _LINES))
def add_lines(slots: Ints, sources: Ints, lines: Lines, sums: Lines) -> None:
    """Add some lines to the sums of slots."""
    mask = sums.shape[0] - 1
    for i in range(slots.size):
        for c in range(sums.shape[1]):
            sums[slots[i] & mask, c] += lines[sources[i] & mask, c]


@kernel(nb.void(READ_I64, _LINES, READ_I64, READ_I64, READ_I64, _READ_LINES, READ_I64, _LINES))
def run_digits(
    first: Ints, sums: Lines, at: Ints, signs: Ints, bases: Ints, digits: Lines, column: Ints, out: Lines
) -> None:
    """Running sums by position (`headrace.kernels.aggregate_instants`); a sign of ±n is n equal numbers.

    `sums[g]` is the sum of a group, changed in place.
    """
    e = 0
    for g in range(first.size):
        stop = first[g + 1] if g + 1 < first.size else out.shape[0]
        for p in range(first[g], stop):
            while e < at.size and at[e] == p:
                for j in range(digits.shape[1]):
                    if digits[e, j]:
                        sums[g, column[bases[e] + j]] += signs[e] * digits[e, j]
                e += 1
            for c in range(sums.shape[1]):
                out[p, c] = sums[g, c]


@kernel(nb.void(I32, _LINES, _LINES, nb.int64, nb.int64, nb.int64))
def chain_lines(back: Ints, values: Lines, before: Lines, base: int, begin: int, stop: int) -> None:
    """For entries `begin` … `stop` − 1: the sum of the group's earlier ones, minus a constant per group."""
    mask = values.shape[0] - 1
    for e in range(begin, stop):
        p = e - back[e & mask]
        for c in range(values.shape[1]):
            before[e & mask, c] = before[p & mask, c] + values[p & mask, c] if base <= p < e else 0


@kernel(nb.void(_LINES, _LINES, READ_I64, READ_I64, _LINES))
def between_lines(values: Lines, before: Lines, heads: Ints, tails: Ints, out: Lines) -> None:
    """The sum of a group's entries from head to tail, both included, by subtraction."""
    mask = values.shape[0] - 1
    for o in range(heads.size):
        t, h = tails[o] & mask, heads[o] & mask
        for c in range(values.shape[1]):
            out[o, c] = before[t, c] + values[t, c] - before[h, c]


@kernel(nb.int64(READ_I64, READ_I64, nb.int64, _U64))
def _carried(line: Ints, ids: Ints, least: int, out: npt.NDArray[np.uint64]) -> int:
    """The magnitude of a sum as digits from place `least` on; returns −1 if the sum is negative, else 1."""
    out[:] = np.uint64(0)
    for c in range(ids.size):
        if ids[c] < NANS:
            out[ids[c] - least] = np.uint64(line[c])
    carry = np.int64(0)
    for i in range(out.size):
        whole = np.int64(out[i]) + carry
        carry = whole >> 32
        out[i] = np.uint64(whole & 0xFFFFFFFF)
    if carry >= 0:
        return 1
    borrow = np.uint64(1)
    for i in range(out.size):
        whole = (out[i] ^ _DIGIT) + borrow
        out[i] = whole & _DIGIT
        borrow = whole >> _BITS
    return -1


@kernel(nb.types.Tuple((nb.float64, nb.int64))(_U64, nb.boolean, nb.int64))
def _rounded(digits: npt.NDArray[np.uint64], rest: bool, least: int) -> tuple[float, int]:
    """Digits as m · 2^e with m ≤ 2^53, to the nearest, ties to even; e is at least `least`.

    `rest`: whether the number has a further fraction, below the last digit.
    """
    high = digits.size - 1
    while high >= 0 and digits[high] == 0:
        high -= 1
    if high < 0:
        return 0.0, 0
    size = 0
    while digits[high] >> np.uint64(size):
        size += 1
    used = np.uint64(size)
    next = digits[high - 1] if high >= 1 else np.uint64(0)
    last = digits[high - 2] if high >= 2 else np.uint64(0)
    top = (digits[high] << (nb.uint64(64) - used)) | (next << (_BITS - used)) | (last >> used)
    rest = rest or last & ((np.uint64(1) << used) - np.uint64(1)) != 0
    for i in range(high - 2):
        rest = rest or digits[i] != 0
    exponent = 32 * high + size - 64
    dropped = max(11, least - exponent)
    if dropped > 63:
        return 0.0, 0
    gone = np.uint64(dropped)
    kept = top >> gone
    part, half = top & ((np.uint64(1) << gone) - np.uint64(1)), np.uint64(1) << np.uint64(dropped - 1)
    if part > half or (part == half and (rest or kept & np.uint64(1))):
        kept += np.uint64(1)
    return np.float64(kept), exponent + dropped


@kernel(nb.float64(READ_I64, READ_I64))
def _special(line: Ints, ids: Ints) -> float:
    """NaN or an infinity if a sum contains numbers that are not finite, else 0."""
    nans = upper = lower = 0
    for c in range(ids.size):
        nans += line[c] if ids[c] == NANS else 0
        upper += line[c] if ids[c] == UPPER else 0
        lower += line[c] if ids[c] == LOWER else 0
    if nans or (upper and lower):
        return np.nan
    return np.inf if upper else (-np.inf if lower else 0.0)


@kernel(nb.void(_READ_LINES, READ_I64, nb.int64, _F64))
def round_sums(lines: Lines, ids: Ints, point: int, out: Reals) -> None:
    """Each sum as the nearest float64."""
    least, most = _places(ids)
    column = np.full(most - least + 3, -1, np.int64)  # of place least - 2 + i
    special = False
    for c in range(ids.size):
        if ids[c] < NANS:
            column[ids[c] - least + 2] = c
        else:
            special = True
    digits = np.empty(most - least + _ROOM, np.uint64)
    for p in range(lines.shape[0]):
        out[p] = _special(lines[p], ids) if special else 0.0
        if out[p] == 0.0 and not _round_short(lines[p], column, 32 * (least - point), p, out):
            sign = _carried(lines[p], ids, least, digits)
            mantissa, exponent = _rounded(digits, False, 32 * (point - least) - 1074)
            out[p] = sign * math.ldexp(mantissa, exponent - 32 * (point - least))


@kernel(nb.boolean(READ_I64, READ_I64, nb.int64, nb.int64, _F64))
def _round_short(line: Ints, column: Ints, unit: int, p: int, out: Reals) -> bool:
    """Round a sum with digits in three places at most, as nearly all have; False if it is another.

    The digits become one integer of 62 bits, whose last bit also stands for all that is below it. The
    conversion of an integer to a float64 rounds to the nearest, ties to even.
    """
    high = column.size - 1
    while high >= 2 and (column[high] < 0 or line[column[high]] == 0):
        high -= 1
    if high < 2:
        out[p] = 0.0
        return True
    for i in range(2, high - 2):
        if column[i] >= 0 and line[column[i]] != 0:
            return False
    a = line[column[high]]
    b = line[column[high - 1]] if column[high - 1] >= 0 else np.int64(0)
    c = line[column[high - 2]] if column[high - 2] >= 0 else np.int64(0)
    if abs(a) >= 1 << 28 or abs(b) >= 1 << 60 or abs(c) >= 1 << 62:
        return False
    top, low = (a << 32) + b + (c >> 32), c & 0xFFFFFFFF
    sign = 1.0
    if top < 0:
        sign = -1.0
        top, low = -top - (1 if low else 0), (-low) & 0xFFFFFFFF
    shift = min(32, 62 - math.frexp(np.float64(top))[1])
    whole = (top << shift) | (low >> (32 - shift))
    if low & ((1 << (32 - shift)) - 1):
        whole |= 1
    exponent = unit + 32 * (high - 4) + 32 - shift
    if exponent < -1022:
        return False
    out[p] = sign * math.ldexp(np.float64(whole), exponent)
    return True


@kernel(nb.types.UniTuple(nb.int64, 2)(READ_I64))
def _places(ids: Ints) -> tuple[int, int]:
    """The least and the greatest place."""
    least, most = PLACES, 0
    for c in range(ids.size):
        if ids[c] < NANS:
            least, most = min(least, ids[c]), max(most, ids[c])
    return min(least, most), most


@kernel(nb.void(READ_I64, _READ_LINES, READ_I64, _READ_LINES, READ_I64, nb.int64, nb.int64, I64, _F64))
def round_spreads(
    counts: Ints,
    sums: Lines,
    ids: Ints,
    squares: Lines,
    square_ids: Ints,
    free: int,
    point: int,
    divisors: Ints,
    out: Reals,
) -> None:
    """(Σx² − (Σx)²/n)/(n − free) as the nearest float64; NaN where a number is not finite.

    It is the exact n·Σx² − (Σx)², divided by n, by n − free, and by the `divisors` from the third on.
    """
    (least, most), (least_square, most_square) = _places(ids), _places(square_ids)
    least = min(least, least_square // 2)
    digits = np.empty(most - least + _ROOM, np.uint64)
    whole = np.empty(max(2 * digits.size, most_square - 2 * least + _ROOM), np.uint64)
    less, quotient = np.empty_like(whole), np.empty(divisors.size + 3, np.uint64)
    for p in range(counts.size):
        out[p] = 0.0
        if counts[p] <= free:
            continue
        if _special(sums[p], ids) != 0.0:
            out[p] = np.nan
            continue
        _carried(squares[p], square_ids, 2 * least, whole)
        _multiply(whole, counts[p])
        _carried(sums[p], ids, least, digits)
        _square(digits, less)
        _subtract(whole, less)
        divisors[0], divisors[1] = counts[p], counts[p] - free
        place, rest = _divided(whole, divisors, quotient)
        unit = 64 * (point - least) - 32 * place
        mantissa, exponent = _rounded(quotient, rest, unit - 1074)
        out[p] = math.ldexp(mantissa, exponent - unit)


@kernel(nb.types.Tuple((nb.int64, nb.boolean))(_U64, READ_I64, _U64))
def _divided(digits: npt.NDArray[np.uint64], divisors: Ints, out: npt.NDArray[np.uint64]) -> tuple[int, bool]:
    """Divide the leading digits by numbers below 2^32; returns the lowest place, and if there is a rest."""
    high = digits.size - 1
    while high > 0 and digits[high] == 0:
        high -= 1
    place, rest = high - out.size + 1, False
    for i in range(out.size):
        out[i] = digits[place + i] if place + i >= 0 else np.uint64(0)
    for i in range(place):
        rest = rest or digits[i] != 0
    for d in range(divisors.size):
        divisor, remainder = np.uint64(divisors[d]), np.uint64(0)
        for i in range(out.size - 1, -1, -1):
            part = (remainder << _BITS) | out[i]
            out[i] = part // divisor
            remainder = part - out[i] * divisor
        rest = rest or remainder != 0
    return place, rest


@kernel(nb.void(_U64, nb.int64))
def _multiply(digits: npt.NDArray[np.uint64], factor: int) -> None:
    """Multiply digits by a whole number below 2^62."""
    low, high = np.uint64(factor) & _DIGIT, np.uint64(factor) >> _BITS
    before = carry = np.uint64(0)
    for i in range(digits.size):
        term = digits[i] * low + carry
        carry = term >> _BITS
        more = before * high + (term & _DIGIT)
        before = digits[i]
        digits[i] = more & _DIGIT
        carry += more >> _BITS


@kernel(nb.void(_U64, _U64))
def _square(digits: npt.NDArray[np.uint64], out: npt.NDArray[np.uint64]) -> None:
    """The square of digits."""
    out[:] = np.uint64(0)
    used = digits.size
    while used and digits[used - 1] == 0:
        used -= 1
    least = 0
    while least < used and digits[least] == 0:
        least += 1
    for j in range(least, used):
        carry = np.uint64(0)
        for k in range(least, used):
            term = digits[j] * digits[k] + out[j + k] + carry
            out[j + k] = term & _DIGIT
            carry = term >> _BITS
        out[j + used] += carry


@kernel(nb.void(_U64, _U64))
def _subtract(digits: npt.NDArray[np.uint64], less: npt.NDArray[np.uint64]) -> None:
    """Subtract `less`, which is not greater, from digits."""
    borrow = np.uint64(0)
    for i in range(digits.size):
        take = less[i] + borrow
        borrow = np.uint64(1) if digits[i] < take else np.uint64(0)
        digits[i] = (digits[i] - take) & _DIGIT
