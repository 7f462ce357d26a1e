"""The names that queries may use: streams and views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.errors import SqlError
from headrace.plan.nodes import Plan, Source, TimeKind
from headrace.schema import Schema
from headrace.sql.codes import Code
from headrace.sql.place import nearest

MICROSECONDS: Final = 1_000_000
"""Ticks per second of timestamps, the usual domain of time."""


@dataclass(frozen=True)
class StreamDef:
    """A stream by name: its columns and its time.

    `ticks_per_second` says what a tick of its time is; None: sequence numbers, which know no seconds.
    `time_column` names the column that times come from, which stays an ordinary column of the rows.
    """

    name: str
    schema: Schema
    time: TimeKind = TimeKind.EXTERNAL
    time_column: str | None = None
    ticks_per_second: int | None = MICROSECONDS

    def __post_init__(self) -> None:
        names = [each.lower() for each in self.schema.names]
        twice = next((each for each in names if names.count(each) > 1), None)
        if twice is not None:
            raise SqlError(Code.SAME_COLUMN, f"stream {self.name} has two columns {twice!r}")
        if self.time_column is not None and self.time_column not in self.schema.names:
            hint = nearest(self.time_column, self.schema.names)
            raise SqlError(
                Code.TIME_COLUMN, f"stream {self.name} has no column {self.time_column!r}", hint=hint
            )

    @property
    def source(self) -> Source:
        """The plan that reads it."""
        return Source(self.name, self.schema, self.time)


@dataclass(frozen=True)
class Relation:
    """What a query or a part of it means: a plan, which may denote a stream or a relation.

    `implicit`: a relation only because a stream without a window counts as UNBOUNDED.
    """

    plan: Plan
    ticks_per_second: int | None
    implicit: bool = False

    @property
    def is_stream(self) -> bool:
        return not self.plan.is_relation


Streams = Iterable[StreamDef | Source] | Mapping[str, pa.Schema | Source | StreamDef]


class Catalog:
    """Streams and views by name; case does not matter, as in Spark.

    `ticks_per_second` is the domain of streams that do not say theirs.
    """

    def __init__(self, streams: Streams = (), *, ticks_per_second: int | None = MICROSECONDS) -> None:
        self.ticks_per_second = ticks_per_second
        self.streams: dict[str, StreamDef] = {}
        self._views: dict[str, tuple[str, Relation]] = {}
        for stream in self._defined(streams):
            self.add(stream)

    def _defined(self, streams: Streams) -> list[StreamDef]:
        if isinstance(streams, Mapping):
            return [self._definition(each, name) for name, each in streams.items()]
        if isinstance(streams, Iterable) and not isinstance(streams, (str, bytes, pa.Schema)):
            return [self._definition(each) for each in streams]
        raise _no_stream(streams)

    def _definition(self, of: object, name: str | None = None) -> StreamDef:
        if isinstance(of, StreamDef):
            return of
        if isinstance(of, Source):
            return StreamDef(of.name, of.columns, of.time, ticks_per_second=self.ticks_per_second)
        if isinstance(of, pa.Schema) and name is not None:
            return StreamDef(name, of, ticks_per_second=self.ticks_per_second)
        raise _no_stream(of)

    @property
    def names(self) -> list[str]:
        """Every stream and view, as declared."""
        return [each.name for each in self.streams.values()] + [name for name, _ in self._views.values()]

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.streams or name.lower() in self._views

    def add(self, stream: StreamDef, *, replace: bool = False) -> None:
        """Declare a stream; a name that is taken is an error unless it is to be replaced."""
        self._claim(stream.name, replace)
        self.streams[stream.name.lower()] = stream

    def add_view(self, name: str, relation: Relation, *, replace: bool = False) -> None:
        """Declare a view: a name for the meaning of a query."""
        self._claim(name, replace)
        self._views[name.lower()] = (name, relation)

    def _claim(self, name: str, replace: bool) -> None:
        if name in self and not replace:
            hint = "write CREATE OR REPLACE, or choose another name"
            raise SqlError(Code.NAME_TAKEN, f"there is a stream or view {name!r} already", hint=hint)
        self.streams.pop(name.lower(), None)
        self._views.pop(name.lower(), None)

    def find(self, name: str) -> Relation | None:
        """What `name` means here."""
        stream, view = self.streams.get(name.lower()), self._views.get(name.lower())
        if stream is not None:
            return Relation(stream.source, stream.ticks_per_second)
        return view[1] if view else None

    def copy(self) -> Catalog:
        """A catalog with the same names, to which more can be added without changing this one."""
        other = Catalog(ticks_per_second=self.ticks_per_second)
        other.become(self)
        return other

    def become(self, other: Catalog) -> None:
        """Take over the names of another catalog, and forget one's own."""
        self.streams, self._views = dict(other.streams), dict(other._views)


def _no_stream(of: object) -> SqlError:
    hint = "give StreamDefs, Sources, or a mapping from names to Arrow schemas"
    return SqlError(Code.STREAMS, f"{of!r} says of no stream what it is", hint=hint)
