"""The names that queries may use: streams, tables and views, and functions that users define."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.errors import SqlError
from headrace.expressions.functions.registry import ArrayFunction
from headrace.plan.nodes import Plan, Source, Table, TimeKind
from headrace.plan.user_aggregates import Result, user_aggregate
from headrace.schema import DataType, Schema, show_columns
from headrace.sql.codes import Code
from headrace.sql.definitions import Definitions, function_of
from headrace.sql.place import nearest

MICROSECONDS: Final = 1_000_000
"""Ticks per second of timestamps, the usual domain of time."""
ANY_TIME: Final = 0
"""In the place of ticks per second: rows that are valid at every instant, whatever a tick is."""


def _holds_none(of: DataType) -> bool:
    return False


TICKS: Final[Mapping[int | None, Callable[[DataType], bool]]] = {
    MICROSECONDS: lambda of: pt.is_timestamp(of) and of.unit == "us",
    None: pt.is_int64,
}
"""Which columns hold ticks as they are, for each length of a tick."""


@dataclass(frozen=True)
class StreamDef:
    """A stream by name: its columns and its time.

    `ticks_per_second` says what a tick of its time is; None: sequence numbers, which know no seconds.
    `time_column` names the column that times come from, which stays an ordinary column of the rows. Where it
    holds ticks as they are, a row that is pushed with another time than it says is rejected (HR-R004).
    """

    name: str
    schema: Schema
    time: TimeKind = TimeKind.EXTERNAL
    time_column: str | None = None
    ticks_per_second: int | None = MICROSECONDS

    def __post_init__(self) -> None:
        _refuse_twins(f"stream {self.name}", self.schema)
        if self.time_column is not None and self.time_column not in self.schema.names:
            hint = nearest(self.time_column, self.schema.names)
            raise SqlError(
                Code.TIME_COLUMN, f"stream {self.name} has no column {self.time_column!r}", hint=hint
            )

    @property
    def source(self) -> Source:
        """The plan that reads it."""
        return Source(self.name, self.schema, self.time, self._stamp)

    @property
    def _stamp(self) -> str | None:
        """The time column, where it holds ticks as they are."""
        if self.time_column is None or self.time is not TimeKind.EXTERNAL:
            return None
        as_ticks = TICKS.get(self.ticks_per_second, _holds_none)
        return self.time_column if as_ticks(self.schema.field(self.time_column).type) else None


@dataclass(frozen=True)
class TableDef:
    """A table by name: its columns, its rows if they are known yet, and the file they came from if one.

    Without `data` the rows are given later: `engine.load(name, data)`.
    """

    name: str
    schema: Schema
    data: pa.Table | None = field(default=None, compare=False, repr=False)
    path: str | None = None

    def __post_init__(self) -> None:
        _refuse_twins(f"table {self.name}", self.schema)
        if self.data is not None and not _same_columns(self.data.schema, self.schema):
            raise SqlError(
                Code.TABLE_COLUMNS,
                f"table {self.name} is ({show_columns(self.schema)}), not ({show_columns(self.data.schema)})",
                hint="headrace.read_table(path, schema) casts; so does data.cast(schema)",
            )

    @property
    def plan(self) -> Table:
        """The plan that reads it."""
        return Table(self.name, self.schema)


def _same_columns(one: Schema, other: Schema) -> bool:
    return bool(one.names == other.names and one.types == other.types)


def _refuse_twins(what: str, schema: Schema) -> None:
    names = [each.lower() for each in schema.names]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise SqlError(Code.SAME_COLUMN, f"{what} has two columns {twice!r}")


@dataclass(frozen=True)
class Relation:
    """What a query or a part of it means: a plan, which may denote a stream or a relation.

    `ticks_per_second` is ANY_TIME where no stream says what a tick is: tables go with every time.
    `implicit`: a relation only because a stream without a window counts as UNBOUNDED, or a table.
    `time_column`: the column of a stream that its times come from, where that is known.
    """

    plan: Plan
    ticks_per_second: int | None
    implicit: bool = False
    time_column: str | None = None

    @property
    def is_stream(self) -> bool:
        return not self.plan.is_relation

    @property
    def is_static(self) -> bool:
        """Whether it is made of tables alone, and so never changes."""
        return self.ticks_per_second == ANY_TIME


Definition = StreamDef | TableDef
Streams = (
    Iterable[Definition | Source | Table]
    | Mapping[str, pa.Schema | pa.Table | Source | Table | StreamDef | TableDef]
)


class Catalog:
    """Streams, tables and views by name; case does not matter, as in Spark.

    `ticks_per_second` is the domain of streams that do not say theirs.
    """

    def __init__(self, streams: Streams = (), *, ticks_per_second: int | None = MICROSECONDS) -> None:
        self.ticks_per_second = ticks_per_second
        self.streams: dict[str, StreamDef] = {}
        self.tables: dict[str, TableDef] = {}
        self._views: dict[str, tuple[str, Relation]] = {}
        self.definitions = Definitions()
        for each in self._defined(streams):
            if isinstance(each, TableDef):
                self.add_table(each)
            else:
                self.add(each)

    def _defined(self, streams: Streams) -> list[Definition]:
        if isinstance(streams, Mapping):
            return [self._definition(each, name) for name, each in streams.items()]
        if isinstance(streams, Iterable) and not isinstance(streams, (str, bytes, pa.Schema)):
            return [self._definition(each) for each in streams]
        raise _no_stream(streams)

    def _definition(self, of: object, name: str | None = None) -> Definition:
        if isinstance(of, (StreamDef, TableDef)):
            return of
        if isinstance(of, Table):
            return TableDef(of.name, of.columns)
        if isinstance(of, pa.Table) and name is not None:
            return TableDef(name, of.schema, of)
        if isinstance(of, Source):
            return StreamDef(of.name, of.columns, of.time, ticks_per_second=self.ticks_per_second)
        if isinstance(of, pa.Schema) and name is not None:
            return StreamDef(name, of, ticks_per_second=self.ticks_per_second)
        raise _no_stream(of)

    @property
    def names(self) -> list[str]:
        """Every stream, table and view, as declared."""
        leaves: list[Definition] = [*self.streams.values(), *self.tables.values()]
        return [each.name for each in leaves] + [name for name, _ in self._views.values()]

    def __contains__(self, name: str) -> bool:
        return any(name.lower() in known for known in (self.streams, self.tables, self._views))

    def add(self, stream: StreamDef, *, replace: bool = False) -> None:
        """Declare a stream; a name that is taken is an error unless it is to be replaced."""
        self._claim(stream.name, replace)
        self.streams[stream.name.lower()] = stream

    def add_table(self, table: TableDef, *, replace: bool = False) -> None:
        """Declare a table."""
        self._claim(table.name, replace)
        self.tables[table.name.lower()] = table

    def add_view(self, name: str, relation: Relation, *, replace: bool = False) -> None:
        """Declare a view: a name for the meaning of a query."""
        self._claim(name, replace)
        self._views[name.lower()] = (name, relation)

    def register_aggregate(
        self,
        name: str,
        definition: Any,
        *,
        arguments: Sequence[DataType | str | None] | None = None,
        result: Result | str | None = None,
        replace: bool = False,
    ) -> None:
        """Make a class an aggregate of the queries over this catalog: `headrace.register_aggregate`."""
        made = user_aggregate(name, definition, arguments=arguments, result=result)
        self.definitions.add(made, replace=replace)

    def register_function(
        self,
        name: str,
        function: ArrayFunction,
        *,
        result: DataType | str,
        arguments: Sequence[DataType | str | None] | None = None,
        deterministic: bool = False,
        replace: bool = False,
    ) -> None:
        """Make a function over Arrow arrays one of the queries over this catalog."""
        made = function_of(name, function, arguments, result, deterministic)
        self.definitions.add(made, replace=replace)

    def _claim(self, name: str, replace: bool) -> None:
        if name in self and not replace:
            hint = "write CREATE OR REPLACE, or choose another name"
            raise SqlError(Code.NAME_TAKEN, f"there is a stream, table or view {name!r} already", hint=hint)
        self.streams.pop(name.lower(), None)
        self.tables.pop(name.lower(), None)
        self._views.pop(name.lower(), None)

    def find(self, name: str) -> Relation | None:
        """What `name` means here."""
        stream, view = self.streams.get(name.lower()), self._views.get(name.lower())
        if stream is not None:
            return Relation(stream.source, stream.ticks_per_second, time_column=stream.time_column)
        table = self.tables.get(name.lower())
        if table is not None:
            return Relation(table.plan, ANY_TIME, implicit=True)
        return view[1] if view else None

    def copy(self) -> Catalog:
        """A catalog with the same names, to which more can be added without changing this one."""
        other = Catalog(ticks_per_second=self.ticks_per_second)
        other.become(self)
        return other

    def merged(self, other: Catalog) -> Catalog:
        """The names of both; a name in both means the same in both, or it is an error."""
        both = self.copy()
        for name in other.names:
            if name in both and both._entry(name) != other._entry(name):
                hint = "give one of them another name, or one definition to both"
                raise SqlError(Code.NAME_TAKEN, f"two different things are called {name!r}", hint=hint)
        both.streams |= other.streams
        both.tables |= other.tables
        both._views |= other._views
        both.definitions = self.definitions.merged(other.definitions)
        return both

    def _entry(self, name: str) -> tuple[object, ...]:
        """What a name stands for; the rows of two tables are the same if they are one object."""
        table = self.tables.get(name.lower())
        rows = None if table is None else id(table.data)
        return self.streams.get(name.lower()), table, rows, self._views.get(name.lower())

    def become(self, other: Catalog) -> None:
        """Take over the names of another catalog, and forget one's own."""
        self.streams, self.tables, self._views = dict(other.streams), dict(other.tables), dict(other._views)
        self.definitions = other.definitions.copy()


def _no_stream(of: object) -> SqlError:
    hint = "give StreamDefs, TableDefs, or a mapping from names to Arrow schemas (of tables: Arrow Tables)"
    return SqlError(Code.STREAMS, f"{of!r} says of no stream what it is", hint=hint)
