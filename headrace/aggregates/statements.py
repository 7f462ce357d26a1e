"""Statements over state tables: what the blocks of an aggregate that is written in SQL consist of.

A state is a record batch for each table. A statement is compiled once; it then runs for one row of arguments
or, if it only inserts what the row itself says, for many rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask
from headrace.expressions import And, Cast, Expression
from headrace.expressions.compile import compile, compile_predicate
from headrace.schema import Schema

State = Mapping[str, pa.RecordBatch]
Program = Callable[[pa.RecordBatch], pa.Array]
Run = Callable[[State, pa.RecordBatch], State]
"""The state after a statement, for some rows of arguments."""


@dataclass(frozen=True)
class StateTable:
    """A table of the state: its name and its columns."""

    name: str
    schema: Schema

    def __hash__(self) -> int:
        return hash((self.name, *self.schema.names))


@dataclass(frozen=True)
class Exists:
    """`EXISTS (SELECT … FROM table WHERE …)` in the WHERE of a statement; `negated` with NOT."""

    table: str
    where: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True)
class Insert:
    """`INSERT INTO table VALUES (…)`, or a SELECT from one table or none."""

    table: str
    values: tuple[Expression, ...]
    source: str | None = None
    where: tuple[Expression, ...] = ()
    exists: tuple[Exists, ...] = ()

    @property
    def appends(self) -> bool:
        """Whether it inserts only what the row of arguments says, so that many rows can be done at once."""
        return self.source is None and not self.exists


@dataclass(frozen=True)
class Update:
    """`UPDATE table SET column = value, … WHERE …`; all values are those before the statement."""

    table: str
    values: tuple[tuple[str, Expression], ...]
    where: tuple[Expression, ...] = ()
    exists: tuple[Exists, ...] = ()


@dataclass(frozen=True)
class Delete:
    """`DELETE FROM table WHERE …`."""

    table: str
    where: tuple[Expression, ...] = ()
    exists: tuple[Exists, ...] = ()


Statement = Insert | Update | Delete


@dataclass(frozen=True)
class Scopes:
    """The columns that expressions read: those of one table, if there is one, and the arguments.

    `arguments` are their names in a statement without a table; beside a table they follow its columns.
    """

    tables: Mapping[str, Schema]
    arguments: Schema

    def beside(self, table: str | None) -> Schema:
        """The schema of an expression over a table; names of both sides differ by a prefix."""
        if table is None:
            return self.arguments
        own = [pa.field(internal(table, f.name), f.type) for f in self.tables[table]]
        return pa.schema([*own, *self.arguments])

    def rows(self, table: str | None, state: State, arguments: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that an expression reads: each of the table, with the only row of arguments."""
        if table is None:
            return arguments
        held = state[table]
        given = arguments.columns
        if held.num_rows != 1:
            at = pa.array(np.zeros(held.num_rows, np.int64))
            given = [each.take(at) for each in given]
        return pa.RecordBatch.from_arrays([*held.columns, *given], schema=self.beside(table))


def internal(owner: str, column: str) -> str:
    """The name of a column of a table or of an argument inside expressions."""
    return f"{owner}.{column}"


def compiled(statement: Statement, scopes: Scopes) -> Run:
    """The statement as a function from a state and arguments to a state."""
    if isinstance(statement, Insert):
        return _insert(statement, scopes)
    return _update(statement, scopes) if isinstance(statement, Update) else _delete(statement, scopes)


def of_type(value: Expression, of: pa.DataType, schema: Schema) -> Program:
    """An expression as a column of a type."""
    return compile(value if value.type(schema) == of else Cast(value, of), schema)


def _insert(statement: Insert, scopes: Scopes) -> Run:
    schema, into = scopes.beside(statement.source), scopes.tables[statement.table]
    programs = [of_type(value, f.type, schema) for value, f in zip(statement.values, into, strict=True)]
    chosen = condition(statement.where, statement.exists, scopes, statement.source)

    def run(state: State, arguments: pa.RecordBatch) -> State:
        rows = scopes.rows(statement.source, state, arguments)
        mask = chosen(rows, state, arguments)
        if not mask.all():
            rows = rows.filter(pa.array(mask))
        made = pa.RecordBatch.from_arrays([program(rows) for program in programs], schema=into)
        return {**state, statement.table: _together(state[statement.table], made)}

    return run


def _update(statement: Update, scopes: Scopes) -> Run:
    own = scopes.tables[statement.table]
    schema = scopes.beside(statement.table)
    programs = {
        own.get_field_index(name): of_type(value, own.field(name).type, schema)
        for name, value in statement.values
    }
    chosen = condition(statement.where, statement.exists, scopes, statement.table)

    def run(state: State, arguments: pa.RecordBatch) -> State:
        rows = scopes.rows(statement.table, state, arguments)
        mask = chosen(rows, state, arguments)
        at, count = np.flatnonzero(mask), rows.num_rows
        if not len(at):
            return state
        columns = state[statement.table].columns
        if len(at) < count:
            rows = rows.take(pa.array(at))
        place = np.arange(count)
        place[at] = count + np.arange(len(at))
        for index, program in programs.items():
            new = program(rows)
            columns[index] = new if len(at) == count else _replaced(columns[index], new, place)
        return {**state, statement.table: pa.RecordBatch.from_arrays(columns, schema=own)}

    return run


def _delete(statement: Delete, scopes: Scopes) -> Run:
    chosen = condition(statement.where, statement.exists, scopes, statement.table)

    def run(state: State, arguments: pa.RecordBatch) -> State:
        mask = chosen(scopes.rows(statement.table, state, arguments), state, arguments)
        if not mask.any():
            return state
        return {**state, statement.table: state[statement.table].filter(pa.array(~mask))}

    return run


def condition(
    where: Sequence[Expression], exists: Sequence[Exists], scopes: Scopes, table: str | None
) -> Callable[[pa.RecordBatch, State, pa.RecordBatch], Mask]:
    """The rows for which all conditions are true."""
    own = compile_predicate(And(tuple(where)), scopes.beside(table)) if where else None
    others = [
        (each, compile_predicate(And(each.where), scopes.beside(each.table)) if each.where else None)
        for each in exists
    ]

    def run(rows: pa.RecordBatch, state: State, arguments: pa.RecordBatch) -> Mask:
        mask = np.ones(rows.num_rows, bool) if own is None else own(rows)
        for each, program in others:
            there = scopes.rows(each.table, state, arguments)
            found = there.num_rows > 0 if program is None else bool(program(there).any())
            if found == each.negated:
                return np.zeros(rows.num_rows, bool)
        return mask

    return run


def _together(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of both."""
    if not one.num_rows or not other.num_rows:
        return other if other.num_rows else one
    columns = [pa.concat_arrays(pair) for pair in zip(one.columns, other.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=one.schema)


def _replaced(old: pa.Array, new: pa.Array, place: np.ndarray) -> pa.Array:
    """A column with some values replaced: `place` counts on from the old values to the new ones."""
    return pa.concat_arrays([old, new]).take(pa.array(place))


def merged(one: State, other: State) -> State:
    """The rows of two states."""
    return {name: _together(rows, other[name]) for name, rows in one.items()}
