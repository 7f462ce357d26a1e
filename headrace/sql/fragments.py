"""Pieces of a query on their own: an expression, a duration, a name.

Who composes queries of pieces must know that each piece is one: what is read here as one expression can be
put into a text without reaching beyond its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headrace.errors import SqlError
from headrace.sql.codes import Code
from headrace.sql.dialect import Cql, CqlParser
from headrace.sql.parse import read
from headrace.sql.place import fail, reporting

PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
KEYWORDS: Final = frozenset(word.upper() for word in Cql.Tokenizer.KEYWORDS)
Read = TypeVar("Read")


@dataclass(frozen=True)
class Piece:
    """An expression as it is put into a query: one line without comments.

    `column` is its name if it is nothing but a column of no named item; `is_loose`: AND around it would tear
    it apart; `is_named`: it ends in AS and a name.
    """

    text: str
    column: str = ""
    is_loose: bool = False
    is_named: bool = False


def expression(text: object, what: str = "an expression", *, may_name: bool = False) -> Piece:
    """`text`, if it is one expression; `AS name` may follow where it `may_name`."""
    node, clean = _one(text, CqlParser._parse_expression, what)
    if isinstance(node, exp.Alias) and not may_name:
        with reporting(clean):
            fail(Code.NOT_CQL, f"{what} has no name", node, "leave AS out")
    plain = isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.table
    return Piece(clean, node.name if plain else "", isinstance(node, exp.Or), isinstance(node, exp.Alias))


def duration(text: object) -> str:
    """`text`, if it is a duration such as `1 HOUR 30 MINUTES`."""
    return _one(text, CqlParser._parse_duration, "a duration")[1]


def ordered(text: object) -> str:
    """`text`, if it says by what to order, as in `price DESC NULLS LAST`."""
    return _one(text, CqlParser._parse_ordered, "an order")[1]


def identifier(name: object) -> str:
    """A name as a query writes it: in quotes unless it is one plain word."""
    if not isinstance(name, str) or not name:
        raise SqlError(Code.SYNTAX, f"a name is a text, not {name!r}")
    if PLAIN.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _one(text: object, rule: Callable[[CqlParser], Read | None], what: str) -> tuple[Read, str]:
    """What `rule` reads, and the text that it was read from."""
    if not isinstance(text, str):
        raise SqlError(Code.SYNTAX, f"{what} is a text or an expression, not {type(text).__name__}")
    with reporting(text):
        found: list[Read] = [each for each in read(text, rule) if each is not None]
        tokens = Cql().tokenize(text)
        end = next((each for each in tokens if each.token_type == TokenType.SEMICOLON), None)
        if len(found) != 1 or end is not None:
            hint = "give several one by one" if found else ""
            fail(Code.SYNTAX, f"here should be {what}, and one only", end, hint)
        return found[0], _without_comments(text, tokens)


def _without_comments(text: str, tokens: list[Token]) -> str:
    """The words of `text` with the spaces between them, each gap that holds more being one space.

    The tokenizer makes three tokens of one word such as `5L`, all at its place.
    """
    parts, end = [], tokens[0].start
    for token in tokens:
        if token.start < end:
            continue
        gap = text[end : token.start]
        parts += [gap if gap.strip(" ") == "" else " ", text[token.start : token.end + 1]]
        end = token.end + 1
    return "".join(parts)
