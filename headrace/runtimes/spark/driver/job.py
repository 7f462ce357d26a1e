"""`headrace.spark.job`: many queries over the same streams, in one Spark query with one checkpoint.

Each stream is scanned once, there is one timer, and queries that can be partitioned alike share one graph per
shard. After a failure a micro-batch runs again with the same rows and the same number. A sink that overwrites
what it wrote under that number has each row exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePath
from typing import Any

from numpy.typing import ArrayLike
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.arrays import Times
from headrace.control import AddQuery, Command, Log, Reload, RemoveQuery, SetBudget, Stop
from headrace.engine import Adopted
from headrace.engine.inputs import Inputs
from headrace.engine.quality import in_force
from headrace.errors import SparkError
from headrace.pipeline import Pipeline, PipelineQuery
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import adaptable
from headrace.runtimes.spark.driver.accepting import check_kind
from headrace.runtimes.spark.driver.apply import (
    checked,
    refuse_latency_without_timer,
    refuse_speakers_without_timer,
)
from headrace.runtimes.spark.driver.budget import JobBudget, choices
from headrace.runtimes.spark.driver.continuing import (
    Start,
    added_again,
    adopted,
    check_sources,
    empty,
    outlet_of,
    with_added,
)
from headrace.runtimes.spark.driver.control_log import command_stream
from headrace.runtimes.spark.driver.dataflow import Dataflow
from headrace.runtimes.spark.driver.dataframes import all_frames, streams_of, tables_of
from headrace.runtimes.spark.driver.executors import lost_since
from headrace.runtimes.spark.driver.job_log import (
    append,
    as_shards_see,
    changed_options,
    command_of,
    last_of,
    log_beside,
    pipeline_of,
    reaches_shards,
    with_commands,
)
from headrace.runtimes.spark.driver.lock import hold
from headrace.runtimes.spark.driver.moving import fixed_shards, move
from headrace.runtimes.spark.driver.options import PARTITIONS, SparkOptions
from headrace.runtimes.spark.driver.output_modes import APPEND, Complete, in_mode, settle
from headrace.runtimes.spark.driver.progress import NAME
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.record import read as read_record
from headrace.runtimes.spark.driver.record import write as write_record
from headrace.runtimes.spark.driver.source_names import can_have_names, have_names, with_settings
from headrace.runtimes.spark.driver.status import Described, StatusKeeper, read_status
from headrace.runtimes.spark.driver.stream_rows import TICKS_IN, StreamSet
from headrace.runtimes.spark.driver.task_files import task_files
from headrace.runtimes.spark.driver.topology import HomeOf, Topology
from headrace.runtimes.spark.driver.writing import KINDS, JobQuery, Sink, Writer, as_sink, to_sinks
from headrace.runtimes.spark.types import as_given
from headrace.runtimes.spark.worker.answers import RESULT
from headrace.runtimes.spark.worker.task_files import TaskFiles
from headrace.runtimes.status import FAILED, RUNNING, STARTING, STOPPED, History, Status
from headrace.runtimes.why import Why
from headrace.sql import Query


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
        self,
        streams: Mapping[str, DataFrame],
        options: SparkOptions,
        checkpoint: str,
        name: str = NAME,
        *,
        controlled: bool = True,
    ) -> None:
        self.name = name
        self.checkpoint = checkpoint
        self.options = options
        self._frames = dict(streams)
        self._queries: dict[str, JobQuery] = {}
        self._removed: dict[str, JobQuery] = {}
        self._control: Control | None = None
        self._controlled = controlled
        self._log: Log | None = None
        self._running: dict[str, JobQuery] = {}
        self._manager: JobBudget | None = None
        self._topology: Topology | None = None
        self._home_of: HomeOf | None = None
        self._trigger: dict[str, Any] | None = None
        self.running: StreamingQuery | None = None
        """The Spark query of the last start."""
        self.changes = Adopted()
        """What the last start kept, began and freed."""
        self.moved = ""
        """What the last start did with the partitions of the state, in words; empty if nothing."""
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
        if record is None or self.options.inputs is None:
            return frozenset() if record is None else record.queries
        return self._since_then(record, {}, self.options.inputs).queries

    @property
    def record(self) -> Record | None:
        """The record of the last start; None if there was none."""
        return read_record(self.spark, self.checkpoint)

    def _since_then(self, record: Record, queries: Mapping[str, JobQuery], inputs: Inputs) -> Record:
        """The record with what commands have changed since: the queries that shards have now, and where."""
        if self._control is not None:
            return with_added(record, self._control.pipeline, inputs)
        log = self._log_beside(record)
        return record if log is None else with_commands(record, log, queries, inputs)

    def _log_beside(self, record: Record | None) -> Log | None:
        """The job's own control log, if it can have one: a replay reads only what was recorded."""
        if not self._controlled or self.options.arrival is not None:
            return None
        return log_beside(self.spark, self.checkpoint, record)

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
        output_mode: str = APPEND,
    ) -> Job:
        """Add a query. A sink that is a path gets Parquet `Files`; at least one of the three is needed.

        A sink is called for the first micro-batch, and then for those in which it has rows. `late` and
        `rejected` get these rows of the streams that the query reads. `time_column` adds a column with the
        time of each result, in ticks. `output_mode`: "append", or for a changelog by key "update", one row
        for each key that a micro-batch has changed, or "complete", the whole table after it.

        If the job is running, the query starts with the next micro-batch, by a command of the control log. If
        no shard gets its rows by a key that it can use, the job starts again by itself and keeps its state;
        `running` is then another Spark query. If the query cannot be added, an error says why, and nothing
        has changed.
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
        result = None if sink is None else as_sink(sink)
        result = in_mode(output_mode, result, query, name, self.checkpoint)
        given = zip(KINDS, (result, late, rejected), strict=True)
        sinks = {kind: as_sink(each) for kind, each in given if each is not None}
        if not sinks:
            raise SparkError(
                "HR-SP17", "none of the outputs has a sink", place=name, hint="add(..., sink=..., late=...)"
            )
        self._queries[name] = JobQuery(query, sinks, time_column)
        try:
            if self._must_be_told:
                self._add_live(name)
        except BaseException:
            del self._queries[name]
            raise
        return self

    def _add_live(self, name: str) -> None:
        """Add a query to the running job: by a command, or by another start."""
        dataflow, queries = self._dataflow(frozenset(), frozenset())
        self._compare(dataflow)
        if self._manager is not None:
            self._manager.measured().check(name, queries[name].query)
        given, log = queries[name], self._log
        before = {each: of for each, of in queries.items() if each != name}
        early = not given.query.ordered and dataflow.inputs.answers_early(given.query.plan)
        if log is None or early or name in self._running:
            return self._start_again()
        asked = as_shards_see(name, given, pipeline_of(before))
        if asked is None or not self.has_home(asked):
            return self._start_again()
        if isinstance(table := given.sinks.get(RESULT), Complete):
            table.begin(self.spark)
        self._running[name] = given  # its sink is there before a shard can have an answer
        try:
            log.append(command_of(name, given))
        except BaseException:
            del self._running[name]
            raise

    @property
    def _must_be_told(self) -> bool:
        """Whether the job is running, and a change must reach it: no pipeline has a control log for it."""
        return self._control is None and self.running is not None and self.running.isActive

    def _start_again(self) -> None:
        """Start a running job again: it continues after its last micro-batch."""
        assert self.running is not None
        self.running.stop()
        self.start(trigger=self._trigger)

    def send(self, command: Command) -> None:
        """Change the running job: one of the commands of `headrace.control`.

            job.send(Resize("pairs", "30 seconds", of="bids"))

        Shards apply `Resize`, `Punctuate`, `Heartbeat`, `SetStrategy`, `SetLevel` and another size of the
        budget with the next micro-batch. For `SetBounds`, and a first or no budget, the job starts again by
        itself, and keeps its state. `Stop` stops it. A command that cannot be applied is an error, and
        nothing has changed.
        """
        if self.running is None or not self.running.isActive:
            raise SparkError("HR-SP38", "the job is not running", place=self.name, hint="job.start()")
        if isinstance(command, AddQuery | RemoveQuery):
            raise SparkError(
                "HR-SP38",
                "queries of a job come and go with their sinks",
                place=command.name,
                hint="job.add(name, query, sink=...), job.remove(name)",
            )
        if isinstance(command, Reload):
            raise SparkError(
                "HR-SP38",
                "tables of a job are DataFrames, which are read at a start",
                place=command.table,
                hint=f"job.start(reload=[{command.table!r}])",
            )
        if isinstance(command, Stop):
            self.running.stop()
            return
        check_kind(command)
        options = changed_options(self.options, command)
        pipeline = pipeline_of(self._dataflow(frozenset(), frozenset())[1], self.options)
        if reaches_shards(command, pipeline) and not (isinstance(command, SetBudget) and self._log is None):
            if self._log is None:
                raise SparkError(
                    "HR-SP38",
                    "this job has no control log",
                    place=self.checkpoint,
                    hint="a log needs a checkpoint in a local or shared directory, a session without Spark "
                    "Connect, and a job that has had it since its first start",
                )
            append(self._log, command, pipeline)
            if isinstance(command, SetBudget):
                self.limit(command.budget)
            self.options = options
            return
        before, self.options = self.options, options
        try:
            self._compare(self._dataflow(frozenset(), frozenset())[0])
        except BaseException:
            self.options = before
            raise
        self._start_again()

    def remove(self, name: str) -> Job:
        """Remove a query, and free its state. If the job is running, with the next micro-batch."""
        if name not in self._queries:
            raise SparkError(
                "HR-SP32", "the job has no query of this name", place=name, hint=_known(self._queries)
            )
        if self._must_be_told and len(self._queries) > 1 and self._log is not None:
            pipeline = pipeline_of(self._dataflow(frozenset(), frozenset())[1])
            append(self._log, RemoveQuery(name), pipeline)
            self._running[name] = replace(self._running[name], removed=True)
            del self._queries[name]
            return self
        gone = self._queries.pop(name)
        self._removed |= {} if self.running is None else {name: replace(gone, removed=True)}
        try:
            if self._must_be_told:
                self._compare(self._dataflow(frozenset(), frozenset())[0])
                self._start_again()
        except BaseException:
            self._queries[name] = gone
            raise
        return self

    @property
    def with_sinks(self) -> dict[str, JobQuery]:
        """The queries with their sinks; also those just removed, which may still have results to write."""
        return {**self._removed, **self._queries}

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
            partitions = self._note(dataflow)
            writer = combined.writeStream.outputMode("append").option("checkpointLocation", self.checkpoint)
            writer = writer.queryName(self._free_name())
            if trigger:
                writer = writer.trigger(**trigger)
            self._running = dict(queries)
            follows = dataflow.commands is not None and self._control is None
            self._log = self._log_beside(self.record) if follows else None
            current = (lambda: dict(self._running)) if self._control is None else self._control.current
            keeper = StatusKeeper(self._described(dataflow), self.checkpoint)
            keeper.start(self.spark)
            self._manager = self._budget
            writer = to_sinks(writer, Writer(current, self.options.ordered, keeper, self._manager))
            with with_settings(self.spark, {PARTITIONS: str(partitions)}):
                started = writer.start()  # Spark copies the session here
        except BaseException:
            if held is not None:
                held.release()
            raise
        if held is not None:
            held.until_ended(started)
        self.running, self._trigger = started, trigger
        return started

    @property
    def _budget(self) -> JobBudget | None:
        """The memory manager of the job, if it has a budget."""
        bytes = self.options.budget_in(self.spark)
        return (
            None
            if bytes is None
            else JobBudget(bytes, self.options.policy, self.checkpoint, self._importance)
        )

    def limit(self, budget: int | str | None) -> None:
        """Manage another budget from the next micro-batch on; shards know it from the control log."""
        if self._manager is None or budget in (None, self.options.memory):
            return
        self.options = replace(self.options, memory=budget)
        bytes = self.options.budget_in(self.spark)
        assert bytes is not None
        self._manager.budget = bytes

    def _importance(self, query: str) -> float:
        """How much the quality of a query counts beside that of the others."""
        found = self._queries.get(query)
        return 1.0 if found is None else found.query.importance

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
            return replace(found, lost=(*found.lost, *lost_since(self.spark, found.written)))
        failed = self.running.exception()
        return replace(found, state=STOPPED if failed is None else FAILED, error=str(failed or ""))

    def histories(self, query: str) -> dict[Plan, History]:
        """The windows and granularities of a query, by the nodes of its plan, as pairs (t, value).

        Rows with time ≥ t got the value, in all shards. With these pairs the result can be recomputed
        exactly: `headrace.testing.oracle.stream(query.plan, rows, histories)`.
        """
        if query not in self._queries:
            raise SparkError(
                "HR-SP32", "the job has no query of this name", place=query, hint=_known(self._queries)
            )
        nodes = adaptable(self._queries[query].query.plan)
        return dict(zip(nodes, self.status().histories.get(query, ()), strict=False))

    def in_force(self, query: str, times: ArrayLike) -> dict[Plan, Times]:
        """The window sizes and granularities of a query at some times, such as the times of its results.

        By node of the plan, one value for each time: the value for rows of that time, in all shards.
        """
        return in_force({node: each for node, each in self.histories(query).items() if each}, times)

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
        before = None if record is None else self._since_then(record, queries, inputs)
        start = Start.of(queries, before, reset)
        control = self._control or self._own_control(queries, record)
        dataflow = Dataflow(
            start.plans,
            streams,
            read,
            dict(tables),
            inputs,
            self.options,
            outlet_of(queries),
            speakers=speakers,
            before=start.before,
            again=frozenset() if record is None or before is None else added_again(record, before, queries),
            generation=start.generation,
            since=start.since,
            together=start.together,
            reset=reset,
            reload=reload,
            choices=None if self.options.memory is None else choices(self.spark, self.checkpoint),
            unordered=frozenset(name for name, each in queries.items() if not each.query.ordered),
            services={name: each.query.service for name, each in queries.items()},
            movable=True,
            partitions=start.before.partitions or self.options.job_partitions_in(self.spark),
            files=None if control is not None else self._task_files(queries, inputs),
            **({} if control is None else control.of_dataflow),
        )
        return dataflow, queries

    def _task_files(self, queries: Mapping[str, JobQuery], inputs: Inputs) -> TaskFiles | None:
        """The results that the tasks write themselves which read their rows.

        Commands of a control log could make rows late, and bring queries that need the rows in a shard.
        """
        if any(TICKS_IN in df.columns for df in self._frames.values()):
            return None  # the host compares these times with those of the time column
        return task_files(queries, inputs, self.options, self.spark)

    def _own_control(self, queries: Mapping[str, JobQuery], record: Record | None) -> Control | None:
        """The control log of the job itself, with the commands that are there now."""
        log = self._log_beside(record)
        if log is None:
            return None
        commands = command_stream(self.spark, log)
        return Control(
            pipeline_of(queries, self.options), last_of(log), commands, lambda: dict(self._running)
        )

    def _free_name(self) -> str:
        """The name of the job, with a number if another query of the session has that name."""
        taken = {query.name for query in self.spark.streams.active}
        numbered = (f"{self.name}_{number}" for number in count(2))
        return self.name if self.name not in taken else next(n for n in numbered if n not in taken)

    def _compare(self, dataflow: Dataflow) -> Adopted:
        """What becomes of the state of the last start; an error if it cannot serve a changed query."""
        before = dataflow.before
        if not have_names(self.spark):
            check_sources(before.sources, dataflow.sources, self.checkpoint, can_have_names(self.spark))
        return adopted(dataflow.topology.hosts, before, dataflow.reset)

    def _note(self, dataflow: Dataflow) -> int:
        """Compare the job with its last start, and write the record of this one.

        Returns the number of partitions that the state has now.
        """
        made = dataflow.topology
        self._topology, self._home_of = made, HomeOf(dataflow.inputs, dataflow.shards)
        self.changes = self._compare(dataflow)
        results = {name: each.sinks.get(RESULT) for name, each in self._queries.items()}
        settle(self.spark, self.checkpoint, results, self.changes.kept)
        for each in self.when_accepted:
            each()
        partitions, record = self.options.job_partitions_in(self.spark), self.record
        if record is not None:
            wanted = self.options.partitions_in(self.spark)
            asked = self.options.shards
            partitions, moved = move(self.spark, self.checkpoint, record, wanted, asked)
            self.moved = "; ".join(each for each in (moved, fixed_shards(record, asked)) if each)
        snapshots = tuple(empty(host).snapshot().encode() for host in made.hosts)
        now = Record(
            dataflow.generation,
            partitions,
            made.placed,
            dataflow.since,
            dataflow.together,
            snapshots,
            dataflow.position,
            dataflow.sources,
            self.definition,
            dataflow.shards,
        )
        write_record(self.spark, self.checkpoint, now)
        return partitions

    @property
    def spark(self) -> SparkSession:
        """The session of the streams."""
        return next(iter(self._frames.values())).sparkSession


def _known(queries: Collection[str]) -> str:
    return f"queries of the job: {', '.join(queries)}"


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
