"""Converts the columns of the input to the declared columns; rows that do not fit are rejected."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Mask
from headrace.connectors.contract import Bad, Block, Code, shown
from headrace.connectors.encode import json_objects, json_values
from headrace.expressions.types import sql_name
from headrace.kernels.time_text import DATES, DAY, INSTANTS, NOTHING, WALLS, read_times
from headrace.schema import DataType, Schema

# How times in text are read: `docs/pipelines.md`, "Times in text".
#
# Used for JSON lines and CSV, files and sockets, the embedded runtime and Spark.


def is_time(of: DataType) -> bool:
    """Whether this type is a time, to which the rule applies."""
    return bool(pt.is_timestamp(of) or pt.is_date(of))


def times_of(texts: pa.Array, to: DataType) -> tuple[pa.Array, Mask]:
    """The timestamps or dates of texts, null where there is none, and a mask of the invalid texts.

    An instant (TIMESTAMP, in Arrow with a zone) that is written without a zone is in UTC. A time that is
    written with a zone is an instant, and never becomes a wall-clock reading (TIMESTAMP_NTZ). The session
    time zone has no effect here.
    """
    ticks = np.empty(len(texts), np.int64)
    data, offsets = _buffers(texts)
    read_times(data, offsets, _kind(to), ticks)
    none = ticks == NOTHING
    bad = none & texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else none
    return _typed(np.where(none, 0, ticks), none, to), bad


def _kind(of: DataType) -> int:
    """The kind of time to parse: a date, an instant or a wall-clock time."""
    if pt.is_date(of):
        return DATES
    return INSTANTS if of.tz else WALLS


def _buffers(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of the texts and their offsets; a null becomes empty text, which is not a valid time."""
    texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8), bounds


def _typed(micros: npt.NDArray[np.int64], none: Mask, to: DataType) -> pa.Array:
    """Microseconds as an array of the wanted type; null where `none` is set."""
    if pt.is_timestamp(to):
        return pa.array(micros, pa.timestamp("us", to.tz), mask=none).cast(to, safe=False)
    days = pa.array((micros // DAY).astype(np.int32), pa.int32(), mask=none)
    return days.cast(pa.date32()).cast(to)


Converted = tuple[pa.Array, Mask | None]
"""A column, and a mask of the rows that could not be converted (null in the column). None: all could."""

CANNOT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeDecodeError)
BLANKS: Final = " \t"
"""Whitespace that may surround a value that is not text."""


def fit(found: pa.RecordBatch, schema: Schema, raw: list[bytes] | None = None) -> Block:
    """The rows of `found` with the columns of `schema`, in its order; other columns are dropped.

    A column that is absent is null. `raw` are the rows as written, to show the bad ones.
    """
    columns: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for field in schema:
        column, wrong = _column(found, field)
        columns.append(column)
        if wrong is not None:
            for i in np.flatnonzero(wrong).tolist():
                reasons.setdefault(i, unfit(field, found.column(field.name), i))
    data = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not reasons:
        return Block(data)
    good = np.ones(found.num_rows, np.bool_)
    good[list(reasons)] = False
    texts = raw if raw is not None else row_texts(found.take(pa.array(sorted(reasons), pa.int64())))
    bad = tuple(
        Bad(Code.TYPE, reasons[i], shown(texts[i if raw is not None else n]))
        for n, i in enumerate(sorted(reasons))
    )
    return Block(data.filter(pa.array(good)), bad)


def unfit(field: pa.Field, column: pa.Array, i: int) -> str:
    """Why a row was rejected because of a column; text is quoted, so that blanks are visible."""
    return unfit_value(field, str(json_values(column.slice(i, 1))[0]))


def unfit_value(field: pa.Field, value: str) -> str:
    """Why a row was rejected: the column, the value as JSON, and what it should have been."""
    short = value if len(value) <= SHOWN_VALUE else f"{value[:SHOWN_VALUE]}…"
    # A lone surrogate, which JSON can write and UTF-8 cannot.
    short = short.encode("utf-8", "backslashreplace").decode()
    return f"column {field.name}: {short} is not a {sql_name(field.type).upper()}"


SHOWN_VALUE: Final = 80


def _column(found: pa.RecordBatch, field: pa.Field) -> Converted:
    """The column for a field, converted to its type; null if the input does not have it."""
    at = found.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(found.num_rows, field.type), None
    column = found.column(at)
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    return converted(column, field.type)


def converted(column: pa.Array, to: DataType) -> Converted:
    """A column in another type; text is converted by the same rules for every format."""
    if column.type.equals(to):
        return column, None
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)) or _is_plain(to):
        return _all_or_each(column, to)
    if is_time(to):
        made, wrong = times_of(column, to)
        return made, wrong if wrong.any() else None
    return _all_or_each(pc.utf8_trim(column, BLANKS), to)


def _is_plain(of: DataType) -> bool:
    """Whether whitespace is part of the values."""
    return bool(pt.is_string(of) or pt.is_large_string(of) or pt.is_binary(of) or pt.is_large_binary(of))


def _all_or_each(column: pa.Array, to: DataType) -> Converted:
    """Cast all values at once or, if that fails, one by one."""
    try:
        return _cast(column, to), None
    except CANNOT:
        pass
    pieces, wrong = [], np.zeros(len(column), np.bool_)
    for i in range(len(column)):
        try:
            pieces.append(_cast(column.slice(i, 1), to))
        except CANNOT:
            pieces.append(pa.nulls(1, to))
            wrong[i] = True
    return pa.concat_arrays(pieces), wrong


def _cast(column: pa.Array, to: DataType) -> pa.Array:
    """Cast; only timestamps may lose precision."""
    return column.cast(to, safe=not pt.is_timestamp(to))


def row_texts(rows: pa.RecordBatch) -> list[str]:
    """Each row as JSON."""
    texts: list[str] = json_objects(rows).to_pylist()
    return texts


def any_null(rows: pa.RecordBatch) -> Mask:
    """A mask of the rows that have a null in any column."""
    mask = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        if column.null_count:
            mask |= pc.is_null(column).to_numpy(zero_copy_only=False)
    return mask
