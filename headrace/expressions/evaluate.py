"""The naive evaluator: one row, plain Python, None for NULL; what the compiled form is checked against.

It shares with compilation what an expression is (the bound tree: types and coercions) and nothing of how it
is computed: no Arrow function, no vector.
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

    Without a `schema` the columns have the types of the row's own values (64-bit numbers), which is all the
    same unless narrow types overflow or a NULL decides a type; with many rows, `evaluator` types only once.
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
    return pa.schema([(name, _wide(infer(value))) for name, value in row.items()])


def _wide(of: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(of) else of
