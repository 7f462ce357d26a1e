"""Reads lines of flat JSON objects in one pass, as far as they are written in the usual way.

Arrow's parser takes about twice as long or more: it decodes all values, also those that nobody reads.
Whatever is unusual, here or in what the values mean, is left to it: then the answer is -1.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

_BYTES = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_EIGHTS = nb.types.Array(nb.uint64, 1, "C", readonly=True)
_WORDS = nb.types.Array(nb.int64, 1, "C", readonly=True)

WHOLE, REAL, TRUTH, TEXT = range(4)
"""Kinds of columns: integers, 64-bit floats, booleans and text."""
IGNORED = -1
EXACT = 1 << 53
"""Whole numbers up to here are exact as floats; so are the powers of ten below."""
POWERS = np.array([10.0**n for n in range(23)])
FAR = 280
"""Arrow refuses numbers that are too large for a float, also if nobody reads them: these are left to it."""
ROOM = (2**63 - 1) // 10
"""A number below this has room for one more digit."""

_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE, _MINUS, _PLUS, _POINT = b'"\\:,{}-+.'
_BLANK, _TAB, _NEWLINE, _RETURN, _ZERO, _NINE, _SMALL_E, _LARGE_E = b" \t\n\r09eE"
_TRUE, _FALSE, _NULL = b"tfn"
_WORD_TRUE, _WORD_FALSE, _WORD_NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))

# Eight times the same byte: for looking at eight bytes at once.
_ONES, _QUOTES, _BACKSLASHES, _BLANKS, _HIGHS = (
    np.uint64(byte * 0x0101010101010101) for byte in (1, 0x22, 0x5C, 0x20, 0x80)
)

Bytes = npt.NDArray[np.uint8]
Eights = npt.NDArray[np.uint64]
Words = npt.NDArray[np.int64]


@kernel(nb.int64(_BYTES, nb.int64))
def _after_blanks(data: Bytes, at: int) -> int:
    """The next byte that is neither a space nor a tab."""
    while at < len(data) and (data[at] == _BLANK or data[at] == _TAB):
        at += 1
    return at


@kernel(nb.boolean(nb.uint64))
def _plain(eight: np.uint64) -> bool:
    """Whether none of eight bytes is a quote, a backslash or a control character."""
    quote, backslash = eight ^ _QUOTES, eight ^ _BACKSLASHES
    found = ((quote - _ONES) & ~quote) | ((backslash - _ONES) & ~backslash) | ((eight - _BLANKS) & ~eight)
    return bool((found & _HIGHS) == 0)


@kernel(nb.int64(_BYTES, _EIGHTS, nb.int64))
def _text_end(data: Bytes, eights: Eights, at: int) -> int:
    """The closing quote of a text without escapes that begins at `at`; else -1."""
    while at < len(data):
        if at & 7 == 0:
            while at >> 3 < len(eights) and _plain(eights[at >> 3]):
                at += 8
            if at >= len(data):
                return -1
        byte = data[at]
        if byte == _QUOTE:
            return at
        if byte < _BLANK or byte == _BACKSLASH:
            return -1
        at += 1
    return -1


@kernel(nb.int64(_BYTES, nb.int64, _BYTES))
def _word_end(data: Bytes, at: int, word: Bytes) -> int:
    """Where a word ends that is expected at `at`; -1 if another one is there."""
    if at + len(word) > len(data):
        return -1
    for i in range(len(word)):
        if data[at + i] != word[i]:
            return -1
    return at + len(word)


@kernel(nb.types.Tuple((nb.int64, nb.int64))(_BYTES, nb.int64, nb.int64))
def _digits(data: Bytes, at: int, value: int) -> tuple[int, int]:
    """Where digits end, and the number that they make after `value`; -1 if it is too large."""
    while at < len(data) and _ZERO <= data[at] <= _NINE:
        value = int(value * 10 + (np.int64(data[at]) - _ZERO)) if 0 <= value < ROOM else -1
        at += 1
    return at, value


@kernel(nb.types.Tuple((nb.int64, nb.int64, nb.int64, nb.boolean))(_BYTES, nb.int64))
def _number(data: Bytes, at: int) -> tuple[int, int, int, bool]:
    """Where a number without a sign ends, its digits, the power of ten behind them, and whether it is whole.

    The end is -1 if it is not a number as JSON writes it, and the digits are -1 if there are too many.
    """
    begin = at
    at, value = _digits(data, at, 0)
    if at == begin or (data[begin] == _ZERO and at > begin + 1):
        return -1, 0, 0, False
    power, whole = 0, True
    if at < len(data) and data[at] == _POINT:
        begin, whole = at + 1, False
        at, value = _digits(data, begin, value)
        power = begin - at
        if power == 0:
            return -1, 0, 0, False
    if at < len(data) and (data[at] == _SMALL_E or data[at] == _LARGE_E):
        at, whole = at + 1, False
        below = at < len(data) and data[at] == _MINUS
        if below or (at < len(data) and data[at] == _PLUS):
            at += 1
        begin = at
        at, exponent = _digits(data, begin, 0)
        if at == begin:
            return -1, 0, 0, False
        if exponent < 0 or exponent > 1000:
            value = -1
        else:
            power += -exponent if below else exponent
    return at, value, power, whole


@kernel(nb.int64(_BYTES, nb.int64, nb.int64, _BYTES, _WORDS, nb.int64))
def _column(data: Bytes, begin: int, end: int, names: Bytes, ends: Words, likely: int) -> int:
    """The column with the name in `data[begin:end]`, where `likely` is looked at first; or `IGNORED`."""
    count = len(ends) - 1
    for turn in range(count):
        column = (likely + turn) % count
        first = ends[column]
        if ends[column + 1] - first == end - begin:
            i = 0
            while i < end - begin and data[begin + i] == names[first + i]:
                i += 1
            if i == end - begin:
                return column
    return IGNORED


@kernel(
    nb.int64(
        _BYTES,
        _EIGHTS,
        nb.int64,
        nb.int64,
        nb.int64,
        nb.int64,
        nb.int64,
        nb.int64,
        nb.int64[:, ::1],
        nb.float64[:, ::1],
        nb.int64[:, ::1],
    )
)
def _value(
    data: Bytes,
    eights: Eights,
    at: int,
    kind: int,
    low: int,
    high: int,
    column: int,
    row: int,
    words: Words,
    reals: npt.NDArray[np.float64],
    lengths: Words,
) -> int:
    """Read a value into a column; where it ends, or -1."""
    byte = data[at]
    if byte == _QUOTE:
        end = _text_end(data, eights, at + 1)
        if end < 0 or (kind != TEXT and kind != IGNORED):
            return -1
        if kind == TEXT:
            words[column, row] = at + 1
            lengths[column, row] = end - at - 1
        return end + 1
    if byte in (_TRUE, _FALSE):
        if kind == TRUTH:
            words[column, row] = byte == _TRUE
        elif kind != IGNORED:
            return -1
        return _word_end(data, at, _WORD_TRUE if byte == _TRUE else _WORD_FALSE)
    if byte == _NULL:
        return _word_end(data, at, _WORD_NULL) if kind == IGNORED else -1
    below = byte == _MINUS
    end, value, power, whole = _number(data, at + 1 if below else at)
    if kind == IGNORED:
        return end if value >= 0 and power < FAR else -1
    if end < 0:
        return -1
    if kind == WHOLE and whole and value >= 0:
        value = -value if below else value
        words[column, row] = value
        return -1 if value < low or value > high or (below and value == 0) else end
    if kind == REAL and 0 <= value <= EXACT and -23 < power < 23:
        real = value * POWERS[power] if power >= 0 else value / POWERS[-power]
        reals[column, row] = -real if below else real
        return end
    return -1


@kernel(
    nb.int64(
        _BYTES,
        _EIGHTS,
        _BYTES,
        _WORDS,
        _WORDS,
        _WORDS,
        _WORDS,
        nb.int64[:, ::1],
        nb.float64[:, ::1],
        nb.int64[:, ::1],
    )
)
def read_objects(
    data: Bytes,
    eights: Eights,
    names: Bytes,
    ends: Words,
    kinds: Words,
    lows: Words,
    highs: Words,
    words: Words,
    reals: npt.NDArray[np.float64],
    lengths: Words,
) -> int:
    """Read lines of valid UTF-8 into columns: how many, or -1 if any of them is not as expected.

    Each line is an object with every column once, and nothing nested. `eights` are the whole groups of eight
    bytes of the data. `names` are those of the columns, cut at `ends`, and `lows` and `highs` the bounds of
    integers. A column of texts gets where each begins, and its length. There must be room for a row for each
    line.
    """
    columns, size, at, row = len(kinds), len(data), 0, 0
    seen = np.full(columns, -1, np.int64)
    while at < size:
        if data[at] != _OPEN:
            return -1
        missing, likely, more = columns, 0, True
        while more:
            at = _after_blanks(data, at + 1)
            if at >= size or data[at] != _QUOTE:
                return -1
            end = _text_end(data, eights, at + 1)
            if end < 0:
                return -1
            column = _column(data, at + 1, end, names, ends, likely)
            at = _after_blanks(data, end + 1)
            if at >= size or data[at] != _COLON:
                return -1
            at = _after_blanks(data, at + 1)
            if at >= size:
                return -1
            if column == IGNORED:
                at = _value(data, eights, at, IGNORED, 0, 0, 0, 0, words, reals, lengths)
            elif seen[column] == row:
                return -1
            else:
                seen[column], missing, likely = row, missing - 1, column + 1
                low, high = lows[column], highs[column]
                at = _value(data, eights, at, kinds[column], low, high, column, row, words, reals, lengths)
            if at < 0:
                return -1
            at = _after_blanks(data, at)
            if at >= size or (data[at] != _COMMA and data[at] != _CLOSE):
                return -1
            more = data[at] == _COMMA
        at += 1
        if at < size and data[at] == _RETURN:
            at += 1
        if missing > 0 or (at < size and data[at] != _NEWLINE):
            return -1
        at, row = at + 1, row + 1
    return row


@kernel(nb.void(_BYTES, nb.int64[::1], nb.int64[::1], nb.uint8[::1]))
def copy_texts(data: Bytes, begins: Words, lengths: Words, out: Bytes) -> None:
    """The texts behind each other."""
    to = 0
    for row in range(len(begins)):
        begin = begins[row]
        for i in range(lengths[row]):
            out[to + i] = data[begin + i]
        to += lengths[row]
