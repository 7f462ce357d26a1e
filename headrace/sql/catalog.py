"""The names that queries may use: streams, tables, views, and user-defined functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.errors import SqlError
from headrace.plan.nodes.core import Plan, Source, Table, TimeKind
from headrace.plan.nodes.user_aggregates import Result, user_aggregate
from headrace.schema import DataType, Schema, show_columns
from headrace.sql.definitions import Definitions, function_of
from headrace.sql.place import Code, nearest

MICROSECONDS: Final = 1_000_000
"""Ticks per second of timestamps, the usual domain of time."""
ANY_TIME: Final = 0
"""Used as ticks per second of a table: its rows are valid at every time, in any domain."""


def _holds_none(of: DataType) -> bool:
    return False


TICKS: Final[Mapping[int | None, Callable[[DataType], bool]]] = {
    MICROSECONDS: lambda of: pt.is_timestamp(of) and of.unit == "us",
    None: pt.is_int64,
}
"""By ticks per second: whether the values of a column are ticks without conversion."""


@dataclass(frozen=True)
class StreamDef:
    """The definition of a stream: its columns and its time.

    `ticks_per_second` is the number of ticks in a second; None: its times are sequence numbers. `time_column`
    names the column that times come from, which stays an ordinary column of the rows. If it holds ticks
    without conversion, a row that is pushed with a different time is rejected (HR-R004).
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
                Code.TIME_COLUMN,
                f"the time column {self.time_column!r} of stream {self.name} does not exist",
                hint=hint,
            )

    @property
    def source(self) -> Source:
        """The plan that reads it."""
        return Source(self.name, self.schema, self.time, self._stamp)

    @property
    def _stamp(self) -> str | None:
        """The time column, if its values are ticks without conversion."""
        if self.time_column is None or self.time is not TimeKind.EXTERNAL:
            return None
        as_ticks = TICKS.get(self.ticks_per_second, _holds_none)
        return self.time_column if as_ticks(self.schema.field(self.time_column).type) else None


@dataclass(frozen=True)
class TableDef:
    """The definition of a table: its columns, its rows if known, and the file they came from, if any.

    Without `data`, the rows are given later: `engine.load(name, data)`. A table that `changes` may get other
    rows while queries run: `engine.reload(name, data)`.
    """

    name: str
    schema: Schema
    data: pa.Table | None = field(default=None, compare=False, repr=False)
    path: str | None = None
    changes: bool = False

    def __post_init__(self) -> None:
        _refuse_twins(f"table {self.name}", self.schema)
        if self.data is not None and not _same_columns(self.data.schema, self.schema):
            raise SqlError(
                Code.TABLE_COLUMNS,
                f"the columns of table {self.name} are ({show_columns(self.schema)}), "
                f"but the data has ({show_columns(self.data.schema)})",
                hint="cast the data: headrace.read_table(path, schema) or data.cast(schema)",
            )

    @property
    def plan(self) -> Table:
        """The plan that reads it."""
        return Table(self.name, self.schema, self.changes)


def _same_columns(one: Schema, other: Schema) -> bool:
    return bool(one.names == other.names and one.types == other.types)


def _refuse_twins(what: str, schema: Schema) -> None:
    """Raise an error if two columns have the same name, ignoring case."""
    names = [each.lower() for each in schema.names]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise SqlError(Code.SAME_COLUMN, f"{what} has two columns named {twice!r}")


@dataclass(frozen=True)
class Relation:
    """The meaning of a query or a part of it: a plan that denotes a stream or a relation.

    `ticks_per_second` is ANY_TIME if only tables are read: tables are valid in every domain of time.
    `implicit`: it is a relation only because it is a table, or a stream without a window (UNBOUNDED).
    `time_column`: the column of a stream that its times come from, if known.
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
        """Whether it reads only tables, so that it never changes."""
        return self.ticks_per_second == ANY_TIME


Definition = StreamDef | TableDef
Streams = (
    Iterable[Definition | Source | Table]
    | Mapping[str, pa.Schema | pa.Table | Source | Table | StreamDef | TableDef]
)


class Catalog:
    """Streams, tables and views by name; case does not matter, as in Spark.

    `ticks_per_second` is the default for streams that do not set it.
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
        """The definitions in any of the accepted forms."""
        if isinstance(streams, Mapping):
            return [self._definition(each, name) for name, each in streams.items()]
        if isinstance(streams, Iterable) and not isinstance(streams, (str, bytes, pa.Schema)):
            return [self._definition(each) for each in streams]
        raise _no_stream(streams)

    def _definition(self, of: object, name: str | None = None) -> Definition:
        """One definition, from a StreamDef, a TableDef, a plan or Arrow data."""
        if isinstance(of, (StreamDef, TableDef)):
            return of
        if isinstance(of, Table):
            return TableDef(of.name, of.columns, changes=of.changes)
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
        """Declare a stream; an existing name is an error unless `replace`."""
        self._claim(stream.name, replace)
        self.streams[stream.name.lower()] = stream

    def add_table(self, table: TableDef, *, replace: bool = False) -> None:
        """Declare a table."""
        self._claim(table.name, replace)
        self.tables[table.name.lower()] = table

    def add_view(self, name: str, relation: Relation, *, replace: bool = False) -> None:
        """Declare a view: a name for a query."""
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
        """Register a class as an aggregate for queries over this catalog.

        See `headrace.register_aggregate`.
        """
        made = user_aggregate(name, definition, arguments=arguments, result=result)
        self.definitions.add(made, replace=replace)

    def register_function(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        result: DataType | str | None = None,
        arguments: Sequence[DataType | str | None] | None = None,
        deterministic: bool = False,
        scalar: bool = False,
        replace: bool = False,
    ) -> None:
        """Register a function over Arrow arrays or, if `scalar`, over values, for this catalog."""
        made = function_of(name, function, arguments, result, deterministic, scalar)
        self.definitions.add(made, replace=replace)

    def _claim(self, name: str, replace: bool) -> None:
        """Make a name available, or raise an error if it is taken."""
        if name in self and not replace:
            hint = "write CREATE OR REPLACE, or choose another name"
            raise SqlError(Code.NAME_TAKEN, f"a stream, table or view {name!r} already exists", hint=hint)
        self.streams.pop(name.lower(), None)
        self.tables.pop(name.lower(), None)
        self._views.pop(name.lower(), None)

    def find(self, name: str) -> Relation | None:
        """The relation called `name`; None if there is none."""
        stream, view = self.streams.get(name.lower()), self._views.get(name.lower())
        if stream is not None:
            return Relation(stream.source, stream.ticks_per_second, time_column=stream.time_column)
        table = self.tables.get(name.lower())
        if table is not None:
            return Relation(table.plan, ANY_TIME, implicit=True)
        return view[1] if view else None

    def copy(self) -> Catalog:
        """A catalog with the same names, which can be extended without changing this one."""
        other = Catalog(ticks_per_second=self.ticks_per_second)
        other.become(self)
        return other

    def merged(self, other: Catalog) -> Catalog:
        """The names of both catalogs; a name with two different definitions is an error."""
        both = self.copy()
        for name in other.names:
            if name in both and both._entry(name) != other._entry(name):
                hint = "rename one of them, or use the same definition for both"
                raise SqlError(Code.NAME_TAKEN, f"there are two different definitions of {name!r}", hint=hint)
        both.streams |= other.streams
        both.tables |= other.tables
        both._views |= other._views
        both.definitions = self.definitions.merged(other.definitions)
        return both

    def _entry(self, name: str) -> tuple[object, ...]:
        """The definition of a name; two tables have the same rows only if these are the same object."""
        table = self.tables.get(name.lower())
        rows = None if table is None else id(table.data)
        return self.streams.get(name.lower()), table, rows, self._views.get(name.lower())

    def become(self, other: Catalog) -> None:
        """Replace all names with those of another catalog."""
        self.streams, self.tables, self._views = dict(other.streams), dict(other.tables), dict(other._views)
        self.definitions = other.definitions.copy()


def _no_stream(of: object) -> SqlError:
    """The error for something that is not a definition."""
    hint = "pass StreamDefs, TableDefs, or a mapping from names to Arrow schemas (for tables: Arrow Tables)"
    return SqlError(Code.STREAMS, f"expected a definition of a stream or table, got {of!r}", hint=hint)
