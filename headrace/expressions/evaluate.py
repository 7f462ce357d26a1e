"""The naive evaluator: one row, plain Python, None for NULL. The compiled form is checked against it.

It shares with compilation what an expression is (the bound tree: types and coercions) but not how it is
computed: it uses no Arrow function and no vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headrace.expressions.bound import Bound, Constant, Input
from headrace.expressions.expression import Expression
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.literals import infer
from headrace.expressions.scope import Rule, Scope

Row = Mapping[str, object]


def evaluate(
    expression: Expression,
    row: Row,
    schema: pa.Schema | None = None,
    functions: Mapping[str, Rule] = FUNCTIONS,
) -> object:
    """The value of the expression on `row`.

    Without a `schema`, the columns have the types of the row's values (64-bit numbers), which makes a
    difference only if narrow types overflow or a NULL decides a type. For many rows, `evaluator` types the
    expression only once.
    """
    return evaluator(expression, schema or _schema(row), functions)(row)


def evaluator(
    expression: Expression, schema: pa.Schema, functions: Mapping[str, Rule] = FUNCTIONS
) -> Callable[[Row], object]:
    """The expression as a function of one row of `schema`."""
    bound = expression.bind(Scope(schema, functions))
    return lambda row: _value(bound, row)


def _value(bound: Bound, row: Row) -> Any:
    if isinstance(bound, Input):
        return row[bound.name]
    if isinstance(bound, Constant):
        return bound.value
    return bound.kernel.row(bound.type, tuple(_value(each, row) for each in bound.args))


def _schema(row: Row) -> pa.Schema:
    """A schema inferred from the values of a row."""
    return pa.schema([(name, _wide(infer(value))) for name, value in row.items()])


def _wide(of: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(of) else of
