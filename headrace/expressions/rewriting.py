"""What rewriting a plan asks of expressions: exchange columns, take conditions apart, know what may move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from types import NoneType
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.expressions.expression import Expression
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.functions.registry import UserFunction
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
"""What sees only how its operands compare."""


def substitute(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """`expression` with another in the place of each column that `columns` names."""
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
    """The conditions that AND joins, each on its own and in order; none of no condition."""
    if expression is None:
        return []
    if not isinstance(expression, And):
        return [expression]
    return [found for each in expression.operands for found in conjuncts(each)]


def conjunction(conditions: Iterable[Expression]) -> Expression | None:
    """All conditions as one, each once; None if there are none."""
    kept = tuple(dict.fromkeys(conditions))
    return kept[0] if len(kept) == 1 else And(kept) if kept else None


def is_movable(expression: Expression) -> bool:
    """Whether computing it on other rows, earlier, later or twice can be seen by nobody.

    Built-in functions are total and deterministic. A user's function may raise, or count its calls: it
    stays where it was written, unless it is declared to be deterministic.
    """
    if isinstance(expression, (Column, Literal)):
        return True
    if isinstance(expression, Function):
        rule = _rule(expression)
        if rule is None or (isinstance(rule, UserFunction) and not rule.deterministic):
            return False
    return all(is_movable(each) for each in expression.children())


def is_built_in(expression: Expression) -> bool:
    """Whether no function in it is the user's."""
    if isinstance(expression, Function) and isinstance(_rule(expression), (UserFunction, NoneType)):
        return False
    return all(is_built_in(each) for each in expression.children())


def _rule(call: Function) -> Rule | None:
    return call.definition if isinstance(call, UserFunctionCall) else FUNCTIONS.get(call.name.lower())


def respects_equality(expression: Expression, schema: pa.Schema) -> bool:
    """Whether values that are equal as keys (0.0 and -0.0) always give equal results.

    A column itself does, and so do comparisons of columns; so does whatever reads no floats. The text of a
    float does not.
    """
    if isinstance(expression, (Column, Literal)):
        return True
    if isinstance(expression, VALUES_ONLY):
        return all(respects_equality(each, schema) for each in expression.children())
    return not any(_holds_floats(schema.field(name).type) for name in expression.columns())


def _holds_floats(of: pa.DataType) -> bool:
    return bool(pt.is_floating(of) or pt.is_nested(of))
