"""What `headrace.run` reads: tables, iterators, async iterators and sources of a pipeline file, by name."""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.connectors.contract import Bad, Source
from headrace.connectors.inbox import Inbox
from headrace.connectors.python_functions import is_row
from headrace.errors import InputError
from headrace.expressions.types import sql_name
from headrace.flow.batch import order_of
from headrace.frames.answer import TableSource
from headrace.frames.files import infer_schema
from headrace.frames.sources import Frame, Time, frames_of, time_candidates, time_columns, timed
from headrace.graph.table import one_batch
from headrace.pipeline.functions import Functions
from headrace.pipeline.load import Reader, columns_of
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.spec import NowhereTo
from headrace.schema import Schema
from headrace.sql import Query, StreamDef
from headrace.sql.fragments import identifier
from headrace.sql.place import nearest
from headrace.tabular import as_table
from headrace.time.row_promises import ticks_of

Columns = str | Schema
PLACE: Final = "headrace.run"


@dataclass(frozen=True)
class Options:
    """What is said about the streams: time columns, columns with their types, and bounds, by name."""

    time: Time = None
    schema: Mapping[str, Columns] = field(default_factory=dict)
    bounds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Sources:
    """The sources of a query by name. Threads and tasks fill inboxes with the rows of iterators."""

    def __init__(self, given: Mapping[str, Any], wake: Callable[[], None]) -> None:
        self.given = dict(given)
        self.inboxes = {name: Inbox(wake) for name, each in given.items() if _is_live(each)}

    @property
    def asynchronous(self) -> list[str]:
        """The sources that only an event loop can read."""
        return [name for name in self.inboxes if _is_async(self.given[name])]

    def start_threads(self) -> None:
        """Read each iterator in a thread of its own, which may wait as long as it likes."""
        for name, inbox in self.inboxes.items():
            if name not in self.asynchronous:
                rows = self.given[name]
                arguments = (rows() if callable(rows) else rows,)
                threading.Thread(
                    target=inbox.fill_from, args=arguments, daemon=True, name=f"headrace-{name}"
                ).start()

    def async_rows(self, name: str) -> AsyncIterable[Any]:
        """The rows of a source that an event loop reads."""
        rows = self.given[name]
        found: AsyncIterable[Any] = rows() if callable(rows) else rows
        return found

    def end(self) -> None:
        """Take no more rows: threads and tasks that bring some end."""
        for inbox in self.inboxes.values():
            inbox.end()

    def needs_rows(self, what: str | Query, options: Options) -> bool:
        """Whether the columns of a source are known only from its first rows."""
        known = options.schema if isinstance(what, str) else {each.name for each in what.streams}
        return any(name not in known for name in self.inboxes)

    # --- the pipeline

    def pipeline(self, what: str | Query, options: Options) -> Pipeline:
        """A pipeline of one query over the sources, which writes nothing."""
        _check_names([*options.schema, *options.bounds], self.given)
        streams = {} if isinstance(what, str) else {each.name: each for each in what.streams}
        frames = self._frames(options, streams)
        live = {name: frame for name, frame in frames.items() if self._is_stream(name)}
        functions: dict[str, Any] = {}
        tables = {
            name: self._table(frame, options, functions)
            for name, frame in frames.items()
            if frame.time is not None or name in live
        }
        name = "query" if isinstance(what, str) or not what.name.isidentifier() else what.name
        text = what if isinstance(what, str) else what.text
        reader = Reader(
            "",
            Path(),
            PLACE,
            {
                "pipeline": {"name": name, "runtime": "embedded"},
                "streams": tables,
                "queries": [{"name": name, "sql": text, "sink": "stdout"}],
            },
            functions=Functions(Path(), functions, imports=False),
            tables_given=[
                frame.table_definition
                for name, frame in frames.items()
                if name not in tables and isinstance(what, str)
            ],
            planned=None if isinstance(what, str) else what,
        )
        found = reader.pipeline()
        (only,) = found.queries
        silent = replace(only, spec=only.spec.model_copy(update={"sink": NowhereTo()}))
        return replace(found, queries=(silent,))

    def _is_stream(self, name: str) -> bool:
        return name in self.inboxes or _is_settings(self.given[name])

    def _frames(self, options: Options, streams: Mapping[str, StreamDef]) -> dict[str, Frame]:
        """Each source with its columns and its time column, and the rows of those that are tables."""
        samples = {name: self._sample(name, options, streams.get(name)) for name in self.given}
        time: Time = options.time
        if time is None and streams:
            time = {name: str(each.time_column) for name, each in streams.items() if each.time_column}
        live = {name: frame for name, frame in samples.items() if self._is_stream(name)}
        if time is None:
            # A live source without a column of times is a stream all the same: rows count when they come.
            untimed = {name: frame for name, frame in live.items() if not time_candidates(frame.rows)}
        else:
            untimed = {}
        others = {name: frame for name, frame in samples.items() if name not in untimed}
        columns = time_columns(others, time) if others else {}
        return {
            name: timed(replace(frame, time=columns[name])) if name in columns else frame
            for name, frame in samples.items()
        }

    def _sample(self, name: str, options: Options, known: StreamDef | None) -> Frame:
        """The rows of a table, the first rows of a live source, or none if its columns are declared."""
        given = self.given[name]
        declared = known.schema if known is not None else _declared(name, options)
        if not self._is_stream(name):
            (frame,) = frames_of_tables({name: given}).values()
            return frame if declared is None else replace(frame, rows=frame.rows.select(declared.names))
        if declared is None and _is_settings(given):
            declared = _inferred(name, given)
        if declared is not None:
            return Frame(name, declared.empty_table())
        first = self.inboxes[name].first()
        if first is None:
            raise InputError(
                "HR-I080",
                "the source ended without a row, so its columns are not known",
                place=name,
                hint=f'declare them: schema={{"{name}": "item STRING, at TIMESTAMP"}}',
            )
        return Frame(name, as_table([first] if is_row(first) else first, name))

    def _table(self, frame: Frame, options: Options, functions: dict[str, Any]) -> dict[str, Any]:
        """The table of a stream, as in a pipeline file."""
        name, given = frame.name, self.given[frame.name]
        if not self._is_stream(name):
            frame = _declarable(frame)
            functions[name] = _Rows(frame, is_sorted=name not in options.bounds)
        elif name in self.inboxes:
            functions[name] = self.inboxes[name].rows
        source = (
            {"type": "python", "function": name, "bounded": name not in self.inboxes}
            if name in functions
            else dict(given)
        )
        return {
            "source": source,
            "schema": ", ".join(
                f"{identifier(each.name)} {_type_name(each.type)}" for each in frame.rows.schema
            ),
            "time": _time_table(frame),
            "bounds": dict(options.bounds.get(name, {})),
        }


@dataclass(frozen=True)
class _Rows:
    """The rows of a table as a source of a pipeline, in the order of their times unless bounds are given."""

    frame: Frame
    is_sorted: bool

    def open_source(self, schema: Schema) -> Source:
        assert self.frame.time is not None
        rows = one_batch(self.frame.rows.cast(schema), schema)
        bad: tuple[Bad, ...] = self.frame.bad
        if self.is_sorted:
            ticks, _ = ticks_of(rows.column(schema.get_field_index(self.frame.time)), None)
            rows = rows.take(pa.array(order_of(ticks)))
        return TableSource(rows, bad, None)


def frames_of_tables(given: Mapping[str, Any]) -> dict[str, Frame]:
    """The rows of tables and files, without their times."""
    return frames_of(given, {})


def _is_settings(given: object) -> bool:
    """Whether it is the source table of a pipeline file, such as {"type": "tcp", "port": 9000}."""
    return isinstance(given, Mapping) and any(isinstance(given.get(key), str) for key in ("type", "path"))


def _is_async(given: object) -> bool:
    return isinstance(given, AsyncIterable) or inspect.isasyncgenfunction(given)


def _is_live(given: object) -> bool:
    """Whether rows come one after the other: an iterator, or a function that gives one."""
    reader = isinstance(given, pa.RecordBatchReader)
    return reader or isinstance(given, Iterator) or _is_async(given) or inspect.isroutine(given)


def _check_names(names: Iterable[str], given: Mapping[str, Any]) -> None:
    """Raise an error for options about a source that was not given."""
    unknown = next((name for name in names if name not in given), None)
    if unknown is not None:
        raise InputError(
            "HR-I077",
            f"an option names {unknown!r}, which was not given",
            place=PLACE,
            hint=nearest(unknown, given) or f"sources: {', '.join(given)}",
        )


def _declared(name: str, options: Options) -> Schema | None:
    """The columns that the caller declared."""
    said = options.schema.get(name)
    return columns_of(name, said) if isinstance(said, str) else said


def _inferred(name: str, given: Mapping[str, Any]) -> Schema:
    """The columns of a file that a source table names."""
    path = Path(str(given.get("path", "")))
    if path.is_file():
        return infer_schema(path, name)
    raise InputError(
        "HR-I080",
        "the columns of this source are not known",
        place=name,
        hint=f'declare them: schema={{"{name}": "item STRING, at TIMESTAMP"}}',
    )


def _type_name(of: pa.DataType) -> str:
    """The SQL name of a type that a stream can declare; a column that had no value yet is text."""
    return "STRING" if pt.is_null(of) else sql_name(_signed(of))


def _signed(of: pa.DataType) -> pa.DataType:
    if pt.is_unsigned_integer(of):
        return pa.decimal128(20, 0) if of.bit_width == 64 else pa.int64()
    return of


def _declarable(frame: Frame) -> Frame:
    """The rows in types that a stream can declare."""
    fields = [
        pa.field(each.name, pa.string() if pt.is_null(each.type) else _signed(each.type))
        for each in frame.rows.schema
    ]
    return replace(frame, rows=frame.rows.cast(pa.schema(fields)))


def _time_table(frame: Frame) -> Any:
    """The key `time` of a stream; without a column, rows are stamped when they come."""
    if frame.time is None:
        return "internal"
    if pt.is_integer(frame.rows.schema.field(frame.time).type):
        return {"column": frame.time, "unit": "tick"}
    return {"column": frame.time}
