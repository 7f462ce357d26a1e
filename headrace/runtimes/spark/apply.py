"""A query over streaming DataFrames, as a streaming DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine.inputs import Inputs
from headrace.errors import SparkError
from headrace.expressions.sparksql.spelling import quoted, stamped
from headrace.memory.budget import budget_bytes
from headrace.memory.manager import Shortage
from headrace.plan.native import Native, native_parts
from headrace.plan.nodes import Plan, Source
from headrace.runtimes.spark.answers import Forward, Outlet, is_flat
from headrace.runtimes.spark.bounds import AllBounds, inputs_of
from headrace.runtimes.spark.columns import by_name, filtered, sifted
from headrace.runtimes.spark.fan import BAD, NOW, REACHED, TIME, Clock, End, Fan, StreamSpec, Tick
from headrace.runtimes.spark.host import Host
from headrace.runtimes.spark.kinds import as_given
from headrace.runtimes.spark.notes import (
    KIND,
    LATE,
    LATE_SCHEMA,
    REJECTED,
    REJECTED_SCHEMA,
    RESULT,
    named,
)
from headrace.runtimes.spark.packing import PACKED_DDL, from_ipc, to_ipc
from headrace.runtimes.spark.progress import NAME, observed, own_name
from headrace.runtimes.spark.reading import ALL, modified, regrouped, takes
from headrace.runtimes.spark.running import HostSpec
from headrace.runtimes.spark.shares import task_bytes
from headrace.runtimes.spark.timer import clock_of
from headrace.runtimes.spark.topology import hosts
from headrace.runtimes.spark.types import no_column, spark_schema, ticks
from headrace.schema import Schema
from headrace.sql import Query, TableDef
from headrace.time.durations import Duration
from headrace.time.ets import TimerPromise

KINDS = frozenset((RESULT, LATE, REJECTED))

TICKS_IN = "__headrace_ticks"
"""A column of this name, where a DataFrame has one, is the time of its rows in ticks."""

MICROS = 1_000_000

_PARTITIONS = "spark.sql.shuffle.partitions"
_OPTIONS = "bounds, inputs, enforce, guard, timer, shards, time_column, arrival, reached, streams"


@dataclass(frozen=True)
class Options:
    """How a query runs on Spark, beyond what it asks."""

    inputs: Inputs
    timer: Duration | DataFrame | None = None
    shards: int | None = None
    time_column: str | None = None
    arrival: str | None = None
    reached: Mapping[str, str] = field(default_factory=dict)
    kinds: frozenset[str] = KINDS
    native: bool = True
    ending: DataFrame | None = None
    per_second: int | None = None
    memory: int | str | None = None
    reoptimize: int | bool = False
    policy: Shortage = "fail"
    metrics: str = NAME
    witnesses: Mapping[str, DataFrame] = field(default_factory=dict)

    @property
    def beside(self) -> tuple[str, ...]:
        """The columns beside those of an answer."""
        return () if self.time_column is None else (self.time_column,)


@dataclass(frozen=True)
class Answers:
    """All that a query gives, in one table of answers and notes: a DataFrame for each kind of it.

    `schema` is that of the answers; `suffix` is what Spark does with them, leaving `beside` alone.
    """

    together: DataFrame
    schema: Schema
    suffix: Plan | None = None
    beside: tuple[str, ...] = ()

    @property
    def result(self) -> DataFrame:
        rows = answered(self.together, self.schema)
        return rows if self.suffix is None else filtered(rows, self.suffix, self.beside)

    @property
    def late(self) -> DataFrame:
        return _noted(self.together, LATE, LATE_SCHEMA)

    @property
    def rejected(self) -> DataFrame:
        return _noted(self.together, REJECTED, REJECTED_SCHEMA)


def apply(query: Query, **streams_and_options: Any) -> DataFrame:
    """The answers of `query` as a streaming DataFrame, for any sink, trigger and checkpoint.

    Takes what `answers` takes: `apply(query, bids=bids, bounds={"bids": {"disorder": "10 seconds"}})`. Late
    and rejected rows are counted in the progress of the query; `outputs` gives them too.
    """
    return answers(query, kinds=frozenset((RESULT,)), metrics=own_name(), **streams_and_options).result


def answers(
    query: Query,
    *,
    streams: Mapping[str, DataFrame] | None = None,
    bounds: AllBounds = None,
    inputs: Inputs | None = None,
    enforce: str = "strict",
    guard: Duration | None = None,
    timer: Duration | DataFrame | None = "1 second",
    shards: int | None = None,
    time_column: str | None = None,
    arrival: str | None = None,
    reached: Mapping[str, str] | None = None,
    kinds: frozenset[str] = KINDS,
    native: bool = True,
    ending: DataFrame | None = None,
    memory: int | str | None = None,
    policy: Shortage = "fail",
    reoptimize: int | bool = False,
    metrics: str = NAME,
    witnesses: Mapping[str, DataFrame] | None = None,
    **more: DataFrame,
) -> Answers:
    """All that `query` gives over streaming DataFrames, which are given by the names of its streams.

    `apply(query, bids=bids, items=items, bounds={...})`; tables are static DataFrames. `bounds` says how late
    rows may be: `{"bids": {"disorder": "10 seconds", "latency": "1 minute"}}` (behind the newest row of the
    stream, behind the clock), a `Bounds` or learned heartbeats for all; or `inputs` says all of it. `enforce`
    and `guard`: what becomes of rows that come later, or from too far ahead. `timer` is the clock of a bound
    on `latency`: how often it ticks, a streaming DataFrame of one timestamp column that tells the time, or
    None. `reached` names, by stream, the column that says when a row reached its source, such as Kafka's
    `timestamp`: answers then come while a rate limit leaves a backlog. `shards`: at most the shuffle
    partitions.
    `time_column` adds the time of each answer. `arrival` names a column of every stream that replaces the
    clock, to replay what was recorded; only a timer that has it too then ticks. `streams`: DataFrames by
    name, for names that are no keywords. `kinds` of answers, of which rows are wanted; of others only their
    number is told. `native`: selections and projections before and after the engine are Spark's own; not
    where late or rejected rows are wanted, for these are told as they came. `ending`: a streaming DataFrame
    whose first row ends all streams: what came until then is complete, and all of it comes out. `memory`:
    what each shard may hold, in bytes, as '64 MB', or what all shards that an executor works on at once may
    hold of its memory ('25 %'): windows and granularities with bounds change to fit into it; if the least do
    not fit, `policy` is to `fail` or to `spill` state to the executor's disk. `reoptimize`: joins and
    conditions change their order by what is measured in each shard, looked at after so many rows or more
    (True: a number that is well enough). `metrics` is the name of its figures in Spark's progress.
    `witnesses`: streams that the query does not read and that the bounds speak of, by name. Only their times
    are read, from a column `__headrace_ticks`, for what they prove of the streams of the query.
    """
    names = [source.name for source in query.sources]
    said = inputs or inputs_of(bounds, names, enforce, guard, query.ticks_per_second)
    said.check(query.sources)
    if arrival is not None and not isinstance(timer, DataFrame):
        timer = None  # the wall clock has no say in what was recorded
    frames = {**(streams or {}), **more}
    if timer is None and arrival is None and ending is None:
        _refuse_latency(said, names)
    options = Options(
        said,
        timer,
        shards,
        time_column,
        arrival,
        reached or {},
        kinds,
        native and not any(BAD in df.columns for df in frames.values() if isinstance(df, DataFrame)),
        ending,
        query.ticks_per_second,
        memory,
        reoptimize,
        policy,
        metrics,
        witnesses or {},
    )
    matched = _matched(query, frames)
    query = as_given(query, frames)
    parts = _parts(query, options)
    together = _together(query, parts, matched, _tables(query, frames), options)
    return Answers(together, Outlet(time_column).schema(parts.core.schema), parts.suffix, options.beside)


def _refuse_latency(inputs: Inputs, streams: list[str]) -> None:
    for name in streams:
        promise = inputs.promises.get(name)
        if isinstance(promise, TimerPromise) or getattr(promise, "latency", None) is not None:
            raise SparkError(
                "HR-SP19",
                "a bound on latency needs a timer, which is its clock",
                place=name,
                hint='leave timer out for "1 second", or leave latency out',
            )


def _parts(query: Query, options: Options) -> Native:
    """What Spark runs itself, and the plan that is left for the engine."""
    refusing = any(options.inputs.rules_of(each.name).enforce == "refuse" for each in query.sources)
    if not options.native or refusing or options.kinds != {RESULT}:
        return Native({}, query.plan, None)
    return native_parts(query.plan)


def _together(
    query: Query,
    parts: Native,
    frames: Mapping[str, DataFrame],
    tables: Mapping[str, bytes],
    options: Options,
) -> DataFrame:
    """The whole query as stateful operators in a row: answers and notes."""
    spark = next(iter(frames.values())).sparkSession
    outlet = Outlet(options.time_column, kinds=options.kinds)
    partitions, several = _partitions(spark, options), options.arrival is not None
    every = {**options.witnesses, **frames}
    taken = {} if several else {name: takes(df, told=name in options.reached) for name, df in every.items()}
    chain = hosts(parts.core, options.inputs, partitions, outlet, several, tables, options.witnesses, taken)
    timer = None if options.timer is None else _timer(spark, options.timer, options)
    budget = None if options.memory is None else _budget(spark, options.memory)
    below: DataFrame | None = None
    held: dict[str, Any] = {"budget": budget, "policy": options.policy, "reoptimize": options.reoptimize}
    for host in (replace(each, **held) for each in chain):
        below = _hosted(query, parts, frames, host, below, timer, options)
    assert below is not None
    return observed(below, [source.name for source in query.sources], options.metrics)


def _hosted(
    query: Query,
    parts: Native,
    frames: Mapping[str, DataFrame],
    host: HostSpec,
    below: DataFrame | None,
    timer: DataFrame | None,
    options: Options,
) -> DataFrame:
    """One host over its fans, the timer and the host below."""
    names, each = list(host.names), {**options.witnesses, **frames}
    packages = [
        _fanned(_before(each[s.source.name], s, query, parts, options), s, names, options)
        for s in host.streams
    ]
    if below is not None:
        packages.append(below)
    if timer is not None and (below is None or (host.streams and not host.recorded)):
        packages.append(_ticking(timer, names, options))
    if options.ending is not None:
        now = F.unix_micros(F.current_timestamp()).alias(NOW)
        packages.append(options.ending.select(now).mapInArrow(End(names), PACKED_DDL))
    lower = isinstance(host.outlet, Forward)
    leaving = PACKED_DDL if lower else spark_schema(host.outlet.leaving(host.plan.schema))
    return (
        reduce(DataFrame.union, packages)
        .groupBy("shard")
        .transformWithStateInPandas(
            Host(host), outputStructType=leaving, outputMode="append", timeMode="none"
        )
    )


def _fanned(rows: DataFrame, stream: StreamSpec, names: list[int], options: Options) -> DataFrame:
    """A stream in packages; a clock that is one for all rows costs a column of these and not of rows."""
    packages = rows.mapInArrow(Fan(stream, names), PACKED_DDL)
    return packages if stream.several else packages.withColumn("now", _now(packages, options))


def _budget(spark: SparkSession, memory: int | str) -> int:
    """The bytes of each shard; a share is one of what an executor has for a task."""
    return budget_bytes(memory, lambda: task_bytes(lambda name: spark.conf.get(name, None)))


def _partitions(spark: SparkSession, options: Options) -> int:
    """Shards that Spark can run side by side."""
    most = int(spark.conf.get(_PARTITIONS) or 1)
    return most if options.shards is None else max(1, min(options.shards, most))


def _matched(query: Query, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """A DataFrame for each stream of the query, and none besides."""
    for name, df in frames.items():
        if not isinstance(df, DataFrame):
            raise SparkError(
                "HR-SP18", f"{name} is a {type(df).__name__}, not a DataFrame", hint=f"options: {_OPTIONS}"
            )
    wanted = [source.name for source in query.sources]
    by_name = {name.lower(): df for name, df in frames.items()}
    for name in wanted:
        if name.lower() not in by_name:
            raise SparkError(
                "HR-SP11",
                "no DataFrame for a stream of the query",
                place=name,
                hint=f"apply(query, {name}=...)",
            )
    known = {name.lower() for name in (*wanted, *(table.name for table in query.tables))}
    odd = [name for name in frames if name.lower() not in known]
    if odd:
        raise SparkError(
            "HR-SP11", "the query reads no such stream", place=odd[0], hint=f"it reads: {', '.join(wanted)}"
        )
    for name in wanted:
        if not by_name[name.lower()].isStreaming:
            raise SparkError(
                "HR-SP12",
                "a stream must be a streaming DataFrame",
                place=name,
                hint="spark.readStream, not spark.read",
            )
    return {name: by_name[name.lower()] for name in wanted}


def _tables(query: Query, frames: Mapping[str, DataFrame]) -> dict[str, bytes]:
    """The rows of each table: of the static DataFrame given for it, else those that came with the query."""
    by_name = {name.lower(): df for name, df in frames.items()}
    return {table.name: to_ipc(_table_rows(table, by_name.get(table.name.lower()))) for table in query.tables}


def _table_rows(table: TableDef, df: DataFrame | None) -> pa.Table:
    if df is not None and df.isStreaming:
        raise SparkError(
            "HR-SP12",
            "a table must be a static DataFrame",
            place=table.name,
            hint="spark.read, not readStream",
        )
    if df is not None:
        typed = [_column(df, field.name, table.name).alias(field.name) for field in table.schema]
        return df.select(*typed).toArrow().cast(table.schema)
    if table.data is None:
        raise SparkError(
            "HR-SP11",
            "no DataFrame for a table of the query",
            place=table.name,
            hint=f"apply(query, {table.name}=...)",
        )
    return table.data


def _before(df: DataFrame, stream: StreamSpec, query: Query, parts: Native, options: Options) -> DataFrame:
    """The rows of a stream as the fan takes them: what Spark does with them is done."""
    if stream.witness:
        times = _time(df, query, stream.source)
        return df.select(times) if stream.clockless else df.select(times, _now(df, options).alias(NOW))
    source = next(each for each in query.sources if each.name == stream.source.name)
    columns = [_column(df, field.name, source.name) for field in source.schema]
    time = [_time(df, query, source)] if stream.external else []
    now = [] if stream.clockless else [_now(df, options).alias(NOW)]
    since = _reached(df, stream, options)
    typed = spark_schema(source.schema)
    payload = [c.cast(f.dataType).alias(f.name) for c, f in zip(columns, typed, strict=True)]
    bad = [df[BAD]] if BAD in df.columns else []
    chosen = df.select(*payload, *time, *now, *since, *bad)
    chain = parts.prefixes.get(source.name, source)
    carried = {TIME: time, NOW: now, REACHED: since, BAD: bad}
    beside = tuple(name for name, column in carried.items() if column)
    if options.timer is not None and not (stream.external and stream.learns):
        return _plainly_named(filtered(chosen, chain, beside))
    return _plainly_named(sifted(chosen, chain, stream.guard, beside))


def _reached(df: DataFrame, stream: StreamSpec, options: Options) -> list[Column]:
    """When a row reached its source, where a rate limit makes that matter: as the user says, or its file."""
    if stream.takes == ALL:
        return []
    name = stream.source.name
    if name in options.reached:
        if regrouped(df):
            raise SparkError(
                "HR-SP24",
                "`reached` after rows are moved between partitions, where it does not say how far was read",
                place=name,
                hint="apply before repartition, coalesce, sorts, joins and aggregates, or leave reached out",
            )
        return [ticks(df, options.reached[name], name).alias(REACHED)]
    written = modified(df)
    return [] if written is None else [clock_ticks(written, options.per_second).alias(REACHED)]


def _plainly_named(rows: DataFrame) -> DataFrame:
    """The fan knows columns by their place; `mapInArrow` takes a dot in a name for a field of a struct."""
    names = (n if n.isidentifier() else f"__headrace_column_{i}" for i, n in enumerate(rows.columns))
    return rows.toDF(*names)


def _column(df: DataFrame, name: str, place: str) -> Any:
    if name not in df.columns:
        raise no_column(df, name, place)
    return df[name]


def _time(df: DataFrame, query: Query, source: Source) -> Any:
    column = TICKS_IN if TICKS_IN in df.columns else query.time_columns.get(source.name)
    if column is None:
        raise SparkError(
            "HR-SP15",
            "no column gives the time of a row",
            place=source.name,
            hint="StreamDef(..., time_column=...), or time=TimeKind.INTERNAL to take the clock's",
        )
    return ticks(df, column, source.name).alias(TIME)


def _now(df: DataFrame, options: Options) -> Any:
    if options.arrival is not None:
        return ticks(df, options.arrival, "arrival")
    return clock_ticks(F.unix_micros(F.current_timestamp()), options.per_second)


def clock_ticks(micros: Column, per_second: int | None) -> Column:
    """The clock in the ticks of the query; sequence numbers have none, and the clock keeps its own."""
    if per_second is None or per_second == MICROS:
        return micros
    if per_second > MICROS:
        return micros * F.lit(per_second // MICROS)
    return F.floor(micros / F.lit(MICROS // per_second)).cast("bigint")


def _timer(spark: SparkSession, timer: Duration | DataFrame, options: Options) -> DataFrame:
    """The ticks: one source, however many hosts hear of it."""
    if options.arrival is not None:
        assert isinstance(timer, DataFrame)
        return timer.select(_now(timer, options).alias(NOW))
    clock, instant = clock_of(spark, timer)
    return clock.select(clock_ticks(instant, options.per_second).alias(NOW))


def _ticking(timer: DataFrame, names: list[int], options: Options) -> DataFrame:
    if options.arrival is not None:
        return timer.mapInArrow(Tick(names), PACKED_DDL)
    packages = timer.mapInArrow(Clock(names, isinstance(options.timer, DataFrame)), PACKED_DDL)
    return packages.withColumn("now", _now(packages, options))


def answered(together: DataFrame, schema: Schema) -> DataFrame:
    """The answers among answers and notes."""
    if not is_flat(schema):
        packed = together.where(F.col(KIND) == RESULT).select(named("body"))
        return packed.mapInArrow(_Unpack(schema), spark_schema(schema))
    columns = [_restored(field).alias(field.name) for field in schema]
    return together.where(F.col(KIND).isNull()).select(*columns)


def _restored(field: pa.Field) -> Column:
    """A column as the query has it: timestamps left as numbers."""
    if not pt.is_timestamp(field.type):
        return by_name(field.name)
    return F.expr(stamped(quoted(field.name), field.type))


def _noted(together: DataFrame, kind: str, schema: Schema) -> DataFrame:
    """The notes of one kind."""
    columns = [F.col(named(name)).alias(name) for name in schema.names]
    return together.where(F.col(KIND) == kind).select(*columns)


class _Unpack:
    """Bytes back to Arrow batches, as they were written."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for body in batch.column(0):
                yield from from_ipc(body.as_py()).to_batches()
