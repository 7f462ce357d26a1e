"""Schemas and times of streams, between Arrow and Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.errors import SparkError
from headrace.plan.analysis.check import check
from headrace.plan.nodes.core import Plan, Source, Table, TimeKind
from headrace.plan.nodes.trees import everywhere
from headrace.runtimes.spark.versions import arrow_schema
from headrace.schema import DataType, Schema
from headrace.sql import Query, StreamDef, TableDef


def spark_schema(schema: Schema) -> T.StructType:
    """A schema in Spark's types."""
    made = from_arrow_schema(schema, prefer_timestamp_ntz=True)  # before 4.2 the default is another
    return T.StructType([T.StructField(f.name, f.dataType, True) for f in made])


def stream(
    name: str, df: DataFrame, *, time: str | None = None, kind: TimeKind = TimeKind.EXTERNAL
) -> StreamDef:
    """A stream with the columns of a DataFrame; `time` is the column that holds the time of a row.

    A TIMESTAMP is an instant, in UTC in every session time zone; a TIMESTAMP_NTZ has no zone.
    """
    fields = [pa.field(f.name, f.type) for f in arrow_schema(df.schema) if not f.name.startswith(OWN)]
    return StreamDef(name, pa.schema(fields), kind, time)


def no_column(df: DataFrame, column: str, place: str) -> SparkError:
    """The error for a column that a DataFrame does not have."""
    hint = f"it has the columns {', '.join(df.columns)}"
    return SparkError("HR-SP14", f"the DataFrame has no column {column!r}", place=place, hint=hint)


def ticks(df: DataFrame, column: str, name: str) -> Column:
    """The time of a row as an int64 tick: microseconds of a timestamp, or an integer as it is."""
    if column not in df.columns:
        raise no_column(df, column, name)
    of = df.schema[column].dataType
    convert = TICKS.get(type(of))
    if convert is None:
        raise SparkError(
            "HR-SP10",
            f"the time column {column} is of type {of.simpleString()}",
            place=name,
            hint="use a timestamp, or an integer number of ticks",
        )
    return convert(df[column])


def _whole(column: Column) -> Column:
    return column.cast("bigint")


DAY = 86_400_000_000

TICKS: dict[type[T.DataType], Callable[[Column], Column]] = {
    T.TimestampType: F.unix_micros,
    T.TimestampNTZType: F.unix_micros,
    T.DateType: lambda c: F.unix_date(c).cast("bigint") * F.lit(DAY),
    T.ByteType: _whole,
    T.ShortType: _whole,
    T.IntegerType: _whole,
    T.LongType: _whole,
}
"""A time without a zone counts as UTC; the session time zone does not matter for any of them."""


# Two kinds of timestamps: an instant (TIMESTAMP) and a wall-clock time (TIMESTAMP_NTZ).
#
# Neither becomes the other without a CAST in the query. In Arrow an instant has a zone. Schemas written by
# hand often leave it out, so the type in the DataFrame decides.


ZONE = "UTC"

OWN = "__headrace_"
"""The names of columns that Headrace adds to a DataFrame begin so."""


def as_given(query: Query, frames: Mapping[str, DataFrame]) -> Query:
    """The query with timestamps of the same kinds as in the DataFrames."""
    given = {name.lower(): df for name, df in frames.items()}

    def columns(named: Source | Table | StreamDef | TableDef) -> Schema:
        df = given.get(named.name.lower())
        return named.schema if df is None else _schema(named.schema, df)

    def retyped(plan: Plan) -> Plan:
        """A source or table with the columns of its DataFrame; other nodes stay as they are."""
        if not isinstance(plan, (Source, Table)):
            return plan
        found = columns(plan)
        return plan if found.equals(plan.schema) else replace(plan, columns=found)

    logical = everywhere(query.logical, retyped)
    if logical is query.logical:
        return query
    check(logical)
    streams = tuple(replace(each, schema=columns(each)) for each in query.streams)
    tables = tuple(
        replace(each, schema=columns(each), data=None) if each.name.lower() in given else each
        for each in query.tables
    )
    return replace(query, logical=logical, streams=streams, tables=tables)


def _schema(declared: Schema, df: DataFrame) -> Schema:
    """The declared schema, with timestamps of the kinds in the DataFrame."""
    read = T.StructType([field for field in df.schema if field.name in declared.names])
    known = {field.name: field.type for field in arrow_schema(read)}
    fields = [
        field.with_type(of_the_kind(field.type, known[field.name])) if field.name in known else field
        for field in declared
    ]
    return pa.schema(fields, declared.metadata)


def of_the_kind(declared: DataType, given: DataType) -> DataType:
    """The declared type, with timestamps (nested ones too) of the kind in `given`."""
    if pt.is_timestamp(declared) and pt.is_timestamp(given):
        same = bool(declared.tz) == bool(given.tz)
        return declared if same else pa.timestamp(declared.unit, ZONE if given.tz else None)
    if pt.is_struct(declared) and pt.is_struct(given):
        inner = {field.name: field.type for field in given}
        return pa.struct(
            [f.with_type(of_the_kind(f.type, inner[f.name])) if f.name in inner else f for f in declared]
        )
    if pt.is_map(declared) and pt.is_map(given):
        key = declared.key_field.with_type(of_the_kind(declared.key_type, given.key_type))
        return pa.map_(key, declared.item_field.with_type(of_the_kind(declared.item_type, given.item_type)))
    if pt.is_list(declared) and pt.is_list(given):
        inside = declared.value_field
        return pa.list_(inside.with_type(of_the_kind(inside.type, given.value_type)))
    return declared
