"""Functions that search, rewrite and hash strings. Positions count characters, from 1."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Kernel, Vector, call
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Rewrite, as_text, takes
from headrace.expressions.functions.text import NONE, STRING, constants, is_ascii, row
from headrace.expressions.growth import LONGEST, Growth, Sizes, column, lengths, numbers, utf8_size
from headrace.expressions.scope import Rule


def _find(text: str, part: str) -> int:
    """Where `part` begins; 0 if it is not there."""
    return text.find(part) + 1


def _finding(call: Call) -> Vector:
    """Arrow counts bytes, so only ASCII goes through it."""
    part, careful, narrow = call.args[1], arrow.rowwise(call), arrow.cast_to(pa.int32())
    if not isinstance(part, Constant):
        return careful
    fast, plus, one = (
        arrow.function("find_substring", pc.MatchSubstringOptions(part.value)),
        arrow.function("add"),
        pa.scalar(1, pa.int32()),
    )
    return lambda texts, _: narrow(plus(fast(texts), one)) if is_ascii(texts) else careful(texts, _)


FIND: Final = Kernel("instr", lambda of, text, part: _find(text, part), _finding)


def _instr(text: Bound, part: Bound) -> Bound:
    return call(FIND, (TEXT("instr", text), TEXT("instr", part)), pa.int32())


def _find_from(of: pa.DataType, part: str | None, text: str | None, start: int | None) -> int | None:
    """As Spark: 0 without a start, and an empty part is found at 1."""
    if start is None:
        return 0
    if part is None or text is None:
        return None
    return 0 if start < 1 else text.find(part, start - 1) + 1 if part else 1


FIND_FROM: Final = Kernel("locate", _find_from, strict=False)


def _locate(part: Bound, text: Bound, start: Bound | None = None) -> Bound:
    if start is None:
        return _instr(text, part)
    args = (TEXT("locate", part), TEXT("locate", text), WHOLE("locate", start))
    return call(FIND_FROM, args, pa.int32())


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def _last_characters(count: int) -> Vector | None:
    return arrow.function("utf8_slice_codeunits", pc.SliceOptions(-count)) if 0 < count < 2**31 else None


def _left(text: str, count: int) -> str:
    return text[: max(0, count)]


def _first_characters(count: int) -> Vector | None:
    return arrow.function("utf8_slice_codeunits", pc.SliceOptions(0, min(max(0, count), 2**31)))


def _initcap(text: str) -> str:
    """The first letter of each word in upper case, the others in lower case; words end at spaces."""
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def _translate(text: str, old: str, new: str) -> str:
    """Characters of `old` become those of `new` at the same place, or vanish if there are none."""
    table: dict[int, str | None] = {}
    for at, character in enumerate(old):
        table.setdefault(ord(character), new[at] if at < len(new) else None)
    return text.translate(table)


def _repeating(call: Call) -> Vector:
    count, repeat = call.args[1], arrow.function("binary_repeat")
    if not isinstance(count, Constant):
        return arrow.rowwise(call)
    times = pa.scalar(max(0, count.value))
    return lambda texts, _: repeat(texts, times)


def _repeated_size(text: str | None, count: int | None) -> int:
    return utf8_size(text) * max(0, count or 0)


def _repeated_sizes(texts: Any, counts: Any) -> Sizes:
    count = np.minimum(np.maximum(numbers(counts), 0), 1 << 40)
    return column(np.minimum(lengths(texts), 1 << 22) * np.minimum(count, LONGEST + 1), texts, counts)


REPEATED: Final = Growth(_repeated_size, _repeated_sizes)


def _join(of: pa.DataType, between: str | None, *texts: str | None) -> str | None:
    return None if between is None else between.join(each for each in texts if each is not None)


def _joining(call: Call) -> Vector:
    """Arrow joins all texts but the last with it. If all texts of a row are NULL, it loses the row."""
    join, careful = arrow.function("binary_join_element_wise"), arrow.rowwise(call)

    def run(between: Any, *texts: Any) -> pa.Array:
        if all(each.is_valid if isinstance(each, pa.Scalar) else not each.null_count for each in texts):
            return join(*texts, between)
        return careful(between, *texts)

    return run


def _joined_size(between: str | None, *texts: str | None) -> int:
    return sum(map(utf8_size, texts)) + utf8_size(between) * max(0, len(texts) - 1)


def _joined_sizes(between: Any, *texts: Any) -> Sizes:
    """Sizes of joined texts; empty if none can be too long."""
    every = (between, *texts)
    if all(isinstance(each, pa.Array) for each in every) and sum(each.nbytes for each in every) <= LONGEST:
        return NONE
    return column(sum(map(lengths, texts)) + lengths(between) * max(0, len(texts) - 1), *every)


JOINED: Final = Growth(_joined_size, _joined_sizes)


def _hash(function: Callable[..., Any]) -> Callable[[str], str]:
    return lambda text: str(
        function(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    )


SHA2: Final = {0: hashlib.sha256, 224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384} | {
    512: hashlib.sha512
}


def _sha2(text: str, bits: int) -> str | None:
    """The hash in hexadecimal digits; NULL for a length that does not exist."""
    return _hash(SHA2[bits])(text) if bits in SHA2 else None


ROWS: Final[tuple[Rule, ...]] = (
    Rewrite("instr", _instr, 2, 2),
    Rewrite("locate", _locate, 2, 3),
    row("left", _left, constants(_first_characters), takes(TEXT, WHOLE, gives=pa.string()), 2, 2),
    row("right", _right, constants(_last_characters), takes(TEXT, WHOLE, gives=pa.string()), 2, 2),
    row("initcap", _initcap, None),
    row("translate", _translate, None, STRING, 3, 3),
    row(
        "repeat",
        lambda text, count: text * max(0, count),
        _repeating,
        takes(TEXT, WHOLE, gives=pa.string()),
        2,
        2,
        REPEATED,
    ),
    FunctionRule(
        "concat_ws",
        takes(TEXT, as_text, gives=pa.string()),
        Kernel("concat_ws", _join, _joining, strict=False, growth=JOINED),
        2,
        None,
    ),
    row("ascii", lambda text: ord(text[0]) if text else 0, None, takes(TEXT, gives=pa.int32())),
    row("md5", _hash(hashlib.md5), None),
    row("sha1", _hash(hashlib.sha1), None),
    row("sha2", _sha2, None, takes(TEXT, WHOLE, gives=pa.string()), 2, 2),
    row(
        "crc32",
        lambda text: zlib.crc32(text.encode("utf-8", "surrogatepass")),
        None,
        takes(TEXT, gives=pa.int64()),
    ),
)
