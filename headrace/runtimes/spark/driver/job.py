"""`headrace.spark.job`: many queries over the same streams, in one Spark query with one checkpoint.

Each stream is scanned once, there is one timer, and queries that can be partitioned alike share one graph per
shard. After a failure a micro-batch runs again with the same rows and the same number. A sink that overwrites
what it wrote under that number has each row exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePath
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine import Adopted, Engine, Snapshot
from headrace.errors import SparkError
from headrace.pipeline import Pipeline, PipelineQuery
from headrace.pipeline.sharing import shared_plans
from headrace.plan.nodes.core import Plan
from headrace.runtimes.spark.driver.apply import (
    checked,
    refuse_latency_without_timer,
    refuse_speakers_without_timer,
)
from headrace.runtimes.spark.driver.dataflow import Dataflow
from headrace.runtimes.spark.driver.dataframes import all_frames, streams_of, tables_of
from headrace.runtimes.spark.driver.lock import hold
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.progress import NAME
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.record import read as read_record
from headrace.runtimes.spark.driver.record import write as write_record
from headrace.runtimes.spark.driver.source_names import can_have_names, have_names
from headrace.runtimes.spark.driver.status import Described, StatusKeeper, read_status
from headrace.runtimes.spark.driver.stream_rows import StreamSet
from headrace.runtimes.spark.driver.topology import HomeOf, Topology
from headrace.runtimes.spark.driver.writing import KINDS, JobQuery, Sink, Writer, as_sink, to_sinks
from headrace.runtimes.spark.types import as_given
from headrace.runtimes.spark.versions import first_with
from headrace.runtimes.spark.worker.answers import (
    LATE,
    REJECTED,
    RESULT,
    Outlet,
)
from headrace.runtimes.spark.worker.running import HostSpec
from headrace.runtimes.status import FAILED, RUNNING, STARTING, STOPPED, Status
from headrace.runtimes.why import Why
from headrace.sql import Catalog, Query, StreamDef, TableDef
from headrace.sql import query as make_query


@dataclass(frozen=True)
class Control:
    """A control log that a job follows: what is in force after command `position`, and the commands as rows.

    `current` gives the queries with their sinks, for each micro-batch.
    """

    pipeline: Pipeline
    position: int
    commands: DataFrame
    current: Callable[[], Mapping[str, JobQuery]]

    @property
    def of_dataflow(self) -> dict[str, Any]:
        """The parts that the Spark plan needs."""
        return {"pipeline": self.pipeline, "position": self.position, "commands": self.commands}


class Job:
    """Queries that run as one Spark query. Add them, then start.

    job = headrace.spark.job({"bids": bids}, options, checkpoint="checkpoint")
    job.add("best", best, sink="best").add("busy", busy, sink="busy", late="late")
    running = job.start()
    """

    def __init__(
        self, streams: Mapping[str, DataFrame], options: SparkOptions, checkpoint: str, name: str = NAME
    ) -> None:
        self.name = name
        self.checkpoint = checkpoint
        self.options = options
        self._frames = dict(streams)
        self._queries: dict[str, JobQuery] = {}
        self._control: Control | None = None
        self._topology: Topology | None = None
        self._home_of: HomeOf | None = None
        self._trigger: dict[str, Any] | None = None
        self.running: StreamingQuery | None = None
        """The Spark query of the last start."""
        self.changes = Adopted()
        """What the last start kept, began and freed."""
        self.definition: Mapping[str, Any] = {}
        """The pipeline file as plain data, for the record."""
        self.file: str | None = None
        """The pipeline file of the job, for its status."""
        self.source_names: Mapping[str, str] = {}
        """What each stream reads, in a few words, for its status."""
        self.when_accepted: list[Callable[[], object]] = []
        """What to do when the start is not refused, before anything is written."""

    def follow(self, control: Control) -> None:
        """Follow a control log: shards apply its commands while the job runs."""
        self._control = control

    def has_home(self, query: PipelineQuery) -> bool:
        """Whether a query that is added to the running job can run without another start."""
        assert self._topology is not None
        assert self._home_of is not None
        homes = tuple(each.home for each in self._topology.placed if each.level == 0)
        return self._home_of(query, homes) is not None

    def started(self) -> frozenset[str]:
        """The queries that have run on this checkpoint before."""
        record = self.record
        return frozenset() if record is None else self._with_added(record).queries

    @property
    def record(self) -> Record | None:
        """The record of the last start; None if there was none."""
        return read_record(self.spark, self.checkpoint)

    def _with_added(self, record: Record) -> Record:
        """The record with the queries that were added while the job ran, where shards have put them."""
        if self._control is None or self.options.inputs is None:
            return record
        shards = max((len(each.shard_keys) for each in record.placed), default=1)
        home_of = HomeOf(self.options.inputs, shards)
        homes = tuple(each.home for each in record.placed if each.level == 0)
        found: dict[str, tuple[int, ...]] = {}
        for query in self._control.pipeline.queries:
            if query.name not in record.queries and query.since > record.position:
                home = home_of(query, homes)
                found |= {} if home is None else {query.name: homes[home].shard_keys}
        return record.with_added(found)

    @property
    def queries(self) -> Mapping[str, Query]:
        """The queries by name."""
        return {name: each.query for name, each in self._queries.items()}

    def add(
        self,
        name: str,
        query: Query,
        *,
        sink: Sink | str | PurePath | None = None,
        late: Sink | str | PurePath | None = None,
        rejected: Sink | str | PurePath | None = None,
        time_column: str | None = None,
    ) -> Job:
        """Add a query. A sink that is a path gets Parquet `Files`; at least one of the three is needed.

        A sink is called for the first micro-batch, and then for those in which it has rows. `late` and
        `rejected` get these rows of the streams that the query reads. `time_column` adds a column with the
        time of each result, in ticks.

        A job that is running starts again by itself and keeps its state; `running` is then another Spark
        query. If the query cannot be added, an error says why, and the job has not stopped.
        """
        if name in self._queries:
            raise SparkError(
                "HR-SP32", "the job already has a query of this name", place=name, hint="choose another name"
            )
        if not isinstance(query, Query):
            raise SparkError(
                "HR-SP32",
                f"a query is made by headrace.query, got {type(query).__name__}",
                place=name,
                hint="job.add(name, headrace.query(text, streams), sink=...)",
            )
        given = zip(KINDS, (sink, late, rejected), strict=True)
        sinks = {kind: as_sink(each) for kind, each in given if each is not None}
        if not sinks:
            raise SparkError(
                "HR-SP17", "none of the outputs has a sink", place=name, hint="add(..., sink=..., late=...)"
            )
        self._queries[name] = JobQuery(query, sinks, time_column)
        try:
            self._start_again()
        except BaseException:
            del self._queries[name]
            raise
        return self

    def _start_again(self) -> None:
        """After a change, start a running job again: it continues after its last micro-batch."""
        follows = self._control is not None  # then shards change by themselves
        if follows or self.running is None or not self.running.isActive:
            return
        self._compare(self._dataflow(frozenset(), frozenset())[0])
        self.running.stop()
        self.start(trigger=self._trigger)

    def remove(self, name: str) -> Job:
        """Remove a query, and free its state. A job that is running starts again by itself."""
        if name not in self._queries:
            raise SparkError(
                "HR-SP32", "the job has no query of this name", place=name, hint=_known(self._queries)
            )
        gone = self._queries.pop(name)
        try:
            self._start_again()
        except BaseException:
            self._queries[name] = gone
            raise
        return self

    @property
    def with_sinks(self) -> dict[str, JobQuery]:
        """The queries with their sinks."""
        return dict(self._queries)

    def start(
        self,
        *,
        trigger: dict[str, Any] | None = None,
        reset: Collection[str] = (),
        reload: Collection[str] = (),
    ) -> StreamingQuery:
        """Start the job as a Spark query, or continue it from its checkpoint.

        `trigger` is passed to `DataStreamWriter.trigger`, for example `{"availableNow": True}`. While the
        job runs, no other driver can start one on this checkpoint (HR-SP22).

        A job that has changed since its last start keeps the state of the queries that it can (`changes`
        says which): others raise an error, and nothing has happened. Queries in `reset` begin empty. Tables
        in `reload` get their rows again, for rows that come from now on.
        """
        held = hold(self.spark, self.checkpoint)
        try:
            dataflow, queries = self._dataflow(frozenset(reset), frozenset(reload))
            combined = dataflow.build(NAME)
            self._note(dataflow)
            writer = combined.writeStream.outputMode("append").option("checkpointLocation", self.checkpoint)
            writer = writer.queryName(self._free_name())
            if trigger:
                writer = writer.trigger(**trigger)
            current = (lambda: queries) if self._control is None else self._control.current
            keeper = StatusKeeper(self._described(dataflow), self.checkpoint)
            keeper.start(self.spark)
            started = to_sinks(writer, Writer(current, self.options.ordered, keeper)).start()
        except BaseException:
            if held is not None:
                held.release()
            raise
        if held is not None:
            held.until_ended(started)
        self.running, self._trigger = started, trigger
        return started

    def status(self) -> Status:
        """Where the job is: its streams, queries and memory after the newest micro-batch.

        It prints itself, and is a table in a notebook.
        """
        found = None if self.running is None else read_status(self.spark, self.checkpoint)
        if found is None or self.running is None:
            raise SparkError(
                "HR-SP60", "the job has not started", place=self.name, hint="start it: job.start()"
            )
        if self.running.isActive or found.state not in (STARTING, RUNNING):
            return found
        failed = self.running.exception()
        return replace(found, state=STOPPED if failed is None else FAILED, error=str(failed or ""))

    def why(self) -> Why:
        """Why each query waits: for which stream, since when, and what would release it.

        It prints itself, and is a table in a notebook.
        """
        return Why.of(self.status())

    def _described(self, dataflow: Dataflow) -> Described:
        """What the driver knows about the job."""
        recorded = self.options.arrival is not None
        return Described(
            self.name,
            "arrival" if recorded else "system",
            not recorded and self.options.clock is not None,
            dataflow.streams.ticks_per_second,
            sources=self.source_names,
            file=self.file,
        )

    def _dataflow(
        self, reset: frozenset[str], reload: frozenset[str]
    ) -> tuple[Dataflow, dict[str, JobQuery]]:
        """The Spark plan of all queries, and the queries with the columns of their DataFrames."""
        if not self._queries:
            raise SparkError(
                "HR-SP32", "the job has no queries", place=self.name, hint="job.add(name, query, sink=...)"
            )
        frames, read = self._frames, dict[str, DataFrame]()
        queries = {}
        for name, each in self._queries.items():
            read |= streams_of(each.query, frames, others=True)
            queries[name] = JobQuery(as_given(each.query, frames), each.sinks, each.time_column)
        streams = StreamSet.of({name: each.query for name, each in queries.items()})
        inputs = self.options.inputs_for(streams.sources, streams.ticks_per_second)
        names = [source.name for source in streams.sources]
        refuse_latency_without_timer(self.options, inputs, names)
        refuse_speakers_without_timer(self.options, inputs, names)
        speakers = self.options.speakers_for(streams.sources) | {
            name: frames[name] for name in inputs.row_promises.speakers(names) if name in frames
        }
        tables = [table for each in queries.values() for table in tables_of(each.query, frames).items()]
        for asked, known, what in ((reset, queries, "query"), (reload, dict(tables), "table")):
            unknown = [name for name in sorted(asked) if name not in known]
            if unknown:
                verb = "reset" if what == "query" else "reload"
                raise SparkError(
                    "HR-SP32",
                    f"there is no {what} of this name to {verb}",
                    place=unknown[0],
                    hint=f"known: {', '.join(known) or 'none'}",
                )
        record = self.record
        before = (Record() if record is None else self._with_added(record)).without(reset)
        since, generation = _generations(queries, before, 0 if record is None else record.generation + 1)
        together = _together(queries, since, before)
        dataflow = Dataflow(
            _plans({name: each.query for name, each in queries.items()}, since, together),
            streams,
            read,
            dict(tables),
            inputs,
            self.options,
            _outlet(queries),
            speakers=speakers,
            before=before,
            generation=generation,
            since=since,
            together=together,
            reset=reset,
            reload=reload,
            **({} if self._control is None else self._control.of_dataflow),
        )
        return dataflow, queries

    def _free_name(self) -> str:
        """The name of the job, with a number if another query of the session has that name."""
        taken = {query.name for query in self.spark.streams.active}
        numbered = (f"{self.name}_{number}" for number in count(2))
        return self.name if self.name not in taken else next(n for n in numbered if n not in taken)

    def _compare(self, dataflow: Dataflow) -> Adopted:
        """What becomes of the state of the last start; an error if it cannot serve a changed query."""
        before = dataflow.before
        if not have_names(self.spark):
            _check_sources(before.sources, dataflow.sources, self.checkpoint, can_have_names(self.spark))
        old = dict(zip((each.shard_keys for each in before.placed), before.snapshots, strict=True))
        return _adopted(dataflow.topology.hosts, old, dataflow.reset, before)

    def _note(self, dataflow: Dataflow) -> None:
        """Compare the job with its last start, and write the record of this one."""
        before, made = dataflow.before, dataflow.topology
        self._topology, self._home_of = made, HomeOf(dataflow.inputs, dataflow.shards)
        self.changes = self._compare(dataflow)
        for each in self.when_accepted:
            each()
        partitions = before.partitions or self.options.partitions_in(self.spark)
        snapshots = tuple(_empty(host).snapshot().encode() for host in made.hosts)
        record = Record(
            dataflow.generation,
            partitions,
            made.placed,
            dataflow.since,
            dataflow.together,
            snapshots,
            dataflow.position,
            dataflow.sources,
            self.definition,
        )
        write_record(self.spark, self.checkpoint, record)

    @property
    def spark(self) -> SparkSession:
        """The session of the streams."""
        return next(iter(self._frames.values())).sparkSession


Together = Mapping[str, Mapping[str, str]]
"""By generation, the queries that started together, and their text."""


def _generations(queries: Collection[str], before: Record, first: int) -> tuple[dict[str, int], int]:
    """The generation of each query, and that of this start; `first` is the first that is free.

    A query that was added while the job ran has state of its own, so it is alone in its generation.
    """
    added = [name for name in queries if name in before.queries and name not in before.since]
    known = {**before.since, **{name: first + i for i, name in enumerate(added)}}
    generation = first + len(added)
    return {n: known[n] if n in before.queries else generation for n in queries}, generation


def _together(queries: Mapping[str, JobQuery], since: Mapping[str, int], before: Record) -> Together:
    """The queries that started together, now and before, in the generations that still run."""
    found: dict[str, Mapping[str, str]] = {}
    for generation in sorted(set(since.values())):
        new = {name: each.query.text for name, each in queries.items() if since[name] == generation}
        found[str(generation)] = before.together.get(str(generation), new)
    return found


def _plans(queries: Mapping[str, Query], since: Mapping[str, int], together: Together) -> dict[str, Plan]:
    """The plans of the queries: those that started together share windows, joins and aggregates."""
    defined: dict[str, StreamDef | TableDef] = {}
    for query in queries.values():
        defined |= {each.name: each for each in query.streams} | {each.name: each for each in query.tables}
    catalog = Catalog(defined)
    plans = {name: query.plan for name, query in queries.items()}
    for generation, texts in together.items():
        running = {name: query for name, query in queries.items() if since[name] == int(generation)}
        plans |= shared_plans(running, texts, lambda name, text: make_query(text, catalog, name=name))
    return plans


def _empty(host: HostSpec) -> Engine:
    """The engine of a host, without any rows."""
    return replace(host, budget=None).build()


def _adopted(
    hosts: Sequence[HostSpec], old: Mapping[tuple[int, ...], bytes], reset: frozenset[str], before: Record
) -> Adopted:
    """What becomes of the state of each query; an error if state cannot serve a changed query (HR-G022)."""
    kept, begun = list[str](), list[str]()
    for host in hosts:
        known = old.get(host.shard_keys)
        if known is None:
            begun += host.queries
            continue
        found = _empty(host).adopt(Snapshot.decode_all(known), reset=host.reset)
        kept += found.kept
        kept += (name for name in found.begun if name in before.queries)  # added while the job ran
        begun += (name for name in found.begun if name not in before.queries)
    freed = before.queries - {name for host in hosts for name in host.queries}
    return Adopted(
        tuple(kept), tuple(n for n in begun if n not in reset), tuple(sorted(freed)), tuple(sorted(reset))
    )


def _check_sources(
    before: tuple[str, ...], now: tuple[str, ...], checkpoint: str, can_have_names: bool
) -> None:
    """Raise an error if Spark would not find the positions of the sources, which have no names."""
    if before and before != now:
        more, fewer = (", ".join(sorted({*a} - {*b})) for a, b in ((now, before), (before, now)))
        changes = [f"{verb} {names}" for verb, names in (("adds", more), ("no longer reads", fewer)) if names]
        raise SparkError(
            "HR-SP35",
            f"the job {' and '.join(changes)}, and its sources have no names: Spark cannot continue them",
            place=checkpoint,
            hint=f"undo the change, or use a new checkpoint; {_NAMING[can_have_names]}",
        )


_NAMING: Final = {
    True: "a pipeline file has names for its sources, and in Python spark.readStream.name(…) gives them, "
    "from the first start on",
    False: f"sources can have names with Spark {first_with('named_sources')} or later",
}


def _known(queries: Collection[str]) -> str:
    return f"queries of the job: {', '.join(queries)}"


def _outlet(queries: Mapping[str, JobQuery]) -> Outlet:
    """How rows leave: late and rejected rows in full only of streams for which a query has such a sink."""
    kinds = {kind for each in queries.values() for kind in each.sinks}
    aside = (each for each in queries.values() if each.sinks.keys() & {LATE, REJECTED})
    whole = frozenset(stream for each in aside for stream in each.streams)
    return Outlet(kinds=frozenset((RESULT, *kinds)), packed=True, whole=whole)


def job(
    streams: Mapping[str, DataFrame] | None = None,
    options: SparkOptions | None = None,
    *,
    checkpoint: str | PurePath,
    name: str = NAME,
    **more_streams: DataFrame,
) -> Job:
    """A job over these streams, for queries that run as one Spark query.

    `streams` maps the names of streams to streaming DataFrames, and the names of tables to static ones.
    `name` is the name of the Spark query.
    """
    options = checked(options)
    if options.time_column is not None:
        raise SparkError(
            "HR-SP32",
            "time_column is an option of each query of a job",
            place="time_column",
            hint="job.add(name, query, sink=..., time_column=...)",
        )
    return Job(all_frames(streams, more_streams), options, str(checkpoint), name)
