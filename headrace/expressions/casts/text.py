"""Casts to and from strings.

Numbers are written as Spark writes them (`1.0`, `1.0E10`, decimals plain), and parsed from plain ASCII
notation with optional whitespace around it. Parsing is guarded: Arrow parses a batch in which every text has
the common form; other batches go row by row, because Arrow would also accept `0x1F` and Python would also
accept `1_000`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.bound import Call, Datum, Kernel, Vector
from headrace.expressions.casts.numeric import guarded, unsafe
from headrace.expressions.literals import as_float, as_scaled, in_range

BLANKS: Final = " \t\n\r\f\v"
WORDS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
INTEGER: Final = re.compile(r"[+-]?[0-9]+")
NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
COMMON_FLOAT: Final = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
SPECIAL: Final = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)


def _to_boolean(of: pa.DataType, text: str) -> bool | None:
    return WORDS.get(text.strip(BLANKS).lower())


def _to_integer(of: pa.DataType, text: str) -> int | None:
    text = text.strip(BLANKS)
    return in_range(of, int(text)) if INTEGER.fullmatch(text) and len(text) < 40 else None


def _to_float(of: pa.DataType, text: str) -> float | None:
    text = text.strip(BLANKS)
    return as_float(of, float(text)) if NUMBER.fullmatch(text) or SPECIAL.fullmatch(text) else None


def _to_decimal(of: pa.DataType, text: str) -> Decimal | None:
    text = text.strip(BLANKS)
    return as_scaled(of, Decimal(text)) if NUMBER.fullmatch(text) else None


def java_text(value: float, shortest: str) -> str:
    """A float as Java writes it, from the shortest digits that parse back to the same value."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = format(Decimal(shortest), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    power = len(digits) - 1 + int(exponent)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{power}"


def parsed(form: str, through: pa.DataType = None) -> Callable[[Call], Vector]:
    """Arrow's parser for batches in which every text has the form; other batches go row by row."""

    def lower(call: Call) -> Vector:
        has_form = arrow.function("match_substring_regex", pc.MatchSubstringOptions(form))
        every = arrow.function("all", pc.ScalarAggregateOptions(skip_nulls=True, min_count=0))
        read = arrow.function("cast", pc.CastOptions.safe(through or call.type))
        convert, careful = arrow.cast_to(call.type), arrow.rowwise(call)

        def run(texts: Datum) -> Datum:
            return convert(read(texts)) if every(has_form(texts)).as_py() else careful(texts)

        return run

    return guarded(lower)


def _boolean_vector(call: Call) -> Vector:
    trim, lower = arrow.function("ascii_trim", pc.TrimOptions(BLANKS)), arrow.function("ascii_lower")
    index = arrow.function("index_in", pc.SetLookupOptions(pa.array(list(WORDS))))
    take, meanings = arrow.function("take"), pa.array(list(WORDS.values()))
    return lambda texts: take(meanings, index(lower(trim(texts))))


def _written(write: Callable[[Any], str]) -> Callable[..., str]:
    return lambda of, value: write(value)


ROWS: Final[dict[tuple[str, str], Kernel]] = {
    ("string", "boolean"): Kernel("cast", _to_boolean, _boolean_vector),
    ("string", "integer"): Kernel("cast", _to_integer, parsed("^-?[0-9]{1,18}$")),
    ("string", "float"): Kernel("cast", _to_float, parsed(COMMON_FLOAT, pa.float64())),
    ("string", "decimal"): Kernel("cast", _to_decimal, parsed(r"^-?[0-9]{1,28}(\.[0-9]{1,9})?$")),
    ("boolean", "string"): Kernel("cast", _written(lambda value: str(value).lower()), unsafe),
    ("integer", "string"): Kernel("cast", _written(str), unsafe),
    ("float", "string"): Kernel("cast", _written(lambda value: java_text(value, repr(value)))),
    ("float32", "string"): Kernel("cast", _written(lambda value: java_text(value, str(np.float32(value))))),
    ("decimal", "string"): Kernel("cast", _written(lambda value: format(value, "f"))),
}
