"""`punctuations=` and `heartbeats=`: rows that are promises, given by name, as a file has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.types as pt
from pydantic import ValidationError
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import SparkError
from headrace.pipeline.spec import HeartbeatsOf, PunctuationsOf
from headrace.plan.nodes.core import Source, TimeKind
from headrace.schema import DataType, Schema
from headrace.time.row_promises import HeartbeatRows, PunctuationRows, RowPromises, can_be_compared

Given = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Frames = dict[str, DataFrame]

_EXAMPLE = '{"bids": {"column": "closed", "pattern": ["auction"]}}'


def row_promises(
    punctuations: Mapping[str, Given], heartbeats: Mapping[str, Any], sources: Sequence[Source]
) -> tuple[RowPromises, Frames]:
    """What the options say about rows that are promises, and the DataFrames of other streams among them."""
    by_name = {source.name: source for source in sources}
    frames: Frames = {}
    found, beats = {}, {}
    for name, given in punctuations.items():
        source = _source("punctuations", name, by_name)
        listed = [given] if isinstance(given, Mapping) else list(given)
        found[name] = tuple(_punctuations(source, i, each, by_name, frames) for i, each in enumerate(listed))
    for name, given in heartbeats.items():
        source = _source("heartbeats", name, by_name)
        read = _read(HeartbeatsOf, "heartbeats", name, given)
        of = _type(source, read.column, "heartbeats")
        if not (pt.is_timestamp(of) or pt.is_integer(of)):
            message = f"the column {read.column!r} is {of}, not a time"
            raise SparkError("HR-SP45", message, place=name, hint="use a timestamp, or a number of ticks")
        beats[name] = HeartbeatRows(read.column, None, read.data)
    return RowPromises(found, beats), frames


def _source(option: str, name: str, sources: Mapping[str, Source]) -> Source:
    """The stream that rows promise something about: its rows must bring their times."""
    if name not in sources:
        message = f"{option} for {name!r}, which the query does not read"
        raise SparkError("HR-SP45", message, hint=f"streams: {', '.join(sources)}")
    if sources[name].time is not TimeKind.EXTERNAL:
        message = f"{option} about a stream whose rows do not bring their times"
        raise SparkError("HR-SP45", message, place=name, hint="declare it with a time column")
    return sources[name]


def _punctuations(
    source: Source, number: int, given: Mapping[str, Any], sources: Mapping[str, Source], frames: Frames
) -> PunctuationRows:
    """One rule; a DataFrame in place of the name of a stream gets a name that no stream has."""
    stream = given.get("stream") if isinstance(given, Mapping) else None
    if isinstance(stream, DataFrame):
        name = f"punctuations of {source.name}/{number}"
        frames[name] = stream
        given = {**given, "stream": name}
    read = _read(PunctuationsOf, "punctuations", source.name, given)
    rows: PunctuationRows = read.rows_of(source.name)
    if rows.stream not in frames and rows.stream not in sources:
        hint = "pass the streaming DataFrame itself, or the name of a stream that the query reads"
        raise SparkError("HR-SP45", f"there is no stream {rows.stream!r}", place=source.name, hint=hint)
    if rows.stream == source.name and rows.column is None:
        hint = f"name a boolean column: {_EXAMPLE}"
        raise SparkError("HR-SP45", "column is missing", place=source.name, hint=hint)
    speaker = sources.get(rows.stream) or Source(rows.stream, _columns(frames[rows.stream], rows))
    for mine, theirs in rows.pattern:
        of = _type(source, mine, "punctuations")
        if not can_be_compared(of, _type(speaker, theirs, "punctuations")):
            message = f"the column {mine!r} cannot be compared with {theirs!r}"
            hint = "use columns of one type whose values compare exactly, such as BIGINT or STRING"
            raise SparkError("HR-SP45", message, place=source.name, hint=hint)
    if rows.column is not None and not pt.is_boolean(_type(speaker, rows.column, "punctuations")):
        message = f"the column {rows.column!r} is not boolean"
        hint = "rows in which it is true are punctuations"
        raise SparkError("HR-SP45", message, place=source.name, hint=hint)
    return rows


def _columns(df: DataFrame, rows: PunctuationRows) -> Schema:
    """The columns of a DataFrame that its punctuations are made of, as far as they exist."""
    needed = {rows.column, *(theirs for _, theirs in rows.pattern)}
    return to_arrow_schema(T.StructType([each for each in df.schema if each.name in needed]), timezone="UTC")


def _type(source: Source, column: str, option: str) -> DataType:
    if column not in source.schema.names:
        hint = f"columns: {', '.join(source.schema.names)}"
        message = f"{option}: stream {source.name!r} has no column {column!r}"
        raise SparkError("HR-SP45", message, place=source.name, hint=hint)
    return source.schema.field(column).type


def _read(model: Any, option: str, name: str, given: Any) -> Any:
    """The rule as a file would have it."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        message = f"{option}: {key}: {first['msg'].lower()}"
        raise SparkError("HR-SP45", message, place=name, hint=f"such as {_EXAMPLE}") from None
