"""The rows of a file whose columns nobody declared: types are inferred, bad rows are set apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.connectors.conform import times_of
from headrace.connectors.contract import Bad
from headrace.connectors.files import FilesSource
from headrace.connectors.formats import SUFFIXES, Format
from headrace.errors import HeadraceError, InputError
from headrace.expressions.types import INSTANT, MICROS
from headrace.schema import DataType, Schema
from headrace.tabular import plain_schema

SAMPLE: Final = 4 << 20
"""Bytes at the beginning of a file of lines from which types are inferred."""
LIKE_A_TIME: Final = re.compile(r"\s*\d{4}-\d{1,2}-\d{1,2}[T ]\d")


def read_file(path: Path, place: str) -> tuple[pa.Table, tuple[Bad, ...]]:
    """The rows of a file and its bad rows, which do not fit the inferred types."""
    schema = infer_schema(path, place)
    source = FilesSource(str(path), schema, Format(SUFFIXES[path.suffix.lower()]))
    rows: list[pa.RecordBatch] = []
    bad: list[Bad] = []
    try:
        while (block := source.read()) is not None:
            rows.append(block.data)
            bad += block.bad
    finally:
        source.close()
    return pa.Table.from_batches(rows, schema), tuple(bad)


def infer_schema(path: Path, place: str) -> Schema:
    """The columns of a file and their types; text that is a time in each row is a TIMESTAMP."""
    read = SAMPLES.get(SUFFIXES.get(path.suffix.lower(), ""))
    if read is None:
        raise InputError(
            "HR-I020",
            f"cannot tell the format of a file from the ending {path.suffix!r}",
            place=f"{place}: {path}",
            hint=f"use {', '.join(SUFFIXES)}",
        )
    if not path.is_file():
        raise InputError(
            "HR-I021",
            "the file does not exist",
            place=f"{place}: {path}",
            hint=f"the path is relative to {Path.cwd()}",
        )
    try:
        found = read(path)
    except HeadraceError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(
            "HR-I022",
            f"the file cannot be read: {str(error).splitlines()[0]}",
            place=f"{place}: {path}",
            hint="check that the content matches the ending of the name",
        ) from None
    return plain_schema(found.schema) if not found.num_rows else _with_times(found)


def _with_times(found: pa.Table) -> Schema:
    """The schema of a sample; text columns that hold times become timestamps."""
    fields = [pa.field(name, _type_of(found.column(name))) for name in found.schema.names]
    return plain_schema(pa.schema(fields))


def _type_of(column: pa.ChunkedArray) -> DataType:
    if not pt.is_string(column.type):
        return column.type
    return time_type(column.combine_chunks()) or column.type


def time_type(texts: pa.Array | pa.ChunkedArray) -> DataType | None:
    """The type of time that all these texts are written as; None if they are not times."""
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], texts.type)
    known = texts.drop_null()
    if not len(known) or not LIKE_A_TIME.match(known[0].as_py()):
        return None
    return next((of for of in (MICROS, INSTANT) if not times_of(known, of)[1].any()), None)


def _csv(path: Path) -> pa.Table:
    """The beginning of a CSV file; rows with another number of columns are left out."""
    from pyarrow import csv

    return csv.read_csv(
        _beginning(path),
        parse_options=csv.ParseOptions(invalid_row_handler=lambda row: "skip"),
        convert_options=csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
        read_options=csv.ReadOptions(block_size=2 * SAMPLE),
    )


def _json(path: Path) -> pa.Table:
    """The beginning of a file of JSON lines; lines that are not objects are left out."""
    begin = _beginning(path)
    try:
        return _json_rows(begin)
    except pa.ArrowInvalid:
        begin.seek(0)
        good = b"\n".join(line for line in begin.read().splitlines() if _is_object(line))
        if not good:
            raise
        return _json_rows(pa.BufferReader(good))


def _json_rows(lines: Any) -> pa.Table:
    """JSON lines with times as text: Arrow would drop their zones."""
    from pyarrow import json

    options = json.ReadOptions(block_size=2 * SAMPLE)
    found = json.read_json(lines, read_options=options)
    times = [field.with_type(pa.string()) for field in found.schema if pt.is_timestamp(field.type)]
    if not times:
        return found
    lines.seek(0)
    as_text = json.ParseOptions(explicit_schema=pa.schema(times))
    return json.read_json(lines, read_options=options, parse_options=as_text).select(found.schema.names)


def _is_object(line: bytes) -> bool:
    import json

    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _beginning(path: Path) -> Any:
    """The first bytes of a file, up to the end of a line."""
    with path.open("rb") as file:
        begin = file.read(SAMPLE)
        if len(begin) == SAMPLE:
            begin += file.readline()
    return pa.BufferReader(begin)


def _parquet(path: Path) -> pa.Table:
    from pyarrow import parquet

    return parquet.read_schema(path).empty_table()


def _ipc(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        try:
            return pa.ipc.open_file(file).schema.empty_table()
        except pa.ArrowInvalid:
            file.seek(0)
            return pa.ipc.open_stream(file).schema.empty_table()


SAMPLES: Final[dict[str, Callable[[Path], pa.Table]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "arrow": _ipc,
}
"""By format: rows from which the types of the columns are inferred; none where the file declares them."""
