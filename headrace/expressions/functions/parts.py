"""Functions that take strings apart: `split_part`, `regexp_extract` and `regexp_count`.

Regular expressions are Python's. They run row by row, but once for each distinct text of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Kernel, Vector, call
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Rewrite, Typing, takes
from headrace.expressions.functions.text import constants
from headrace.expressions.scope import Rule


def _split_part(of: pa.DataType, text: str, delimiter: str, number: int) -> str | None:
    """Part `number` from 1, from the end if negative, empty beyond the last; there is no part 0."""
    if number == 0:
        return None
    parts = text.split(delimiter) if delimiter else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _splitting(delimiter: str, number: int) -> Vector | None:
    if not delimiter or number == 0:
        return None
    split, take = arrow.function("split_pattern", pc.SplitPatternOptions(delimiter)), arrow.function("take")

    def run(texts: pa.Array) -> pa.Array:
        lists = split(texts)
        offsets = lists.offsets.to_numpy()
        at = offsets[:-1] + number - 1 if number > 0 else offsets[1:] + number
        inside = (at >= offsets[:-1]) & (at < offsets[1:])
        valid = arrow.validity(texts)
        parts = pa.concat_arrays([lists.values, pa.array([""])])
        chosen = np.where(inside, at, len(lists.values))
        return take(parts, pa.array(chosen, mask=~valid))

    return run


@lru_cache(maxsize=256)
def _regex(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error:
        return None


def _extract(of: pa.DataType, text: str, pattern: str, group: int = 1) -> str | None:
    """The group of the first match, empty where nothing matches; NULL for a group that does not exist."""
    regex = _regex(pattern)
    if regex is None or not 0 <= group <= regex.groups:
        return None
    found = regex.search(text)
    return (found[group] or "") if found else ""


def _count(of: pa.DataType, text: str, pattern: str) -> int | None:
    """How many matches there are that do not overlap."""
    regex = _regex(pattern)
    return None if regex is None else sum(1 for _ in regex.finditer(text))


def _distinct(call: Call) -> Vector:
    """Each distinct text once, where all else is constant."""
    careful, take = arrow.rowwise(call), arrow.function("take")
    if not all(isinstance(each, Constant) for each in call.args[1:]):
        return careful

    def run(texts: pa.Array, *rest: pa.Scalar) -> pa.Array:
        encoded = texts.dictionary_encode()
        return take(careful(encoded.dictionary, *rest), encoded.indices)

    return run


def _counting(call: Call) -> Vector:
    """Arrow counts what is no more than a few letters or digits."""
    pattern = call.args[1]
    if not isinstance(pattern, Constant) or not PLAIN.fullmatch(pattern.value):
        return _distinct(call)
    run = arrow.function("count_substring", pc.MatchSubstringOptions(pattern.value))
    return lambda texts, _: run(texts)


PLAIN: Final = re.compile("[A-Za-z0-9]+")
EXTRACT: Final = Kernel("regexp_extract", _extract, _distinct)
EXTRACT_TYPES: Final = takes(TEXT, TEXT, WHOLE, gives=pa.string())
COUNT: Final = Kernel("regexp_count", _count, _counting)
COUNT_TYPES: Final = takes(TEXT, TEXT, gives=pa.int32())


def _regular(kernel: Kernel, typing: Typing) -> Callable[..., Bound]:
    """A call whose pattern is looked at before the first row."""

    def rewrite(*args: Bound) -> Bound:
        pattern = args[1]
        if isinstance(pattern, Constant) and isinstance(pattern.value, str) and _regex(pattern.value) is None:
            message = f"{pattern.value!r} is no regular expression"
            raise ExpressionError("HR-E012", message, hint="Python's syntax")
        return call(kernel, *typing(kernel.name, args))

    return rewrite


ROWS: Final[tuple[Rule, ...]] = (
    FunctionRule(
        "split_part",
        takes(TEXT, TEXT, WHOLE, gives=pa.string()),
        Kernel("split_part", _split_part, constants(_splitting)),
        3,
        3,
    ),
    Rewrite("regexp_extract", _regular(EXTRACT, EXTRACT_TYPES), 2, 3),
    Rewrite("regexp_count", _regular(COUNT, COUNT_TYPES), 2, 2),
)
