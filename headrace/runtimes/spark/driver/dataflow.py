"""The Spark plan of queries: partitioners, then stateful operators, then one table with everything they emit.

    stream ─ mapInArrow(Partitioner) ─┐
    stream ─ mapInArrow(Partitioner) ─┼─ union ─ groupBy("shard") ─ transformWithStateInPandas(Host) ─ ...
    timer  ─ mapInArrow(Clock…)      ─┘

Each source is scanned once, for all queries. If a query needs two different keys, there are two stateful
operators, one above the other; rows that only the upper one reads pass through the lower one unread.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine import Service
from headrace.engine.inputs import Inputs
from headrace.pipeline import Pipeline
from headrace.plan.nodes.core import Plan
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.progress import observed
from headrace.runtimes.spark.driver.reading import takes
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.stream_rows import (
    MICROS,
    StreamSet,
    by_reference,
    clock_ticks,
    drops_rows,
    now,
    source_of,
    spoken_columns,
    stream_rows,
)
from headrace.runtimes.spark.driver.task_streams import listed_by, task_stream_of
from headrace.runtimes.spark.driver.timer import clock_of, interval_of
from headrace.runtimes.spark.driver.topology import (
    HomeOf,
    Level,
    Placed,
    Topology,
    World,
    clock_routes,
    end_routes,
    speech,
    targets,
    topology,
)
from headrace.runtimes.spark.types import spark_schema
from headrace.runtimes.spark.versions import check_stateful
from headrace.runtimes.spark.worker.answers import RESULT, Outlet, is_flat
from headrace.runtimes.spark.worker.controlling import ControlSpec
from headrace.runtimes.spark.worker.host import Host
from headrace.runtimes.spark.worker.packing import CHOICES, COMMANDS, PACKED_DDL
from headrace.runtimes.spark.worker.partitioner import (
    BAD,
    NOW,
    ClockBroadcast,
    CommandBroadcast,
    EndBroadcast,
    Partitioner,
    PromiseBroadcast,
    Target,
    TickBroadcast,
)
from headrace.runtimes.spark.worker.pickled_control import PickledControl
from headrace.runtimes.spark.worker.promising import Speech
from headrace.runtimes.spark.worker.running import HostSpec
from headrace.runtimes.spark.worker.task_files import TaskFiles
from headrace.schema import Schema
from headrace.time.durations import Duration
from headrace.time.ets import DisorderPromise


@dataclass(frozen=True)
class Dataflow:
    """Plans over the DataFrames of their streams.

    `tables` are the rows of their tables, as Arrow bytes. `prefixes` are filters and projections of a stream
    that Spark runs itself; the plans read what is left.
    """

    plans: Mapping[str, Plan]
    streams: StreamSet
    frames: Mapping[str, DataFrame]
    tables: Mapping[str, bytes]
    inputs: Inputs
    options: SparkOptions
    outlet: Outlet
    prefixes: Mapping[str, Plan] = field(default_factory=dict)
    speakers: Mapping[str, DataFrame] = field(default_factory=dict)
    """Streams that no plan reads, whose rows are punctuations of those that are read."""
    before: Record = field(default_factory=Record)
    """The record of an earlier start, without the queries that are reset."""
    generation: int = 0
    since: Mapping[str, int] = field(default_factory=dict)
    together: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reset: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    """The queries that were removed and added again since the last start; they begin empty too."""
    reload: frozenset[str] = frozenset()
    commands: DataFrame | None = None
    """The control log as a stream of texts, each a command; with it, `pipeline` is what is in force."""
    pipeline: Pipeline | None = None
    position: int = 0
    choices: DataFrame | None = None
    """The sizes of windows that the driver has chosen, as a stream of texts; only with a budget."""
    unordered: frozenset[str] = frozenset()
    """The queries that say that their results need not be in order."""
    services: Mapping[str, Service] = field(default_factory=dict)
    """What each query expects of the scheduler of its shards."""
    movable: bool = False
    """The state may move to another number of partitions later: there may be more shards than partitions."""
    partitions: int | None = None
    """The number of partitions with state, if the caller starts the query and sets it."""
    files: TaskFiles | None = None
    """The results that the tasks write themselves which read their rows; only without a control log."""

    def build(self, metrics: str) -> DataFrame:
        """Results and side outputs in one table, with figures named `metrics` in Spark's progress."""
        check_stateful(self._spark)
        made: DataFrame = reduce(DataFrame.union, self._packages())
        for level in self.levels:
            leaving = PACKED_DDL if level is not self.levels[-1] else spark_schema(self._leaving)
            made = made.groupBy("shard").transformWithStateInPandas(
                Host(*level), outputStructType=leaving, outputMode="append", timeMode="none"
            )
        return observed(made, [source.name for source in self.streams.sources], metrics)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The hosts: one stateful operator of Spark for each level."""
        return self.topology.levels

    @cached_property
    def topology(self) -> Topology:
        """The hosts, and where each is."""
        options, recorded = self.options, self.options.arrival is not None
        taken = (
            {}
            if recorded or not self._reached_matters
            else {name: self._takes(name, df) for name, df in self._frames.items()}
        )
        world = World(
            self.inputs,
            self.shards,
            self._partitions,
            recorded,
            self.tables,
            tuple(options.witnesses),
            taken,
            self.before.placed,
            self.movable,
            {name: self._polled(df) for name, df in self._frames.items()},
        )
        made = topology(self.plans, world, self.outlet)
        packed = self.outlet.packed or self._must_pack(made.levels)
        budget = options.budget_in(self._spark)
        shards = sum(len(host.shard_keys) for host in made.hosts)
        control = None
        if self.pipeline is not None:
            control = PickledControl.of(self._control(self.pipeline, made.placed, world, shards))

        def complete(host: HostSpec, above: Set[str]) -> HostSpec:
            return replace(
                host,
                outlet=replace(host.outlet, packed=packed),
                budget=budget,
                all_shards=shards,
                policy=options.policy,
                reoptimize=options.reoptimize,
                generation=self.generation,
                since={name: self.since.get(name, 0) for name in host.queries},
                reset=(self.reset | self.again).intersection(host.queries),
                reload=self.reload.intersection(host.tables),
                control=control,
                ticks_per_second=self.streams.ticks_per_second,
                execution=options.execution,
                early=self._early & host.queries.keys() - above,
                services={name: self.services[name] for name in host.queries if name in self.services},
            )

        completed: list[Level] = []
        for i, level in enumerate(made.levels):
            above = {name for later in made.levels[i + 1 :] for host in later for name in host.queries}
            completed.append(tuple(complete(host, above) for host in level))
        return replace(made, levels=tuple(completed))

    def _takes(self, name: str, df: DataFrame) -> str:
        """How much of its source a micro-batch reads."""
        found, usual = task_stream_of(df), takes(listed_by(df), reached=name in self.options.reached)
        return usual if found is None else found.takes(usual)

    def _polled(self, df: DataFrame) -> int:
        """For how many ticks the source of a stream may not have looked for new rows."""
        found = task_stream_of(df)
        return 0 if found is None else round(found.polled * (self.streams.ticks_per_second or MICROS))

    @property
    def _reached_matters(self) -> bool:
        """Whether it matters when rows reached their sources. It does for clocks and for other streams.

        A job needs it for its status. In a query of `apply` whose streams only promise how far their own rows
        are out of order it changes nothing, and would be one more column on the way to Python.
        """
        return self.movable or not self._by_own_rows or bool(self.options.reached)

    @property
    def _by_own_rows(self) -> bool:
        """Whether the rows of each stream alone decide its watermark: no clock, no other stream."""
        promises = [self.inputs.promises.get(each.name) for each in self.streams.sources]
        alone = all(isinstance(each, DisorderPromise) and not each.by_clock for each in promises)
        rows = self.inputs.row_promises
        others = (self.speakers, rows.punctuations, rows.heartbeats, self.options.witnesses)
        return alone and self.inputs.heartbeats is None and not any(others)

    @property
    def _clock(self) -> Duration | DataFrame | None:
        """The timer; none in a query of `apply` to which the clock says nothing.

        A micro-batch without rows could not emit anything there. A job keeps its timer: its bounds may
        change, and its status tells the time.
        """
        timer = self.options.clock
        if timer is None or isinstance(timer, DataFrame):
            return timer
        interval_of(timer)  # a mistake in it is an error, used or not
        return None if self._by_own_rows and not self.movable else timer

    @property
    def _early(self) -> frozenset[str]:
        """The queries whose results no shard puts in order.

        With `ordered=False` for the whole job, these are also those that may answer some groups early.
        """
        loose = () if self.options.ordered else self.plans.keys()
        return self.unordered | {name for name in loose if self.inputs.answers_early(self.plans[name])}

    def _control(
        self, pipeline: Pipeline, placed: tuple[Placed, ...], world: World, shards: int
    ) -> ControlSpec:
        """How hosts follow the control log."""
        queries = tuple(
            replace(each, query=each.query.with_plan(self.plans[each.name])) for each in pipeline.queries
        )
        homes = tuple(each.home for each in placed if each.level == 0)
        of = HomeOf(self.inputs, world.shards)
        return ControlSpec(replace(pipeline, queries=queries), self.position, homes, of, shards)

    def _must_pack(self, made: tuple[Level, ...]) -> bool:
        """Whether results are put in order across shards, or have nested columns.

        PySpark would convert nested columns value by value.
        """
        shards = max(len(host.shard_keys) for level in made for host in level)
        nested = not all(is_flat(plan.schema) for plan in self.plans.values())
        return nested or len(self.plans) > 1 or (self.options.ordered and shards > 1)

    @property
    def _partitions(self) -> int:
        """Spark's number of partitions: that of the checkpoint, if there is one."""
        return self.partitions or self.before.partitions or self.options.partitions_in(self._spark)

    @property
    def shards(self) -> int:
        """The number of shards of a host that is partitioned by a key."""
        if self.before.shards:
            return self.before.shards
        if self.movable and self.options.shards is not None:
            return max(1, self.options.shards)
        return self.options.shards_in(self._spark, self._partitions)

    @property
    def packed(self) -> bool:
        """Whether results leave as Arrow bytes."""
        return self.levels[-1][0].outlet.packed

    @property
    def _leaving(self) -> Schema:
        """The columns of the combined table."""
        return self.levels[-1][0].outlet.leaving(next(iter(self.plans.values())).schema)

    @property
    def _spark(self) -> SparkSession:
        return next(iter(self.frames.values())).sparkSession

    @property
    def _frames(self) -> dict[str, DataFrame]:
        """The DataFrames of the queries and of witness streams, by name."""
        return {**self.options.witnesses, **self.frames}

    def _packages(self) -> list[DataFrame]:
        """What the lowest operator takes: every stream once, the timer, and the end of the streams."""
        packages = [self._partitioned(name, to) for name, to in sorted(targets(self.levels).items())]
        packages += [self._promised(name) for name in self._unread_speakers]
        timer = self._timer()
        if timer is not None:
            packages.append(self._ticking(timer))
        for texts, stream in ((self.commands, COMMANDS), (self.choices, CHOICES)):
            if texts is not None:
                sent = texts.mapInArrow(CommandBroadcast(end_routes(self.levels), stream), PACKED_DDL)
                packages.append(self._stamped(sent))
        if self.options.ending is not None:
            ending = self.options.ending.select(F.unix_micros(F.current_timestamp()).alias(NOW))
            packages.append(ending.mapInArrow(EndBroadcast(end_routes(self.levels)), PACKED_DDL))
        return packages

    @property
    def sources(self) -> tuple[str, ...]:
        """What `_packages` reads, in order: without names, a checkpoint knows sources by their order."""
        own = {
            "timer": self._clock,
            "control log": self.commands,
            "memory manager": self.choices,
            "end": self.options.ending,
        }
        read = (*sorted(targets(self.levels)), *self._unread_speakers)
        return (*read, *(f"the {n}" for n, each in own.items() if each is not None))

    def _partitioned(self, name: str, to: list[Target]) -> DataFrame:
        """A stream in packages. A clock that all rows share is a column of the packages, not of the rows."""
        stream = min((target.stream for target in to), key=lambda stream: stream.witness)
        df, spoken, schema = self._frames[name], list[Column](), stream.read.schema
        if stream.witness and name in self.speakers:
            spoken, schema = spoken_columns(df, name, self.inputs.row_promises)
        said = speech(self.levels, self.inputs, name, schema)
        packages = self._decoded(name, to, said)
        if packages is None:
            rows = stream_rows(df, stream, self.streams, self.prefixes, self.options, spoken)
            packages = rows.mapInArrow(self._partitioner(name, to, said), PACKED_DDL)
        return packages if stream.recorded else self._stamped(packages)

    def _decoded(self, name: str, to: list[Target], said: Speech | None) -> DataFrame | None:
        """A stream in packages, decoded in the tasks that pack them; None if Spark reads its rows."""
        stream = min((target.stream for target in to), key=lambda stream: stream.witness)
        found = task_stream_of(self._frames[name])
        if found is None or stream.witness or name in self.options.reached:
            return None
        chain = self.prefixes.get(name, source_of(self.streams, name))
        entering = found.entering(
            stream,
            chain,
            self.streams.time_columns.get(name),
            self.options.arrival,
            [target.stream for target in to],
            marks=not drops_rows(self.options, stream),
            all_columns=said is not None or self.outlet.kinds != {RESULT},
            reads=None if self.files is None else self.files.plan,
        )
        if entering is None:
            return None
        now = self._now(found.listed) if entering.clock else None
        reached = None if found.past else found.reached(stream, self.streams.ticks_per_second)
        entering = replace(entering, reached=reached is not None or found.recorded is not None)
        return found.partitioned(entering, self._partitioner(name, to, said), PACKED_DDL, now, reached)

    def _partitioner(self, name: str, to: list[Target], said: Speech | None) -> Partitioner:
        files = self.files if self.files is not None and self.files.stream == name else None
        return Partitioner(to, said, files)

    @property
    def _unread_speakers(self) -> list[str]:
        """The streams of punctuations that are not read for their rows, in order."""
        return sorted(self.speakers.keys() - targets(self.levels).keys())

    def _promised(self, name: str) -> DataFrame:
        """What the rows of a stream promise, in packages."""
        df, recorded = self.speakers[name], self.options.arrival is not None
        clock = [self._now(df).alias(NOW)] if recorded else []
        read = df.where(df[BAD].isNull()) if BAD in df.columns else df
        columns, schema = spoken_columns(read, name, self.inputs.row_promises)
        said = speech(self.levels, self.inputs, name, schema)
        assert said is not None, name
        packages = read.select(*columns, *clock).mapInArrow(PromiseBroadcast(said), PACKED_DDL)
        return packages if recorded else self._stamped(packages)

    def _timer(self) -> DataFrame | None:
        """The ticks: one source for all hosts."""
        timer = self._clock
        if timer is None:
            return None
        if self.options.arrival is not None:
            assert isinstance(timer, DataFrame)
            return timer.select(self._now(timer).alias(NOW))
        clock, instant = clock_of(self._spark, timer)
        return clock.select(clock_ticks(instant, self.streams.ticks_per_second).alias(NOW))

    def _ticking(self, timer: DataFrame) -> DataFrame:
        """The ticks of the timer, sent to every shard."""
        routes = clock_routes(self.levels)
        if self.options.arrival is not None:
            return timer.mapInArrow(TickBroadcast(routes), PACKED_DDL)
        newest = isinstance(self.options.timer, DataFrame)
        packages = timer.mapInArrow(ClockBroadcast(routes, newest), PACKED_DDL)
        return self._stamped(packages)

    def _stamped(self, packages: DataFrame) -> DataFrame:
        """The packages with the instant of the micro-batch."""
        return packages.withColumn("now", by_reference(self._now(packages), F.col("shard")))

    def _now(self, df: DataFrame) -> Column:
        return now(df, self.streams.ticks_per_second, self.options)
