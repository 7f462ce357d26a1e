"""Columns of streams as Spark knows them, and the other way."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.errors import SparkError
from headrace.plan.nodes import TimeKind
from headrace.schema import Schema
from headrace.sql import StreamDef


def spark_schema(schema: Schema) -> T.StructType:
    """A schema in Spark's types."""
    made = from_arrow_schema(schema)
    return T.StructType([T.StructField(f.name, f.dataType, True) for f in made])


def stream(
    name: str, df: DataFrame, *, time: str | None = None, kind: TimeKind = TimeKind.EXTERNAL
) -> StreamDef:
    """A stream as a DataFrame has it; `time` names the column of a row's time.

    A TIMESTAMP is an instant, counted in UTC whatever the session's time zone; a TIMESTAMP_NTZ has no zone.
    """
    fields = [pa.field(f.name, f.type) for f in to_arrow_schema(df.schema, timezone="UTC")]
    return StreamDef(name, pa.schema(fields), kind, time)


def no_column(df: DataFrame, column: str, place: str) -> SparkError:
    """A column that is wanted and not there."""
    hint = f"it has: {', '.join(df.columns)}"
    return SparkError("HR-SP14", f"the DataFrame has no column {column!r}", place=place, hint=hint)


def ticks(df: DataFrame, column: str, name: str) -> Column:
    """The time of a row as an int64 tick: microseconds of a timestamp, or a whole number as it is."""
    if column not in df.columns:
        raise no_column(df, column, name)
    of = df.schema[column].dataType
    convert = TICKS.get(type(of))
    if convert is None:
        raise SparkError(
            "HR-SP10",
            f"the time column {column} is of type {of.simpleString()}",
            place=name,
            hint="use a timestamp, or a whole number of ticks",
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
"""A time without a zone counts as if it were in UTC: the session's zone has no say in any of them."""
