"""The control log of a job that is written in Python: `job.add`, `job.remove` and `job.send` write to it.

It is the log of a pipeline file (`headrace.control`), in the directory `control` beside the record of the
job. Shards read a command as part of a micro-batch. The program decides which queries there are: when it
starts the job again, commands that added or removed queries are part of what it says then. So a start reads
the log only to find out where shards have put queries since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from headrace.control import (
    AddQuery,
    Command,
    Entry,
    Log,
    RemoveQuery,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    check,
)
from headrace.control.in_force import changed
from headrace.control.log import DIRECTORY
from headrace.engine import Rules
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceError, SparkError
from headrace.pipeline import Pipeline, PipelineQuery, PipelineStream
from headrace.pipeline.spec import FileSpec, MemoryTable, QuerySpec, StreamSpec
from headrace.runtimes.spark.driver.continuing import with_added
from headrace.runtimes.spark.driver.lock import local_directory
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.source_names import have_names
from headrace.runtimes.spark.driver.writing import JobQuery
from headrace.runtimes.spark.versions import is_connect
from headrace.runtimes.spark.worker.answers import LATE, REJECTED
from headrace.runtimes.spark.worker.controlling import in_band
from headrace.sql import Catalog
from headrace.time.declared import Lateness

_ELSEWHERE: Final = {"type": "spark", "format": "headrace"}
"""In place of streams and sinks that only the program has."""


def log_beside(spark: SparkSession, checkpoint: str, record: Record | None) -> Log | None:
    """The log of a job; None if it cannot have one.

    Spark numbers sources without names, so a job that began without a log goes on without it. The log is a
    directory that the driver and the tasks can read.
    """
    folder = None if is_connect(spark) else local_directory(spark, checkpoint)
    if folder is None:
        return None
    began_with = record is None or record.follows or have_names(spark)
    return Log(Path(folder) / DIRECTORY) if began_with else None


def pipeline_of(queries: Mapping[str, JobQuery], options: SparkOptions | None = None) -> Pipeline:
    """The queries of a job as commands and shards see them: as a pipeline whose outputs are elsewhere.

    Of the options, its memory budget is there.
    """
    streams = {each.name: each for query in queries.values() for each in query.query.streams}
    tables = {each.name: replace(each, data=None) for q in queries.values() for each in q.query.tables}
    ticks = next(iter(queries.values())).query.ticks_per_second
    spec = StreamSpec.model_validate({"source": _ELSEWHERE, "schema": {}})
    made = {
        name: PipelineStream(spec, each, Rules(), Lateness(), ticks, None) for name, each in streams.items()
    }
    asked = tuple(_asked(name, each) for name, each in queries.items())
    limits = {} if options is None else {"budget": options.memory, "policy": options.policy}
    file = _EMPTY.model_copy(
        update={
            "streams": dict.fromkeys(streams, spec),
            "queries": [each.spec for each in asked],
            "memory": MemoryTable.model_validate(limits),
        }
    )
    catalog = Catalog([*streams.values(), *tables.values()], ticks_per_second=ticks)
    return Pipeline(file, Path(), made, asked, ticks, catalog=catalog)


_EMPTY: Final = FileSpec.model_validate(
    {
        "pipeline": {"name": "job"},
        "streams": {"none": {"source": _ELSEWHERE, "schema": {}}},
        "queries": [{"name": "none", "sql": "", "sink": _ELSEWHERE}],
    }
)


def _asked(name: str, each: JobQuery) -> PipelineQuery:
    """A query of a job as one of a pipeline."""
    aside = {kind: _ELSEWHERE if kind in each.sinks else None for kind in (LATE, REJECTED)}
    table = {"name": "q", "sql": each.query.text, "sink": _ELSEWHERE, "ordered": each.query.ordered, **aside}
    spec = QuerySpec.model_validate(table).model_copy(update={"name": name})
    return PipelineQuery(spec, each.query)


def command_of(name: str, each: JobQuery) -> AddQuery:
    """The command that adds a query."""
    aside = {kind: _ELSEWHERE for kind in (LATE, REJECTED) if kind in each.sinks}
    importance = None if each.query.importance == 1 else each.query.importance
    return AddQuery(name, each.query.text, _ELSEWHERE, **aside, importance=importance)


def last_of(log: Log) -> int:
    """The number of the last command in the log."""
    entries = log.read()
    return entries[-1].number if entries else 0


def append(log: Log, command: Command, pipeline: Pipeline) -> Entry:
    """Write a command; an error if it cannot be applied to this pipeline."""
    check(command, pipeline)
    return log.append(command)


def as_shards_see(name: str, each: JobQuery, pipeline: Pipeline) -> PipelineQuery | None:
    """A query that is added to a pipeline; None if shards would make another plan of its text.

    They do not know functions that a program has defined, for example.
    """
    try:
        found = changed(pipeline, Entry(1, command_of(name, each))).queries[-1]
    except HeadraceError:
        return None
    return found if found.query.optimized_plan == each.query.optimized_plan else None


def reaches_shards(command: Command, pipeline: Pipeline) -> bool:
    """Whether shards apply a command while the job runs; they do not know the bounds of the program."""
    if isinstance(command, SetBounds):
        return False
    return in_band(command, pipeline, changed(pipeline, Entry(1, command)))


def changed_options(options: SparkOptions, command: Command) -> SparkOptions:
    """The options after a command; those of a job whose shards it changes stay as they are."""
    change = _OPTIONS.get(type(command))
    return options if change is None else change(options, command)


def _bounds(options: SparkOptions, command: SetBounds) -> SparkOptions:
    """The options with some bounds of a stream; None removes one."""
    before = {} if options.bounds is None else options.bounds
    if options.inputs is not None or not isinstance(before, Mapping) or "guard" in command.bounds:
        raise SparkError(
            "HR-SP38",
            "only bounds of single streams, as a mapping, can change in a running job",
            place=command.stream,
            hint="start the job again with other options: its state is kept",
        )
    said = before.get(command.stream, {})
    if not isinstance(said, Mapping):
        said = {}
    after = {key: each for key, each in {**said, **command.bounds}.items() if each is not None}
    return replace(options, bounds={**before, command.stream: after})


def _strategy(options: SparkOptions, command: SetStrategy) -> SparkOptions:
    """The options with another strategy; that of a query is the program's to say again."""
    return options if command.query is not None else replace(options, strategy=command.strategy)


_OPTIONS: Final[dict[type[Command], Callable[[SparkOptions, Any], SparkOptions]]] = {
    SetStrategy: _strategy,
    SetLevel: lambda options, command: replace(options, level=command.level),
    SetBudget: lambda options, command: replace(options, memory=command.budget, policy=command.policy),
    SetBounds: _bounds,
}


def with_commands(record: Record, log: Log, queries: Mapping[str, JobQuery], inputs: Inputs) -> Record:
    """The record with the queries that were added while the job ran, and without those that were removed."""
    added: dict[str, int] = {}
    removed: set[str] = set()
    for entry in log.read(record.position):
        command = entry.command
        if isinstance(command, AddQuery | RemoveQuery):
            removed.add(command.name)
            added.pop(command.name, None)
        if isinstance(command, AddQuery):
            now = queries.get(command.name)
            if now is not None and now.query.text == command.sql:
                added[command.name] = entry.number
    pipeline = pipeline_of(queries)
    numbered = tuple(replace(each, since=added.get(each.name, 0)) for each in pipeline.queries)
    return with_added(record.without(frozenset(removed)), replace(pipeline, queries=numbered), inputs)
