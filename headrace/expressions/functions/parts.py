"""Functions that take strings apart: `split_part` and `regexp_extract`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Constant, Kernel, Vector, call
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Rewrite, takes
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


EXTRACT: Final = Kernel("regexp_extract", _extract)
EXTRACT_TYPES: Final = takes(TEXT, TEXT, WHOLE, gives=pa.string())


def _regexp_extract(*args: Bound) -> Bound:
    pattern = args[1]
    if isinstance(pattern, Constant) and isinstance(pattern.value, str) and _regex(pattern.value) is None:
        raise ExpressionError(
            "HR-E012", f"{pattern.value!r} is no regular expression", hint="Python's syntax"
        )
    return call(EXTRACT, *EXTRACT_TYPES("regexp_extract", args))


ROWS: Final[tuple[Rule, ...]] = (
    FunctionRule(
        "split_part",
        takes(TEXT, TEXT, WHOLE, gives=pa.string()),
        Kernel("split_part", _split_part, constants(_splitting)),
        3,
        3,
    ),
    Rewrite("regexp_extract", _regexp_extract, 2, 3),
)
