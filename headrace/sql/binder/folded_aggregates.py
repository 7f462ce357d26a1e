"""Aggregates in SQL that built-in ones compute: a table of one row whose columns add up, or keep an extreme.

`INSERT INTO t VALUES (x, 1)` and then `UPDATE t SET total = total + x, n = n + 1` is `sum(x)` and `sum(1)`.
Such an aggregate is an expression over built-in aggregates: it needs no statement for each row, takes part in
panes, partial sums and sharing, and never keeps rows.
"""

from __future__ import annotations

from typing import Final

import pyarrow.types as pt

from headrace.aggregates.sql_aggregate import SqlAggregate
from headrace.aggregates.statements import Insert, Update
from headrace.expressions import Arithmetic, Case, Cast, Column, Comparison, Expression, Function, Literal
from headrace.expressions.types import family
from headrace.schema import DataType, Schema

EXTREMES: Final = {"greatest": "max", "least": "min"}
FOLLOWING: Final = {">": "max", ">=": "max", "<": "min", "<=": "min"}
EXACT: Final = {("integer", "integer"), ("float", "float"), ("float", "integer"), ("float", "decimal")}
"""The families of a column and of what is added to it, where one sum gives what many steps give."""

Fold = tuple[str, str, Expression]
"""A column, the built-in aggregate, and what it is over."""


def folds_of(made: SqlAggregate) -> tuple[Fold, ...]:
    """For each column of its only table, the aggregate that computes it; empty if there is none for one."""
    first, later, last = made.initialize_block, made.iterate_block, made.terminate_block
    if not (len(made.tables) == len(first) == len(later) == 1) or last.where or last.calls or last.order:
        return ()
    insert, update, schema = first[0], later[0], made.tables[0].schema
    if not isinstance(insert, Insert) or not isinstance(update, Update):
        return ()
    if insert.source or insert.where or insert.exists or update.where or update.exists:
        return ()
    values, table = dict(update.values), made.tables[0].name
    found = [
        _fold(f"{table}.{field.name}", field.type, begun, values.get(field.name), made.columns)
        for field, begun in zip(schema, insert.values, strict=True)
    ]
    return tuple(each for each in found if each) if all(found) else ()


def _fold(
    column: str, of: DataType, begun: Expression, update: Expression | None, arguments: Schema
) -> Fold | None:
    """The aggregate of one column, if the first value and each later one are the same expression."""
    own = Column(column)
    match update:
        case Arithmetic("+", left, right) if own in (left, right):
            function, given = "sum", right if left == own else left
        case Function(name, (left, right)) if name in EXTREMES and own in (left, right):
            function, given = EXTREMES[name], right if left == own else left
        case Case(((Comparison(op, left, right), then),), default) if op in FOLLOWING:
            if right != own or then != left or default != own:
                return None
            function, given = FOLLOWING[op], left
        case _:
            return None
    if given != begun or not _never_null(given, arguments):
        return None
    type = given.type(arguments)
    if function == "sum" and ((family(of), family(type)) not in EXACT or pt.is_float32(of)):
        return None
    if function != "sum" and type != of:
        return None
    return column, function, given if type == of else Cast(given, of)


def _never_null(given: Expression, arguments: Schema) -> bool:
    """An argument, a constant, or one of two of them: nothing else is known to have a value."""
    match given:
        case Column(name):
            return name in arguments.names
        case Literal(value):
            return value is not None
        case Case(branches, default):
            values = [value for _, value in branches]
            return all(_never_null(each, arguments) for each in (*values, default))
        case _:
            return False
