"""The columns that a partitioner takes: those of its stream, the time, the clock, and `reached`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import SparkError
from headrace.plan.nodes.core import Plan, Source
from headrace.runtimes.spark.driver.dataframes import column_of
from headrace.runtimes.spark.driver.native import filtered, sifted
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.reading import ALL, modified, regrouped
from headrace.runtimes.spark.types import spark_schema, ticks
from headrace.runtimes.spark.worker.partitioner import BAD, NOW, REACHED, SAID, TIME, StreamSpec
from headrace.runtimes.spark.worker.source_column import SOURCE
from headrace.schema import Schema
from headrace.sql import Query
from headrace.time.row_promises import RowPromises

TICKS_IN = "__headrace_ticks"
"""If a DataFrame has a column of this name, it holds the times of the rows, in ticks."""

MICROS = 1_000_000

DIGITS: Final = 20
"""The maximum number of characters of a BIGINT."""


@dataclass(frozen=True)
class StreamSet:
    """The streams that queries read: their columns, which of them hold the time, and the length of a tick."""

    sources: tuple[Source, ...]
    time_columns: Mapping[str, str]
    ticks_per_second: int | None

    @staticmethod
    def of(queries: Mapping[str, Query]) -> StreamSet:
        """The streams of several queries, which must agree on them."""
        sources: dict[str, Source] = {}
        columns: dict[str, str] = {}
        for name, query in queries.items():
            for source in query.sources:
                known = sources.setdefault(source.name, source)
                column = query.time_columns.get(source.name)
                same = known.schema == source.schema and known.time is source.time
                if not same or columns.setdefault(source.name, column or "") != (column or ""):
                    raise SparkError(
                        "HR-SP31",
                        f"query {name} declares stream {source.name} with other columns or another time",
                        place=name,
                        hint="declare a stream once and use it in every query",
                    )
        ticks = {query.ticks_per_second for query in queries.values()}
        if len(ticks) > 1:
            raise SparkError(
                "HR-SP31",
                "the queries count time in different units",
                place=", ".join(queries),
                hint="declare all streams of a job with the same ticks_per_second",
            )
        found = {name: column for name, column in columns.items() if column}
        return StreamSet(tuple(sources.values()), found, ticks.pop())


def stream_rows(
    df: DataFrame,
    stream: StreamSpec,
    streams: StreamSet,
    prefixes: Mapping[str, Plan],
    options: SparkOptions,
    spoken: Sequence[Column] = (),
) -> DataFrame:
    """The columns of a stream for its partitioner, after the filters that Spark runs itself.

    `spoken` are the columns of promises, for a stream whose rows no plan reads.
    """
    per_second = streams.ticks_per_second
    if stream.witness:
        times = _time(df, streams, stream.source)
        clock = [] if stream.clockless else [now(df, per_second, options).alias(NOW)]
        return df.select(times, *clock, *spoken)
    source = source_of(streams, stream.source.name)
    has = {field.name: field.dataType for field in df.schema}
    payload = []
    for field in spark_schema(source.schema):
        column = column_of(df, field.name, source.name)
        payload.append(
            column if has[field.name] == field.dataType else column.cast(field.dataType).alias(field.name)
        )
    extra = {
        TIME: [_time(df, streams, source)] if stream.external else [],
        NOW: [] if stream.clockless else [now(df, per_second, options).alias(NOW)],
        REACHED: _reached(df, stream, per_second, options),
        BAD: [df[BAD]] if BAD in df.columns else [],
        SOURCE: _source(df, stream, source, prefixes),
    }
    chosen = df.select(*payload, *(column for columns in extra.values() for column in columns))
    names = tuple(name for name, columns in extra.items() if columns)
    chain = prefixes.get(source.name, source)
    if drops_rows(options, stream):
        return _plainly_named(filtered(chosen, chain, names))
    return _plainly_named(sifted(chosen, chain, stream.guard, names))


def source_of(streams: StreamSet, name: str) -> Source:
    """A stream as the queries read it."""
    return next(each for each in streams.sources if each.name == name)


def drops_rows(options: SparkOptions, stream: StreamSpec) -> bool:
    """Whether rows that a filter drops are not needed for their times."""
    return options.clock is not None and not (stream.external and stream.learns)


def spoken_columns(df: DataFrame, name: str, promises: RowPromises) -> tuple[list[Column], Schema]:
    """The columns that the punctuations in a stream are made of, for a stream whose rows nobody reads."""
    rules = [each for given in promises.punctuations.values() for each in given if each.stream == name]
    flags = (each.column for each in rules if each.column is not None)
    needed = list(dict.fromkeys([*flags, *(theirs for each in rules for _, theirs in each.pattern)]))
    columns = [column_of(df, column, name) for column in needed]
    schema = to_arrow_schema(df.select(*columns).schema, timezone="UTC")
    return [column.alias(f"{SAID}{i}") for i, column in enumerate(columns)], schema


def _source(df: DataFrame, stream: StreamSpec, source: Source, prefixes: Mapping[str, Plan]) -> list[Column]:
    """The source of a row, if Spark's own filters and projections may take its column away."""
    if stream.sources is None or source.name not in prefixes:
        return []
    column = stream.sources.name
    type = spark_schema(source.schema)[column].dataType
    return [column_of(df, column, source.name).cast(type).alias(SOURCE)]


def _reached(
    df: DataFrame, stream: StreamSpec, per_second: int | None, options: SparkOptions
) -> list[Column]:
    """When a row reached its source, if a rate limit makes that matter: by `reached`, or by its file."""
    if stream.takes == ALL:
        return []
    name = stream.source.name
    if name in options.reached:
        if regrouped(df):
            raise SparkError(
                "HR-SP24",
                "`reached` does not work after rows are moved between partitions",
                place=name,
                hint="call apply before you repartition, coalesce, sort, join or aggregate, or drop reached",
            )
        return [ticks(df, options.reached[name], name).alias(REACHED)]
    written = file_reached(df, stream, per_second)
    return [] if written is None else [written.alias(REACHED)]


def file_reached(df: DataFrame, stream: StreamSpec, per_second: int | None) -> Column | None:
    """When the file of a row was written, if a rate limit makes that matter."""
    written = None if stream.takes == ALL else modified(df)
    return None if written is None else clock_ticks(written, per_second)


def _plainly_named(rows: DataFrame) -> DataFrame:
    """Columns with plain names: `mapInArrow` takes a dot in a name for a field of a struct."""
    if all(name.isidentifier() for name in rows.columns):
        return rows  # one node less to plan in each micro-batch
    names = (n if n.isidentifier() else f"__headrace_column_{i}" for i, n in enumerate(rows.columns))
    return rows.toDF(*names)


def _time(df: DataFrame, streams: StreamSet, source: Source) -> Column:
    """The time of each row in ticks, from the time column of the stream."""
    column = TICKS_IN if TICKS_IN in df.columns else streams.time_columns.get(source.name)
    if column is None:
        raise SparkError(
            "HR-SP15",
            "the stream has no time column",
            place=source.name,
            hint="StreamDef(..., time_column=...), or time=TimeKind.INTERNAL to stamp rows as they arrive",
        )
    return ticks(df, column, source.name).alias(TIME)


def now(df: DataFrame, per_second: int | None, options: SparkOptions) -> Column:
    """The instant at which the rows of a micro-batch arrive: recorded, or the same for all of them."""
    if options.arrival is not None:
        return ticks(df, options.arrival, "arrival")
    return clock_ticks(F.unix_micros(F.current_timestamp()), per_second)


def by_reference(number: Column, whole: Column) -> Column:
    """A number that differs in each micro-batch, for rows in which `whole` is an integer.

    Spark writes a number into the Java code that it compiles, so it would compile in each micro-batch. To a
    text it refers, and it does not compute in advance what depends on the row.
    """
    return number.cast("string").substr(whole - whole + F.lit(1), F.lit(DIGITS)).cast("bigint")


def clock_ticks(micros: Column, per_second: int | None) -> Column:
    """Microseconds of the clock as ticks of the query. With sequence numbers the clock keeps microseconds."""
    if per_second is None or per_second == MICROS:
        return micros
    if per_second > MICROS:
        return micros * F.lit(per_second // MICROS)
    return F.floor(micros / F.lit(MICROS // per_second)).cast("bigint")
