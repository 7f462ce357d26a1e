"""`headrace.spark.apply`: a query over streaming DataFrames, as a streaming DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.connectors.late_and_rejected import LATE_SCHEMA, REJECTED_SCHEMA
from headrace.engine.inputs import Inputs
from headrace.errors import SparkError
from headrace.expressions.sparksql.spelling import quoted, stamped
from headrace.plan.analysis.native import Native, native_parts
from headrace.plan.nodes.core import Plan, Source
from headrace.runtimes.spark.driver.dataflow import Dataflow
from headrace.runtimes.spark.driver.dataframes import all_frames, streams_of, tables_of
from headrace.runtimes.spark.driver.native import by_name, filtered
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.progress import NAME, own_name
from headrace.runtimes.spark.driver.stream_rows import StreamSet
from headrace.runtimes.spark.driver.task_streams import task_stream_of
from headrace.runtimes.spark.driver.unpack import Unpack, of_kind, packed_rows
from headrace.runtimes.spark.types import as_given
from headrace.runtimes.spark.worker.answers import KIND, LATE, REJECTED, RESULT, Outlet
from headrace.runtimes.spark.worker.partitioner import BAD
from headrace.runtimes.spark.worker.running import QUERY
from headrace.schema import Schema
from headrace.sql import Query
from headrace.time.ets import StrongestPromise, TimerPromise
from headrace.time.sources import SourcesPromise

KINDS = frozenset((RESULT, LATE, REJECTED))


def apply(
    query: Query,
    streams: Mapping[str, DataFrame] | None = None,
    options: SparkOptions | None = None,
    **more_streams: DataFrame,
) -> DataFrame:
    """The results of `query` as a streaming DataFrame, for any sink, trigger and checkpoint.

        apply(query, {"bids": bids}, SparkOptions(bounds={"bids": {"disorder": "10 seconds"}}))

    `streams` maps the names of streams to streaming DataFrames, and the names of tables to static ones. Names
    that are valid in Python also work as keywords: `apply(query, bids=bids, items=items)`. Late and rejected
    rows are counted in the progress of the Spark query; `outputs` returns them too.
    """
    frames = all_frames(streams, more_streams)
    return answers(query, frames, options, kinds=frozenset((RESULT,)), metrics=own_name()).result


@dataclass(frozen=True)
class Answers:
    """Everything a query emits, in one table `combined` of results and side outputs.

    `schema` is that of the results as the engine emits them, `packed` whether they are Arrow bytes. Spark
    runs `suffix` on them, which leaves `extra_columns` as they are.
    """

    combined: DataFrame
    schema: Schema
    packed: bool
    ordered: bool
    suffix: Plan | None = None
    extra_columns: tuple[str, ...] = ()

    @property
    def result(self) -> DataFrame:
        rows = self._packed(RESULT, self.schema, self.ordered) if self.packed else self._flat
        return rows if self.suffix is None else filtered(rows, self.suffix, self.extra_columns)

    @property
    def late(self) -> DataFrame:
        return self._packed(LATE, LATE_SCHEMA)

    @property
    def rejected(self) -> DataFrame:
        return self._packed(REJECTED, REJECTED_SCHEMA)

    def _packed(self, kind: str, schema: Schema, ordered: bool = False) -> DataFrame:
        return packed_rows(self.combined, of_kind(kind), Unpack(schema, ordered))

    @property
    def _flat(self) -> DataFrame:
        """The results among results and side outputs."""
        columns = [_restored(field).alias(field.name) for field in self.schema]
        return self.combined.where(F.col(KIND).isNull()).select(*columns)


def answers(
    query: Query,
    frames: Mapping[str, DataFrame],
    options: SparkOptions | None = None,
    *,
    kinds: frozenset[str] = KINDS,
    metrics: str = NAME,
) -> Answers:
    """Results, late and rejected rows of `query`. Kinds that are not in `kinds` are counted, without rows.

    `metrics` is the name of the query's figures in Spark's progress.
    """
    options = checked(options)
    inputs = options.inputs_for(query.sources, query.ticks_per_second)
    names = [source.name for source in query.sources]
    refuse_latency_without_timer(options, inputs, names)
    refuse_speakers_without_timer(options, inputs, names)
    streams = streams_of(query, frames)
    query = as_given(query, frames)
    parts = _parts(query, frames, inputs, options, kinds)
    outlet = Outlet(options.time_column, kinds=kinds)
    dataflow = Dataflow(
        {QUERY: parts.core},
        StreamSet.of({query.name: query}),
        streams,
        tables_of(query, frames),
        inputs,
        options,
        outlet,
        parts.prefixes,
        options.speakers_for(query.sources),
        unordered=frozenset() if query.ordered else frozenset((QUERY,)),
        services={QUERY: query.service},
    )
    combined = dataflow.build(metrics)
    schema = outlet.schema(parts.core.schema)
    ordered = options.ordered and query.ordered
    return Answers(combined, schema, dataflow.packed, ordered, parts.suffix, options.extra_columns)


def checked(options: object) -> SparkOptions:
    """Raise HR-SP25 for options of the wrong type; None means the defaults."""
    if options is None:
        return SparkOptions()
    if not isinstance(options, SparkOptions):
        message = f"options must be SparkOptions, got {type(options).__name__}"
        hint = "SparkOptions(**options)" if isinstance(options, dict) else "SparkOptions(bounds=...)"
        raise SparkError("HR-SP25", message, hint=hint)
    return options


def refuse_latency_without_timer(options: SparkOptions, inputs: Inputs, streams: list[str]) -> None:
    """Raise HR-SP19 if a stream has a bound on latency, and nothing is its clock."""
    if options.timer is not None or options.arrival is not None or options.ending is not None:
        return
    for name in streams:
        promise = inputs.promises.get(name)
        by_clock = isinstance(promise, SourcesPromise) and promise.by_clock
        by_clock = by_clock or isinstance(promise, TimerPromise | StrongestPromise)
        if by_clock or getattr(promise, "latency", None) is not None:
            raise SparkError(
                "HR-SP19",
                "a bound on latency, and `idle`, need a timer as their clock",
                place=name,
                hint='leave timer out to use "1 second", or leave latency and idle out',
            )


def refuse_speakers_without_timer(options: SparkOptions, inputs: Inputs, streams: list[str]) -> None:
    """Raise HR-SP45 if rows of one stream are punctuations of another, and nothing is the clock of both."""
    if options.timer is not None or options.arrival is not None or options.ending is not None:
        return
    for name in streams:
        others = inputs.row_promises.speakers([name]) - {name}
        if others:
            raise SparkError(
                "HR-SP45",
                f"punctuations of {min(others)!r} need a timer: it tells which rows came before them",
                place=name,
                hint='leave timer out to use "1 second"',
            )


def _parts(
    query: Query,
    frames: Mapping[str, DataFrame],
    inputs: Inputs,
    options: SparkOptions,
    kinds: frozenset[str],
) -> Native:
    """The parts of the plan that Spark runs itself, and the one that is left for the engine."""
    given = {name.lower(): df for name, df in frames.items()}
    has_bad_rows = any(_keeps_bad_rows(given[s.name.lower()], s, query, options) for s in query.sources)
    refuses = any(inputs.rules_of(each.name).enforce == "refuse" for each in query.sources)
    promise = inputs.row_promises.speakers(each.name for each in query.sources)
    if not options.native or has_bad_rows or refuses or promise or kinds != {RESULT}:
        return Native({}, query.plan, None)
    return native_parts(query.plan)


def _keeps_bad_rows(df: DataFrame, source: Source, query: Query, options: SparkOptions) -> bool:
    """Whether bad rows of a stream pass through Spark, whose filters would drop them."""
    if BAD not in df.columns:
        return False
    found = task_stream_of(df)
    if found is None or source.name in options.reached:
        return True
    return not found.can_enter(source, query.time_columns.get(source.name), options.arrival)


def _restored(field: pa.Field) -> Column:
    """A column in the type of the query: timestamps leave the engine as numbers."""
    if not pt.is_timestamp(field.type):
        return by_name(field.name)
    return F.expr(stamped(quoted(field.name), field.type))
