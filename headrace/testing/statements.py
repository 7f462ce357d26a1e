"""What an aggregate in SQL means: its statements over lists of rows, one row of arguments after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.aggregates.sql_aggregate import SqlAggregate
from headrace.aggregates.statements import Delete, Exists, Insert, Statement, Update
from headrace.expressions import Cast, Expression
from headrace.expressions.evaluate import evaluator

Row = dict[str, Any]
State = dict[str, list[Row]]
"""The rows of each table; columns have the name of the table in front."""


def value_of(made: SqlAggregate, columns: Sequence[Sequence[Any]], fold: Any) -> Any:
    """The value over rows in order; those with a NULL do not count. `fold` computes a built-in aggregate."""
    rows = [row for row in zip(*columns, strict=True) if None not in row]
    if not rows:
        return None
    state: State = {each.name: [] for each in made.tables}
    for number, row in enumerate(rows):
        given = dict(zip(made.columns.names, row, strict=True))
        for statement in made.iterate_block if number else made.initialize_block:
            _run(made, statement, state, given)
    return _returned(made, state, fold)


def _run(made: SqlAggregate, statement: Statement, state: State, given: Row) -> None:
    """Change the state as one statement says; what it reads is the state before."""
    table = statement.source if isinstance(statement, Insert) else statement.table
    over = [{}] if table is None else list(state[table])
    chosen = [
        row for row in over if _meets(made, statement.where, statement.exists, table, state, row | given)
    ]
    if isinstance(statement, Insert):
        into = next(each for each in made.tables if each.name == statement.table)
        for row in chosen:
            values = [
                _value(made, value, table, row | given, f.type)
                for value, f in zip(statement.values, into.schema, strict=True)
            ]
            names = [f"{into.name}.{f.name}" for f in into.schema]
            state[into.name].append(dict(zip(names, values, strict=True)))
    elif isinstance(statement, Update):
        schema = made.scopes.tables[statement.table]
        for row in chosen:
            row |= {
                f"{statement.table}.{name}": _value(made, value, table, row | given, schema.field(name).type)
                for name, value in statement.values
            }
    else:
        assert isinstance(statement, Delete)
        state[statement.table] = [
            row for row in state[statement.table] if not any(row is each for each in chosen)
        ]


def _meets(
    made: SqlAggregate,
    where: Iterable[Expression],
    exists: Iterable[Exists],
    table: str | None,
    state: State,
    row: Row,
) -> bool:
    given = {name: row[name] for name in made.columns.names if name in row}
    own = all(_value(made, each, table, row, pa.bool_()) is True for each in where)
    return own and all(
        any(_meets(made, each.where, (), each.table, state, there | given) for there in state[each.table])
        != each.negated
        for each in exists
    )


def _value(made: SqlAggregate, value: Expression, table: str | None, row: Row, of: pa.DataType) -> Any:
    return evaluator(Cast(value, of), made.scopes.beside(table))(row)


def _returned(made: SqlAggregate, state: State, fold: Any) -> Any:
    """TERMINATE: an expression over aggregates, or of the first row."""
    asked = made.terminate_block
    assert asked.source is not None
    rows = [row for row in state[asked.source] if _meets(made, asked.where, (), asked.source, state, row)]
    if asked.calls:
        found = {}
        for call in asked.calls:
            of = [
                1 if call.of is None else evaluator(call.of, made.scopes.beside(asked.source))(r)
                for r in rows
            ]
            found[call.name] = fold(call.function, of)
        schema = pa.schema([pa.field(call.name, call.type) for call in asked.calls])
        return evaluator(Cast(asked.value, made.result), schema)(found)
    values = [(_keys(made, row), _value(made, asked.value, asked.source, row, made.result)) for row in rows]
    values.sort(key=lambda pair: (*pair[0], Ordered(pair[1], False)))
    return values[0][1] if values else None


def _keys(made: SqlAggregate, row: Row) -> tuple[Ordered, ...]:
    asked = made.terminate_block
    schema = made.scopes.beside(asked.source)
    return tuple(Ordered(evaluator(key, schema)(row), descends) for key, descends in asked.order)


class Ordered:
    """A value in an ascending or descending order; NULL is the least and NaN the greatest."""

    def __init__(self, value: Any, descends: bool) -> None:
        is_nan = value != value
        self.key: Final = (value is not None, is_nan, 0 if value is None or is_nan else value)
        self.descends: Final = descends

    def __lt__(self, other: Ordered) -> bool:
        return other.key < self.key if self.descends else self.key < other.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ordered) and self.key == other.key

    __hash__ = None  # type: ignore[assignment]
