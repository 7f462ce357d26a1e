"""Fragments of a query: an expression, a duration, a name.

Code that composes queries from fragments must know that each fragment is complete: a text that is accepted
here as one expression can be inserted into a query without affecting the text around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headrace.errors import SqlError
from headrace.sql.parser.dialect import Cql, CqlParser
from headrace.sql.parser.parse import read
from headrace.sql.place import Code, fail, reporting

PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
KEYWORDS: Final = frozenset(word.upper() for word in Cql.Tokenizer.KEYWORDS)
Read = TypeVar("Read")


@dataclass(frozen=True)
class Piece:
    """An expression as it is inserted into a query: one line without comments.

    `column` is its name if it is a plain, unqualified column; `is_loose`: it needs parentheses inside AND;
    `is_named`: it ends with AS and a name.
    """

    text: str
    column: str = ""
    is_loose: bool = False
    is_named: bool = False


def expression(text: object, what: str = "an expression", *, may_name: bool = False) -> Piece:
    """`text`, if it is one expression; if `may_name`, `AS name` may follow."""
    node, clean = _one(text, CqlParser._parse_expression, what)
    if isinstance(node, exp.Alias) and not may_name:
        with reporting(clean):
            fail(Code.NOT_CQL, f"{what} cannot have an alias here", node, "remove AS")
    plain = isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.table
    return Piece(clean, node.name if plain else "", isinstance(node, exp.Or), isinstance(node, exp.Alias))


def duration(text: object) -> str:
    """`text`, if it is a duration such as `1 HOUR 30 MINUTES`."""
    return _one(text, CqlParser._parse_duration, "a duration")[1]


def ordered(text: object) -> str:
    """`text`, if it is a sort key such as `price DESC NULLS LAST`."""
    return _one(text, CqlParser._parse_ordered, "an order")[1]


def identifier(name: object) -> str:
    """A name as written in a query: quoted unless it is one plain word."""
    if not isinstance(name, str) or not name:
        raise SqlError(Code.SYNTAX, f"a name must be a non-empty string, got {name!r}")
    if PLAIN.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _one(text: object, rule: Callable[[CqlParser], Read | None], what: str) -> tuple[Read, str]:
    """The result of `rule`, and the text that it consumed."""
    if not isinstance(text, str):
        raise SqlError(Code.SYNTAX, f"{what} must be a string or an expression, got {type(text).__name__}")
    with reporting(text):
        found: list[Read] = [each for each in read(text, rule) if each is not None]
        tokens = Cql().tokenize(text)
        end = next((each for each in tokens if each.token_type == TokenType.SEMICOLON), None)
        if len(found) != 1 or end is not None:
            hint = "pass several as separate arguments" if found else ""
            fail(Code.SYNTAX, f"expected {what}, and only one", end, hint)
        return found[0], _without_comments(text, tokens)


def _without_comments(text: str, tokens: list[Token]) -> str:
    """The tokens of `text` with the spaces between them; a gap with anything else becomes one space.

    The tokenizer makes three tokens of one word such as `5L`, all at the same place.
    """
    parts, end = [], tokens[0].start
    for token in tokens:
        if token.start < end:
            continue
        gap = text[end : token.start]
        parts += [gap if gap.strip(" ") == "" else " ", text[token.start : token.end + 1]]
        end = token.end + 1
    return "".join(parts)
