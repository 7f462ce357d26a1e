"""Functions that split strings: `split_part`, `regexp_extract` and `regexp_count`.

Regular expressions are RE2's, as in Arrow: their time is linear in the text for every pattern. A pattern that
is not constant goes row by row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Constant, Kernel, Vector, call
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Rewrite, Typing, takes
from headrace.expressions.functions.text import constants
from headrace.expressions.scope import Rule


def _split_part(of: pa.DataType, text: str, delimiter: str, number: int) -> str | None:
    """Part `number`, from 1, or from the end if negative; empty if out of range, NULL for part 0."""
    if number == 0:
        return None
    parts = text.split(delimiter) if delimiter else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _splitting(delimiter: str, number: int) -> Vector | None:
    """`split_part` with a constant delimiter and number; None if these need the naive half."""
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


class NotRegular(Exception):
    """A pattern that RE2 does not accept, with the reason."""


@lru_cache(maxsize=1024)
def groups_of(pattern: str) -> int:
    """The number of groups of a pattern; raises `NotRegular` if it is not valid."""
    try:
        MATCH((EMPTY,), pc.MatchSubstringOptions(pattern))
    except pa.ArrowInvalid as error:
        raise NotRegular(str(error).removeprefix("Invalid regular expression: ").splitlines()[0]) from None
    return sum(1 for _ in _openings(pattern))


def _openings(pattern: str) -> Iterator[tuple[int, int]]:
    """Where each capturing group begins: its parenthesis, and the text in it."""
    at, in_class = 0, False
    while at < len(pattern):
        if pattern.startswith(r"\Q", at):
            end = pattern.find(r"\E", at)
            at = len(pattern) if end < 0 else end + 2
        elif pattern[at] == "\\":
            at += 2
        elif in_class:
            end = pattern.find(":]", at) if pattern.startswith("[:", at) else -1
            in_class = end >= 0 or pattern[at] != "]"
            at = end + 2 if end >= 0 else at + 1
        elif pattern[at] == "[":
            in_class = True
            at += 1 + pattern.startswith("^", at + 1)
            # A bracket that comes first in a class is an ordinary character.
            at += pattern.startswith("]", at)
        elif pattern[at] == "(":
            named = NAMED.match(pattern, at)
            if named or not pattern.startswith("(?", at):
                yield at, named.end() if named else at + 1
            at += 1
        else:
            at += 1


@lru_cache(maxsize=1024)
def _only(pattern: str, group: int) -> str:
    """The pattern with only one capturing group, named `g`; 0 is the whole pattern."""
    parts, done = [], 0
    for number, (begin, end) in enumerate(_openings(pattern), 1):
        parts += [pattern[done:begin], "(?P<g>" if number == group else "(?:"]
        done = end
    inner = "".join([*parts, pattern[done:]])
    return f"(?P<g>{inner})" if group == 0 else inner


def _extracting(pattern: str, group: int = 1) -> Vector | None:
    """The group of the first match, empty if nothing matches; NULL for a group that does not exist."""
    try:
        known = 0 <= group <= groups_of(pattern)
    except NotRegular:
        known = False
    if not known:
        return lambda texts: pa.nulls(len(texts), pa.string())
    find = arrow.function("extract_regex", pc.ExtractRegexOptions(_only(pattern, group)))

    def run(texts: pa.Array) -> pa.Array:
        found = find(texts)
        return pc.if_else(pc.is_null(texts), pa.scalar(None, pa.string()), found.field("g"))

    return run


def _counting(pattern: str) -> Vector | None:
    """The number of matches: each match is replaced by a mark, and the marks are counted.

    Arrow's count treats the text after a match as a new text, in which `^` matches again. A pattern that only
    matches itself needs no regular expression.
    """
    if pattern.isalnum():
        return arrow.function("count_substring", pc.MatchSubstringOptions(pattern))
    try:
        groups_of(pattern)
    except NotRegular:
        return lambda texts: pa.nulls(len(texts), pa.int32())
    mark = arrow.function("replace_substring_regex", pc.ReplaceSubstringOptions(pattern, "\\0" + MARK))
    count = arrow.function("count_substring", pc.MatchSubstringOptions(MARK))
    minus = arrow.function("subtract")
    return lambda texts: minus(count(mark(texts)), count(texts))


def one_row(prepare: Callable[..., Vector | None]) -> Callable[..., Any]:
    """One row. Uses RE2 too: patterns may be data, and Python's matching can take exponential time."""

    def one(of: pa.DataType, text: str, *rest: Any) -> Any:
        run = prepare(*rest)
        return None if run is None else run(pa.array([text], pa.string()))[0].as_py()

    return one


MARK: Final = "\x01"
MATCH: Final = pc.get_function("match_substring_regex").call
EMPTY: Final = pa.array([""])
NAMED: Final = re.compile(r"\(\?P?<[A-Za-z_][A-Za-z0-9_]*>")
EXTRACT: Final = Kernel("regexp_extract", one_row(_extracting), constants(_extracting))
EXTRACT_TYPES: Final = takes(TEXT, TEXT, WHOLE, gives=pa.string())
COUNT: Final = Kernel("regexp_count", one_row(_counting), constants(_counting))
COUNT_TYPES: Final = takes(TEXT, TEXT, gives=pa.int32())
HINT: Final = (
    "use RE2's syntax: no lookaround, backreferences or possessive repetition (docs/cql/expressions.md)"
)


def regular(kernel: Kernel, typing: Typing) -> Callable[..., Bound]:
    """A call whose constant pattern is checked before the first row."""

    def rewrite(*args: Bound) -> Bound:
        pattern = args[1]
        if isinstance(pattern, Constant) and isinstance(pattern.value, str):
            try:
                groups_of(pattern.value)
            except NotRegular as error:
                message = f"{pattern.value!r} is not a valid regular expression: {error}"
                raise ExpressionError("HR-E012", message, hint=HINT) from None
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
    Rewrite("regexp_extract", regular(EXTRACT, EXTRACT_TYPES), 2, 3),
    Rewrite("regexp_count", regular(COUNT, COUNT_TYPES), 2, 2),
)
