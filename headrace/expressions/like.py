"""LIKE: `%` is any text, `_` any one character, the escape character takes the next one literally.

A pattern known beforehand becomes the cheapest Arrow test that decides it: equality, prefix, suffix,
substring, and a regular expression only for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Kernel, Vector, call
from headrace.expressions.casts import cast, in_canonical_type
from headrace.expressions.types import family, mismatch

ANY, ONE = "%", "_"
Token = tuple[str, str]
"""A wildcard as (sign, ""), or a character as ("", character)."""


def tokens(pattern: str, escape: str) -> list[Token]:
    """The pattern with escapes resolved; an escape at the very end stands for itself."""
    found, rest = [], iter(pattern)
    for sign in rest:
        if sign == escape:
            found.append(("", next(rest, escape)))
        else:
            found.append((sign, "") if sign in (ANY, ONE) else ("", sign))
    return found


def matches(text: str, pattern: list[Token]) -> bool:
    """Whether the whole text matches: the set of positions reached, one token at a time."""
    reached = {0}
    for sign, character in pattern:
        if sign == ANY:
            reached = set(range(min(reached), len(text) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(text) and (sign == ONE or text[at] == character)}
    return len(text) in reached


def _regex(pattern: list[Token]) -> str:
    parts = {ANY: ".*", ONE: "."}
    body = "".join(parts[sign] if sign else f"\\x{{{ord(character):x}}}" for sign, character in pattern)
    return f"(?s)^{body}$"


def _shape(pattern: list[Token]) -> tuple[str, str]:
    """The pattern as signs, with `c` for a run of characters, and the characters themselves."""
    signs = re.sub("c+", "c", "".join(sign or "c" for sign, _ in pattern))
    return re.sub("%+", "%", signs), "".join(character for _, character in pattern)


def _substring(name: str) -> Callable[[str], Vector]:
    return lambda text: arrow.function(name, pc.MatchSubstringOptions(text))


def _equal(text: str) -> Vector:
    equal, scalar = arrow.function("equal"), pa.scalar(text)
    return lambda array: equal(array, scalar)


SHAPES: Final[dict[str, Callable[[str], Vector]]] = {
    "": _equal,
    "c": _equal,
    "c%": _substring("starts_with"),
    "%c": _substring("ends_with"),
    "%c%": _substring("match_substring"),
}


def _vector(pattern: list[Token]) -> Vector:
    shape, text = _shape(pattern)
    lower = SHAPES.get(shape)
    if lower:
        return lower(text)
    return arrow.function("match_substring_regex", pc.MatchSubstringOptions(_regex(pattern)))


def _kernel(escape: str) -> Kernel:
    def naive(of: pa.DataType, text: Any, pattern: Any) -> bool:
        return matches(text, tokens(pattern, escape))

    def lower(call: Call) -> Vector:
        pattern = call.args[1]
        if not isinstance(pattern, Constant):
            return arrow.rowwise(call)
        known = _vector(tokens(pattern.value, escape))
        return lambda text, _: known(text)

    return Kernel("LIKE", naive, lower, given=escape)


def like(text: Bound, pattern: Bound, escape: str) -> Bound:
    """`text LIKE pattern ESCAPE escape`."""
    args = in_canonical_type(text), in_canonical_type(pattern)
    if any(family(each.type) not in ("string", "null") for each in args):
        raise mismatch("LIKE", *(each.type for each in args))
    return call(_kernel(escape), tuple(cast(each, pa.string()) for each in args), pa.bool_())
