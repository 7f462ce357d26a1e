"""Expressions as CQL writes them: text is taken as it is, what Python built is spelled out.

The text is then read like any other, so that an expression means the same however it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace.builder.literals import type_name, written
from headrace.errors import ExpressionError, SqlError
from headrace.expressions import (
    And,
    Arithmetic,
    Between,
    Case,
    Cast,
    Coalesce,
    Column,
    Comparison,
    Expression,
    Function,
    In,
    IsNotNull,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    UserFunctionCall,
)
from headrace.expressions.bound import Bound
from headrace.expressions.literals import text as quoted
from headrace.expressions.scope import Scope
from headrace.sql.codes import Code
from headrace.sql.fragments import Piece, expression, identifier


@dataclass(frozen=True)
class Text(Expression):
    """A piece of CQL among expressions built in Python; only a query gives it a meaning."""

    text: str

    def _bind(self, scope: Scope) -> Bound:
        hint = "use it in headrace.stream(…), or build the expression with col and lit"
        raise ExpressionError("HR-E010", "a piece of text is no expression by itself", hint=hint)

    def __str__(self) -> str:
        return self.text


class Call(Text):
    """A call, which needs no parentheses around it."""


def expr(text: str) -> Text:
    """CQL among Python: `expr("price * 2") > col("limit")`."""
    return Text(expression(text).text)


def piece(of: object, what: str = "an expression", *, may_name: bool = False) -> Piece:
    """What the user gave as a piece of a query, whether text or built in Python."""
    if isinstance(of, Expression):
        return expression(spelled(of), what)
    return expression(of, what, may_name=may_name)


def spelled(of: Expression) -> str:
    """The expression as CQL."""
    if isinstance(of, Text):
        return of.text
    rule = SPELLINGS.get(type(of))
    if rule is None:
        raise SqlError(Code.NOT_CQL, f"CQL cannot write {type(of).__name__}", hint="use expr('…')")
    return rule(of)


def inner(of: Expression) -> str:
    """The same as an operand, in parentheses unless it is one word or one call."""
    return spelled(of) if isinstance(of, ATOMS) else f"({spelled(of)})"


def _column(of: Column) -> str:
    """`item.column`; a name that holds a backtick is quoted already."""
    if "`" in of.name:
        return of.name
    return ".".join(identifier(part) for part in of.name.split("."))


def _binary(of: Any) -> str:
    return f"{inner(of.left)} {of.op} {inner(of.right)}"


def _chain(word: str) -> Callable[[Any], str]:
    return lambda of: f" {word} ".join(inner(each) for each in of.operands)


def _case(of: Case) -> str:
    branches = "".join(f" WHEN {spelled(met)} THEN {spelled(value)}" for met, value in of.branches)
    return f"CASE{branches} ELSE {spelled(of.default)} END"


def _like(of: Like) -> str:
    escape = "" if of.escape == "\\" else f" ESCAPE {quoted(of.escape)}"
    return f"{inner(of.operand)} LIKE {inner(of.pattern)}{escape}"


def _in(of: In) -> str:
    """CQL has no empty list, in which nothing is, not even NULL."""
    if not of.options:
        return "FALSE"
    return f"{inner(of.operand)} IN ({_listed(of.options)})"


def _listed(operands: tuple[Expression, ...]) -> str:
    return ", ".join(spelled(each) for each in operands)


ATOMS: Final = (Column, Literal, Cast, Function, Coalesce, Case, Call)
SPELLINGS: Final[dict[type[Expression], Callable[[Any], str]]] = {
    Column: _column,
    Literal: written,
    Arithmetic: _binary,
    Comparison: _binary,
    Negate: lambda of: f"- {inner(of.operand)}",
    And: _chain("AND"),
    Or: _chain("OR"),
    Not: lambda of: f"NOT {inner(of.operand)}",
    IsNull: lambda of: f"{inner(of.operand)} IS NULL",
    IsNotNull: lambda of: f"{inner(of.operand)} IS NOT NULL",
    In: _in,
    Between: lambda of: f"{inner(of.operand)} BETWEEN {inner(of.low)} AND {inner(of.high)}",
    Like: _like,
    Case: _case,
    Cast: lambda of: f"CAST({spelled(of.operand)} AS {type_name(of.to)})",
    Coalesce: lambda of: f"coalesce({_listed(of.operands)})",
    Function: lambda of: f"{of.name}({_listed(of.arguments)})",
    UserFunctionCall: lambda of: f"{of.name}({_listed(of.arguments)})",
}
