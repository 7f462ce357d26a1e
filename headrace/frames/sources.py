"""What a query over tables reads: each given object as a stream with a time column, or as a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from headrace.connectors.conform import row_texts, times_of, unfit
from headrace.connectors.contract import Bad, Code, shown
from headrace.errors import InputError
from headrace.expressions.types import INSTANT, MICROS, sql_name
from headrace.frames.files import read_file, time_type
from headrace.sql import MICROSECONDS, Catalog, StreamDef, TableDef
from headrace.sql.place import nearest
from headrace.tabular import KINDS, as_table

Time = str | Mapping[str, str] | None


@dataclass(frozen=True)
class Frame:
    """The rows of one source, its time column if it is a stream, and the input that could not be read."""

    name: str
    rows: pa.Table
    bad: tuple[Bad, ...] = ()
    time: str | None = None

    @property
    def definition(self) -> StreamDef | TableDef:
        """How queries see it."""
        if self.time is None:
            return self.table_definition
        timestamps = pt.is_timestamp(self.rows.schema.field(self.time).type)
        return StreamDef(
            self.name,
            self.rows.schema,
            time_column=self.time,
            ticks_per_second=MICROSECONDS if timestamps else None,
        )

    @property
    def table_definition(self) -> TableDef:
        """How queries see it if it is a table."""
        return TableDef(self.name, self.rows.schema, self.rows)


def frames_of(given: Mapping[str, Any], time: Time) -> dict[str, Frame]:
    """The sources by name, each with its time column or, without one, as a table."""
    frames = {name: _frame(name, data) for name, data in given.items()}
    columns = time_columns(frames, time)
    return {
        name: timed(replace(frame, time=columns[name])) if name in columns else frame
        for name, frame in frames.items()
    }


def catalog_of(frames: Mapping[str, Frame]) -> Catalog:
    """The names that a query may use."""
    return Catalog([frame.definition for frame in frames.values()])


def _frame(name: str, data: Any) -> Frame:
    """The rows of a path or of an object that holds a table."""
    if isinstance(data, (str, os.PathLike)):
        return Frame(name, *read_file(Path(data), name))
    if isinstance(data, bytes):
        raise InputError(
            "HR-I075",
            "cannot read rows from an object of type bytes",
            place=name,
            hint=f"pass the path of a file, {KINDS}",
        )
    return Frame(name, as_table(data, name))


# Which column is the time.


def time_columns(frames: Mapping[str, Frame], time: Time) -> dict[str, str]:
    """By stream, its time column."""
    if isinstance(time, str):
        found = {name: time for name, frame in frames.items() if time in frame.rows.schema.names}
        if not found:
            raise _no_column(time, frames)
        return found
    if time is None:
        return _inferred(frames)
    for name, column in time.items():
        if name not in frames:
            raise InputError(
                "HR-I077",
                f"time names {name!r}, which was not given",
                place=f"time[{name!r}]",
                hint=nearest(name, frames),
            )
        if column not in frames[name].rows.schema.names:
            raise _no_column(column, {name: frames[name]})
    return dict(time)


def _no_column(column: str, frames: Mapping[str, Frame]) -> InputError:
    """The error for a time column that no source has."""
    names = _names(frames)
    return InputError(
        "HR-I076",
        f"the time column {column!r} does not exist",
        place=", ".join(frames),
        hint=(nearest(column, names) or f"columns: {', '.join(names)}") if names else "there are no columns",
    )


def _names(frames: Mapping[str, Frame]) -> list[str]:
    """The columns of all sources, each once."""
    return list(dict.fromkeys(name for frame in frames.values() for name in frame.rows.schema.names))


def _inferred(frames: Mapping[str, Frame]) -> dict[str, str]:
    """The only column with times of each source; a source without one is a table."""
    found: dict[str, str] = {}
    for name, frame in frames.items():
        candidates = time_candidates(frame.rows)
        if len(candidates) > 1:
            raise InputError(
                "HR-I076",
                f"{name} has several columns with times: {', '.join(candidates)}",
                place=name,
                hint=f'say which one counts: time={{"{name}": "{candidates[0]}"}}',
            )
        found |= dict.fromkeys([name] if candidates else [], "".join(candidates))
    if not found:
        raise InputError(
            "HR-I076",
            "no column has times, so nothing here is a stream",
            place=", ".join(frames) or "headrace.sql",
            hint='name the column that orders the rows: time="COLUMN"; columns: ' + ", ".join(_names(frames))
            if frames
            else 'pass the rows: headrace.sql("… FROM clicks …", clicks=rows, time="at")',
        )
    return found


def time_candidates(rows: pa.Table) -> list[str]:
    """The columns that hold timestamps, or texts that are times."""
    return [each.name for each in rows.schema if _holds_times(rows.column(each.name))]


def _holds_times(column: pa.ChunkedArray) -> bool:
    of = column.type
    return bool(pt.is_timestamp(of) or (pt.is_string(of) and time_type(column) is not None))


# The time column as timestamps or integers.


def timed(frame: Frame) -> Frame:
    """The stream with a time column that holds ticks; rows whose time is not valid are set apart."""
    assert frame.time is not None
    at = frame.rows.schema.get_field_index(frame.time)
    column = frame.rows.column(at)
    if pt.is_timestamp(column.type):
        return frame
    if pt.is_integer(column.type) or pt.is_decimal(column.type):
        return _cast(frame, at, pa.int64())
    if pt.is_date(column.type):
        return _cast(frame, at, MICROS)
    if pt.is_string(column.type):
        return _parsed(frame, at)
    if pt.is_null(column.type):
        return _cast(frame, at, MICROS)
    raise InputError(
        "HR-I079",
        f"the column {frame.time!r} is a {sql_name(column.type).upper()}, which cannot be the time",
        place=frame.name,
        hint="use a column of timestamps, dates, integers (sequence numbers), or ISO 8601 text",
    )


def _cast(frame: Frame, at: int, to: pa.DataType) -> Frame:
    """The time column in another type."""
    column = frame.rows.column(at)
    try:
        made = column.cast(to)
    except pa.ArrowInvalid as error:
        raise InputError(
            "HR-I079",
            f"the values of {frame.time!r} cannot be times: {str(error).splitlines()[0]}",
            place=frame.name,
            hint="times are 64-bit integers or timestamps",
        ) from None
    return replace(frame, rows=frame.rows.set_column(at, pa.field(frame.time, to), made))


def _parsed(frame: Frame, at: int) -> Frame:
    """The texts of the time column as timestamps."""
    column = frame.rows.column(at).combine_chunks()
    texts = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    of = time_type(texts) or INSTANT
    times, wrong = times_of(texts, of)
    field = pa.field(frame.time, of)
    rows = frame.rows.set_column(at, field, times)
    if not wrong.any():
        return replace(frame, rows=rows)
    unread = frame.rows.filter(pa.array(wrong)).combine_chunks()
    written = row_texts(
        pa.RecordBatch.from_arrays([c.combine_chunks() for c in unread.columns], unread.schema.names)
    )
    texts = texts.filter(pa.array(wrong))
    bad = tuple(Bad(Code.TYPE, unfit(field, texts, i), shown(row)) for i, row in enumerate(written))
    return replace(frame, rows=rows.filter(pa.array(~wrong)), bad=(*frame.bad, *bad))
