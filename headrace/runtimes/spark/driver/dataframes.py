"""The DataFrames that a user gives, matched with the streams and tables of a query."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from headrace.errors import SparkError
from headrace.runtimes.spark.driver.bounds import nearest
from headrace.runtimes.spark.driver.options import NAMES
from headrace.runtimes.spark.types import no_column
from headrace.runtimes.spark.worker.packing import to_ipc
from headrace.sql import Query, TableDef

Frames = Mapping[str, DataFrame]
"""DataFrames by the names of streams and tables."""


def all_frames(streams: Frames | None, named: Frames) -> dict[str, DataFrame]:
    """The DataFrames of a mapping and of keywords; raises an error if one is something else."""
    if streams is not None and not isinstance(streams, Mapping):
        raise SparkError(
            "HR-SP18",
            f"streams must map names to DataFrames, got {type(streams).__name__}",
            hint='apply(query, {"bids": bids}) or apply(query, bids=bids)',
        )
    frames = {**(streams or {}), **named}
    for name, df in frames.items():
        if not isinstance(df, DataFrame):
            raise SparkError(
                "HR-SP18", f"{name} is not a DataFrame but of type {type(df).__name__}", hint=_meant(name)
            )
    return frames


def _meant(name: str) -> str:
    """A hint for a user who passed something else than a DataFrame."""
    if name in NAMES:
        return f"{name} is an option: apply(query, streams, SparkOptions({name}=...))"
    return f"if it is an option, put it into SparkOptions; {nearest(name, NAMES)}"


def streams_of(query: Query, frames: Frames, *, others: bool = False) -> dict[str, DataFrame]:
    """The DataFrame of each stream of the query; one that it does not read is an error without `others`."""
    wanted = [source.name for source in query.sources]
    by_name = {name.lower(): df for name, df in frames.items()}
    for name in wanted:
        if name.lower() not in by_name:
            raise SparkError(
                "HR-SP11",
                "there is no DataFrame for a stream of the query",
                place=name,
                hint=f'apply(query, {{"{name}": ...}})',
            )
    known = {name.lower() for name in (*wanted, *(table.name for table in query.tables))}
    unread = [name for name in frames if name.lower() not in known]
    if unread and not others:
        raise SparkError(
            "HR-SP11",
            "the query reads no such stream",
            place=unread[0],
            hint=f"it reads: {', '.join(wanted)}",
        )
    for name in wanted:
        if not by_name[name.lower()].isStreaming:
            raise SparkError(
                "HR-SP12",
                "a stream must be a streaming DataFrame",
                place=name,
                hint="use spark.readStream, not spark.read",
            )
    return {name: by_name[name.lower()] for name in wanted}


def tables_of(query: Query, frames: Frames) -> dict[str, bytes]:
    """The rows of each table: those of its static DataFrame, else those that came with the query."""
    by_name = {name.lower(): df for name, df in frames.items()}
    return {table.name: to_ipc(_table_rows(table, by_name.get(table.name.lower()))) for table in query.tables}


def _table_rows(table: TableDef, df: DataFrame | None) -> pa.Table:
    """The rows of a table: from the given static DataFrame, or else from its definition."""
    if df is not None and df.isStreaming:
        raise SparkError(
            "HR-SP12",
            "a table must be a static DataFrame",
            place=table.name,
            hint="use spark.read, not spark.readStream",
        )
    if df is not None:
        typed = [column_of(df, field.name, table.name).alias(field.name) for field in table.schema]
        return df.select(*typed).toArrow().cast(table.schema)
    if table.data is None:
        raise SparkError(
            "HR-SP11",
            "there is no DataFrame for a table of the query",
            place=table.name,
            hint=f'apply(query, {{"{table.name}": ...}})',
        )
    return table.data


def column_of(df: DataFrame, name: str, place: str) -> Column:
    """A column of the DataFrame of a stream or table."""
    if name not in df.columns:
        raise no_column(df, name, place)
    return df[name]
