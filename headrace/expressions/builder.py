"""Sugar to write expressions by hand: `col("v") > 3`, `lit(1)`, `fn("upper", col("x"))`."""

from __future__ import annotations

import pyarrow as pa

from headrace.expressions.conditions import Case, Coalesce
from headrace.expressions.expression import as_expression
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.functions.registry import UserFunction
from headrace.expressions.nodes import Column, Function, Literal, UserFunctionCall
from headrace.expressions.types import type_named


def col(name: str) -> Column:
    """The column called `name`."""
    return Column(name)


def lit(value: object, of: str | pa.DataType | None = None) -> Literal:
    """A literal, of the type that Spark would infer unless `of` names another."""
    return Literal(value, type_named(of) if isinstance(of, str) else of)


def fn(name: str, *arguments: object) -> Function:
    """A call of the function `name`."""
    given, rule = tuple(as_expression(each) for each in arguments), FUNCTIONS.get(name.lower())
    return UserFunctionCall(name, given, rule) if isinstance(rule, UserFunction) else Function(name, given)


def when(condition: object, value: object) -> Case:
    """The first branch of a CASE; go on with `.when(…)` and `.otherwise(…)`."""
    return Case(((as_expression(condition), as_expression(value)),))


def coalesce(*operands: object) -> Coalesce:
    """The first value that is not NULL."""
    return Coalesce(tuple(as_expression(each) for each in operands))
