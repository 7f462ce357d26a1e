"""What plan rewriting needs from expressions: replace columns, split conditions, know what may be moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from types import NoneType
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.expressions.expression import Expression
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.functions.rule import UserFunction
from headrace.expressions.nodes import (
    And,
    Column,
    Comparison,
    Function,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    UserFunctionCall,
)
from headrace.expressions.scope import Rule

VALUES_ONLY: Final = (Comparison, And, Or, Not, IsNull, IsNotNull)
"""Expressions that see only how their operands compare."""


def substitute(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """`expression` with each column in `columns` replaced."""
    found = _substituted(expression, columns)
    assert isinstance(found, Expression)
    return found


def _substituted(value: Any, columns: Mapping[str, Expression]) -> Any:
    if isinstance(value, Column):
        return columns.get(value.name, value)
    if isinstance(value, tuple):
        return tuple(_substituted(each, columns) for each in value)
    if not isinstance(value, Expression):
        return value
    parts = {each.name: getattr(value, each.name) for each in fields(value)}
    changed = {name: _substituted(part, columns) for name, part in parts.items()}
    same = all(changed[name] is part or changed[name] == part for name, part in parts.items())
    return value if same else replace(value, **changed)


def conjuncts(expression: Expression | None) -> list[Expression]:
    """The conditions joined by AND, in order; an empty list for None."""
    if expression is None:
        return []
    if not isinstance(expression, And):
        return [expression]
    return [found for each in expression.operands for found in conjuncts(each)]


def conjunction(conditions: Iterable[Expression]) -> Expression | None:
    """All conditions as one, without duplicates; None if there are none."""
    kept = tuple(dict.fromkeys(conditions))
    return kept[0] if len(kept) == 1 else And(kept) if kept else None


def is_movable(expression: Expression) -> bool:
    """Whether it may be computed on other rows, earlier, later or twice, without a visible difference.

    Built-in functions are total and deterministic. A user's function may raise, or count its calls: it is not
    moved unless it is declared deterministic.
    """
    if isinstance(expression, (Column, Literal)):
        return True
    if isinstance(expression, Function):
        rule = _rule(expression)
        if rule is None or (isinstance(rule, UserFunction) and not rule.deterministic):
            return False
    return all(is_movable(each) for each in expression.children())


def is_built_in(expression: Expression) -> bool:
    """Whether it contains no user-defined function."""
    if isinstance(expression, Function) and isinstance(_rule(expression), (UserFunction, NoneType)):
        return False
    return all(is_built_in(each) for each in expression.children())


def _rule(call: Function) -> Rule | None:
    """The definition of the function that a call refers to."""
    return call.definition if isinstance(call, UserFunctionCall) else FUNCTIONS.get(call.name.lower())


def respects_equality(expression: Expression, schema: pa.Schema) -> bool:
    """Whether values that are equal as keys (0.0 and -0.0) always give equal results.

    This holds for a column itself, for comparisons of columns, and for expressions that read no floats. It
    does not hold for the text of a float.
    """
    if isinstance(expression, (Column, Literal)):
        return True
    if isinstance(expression, VALUES_ONLY):
        return all(respects_equality(each, schema) for each in expression.children())
    return not any(_holds_floats(schema.field(name).type) for name in expression.columns())


def _holds_floats(of: pa.DataType) -> bool:
    """Whether values of a type are floats or may contain them."""
    return bool(pt.is_floating(of) or pt.is_nested(of))
