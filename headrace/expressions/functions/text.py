"""Functions of strings. Positions and lengths count characters, from 1.

Arrow changes the case of ASCII only; batches with other letters go row by row, because case mapping is not
per character (ß becomes SS). A pattern or width that is not constant goes row by row too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.bound import Call, Constant, Kernel, Vector
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Typing, as_text, takes
from headrace.expressions.growth import LONGEST, Growth, Sizes, column, lengths, numbers, utf8_size
from headrace.expressions.scope import Rule

STRING: Final = takes(TEXT, gives=pa.string())
TEST: Final = takes(TEXT, gives=pa.bool_())


def constants(prepare: Callable[..., Vector | None]) -> Callable[[Call], Vector]:
    """A lowering for calls whose arguments after the first are constant; `prepare` may decline with None."""

    def lower(call: Call) -> Vector:
        if not all(isinstance(each, Constant) for each in call.args[1:]):
            return arrow.rowwise(call)
        run = prepare(*(each.value for each in call.args[1:] if isinstance(each, Constant)))
        return arrow.rowwise(call) if run is None else lambda texts, *_: run(texts)

    return lower


def row(
    name: str,
    naive: Any,
    lower: Any,
    typing: Typing = STRING,
    least: int = 1,
    most: int = 1,
    growth: Growth | None = None,
) -> Rule:
    """A function of strings as an entry of the function table."""
    kernel = Kernel(name, lambda of, *values: naive(*values), lower, growth=growth)
    return FunctionRule(name, typing, kernel, least, most)


def _ascii(name: str) -> Callable[[Call], Vector]:
    """Arrow's function for ASCII batches, row by row for others."""

    def lower(call: Call) -> Vector:
        fast, careful = arrow.function(name), arrow.rowwise(call)
        return lambda texts: (fast if is_ascii(texts) else careful)(texts)

    return lower


def is_ascii(texts: pa.Array) -> bool:
    """Whether all bytes are ASCII; for a slice, more bytes than its own are checked."""
    data = texts.buffers()[2]
    return data is None or not data.size or int(np.frombuffer(data, np.uint8).max()) < 128


def _substring(text: str, position: int, length: int | None = None) -> str:
    """A negative position counts from the end; position 0 is position 1."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = len(text) if length is None else start + length
    return text[max(0, start) : max(0, end)]


def _slice(position: int, length: int | None = None) -> Vector | None:
    """Arrow's slice for constant bounds; None for negative ones."""
    if position < 0 or (length is not None and length < 0):
        return None
    start = max(0, position - 1)
    stop = None if length is None else min(start + length, 2**63 - 1)
    return arrow.function("utf8_slice_codeunits", pc.SliceOptions(start, stop))


def _replace(text: str, search: str, replacement: str = "") -> str:
    return text.replace(search, replacement) if search else text


def _replacing(search: str, replacement: str = "") -> Vector | None:
    options = pc.ReplaceSubstringOptions(search, replacement)
    return arrow.function("replace_substring", options) if search else None


def _matching(name: str) -> Callable[[str], Vector]:
    return lambda pattern: arrow.function(name, pc.MatchSubstringOptions(pattern))


def _trimming(name: str) -> Callable[..., Vector | None]:
    """A trim with constant characters; None if they are empty."""
    return lambda characters=" ": arrow.function(name, pc.TrimOptions(characters)) if characters else None


def _stripped(side: Callable[[str, str], str]) -> Callable[..., str]:
    return lambda text, characters=" ": side(text, characters) if characters else text


def _padding(text: str, width: int, pad: str) -> str:
    """The characters that are missing up to `width`."""
    missing = max(0, width - len(text))
    return (pad * missing)[:missing] if pad else ""


def _lpad(text: str, width: int, pad: str = " ") -> str:
    return (_padding(text, width, pad) + text[: max(0, width)])[: max(0, width)]


def _rpad(text: str, width: int, pad: str = " ") -> str:
    return (text + _padding(text, width, pad))[: max(0, width)]


def _padded(name: str) -> Callable[..., Vector | None]:
    """Arrow pads with one character and does not truncate."""

    def prepare(width: int, pad: str = " ") -> Vector | None:
        if len(pad) != 1 or width < 0:
            return None
        fill, cut = arrow.function(name, pc.PadOptions(width, pad)), _slice(1, width)
        return None if cut is None else lambda texts: cut(fill(texts))

    return prepare


def _concat(call: Call) -> Vector:
    join, nothing = arrow.function("binary_join_element_wise"), pa.scalar("")
    return lambda *texts: join(*texts, nothing)


def _length(call: Call) -> Vector:
    return arrow.function("utf8_length")


# --- the length of results


def _padded_size(text: str | None, width: int | None, pad: str | None = " ") -> int:
    """The most bytes that a padded text can have."""
    return max(0, width or 0) * _widest(pad) + utf8_size(text) if pad else utf8_size(text)


def _padded_sizes(texts: Any, widths: Any, pads: Any = None) -> Sizes:
    """Sizes per row; empty if results are computed and checked row by row, or if nothing is padded."""
    if isinstance(pads, pa.Array) or (pads is not None and not pads.as_py()):
        return NONE
    pad = _widest(" " if pads is None else pads.as_py())
    width = np.minimum(np.maximum(numbers(widths), 0), 1 << 40)
    return column(width * pad + lengths(texts), texts, widths, pads)


def _widest(pad: str | None) -> int:
    """Bytes of the widest character of a text."""
    return 1 if not pad or pad.isascii() else WIDEST


def _replaced_size(text: str | None, search: str | None, replacement: str | None = "") -> int:
    """The most bytes that a text can have after `replace`."""
    if not text or not search:
        return utf8_size(text)
    return utf8_size(text) + text.count(search) * utf8_size(replacement)


def _replaced_sizes(texts: Any, searches: Any, replacements: Any = None) -> Sizes:
    """Sizes per row; empty if results are computed and checked row by row."""
    search = searches.as_py() if isinstance(searches, pa.Scalar) else None
    if not isinstance(texts, pa.Array) or not search or isinstance(replacements, pa.Array):
        return NONE
    longer = 0 if replacements is None else lengths(replacements)
    if texts.nbytes * (1 + longer) <= LONGEST:
        return NONE
    found = pc.fill_null(pc.count_substring(texts, search), 0).to_numpy(zero_copy_only=False)
    return column(lengths(texts) + found.astype(np.int64) * longer, texts)


def _joined_sizes(*texts: Any) -> Sizes:
    """Sizes of concatenated texts; empty if none can be too long."""
    if all(isinstance(each, pa.Array) for each in texts) and sum(each.nbytes for each in texts) <= LONGEST:
        return NONE
    return column(sum(lengths(each) for each in texts), *texts)


NONE: Final = np.zeros(0, np.int64)
WIDEST: Final = 4
PADDED: Final = Growth(_padded_size, _padded_sizes)
REPLACED: Final = Growth(_replaced_size, _replaced_sizes)
JOINED: Final = Growth(lambda *texts: sum(utf8_size(each) for each in texts), _joined_sizes)

ROWS: Final[tuple[Rule, ...]] = (
    row("upper", str.upper, _ascii("ascii_upper")),
    row("lower", str.lower, _ascii("ascii_lower")),
    row("length", len, _length, takes(TEXT, gives=pa.int32())),
    row("reverse", lambda text: text[::-1], arrow.direct("utf8_reverse")),
    row("substring", _substring, constants(_slice), takes(TEXT, WHOLE, gives=pa.string()), 2, 3),
    row("trim", _stripped(str.strip), constants(_trimming("utf8_trim")), STRING, 1, 2),
    row("ltrim", _stripped(str.lstrip), constants(_trimming("utf8_ltrim")), STRING, 1, 2),
    row("rtrim", _stripped(str.rstrip), constants(_trimming("utf8_rtrim")), STRING, 1, 2),
    FunctionRule(
        "concat",
        takes(as_text, gives=pa.string()),
        Kernel("concat", lambda of, *texts: "".join(texts), _concat, growth=JOINED),
        1,
        None,
    ),
    row("replace", _replace, constants(_replacing), STRING, 2, 3, REPLACED),
    row("starts_with", str.startswith, constants(_matching("starts_with")), TEST, 2, 2),
    row("ends_with", str.endswith, constants(_matching("ends_with")), TEST, 2, 2),
    row("contains", lambda text, part: part in text, constants(_matching("match_substring")), TEST, 2, 2),
    row(
        "lpad",
        _lpad,
        constants(_padded("utf8_lpad")),
        takes(TEXT, WHOLE, TEXT, gives=pa.string()),
        2,
        3,
        PADDED,
    ),
    row(
        "rpad",
        _rpad,
        constants(_padded("utf8_rpad")),
        takes(TEXT, WHOLE, TEXT, gives=pa.string()),
        2,
        3,
        PADDED,
    ),
)
