"""Which kind of timestamp a column is: an instant (TIMESTAMP) or a wall-clock reading (TIMESTAMP_NTZ).

Neither ever becomes the other without a CAST in the query. In Arrow an instant has a zone. A schema that was
written by hand often leaves it out, so what the DataFrame has decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.plan.check import check
from headrace.plan.nodes import Plan, Source, Table
from headrace.plan.trees import everywhere
from headrace.schema import DataType, Schema
from headrace.sql import Query, StreamDef, TableDef

ZONE = "UTC"


def as_given(query: Query, frames: Mapping[str, DataFrame]) -> Query:
    """The query over columns whose timestamps are of the kinds that the DataFrames have."""
    given = {name.lower(): df for name, df in frames.items()}

    def columns(named: Source | Table | StreamDef | TableDef) -> Schema:
        df = given.get(named.name.lower())
        return named.schema if df is None else _schema(named.schema, df)

    def retyped(plan: Plan) -> Plan:
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
    read = T.StructType([field for field in df.schema if field.name in declared.names])
    known = {field.name: field.type for field in to_arrow_schema(read, timezone=ZONE)}
    fields = [
        field.with_type(of_the_kind(field.type, known[field.name])) if field.name in known else field
        for field in declared
    ]
    return pa.schema(fields, declared.metadata)


def of_the_kind(declared: DataType, given: DataType) -> DataType:
    """The declared type, with timestamps, also inside it, of the kind that is given."""
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
