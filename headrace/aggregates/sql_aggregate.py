"""An aggregate that is written in SQL: `CREATE AGGREGATE` of Stream Mill (Bai et al., query graphs, §2.1).

The definition is data, and travels with the plan like a user's class; the rest of the engine cannot tell it
from one. Blocks are compiled when they are first needed. INITIALIZE runs for the first row of a group,
ITERATE for every later one, EXPIRE for a row that leaves the window, TERMINATE gives the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Final

import pyarrow as pa

from headrace.aggregates.statements import (
    Insert,
    Run,
    Scopes,
    State,
    Statement,
    StateTable,
    compiled,
    condition,
    merged,
    of_type,
)
from headrace.expressions import Expression
from headrace.expressions.comparison import rank
from headrace.expressions.compile import compile
from headrace.schema import DataType, Schema

Block = tuple[Statement, ...]


@dataclass(frozen=True)
class Called:
    """An aggregate in TERMINATE: its column, its function, and what it is over; None counts rows."""

    name: str
    function: str
    of: Expression | None
    type: DataType


@dataclass(frozen=True)
class Terminate:
    """`SELECT value FROM table WHERE … ORDER BY …`: of several rows the first, and then the least value."""

    value: Expression
    source: str | None = None
    where: tuple[Expression, ...] = ()
    order: tuple[tuple[Expression, bool], ...] = ()
    """Keys, and whether they descend."""
    calls: tuple[Called, ...] = ()


@dataclass(frozen=True)
class SqlAggregate:
    """The definition: arguments, result, tables and blocks. NULL arguments hide a row.

    `folds`: the columns of the only row of the only table as built-in aggregates over the arguments, if that
    is what the blocks compute. Then TERMINATE is an expression over them, and no statement runs.
    """

    name: str
    columns: Schema
    result: DataType
    tables: tuple[StateTable, ...]
    initialize_block: Block
    iterate_block: Block
    terminate_block: Terminate
    expire_block: Block | None = None
    folds: tuple[tuple[str, str, Expression], ...] = ()

    nulls: ClassVar = False

    def __hash__(self) -> int:
        return hash((self.name, self.initialize_block, self.iterate_block, self.terminate_block))

    def __getstate__(self) -> dict[str, Any]:
        """The definition without what was compiled from it."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def arguments(self) -> tuple[DataType, ...]:
        """The types of the arguments."""
        return tuple(self.columns.types)

    @property
    def appends(self) -> bool:
        """Whether a row of arguments is only inserted, the first like all others."""
        simple = all(isinstance(each, Insert) and each.appends for each in self.iterate_block)
        return simple and self.iterate_block == self.initialize_block

    @property
    def ordered(self) -> bool:
        """Whether the order of rows counts: statements may read what earlier rows left."""
        return not self.appends

    @property
    def identity(self) -> str:
        """What a state depends on, for a restart with another text."""
        return repr((self.tables, self.initialize_block, self.iterate_block, self.expire_block))

    @cached_property
    def scopes(self) -> Scopes:
        """The columns that expressions read."""
        return Scopes({each.name: each.schema for each in self.tables}, self.columns)

    @cached_property
    def _blocks(self) -> dict[str, list[Run]]:
        blocks = {"INITIALIZE": self.initialize_block, "ITERATE": self.iterate_block}
        blocks["EXPIRE"] = self.expire_block or ()
        return {name: [compiled(each, self.scopes) for each in block] for name, block in blocks.items()}

    @cached_property
    def _value(self) -> Callable[[State], Any]:
        return _terminating(self.terminate_block, self.scopes, self.result)

    def initialize(self) -> State:
        """No tables yet: the first row makes them."""
        return {}

    def iterate(self, state: State, *columns: pa.Array) -> State:
        """The state after some rows, in their order."""
        rows = pa.RecordBatch.from_arrays(list(columns), schema=self.columns)
        if not state:
            state = {each.name: pa.RecordBatch.from_pylist([], schema=each.schema) for each in self.tables}
            if not self.appends:
                state, rows = _done(self._blocks["INITIALIZE"], state, rows.slice(0, 1)), rows.slice(1)
        steps = [rows] if self.appends else [rows.slice(at, 1) for at in range(rows.num_rows)]
        for step in steps:
            state = _done(self._blocks["ITERATE"], state, step)
        return state

    def terminate(self, state: State) -> Any:
        """The value of a state."""
        return self._value(state)

    @property
    def merge(self) -> Callable[[State, State], State] | None:
        """Both states as one, if rows are only inserted."""
        return (lambda one, other: merged(one, other) if one else other) if self.appends else None

    @property
    def expire(self) -> Callable[..., State] | None:
        """The state without some rows, if there is an EXPIRE."""
        return None if self.expire_block is None else self._without

    def _without(self, state: State, *columns: pa.Array) -> State:
        rows = pa.RecordBatch.from_arrays(list(columns), schema=self.columns)
        for at in range(rows.num_rows):
            state = _done(self._blocks["EXPIRE"], state, rows.slice(at, 1))
        return state


def _done(block: Sequence[Run], state: State, rows: pa.RecordBatch) -> State:
    for statement in block:
        state = statement(state, rows)
    return state


def _terminating(asked: Terminate, scopes: Scopes, result: DataType) -> Callable[[State], Any]:
    """The value of a state; NULL if no row is left."""
    inside = Scopes(scopes.tables, pa.schema([]))
    schema = inside.beside(asked.source)
    over = pa.schema([pa.field(each.name, each.type) for each in asked.calls]) if asked.calls else schema
    value = of_type(asked.value, result, over)
    chosen = condition(asked.where, (), inside, asked.source)
    keys = [(compile(key, schema), descends) for key, descends in asked.order]
    folded = [(each, compile(each.of, schema) if each.of is not None else None) for each in asked.calls]
    nothing = pa.RecordBatch.from_pylist([{}], schema=pa.schema([]))

    def run(state: State) -> Any:
        rows = inside.rows(asked.source, state, nothing)
        mask = chosen(rows, state, nothing)
        rows = rows if mask.all() else rows.filter(pa.array(mask))
        if folded:
            made = [
                pa.array([_folded(call.function, of and of(rows), rows)], call.type) for call, of in folded
            ]
            return value(pa.RecordBatch.from_arrays(made, schema=over))[0].as_py()
        found = value(rows).to_pylist()
        return (
            found[_first(found, [(key(rows).to_pylist(), descends) for key, descends in keys])]
            if found
            else None
        )

    return run


def _first(values: list[Any], keys: list[tuple[list[Any], bool]]) -> int:
    """The place of the first row by the keys, nulls least as in Spark; then of the least value."""
    places = sorted(range(len(values)), key=lambda at: _sortable(values[at]))
    for column, descends in reversed(keys):
        places.sort(key=lambda at: _sortable(column[at]), reverse=descends)
    return places[0]


def _sortable(value: Any) -> tuple[Any, ...]:
    return () if value is None else (rank(value),)


def _folded(function: str, values: pa.Array | None, rows: pa.RecordBatch) -> Any:
    """An aggregate over the rows of a state."""
    if values is None:
        return rows.num_rows
    known = values.drop_null().to_pylist()
    return FOLDS[function](known) if known or function == "count" else None


def _total(values: list[Any]) -> Any:
    """The sum: exact and rounded once for doubles, as everywhere; integers wrap at 64 bits."""
    if isinstance(values[0], float):
        try:
            return math.fsum(values)
        except (OverflowError, ValueError):
            return float(sum(values))
    total = sum(values)
    return (total + 2**63) % 2**64 - 2**63 if isinstance(total, int) else total


FOLDS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "count": len,
    "sum": _total,
    "avg": lambda values: float(_total([float(each) for each in values]) / len(values)),
    "min": lambda values: min(values, key=rank),
    "max": lambda values: max(values, key=rank),
}
"""The aggregates that TERMINATE may call."""
