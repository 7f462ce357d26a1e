"""Bits and bytes: `&`, `|`, `^`, `~`, shifts, and texts for bytes (`hex`, `base64`, `encode`)."""

from __future__ import annotations

import base64
import binascii
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Kernel, Vector
from headrace.expressions.casts import to_common
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Parameter, Typed, takes
from headrace.expressions.scope import Rule
from headrace.expressions.types import family, mismatch

BYTES: Final = pa.binary()
CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "iso-8859-1", "utf-16be", "utf-16le"})


def _whole(name: str, bound: Bound) -> Bound:
    """An integer in its own width."""
    if family(bound.type) not in ("integer", "null"):
        raise mismatch(name, bound.type)
    return bound


def _common(name: str, args: tuple[Bound, ...]) -> Typed:
    """Integers in their common width."""
    for each in args:
        _whole(name, each)
    return to_common(name, *args)


def _bitwise(name: str, naive: Callable[[int, int], int], arrow_name: str) -> FunctionRule:
    kernel = Kernel(name, lambda of, left, right: naive(left, right), arrow.direct(arrow_name))
    return FunctionRule(name, _common, kernel, 2, 2)


def _shift(name: str, naive: Callable[[int, int], int], shift: np.ufunc) -> FunctionRule:
    """A shift by a number of bits, of which Java takes the last five or six."""

    def one(of: pa.DataType, value: int, count: int) -> int:
        bits = 64 if of == pa.int64() else 32
        found: int = naive(value, count & (bits - 1)) & (2**bits - 1)
        return int(found - 2**bits if found >> (bits - 1) else found)

    def lower(call: Call) -> Vector:
        bits = 64 if call.type == pa.int64() else 32

        def run(values: Any, counts: Any) -> pa.Array:
            (value, known), (count, given) = arrow.operand(values), arrow.operand(counts)
            wide = value.astype(np.int64 if bits == 64 else np.int32)
            found = np.asarray(shift(wide, (count & (bits - 1)).astype(wide.dtype)))
            return arrow.from_numpy(call.type, found, np.broadcast_to(known & given, found.shape))

        return run

    def typing(name: str, args: tuple[Bound, ...]) -> Typed:
        coerced, _ = takes(_whole, WHOLE)(name, args)
        return coerced, pa.int64() if coerced[0].type == pa.int64() else pa.int32()

    return FunctionRule(name, typing, Kernel(name, one, lower), 2, 2)


def _binary(*families: str) -> Parameter:
    """Bytes, or a value of these families."""

    def coerce(name: str, bound: Bound) -> Bound:
        if not (pt.is_binary(bound.type) or family(bound.type) in (*families, "null")):
            raise mismatch(name, bound.type)
        return bound

    return coerce


def _hex(of: pa.DataType, value: bytes | str | int) -> str:
    if isinstance(value, int):
        return f"{value & (2**64 - 1):X}"
    return (value.encode() if isinstance(value, str) else value).hex().upper()


def _unhex(of: pa.DataType, text: str) -> bytes | None:
    try:
        return binascii.unhexlify("0" * (len(text) % 2) + text)
    except (binascii.Error, ValueError):
        return None


def _unbase64(of: pa.DataType, text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _encode(of: pa.DataType, text: str, charset: str) -> bytes | None:
    """NULL for a character or a charset that there is not."""
    try:
        return text.encode(charset) if charset.lower() in CHARSETS else None
    except UnicodeError:
        return None


def _decode(of: pa.DataType, data: bytes, charset: str) -> str | None:
    try:
        return data.decode(charset) if charset.lower() in CHARSETS else None
    except UnicodeError:
        return None


def _chr(of: pa.DataType, code: int) -> str:
    """The character of the last eight bits; none for negative numbers."""
    return "" if code < 0 else chr(code & 255)


def _row(name: str, typing: Any, naive: Callable[..., Any], count: int = 1) -> FunctionRule:
    return FunctionRule(name, typing, Kernel(name, naive), count, count)


def _bytes_of(value: str | bytes) -> int:
    return len(value.encode() if isinstance(value, str) else value)


ROWS: Final[tuple[Rule, ...]] = (
    _bitwise("bits_and", operator.and_, "bit_wise_and"),
    _bitwise("bits_or", operator.or_, "bit_wise_or"),
    _bitwise("bits_xor", operator.xor, "bit_wise_xor"),
    FunctionRule(
        "bits_not", takes(_whole), Kernel("bits_not", lambda of, value: ~value, arrow.direct("bit_wise_not"))
    ),
    _shift("shiftleft", operator.lshift, np.left_shift),
    _shift("shiftright", operator.rshift, np.right_shift),
    _row("bit_count", takes(_whole, gives=pa.int32()), lambda of, value: (value & (2**64 - 1)).bit_count()),
    _row("bin", takes(WHOLE, gives=pa.string()), lambda of, value: f"{value & (2**64 - 1):b}"),
    _row("hex", takes(_binary("string", "integer"), gives=pa.string()), _hex),
    _row("unhex", takes(TEXT, gives=BYTES), _unhex),
    _row(
        "base64",
        takes(_binary("string"), gives=pa.string()),
        lambda of, value: base64.b64encode(value.encode() if isinstance(value, str) else value).decode(),
    ),
    _row("unbase64", takes(TEXT, gives=BYTES), _unbase64),
    _row("encode", takes(TEXT, TEXT, gives=BYTES), _encode, 2),
    _row("decode", takes(_binary(), TEXT, gives=pa.string()), _decode, 2),
    _row("chr", takes(WHOLE, gives=pa.string()), _chr),
    _row(
        "octet_length",
        takes(_binary("string"), gives=pa.int32()),
        lambda of, value: _bytes_of(value),
    ),
    _row(
        "bit_length",
        takes(_binary("string"), gives=pa.int32()),
        lambda of, value: 8 * _bytes_of(value),
    ),
)
