"""Tables from files: CSV, JSON lines, Parquet or Arrow IPC, by the ending of the name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.connectors.conform import converted, is_time, unfit
from headrace.errors import InputError
from headrace.schema import DataType, Schema, show_columns

Read = Callable[[str, Schema | None], pa.Table]


def read_table(path: str | os.PathLike[str], schema: Schema | None = None) -> pa.Table:
    """All rows of a file. With a `schema`: its columns, matched by name and cast; others are dropped."""
    read = FORMATS.get(Path(path).suffix.lower())
    if read is None:
        raise InputError(
            "HR-I020",
            f"cannot tell the format of a table from the ending {Path(path).suffix!r}",
            place=str(path),
            hint=f"use {', '.join(FORMATS)}",
        )
    if not Path(path).is_file():
        raise InputError(
            "HR-I021",
            "the file does not exist",
            place=str(path),
            hint=f"the path is relative to {Path.cwd()}",
        )
    try:
        found = read(str(path), schema)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        said = str(error).split("\n")[0]
        raise InputError(
            "HR-I022",
            f"the file cannot be read: {said}",
            place=str(path),
            hint="check that the content matches the ending of the name and each value fits its column",
        ) from None
    return found if schema is None else conformed(found, schema, str(path))


def digest(path: Path) -> str | None:
    """A fingerprint of the content of a file; None if the file does not exist."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def conformed(found: pa.Table, schema: Schema, path: str, what: str = "file") -> pa.Table:
    """The table with the declared columns and types; an error if a column is missing or does not fit."""
    missing = next((name for name in schema.names if name not in found.schema.names), None)
    if missing is not None:
        raise InputError(
            "HR-I023",
            f"the {what} has no column {missing!r}",
            place=path,
            hint=f"columns of the {what}: {show_columns(found.schema)}",
        )
    chosen = _timed(found.select(schema.names), schema, path)
    try:
        return chosen.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(
            "HR-I023",
            f"the columns of the {what} do not fit the declared types: {str(error).splitlines()[0]}",
            place=path,
            hint=f"columns of the {what}: {show_columns(chosen.schema)}",
        ) from None


def _timed(found: pa.Table, schema: Schema, path: str) -> pa.Table:
    """The table with its texts read as times, where times are declared."""
    for i, field in enumerate(schema):
        if is_time(field.type) and pt.is_string(found.field(i).type):
            column = found.column(i).combine_chunks()
            times, wrong = converted(column, field.type)
            if wrong is not None:
                reason = unfit(field, column, int(wrong.argmax()))
                raise InputError(
                    "HR-I023",
                    reason,
                    place=path,
                    hint='docs/pipelines.md, "Times in text", says how times are written',
                )
            found = found.set_column(i, field, times)
    return found


def _csv(path: str, schema: Schema | None) -> pa.Table:
    """A CSV file; times are read as text and parsed later."""
    from pyarrow import csv

    types = {field.name: field.type for field in schema or () if _is_written_plainly(field.type)}
    types |= {field.name: pa.string() for field in schema or () if is_time(field.type)}
    options = csv.ConvertOptions(
        column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(path, convert_options=options)


def _is_written_plainly(of: DataType) -> bool:
    """Whether Arrow's CSV reader can read this type; other types are read as text and then cast."""
    return not (pt.is_nested(of) or pt.is_binary(of) or pt.is_null(of) or is_time(of))


def _json(path: str, schema: Schema | None) -> pa.Table:
    """A file of JSON lines; times are read as text and parsed later."""
    from pyarrow import json

    wire = [field.with_type(pa.string()) if is_time(field.type) else field for field in schema or ()]
    explicit = None if schema is None else pa.schema(wire)
    return json.read_json(path, parse_options=json.ParseOptions(explicit_schema=explicit))


def _parquet(path: str, schema: Schema | None) -> pa.Table:
    from pyarrow import parquet

    return parquet.ParquetFile(path).read()


def _ipc(path: str, schema: Schema | None) -> pa.Table:
    """The file format of Arrow IPC, or its stream format."""
    with pa.OSFile(path) as file:
        try:
            return pa.ipc.open_file(file).read_all()
        except pa.ArrowInvalid:
            file.seek(0)
            return pa.ipc.open_stream(file).read_all()


FORMATS: Final[dict[str, Read]] = {
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
    ".parquet": _parquet,
    ".arrow": _ipc,
    ".feather": _ipc,
}
