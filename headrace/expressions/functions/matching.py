"""Functions that match regular expressions: `regexp_like`, `regexp_replace`, `split`; and `substring_index`.

Regular expressions are RE2's, as in Arrow (`headrace.expressions.functions.parts`).
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Constant, Kernel, Vector
from headrace.expressions.functions.parts import NotRegular, groups_of, one_row, regular
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Rewrite, takes
from headrace.expressions.functions.text import constants
from headrace.expressions.growth import LONGEST
from headrace.expressions.scope import Rule

TEXTS: Final = pa.list_(pa.string())
REFERENCE: Final = re.compile(r"\\(.)|\$(\d)", re.DOTALL)


def _liking(pattern: str) -> Vector | None:
    """Whether the pattern matches anywhere in a text."""
    try:
        groups_of(pattern)
    except NotRegular:
        return lambda texts: pa.nulls(len(texts), pa.bool_())
    return arrow.function("match_substring_regex", pc.MatchSubstringOptions(pattern))


def _rewriting(pattern: str, replacement: str) -> Vector | None:
    """Replace every match; `$1` is the first group, and a backslash makes the next character plain.

    NULL where a group does not exist, and where a text becomes too long.
    """
    try:
        known = groups_of(pattern)
    except NotRegular:
        known = -1
    wanted = [int(found[2]) for found in REFERENCE.finditer(replacement) if found[2] is not None]
    if known < max(wanted, default=0):
        return lambda texts: pa.nulls(len(texts), pa.string())
    written = REFERENCE.sub(_reference, replacement)
    replace = arrow.function("replace_substring_regex", pc.ReplaceSubstringOptions(pattern, written))
    most = 16 * LONGEST // (1 + len(replacement.encode()))

    def run(texts: pa.Array) -> pa.Array:
        found = replace(_up_to(texts, most))
        return _up_to(found, LONGEST)

    return run


def _up_to(texts: pa.Array, most: int) -> pa.Array:
    """The texts, NULL where they are longer than so many bytes."""
    fits = pc.less_equal(pc.binary_length(texts), pa.scalar(most, pa.int64()))
    return pc.if_else(fits, texts, pa.scalar(None, pa.string()))


def _reference(found: re.Match[str]) -> str:
    """A group in RE2's words, or a plain character."""
    if found[2] is not None:
        return "\\" + found[2]
    return "\\\\" if found[1] == "\\" else found[1]


def _splitting(pattern: str) -> Vector | None:
    """The texts between the matches, as an array; empty texts at the end stay, as in Spark."""
    if not _divides(pattern):
        return lambda texts: pa.nulls(len(texts), TEXTS)
    split = arrow.function("split_pattern_regex", pc.SplitPatternOptions(pattern))
    return lambda texts: pc.cast(split(texts), TEXTS)


def _divides(pattern: str) -> bool:
    """Whether a pattern is one, and does not match the empty text."""
    try:
        groups_of(pattern)
    except NotRegular:
        return False
    return not pc.match_substring_regex(pa.array([""]), pattern)[0].as_py()


def _split(text: Bound, pattern: Bound) -> Bound:
    """A constant pattern that matches the empty text is an error: it divides nothing."""
    found = regular(SPLIT, takes(TEXT, TEXT, gives=TEXTS))(text, pattern)
    if isinstance(pattern, Constant) and isinstance(pattern.value, str) and not _divides(pattern.value):
        message = f"{pattern.value!r} matches the empty text, so it divides nothing"
        raise ExpressionError("HR-E012", message, hint="write + in place of *")
    return found


def _index(of: pa.DataType, text: str, delimiter: str, count: int) -> str:
    """What is before the count-th delimiter or, if the count is negative, after it from the end."""
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


LIKE: Final = Kernel("regexp_like", one_row(_liking), constants(_liking))
REPLACE: Final = Kernel("regexp_replace", one_row(_rewriting), constants(_rewriting))
SPLIT: Final = Kernel("split", one_row(_splitting), constants(_splitting))

ROWS: Final[tuple[Rule, ...]] = (
    Rewrite("regexp_like", regular(LIKE, takes(TEXT, TEXT, gives=pa.bool_())), 2, 2),
    Rewrite("regexp_replace", regular(REPLACE, takes(TEXT, TEXT, TEXT, gives=pa.string())), 3, 3),
    Rewrite("split", _split, 2, 2),
    FunctionRule(
        "substring_index",
        takes(TEXT, TEXT, WHOLE, gives=pa.string()),
        Kernel("substring_index", _index),
        3,
        3,
    ),
)
