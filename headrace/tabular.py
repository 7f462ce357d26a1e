"""Rows from other libraries as Arrow tables: DataFrames, relations, lists of dicts, dicts of lists.

Libraries are not imported. pandas, Polars, DuckDB and others give their rows through the Arrow C stream
protocol (`__arrow_c_stream__`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.errors import InputError
from headrace.expressions.types import INSTANT, canonical
from headrace.schema import DataType, Schema

KINDS: Final = (
    "an Arrow table, batch or reader, a DataFrame of pandas or Polars, a DuckDB relation, "
    "a list of dicts, or a dict of lists"
)


def as_table(data: object, place: str) -> pa.Table:
    """The rows of any object that holds a table, with column types that queries can use."""
    read = next((read for holds, read in READERS if holds(data)), None)
    if read is None:
        raise InputError(
            "HR-I075",
            f"cannot read rows from {_described(data)}",
            place=place,
            hint=f"pass {KINDS}",
        )
    try:
        return _plain(read(data))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            "HR-I075",
            f"the rows cannot be converted to Arrow: {str(error).splitlines()[0]}",
            place=place,
            hint="each column needs values of one type, and all columns the same length",
        ) from None


def _plain(found: pa.Table) -> pa.Table:
    """The table in types that queries can use."""
    schema = plain_schema(found.schema)
    columns = [_decoded(column, field.type) for column, field in zip(found.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema.names).cast(schema)


def _decoded(column: pa.ChunkedArray, to: DataType) -> pa.ChunkedArray:
    """A column without a dictionary: Arrow cannot take values from some of the types that these may have."""
    if not pt.is_dictionary(column.type):
        return column
    values = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(to)) for c in column.chunks]
    return pa.chunked_array([each.dictionary_decode() for each in values], to)


def _described(data: object) -> str:
    """The kind of an object, in words."""
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)) and len(data):
        return f"a {type(data).__name__} of {type(data[0]).__name__}"
    return f"an object of type {type(data).__name__}"


def plain_schema(schema: Schema) -> Schema:
    """The schema with types that queries can use, and without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def plain_type(of: DataType) -> DataType:
    """A type that the engine computes with: no dictionaries, views or large offsets; instants are in UTC."""
    found = canonical(of)
    if pt.is_timestamp(found) and found.tz is not None:
        return INSTANT
    if pt.is_large_binary(found) or pt.is_binary_view(found):
        return pa.binary()
    if pt.is_list(found) or pt.is_large_list(found) or pt.is_list_view(found) or pt.is_large_list_view(found):
        return pa.list_(plain_type(found.value_type))
    if pt.is_struct(found):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in found])
    return found


def _from_dicts(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as dicts; a key that a row does not have is null there."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def _from_columns(columns: Mapping[str, Any]) -> pa.Table:
    """Columns by name: lists, NumPy arrays, or Arrow arrays."""
    return pa.table({name: _column(values) for name, values in columns.items()})


def _column(values: Any) -> Any:
    return values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)


def _are_dicts(data: object) -> bool:
    is_list = isinstance(data, Sequence) and not isinstance(data, (str, bytes))
    return is_list and all(isinstance(row, Mapping) for row in data)  # type: ignore[attr-defined]


def _has(protocol: str) -> Callable[[object], bool]:
    return lambda data: hasattr(data, protocol) and not isinstance(data, type)


READERS: Final[tuple[tuple[Callable[[object], bool], Callable[[Any], pa.Table]], ...]] = (
    (lambda data: isinstance(data, pa.Table), lambda data: data),
    (lambda data: isinstance(data, pa.RecordBatch), lambda data: pa.Table.from_batches([data])),
    (lambda data: isinstance(data, pa.RecordBatchReader), lambda data: data.read_all()),
    (_has("__arrow_c_stream__"), pa.table),
    (_has("__arrow_c_array__"), lambda data: pa.Table.from_batches([pa.record_batch(data)])),
    (lambda data: isinstance(data, Mapping), _from_columns),
    (_are_dicts, _from_dicts),
)
"""The first row that recognises an object reads it."""
