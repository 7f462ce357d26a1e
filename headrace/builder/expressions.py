"""Expressions as CQL text: strings are used unchanged, Python expressions are written out.

The text is then parsed like any other, so that both forms of an expression mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

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
from headrace.expressions.expression import comparing
from headrace.expressions.literals import text
from headrace.expressions.literals import text as quoted
from headrace.expressions.scope import Scope
from headrace.expressions.types import sql_name
from headrace.schema import DataType
from headrace.sql.fragments import Piece, expression, identifier
from headrace.sql.place import Code

# Python values as CQL literals, which CQL parses back to the same value of the same type.


CASTS: Final[dict[DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}


def type_name(of: DataType) -> str:
    """The name of a type in CAST."""
    if pa.types.is_decimal128(of):
        return f"DECIMAL({of.precision}, {of.scale})"
    if of not in CASTS:
        hint = f"types: {', '.join([*CASTS.values(), 'DECIMAL'])}"
        raise ExpressionError("HR-E006", f"CQL has no name for the type {sql_name(of)}", hint=hint)
    return CASTS[of]


def written(literal: Literal) -> str:
    """The literal, inside a CAST if CQL would give the bare text another type."""
    plain = PLAIN.get(type(literal.value), _quoted)(literal.value)
    return plain if _read_as(literal.value) == literal.of else f"CAST({plain} AS {type_name(literal.of)})"


def _number(value: float) -> str:
    """A float with an exponent, so that CQL reads a double and not a decimal."""
    if not math.isfinite(value):
        return text(str(value))
    shown = repr(value)
    return shown if "e" in shown else f"{shown}e0"


def _quoted(value: object) -> str:
    if isinstance(value, bytes):
        raise ExpressionError("HR-E007", "CQL has no binary literals", hint="compare with a column")
    return text(str(value))


def _read_as(value: Any) -> DataType:
    """The type that CQL gives to `value` as plain text; a minus sign is not part of the number."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        value = abs(value)
    if isinstance(value, Decimal) and "." not in format(value, "f"):
        value = int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return pa.string()
    if type(value) not in PLAIN or (type(value) is int and value >= 2**63):
        return pa.string()
    return Literal(value).of


PLAIN: Final[dict[type, Callable[[Any], str]]] = {
    type(None): text,
    bool: text,
    str: text,
    int: str,
    Decimal: lambda value: format(value, "f"),
    float: _number,
}
"""Values of any other type are written as text in a CAST."""


@comparing
@dataclass(frozen=True)
class Text(Expression):
    """CQL text inside an expression built in Python; only a query can resolve it."""

    text: str

    def _bind(self, scope: Scope) -> Bound:
        hint = "use it in a query made with headrace.stream(…), or build the expression with col and lit"
        raise ExpressionError("HR-E010", "expr('…') has a meaning only inside a query", hint=hint)

    def __str__(self) -> str:
        return self.text


class Call(Text):
    """A call, which needs no parentheses."""


def expr(text: str) -> Text:
    """CQL text inside a Python expression: `expr("price * 2") > col("limit")`."""
    return Text(expression(text).text)


def piece(of: object, what: str = "an expression", *, may_name: bool = False) -> Piece:
    """A fragment of a query from what the user passed, either text or a Python expression."""
    if isinstance(of, Expression):
        return expression(spelled(of), what)
    if isinstance(of, bool):
        raise SqlError(
            Code.SYNTAX,
            f"{what} must be text or an expression, not {of}",
            hint='== between two columns compares them in Python: write col("a").eq(col("b"))',
        )
    return expression(of, what, may_name=may_name)


def spelled(of: Expression) -> str:
    """The expression as CQL."""
    if isinstance(of, Text):
        return of.text
    rule = SPELLINGS.get(type(of))
    if rule is None:
        raise SqlError(Code.NOT_CQL, f"CQL has no syntax for {type(of).__name__}", hint="use expr('…')")
    return rule(of)


def inner(of: Expression) -> str:
    """The expression as an operand: in parentheses, unless it is one word or a call."""
    return spelled(of) if isinstance(of, ATOMS) else f"({spelled(of)})"


def _column(of: Column) -> str:
    """`item.column`; a name with a backtick is already quoted."""
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
    """IN with a list. CQL has no empty list; IN of an empty list is false, even for NULL."""
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
