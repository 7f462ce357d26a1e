"""`SparkOptions`: how a query runs on Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Final, get_args

from pyspark.sql import DataFrame, SparkSession

from headrace.engine import Shortage
from headrace.engine.execution import Execution
from headrace.engine.inputs import Inputs
from headrace.errors import BudgetError, SparkError
from headrace.memory.budget import budget_bytes
from headrace.plan.nodes.core import Source, TimeKind
from headrace.runtimes.spark.driver.bounds import AllBounds, inputs_of, nearest
from headrace.runtimes.spark.driver.speakers import Given, row_promises
from headrace.time.durations import Duration
from headrace.time.ets import Policy, policy


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """Options of `headrace.spark.apply` and `headrace.spark.outputs`.

    options = SparkOptions(bounds={"bids": {"disorder": "10 seconds"}})
    headrace.spark.apply(query, {"bids": bids}, options)
    """

    bounds: AllBounds = None
    """How late rows may be, by stream: `{"bids": {"disorder": "10 seconds", "latency": "1 minute"}}`.

    `disorder` is relative to the newest row of the stream, `latency` to the clock. `slack`, `transit`, `skew`
    and `estimate` are as in a pipeline file. With `"sources": "device"`, bounds hold for each group of
    sources, which this column names. A `headrace.time.bounds.Bounds` or learned heartbeats describe all
    streams at once.
    """

    skew: Mapping[str, Any] | None = None
    """Bounds between streams, with the keys of `[skew]` in a pipeline file.

    `{"bounds": [{"of": "bids", "on": "asks", "pairs": [["0 s", "2 s"]]}], "timeout": "1 minute"}`
    """

    idle: str | Mapping[str, str] = "on_demand"
    """When a stream without rows makes a watermark, for all streams or by stream.

    `"on_demand"`: when an operator waits for it. `"periodic(5 seconds)"`: at intervals. `"none"`: never.
    """

    enforce: str = "strict"
    """What happens to late rows.

    `"strict"` sends them to the late output. `"admit"` still counts them where no result has been emitted for
    their time. `"refuse"` fails the query.
    """

    guard: Duration | None = None
    """Reject rows that are further ahead of the clock than this, so that one wrong clock does no harm."""

    inputs: Inputs | None = None
    """Bounds, idle-source policies and rules in one object.

    It replaces `bounds`, `skew`, `idle`, `enforce` and `guard`.
    """

    punctuations: Mapping[str, Given] = field(default_factory=dict)
    """Rows that promise "no later row of this stream has these values", by stream.

    `{"bids": {"column": "closed", "pattern": ["auction"]}}`: rows of `bids` itself, where `closed` is true.
    `{"bids": {"stream": closings, "pattern": {"auction": "id"}}}`: rows of another streaming DataFrame, or of
    another stream of the query, by its name. The keys are those of a pipeline file.
    """

    heartbeats: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Rows that promise that all later rows have later times, by stream: `{"bids": {"column": "until"}}`."""

    timer: Duration | DataFrame | None = "1 second"
    """The clock of a `latency` bound: how often it ticks.

    A streaming DataFrame with one timestamp column is used as the clock itself. None turns it off.
    """

    reached: Mapping[str, str] = field(default_factory=dict)
    """By stream, the column that says when a row reached its source, such as Kafka's `timestamp`.

    With it, results keep coming while a rate limit leaves a backlog at the source.
    """

    arrival: str | None = None
    """A column of every stream that replaces the clock, to replay recorded rows as they came.

    The timer then ticks only if it is a DataFrame that has this column too.
    """

    ending: DataFrame | None = None
    """A streaming DataFrame whose first row ends all streams: all results that are still held come out."""

    witnesses: Mapping[str, DataFrame] = field(default_factory=dict)
    """Streams that the query does not read but the bounds mention, by name.

    Only their times are read, from a column `__headrace_ticks`, to advance the watermarks of the others.
    """

    time_column: str | None = None
    """Adds a column of this name to the results: the time of each result, in ticks."""

    shards: int | None = None
    """The maximum number of shards; the limit is the number of shuffle partitions.

    By default there is one shard for each core, because each shard costs time in each micro-batch.
    """

    memory: int | str | None = None
    """How much state all queries and shards may hold: bytes, a size such as `"64 MB"`, or `"25 %"`.

    A share is of the executors' memory. In a job, windows and granularities that a query declares with a
    range change to stay within it, alike in all shards.
    """

    policy: Shortage = "fail"
    """What happens when the smallest windows do not fit into `memory`.

    `"fail"` stops the query. `"spill"` moves state to the executor's disk.
    """

    strategy: str = "auto"
    """Which operator runs next: `"auto"`, `"dfs"`, `"bfs"`, `"rr"`, `"chain"`, `"edf"`, `"dfs(100)"`."""

    level: str = "operator"
    """Whose watermarks an operator waits for: `"operator"`, `"query"` or `"memory"`."""

    propagation: str = "direct"
    """How watermarks travel in a shard: `"direct"` to operators that wait, or `"in_band"` with the rows."""

    reoptimize: int | bool = False
    """Reorder joins and conditions by what each shard measures, after this many rows or more.

    True uses a default number of rows.
    """

    ordered: bool = True
    """Emit the results in the order of their times, across shards.

    Each micro-batch is put in order in one task. False leaves the results of each shard apart, answers
    groups that a punctuation closes before their windows end, and groups by the column of `sources` when
    their own source is complete.
    """

    native: bool = True
    """Let Spark run filters and projections before and after the engine.

    This applies to `apply` only: late and rejected rows are written as they came, before any filter.
    """

    def __new__(cls, *unnamed: object, **named: object) -> SparkOptions:
        """Raise an error for unknown options; the hint for a misspelt name is the nearest option."""
        for value in unnamed:
            message = f"an option without a name: {type(value).__name__}"
            raise SparkError("HR-SP25", message, hint="give options by name: SparkOptions(bounds=...)")
        for name in named:
            if name not in NAMES:
                raise SparkError("HR-SP25", f"there is no option {name!r}", hint=nearest(name, NAMES))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, accepted in _ACCEPTED.items():
            value = getattr(self, name)
            if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
                message = f"the option {name} cannot be of type {type(value).__name__}"
                expected = " or ".join("None" if kind is _NONE else kind.__name__ for kind in accepted)
                raise SparkError("HR-SP25", message, place=name, hint=f"expected {expected}")
        if self.policy not in get_args(Shortage):
            hint = nearest(self.policy, get_args(Shortage))
            raise BudgetError("HR-M003", f"unknown policy {self.policy!r}", place="policy", hint=hint)
        _ = self.execution
        replaced = [name for name in _IN_INPUTS if getattr(self, name) != _DEFAULTS[name]]
        if self.inputs is not None and replaced:
            message = f"both inputs and {replaced[0]} are set"
            raise SparkError("HR-SP25", message, place=replaced[0], hint="inputs replaces it: leave one out")

    @property
    def execution(self) -> Execution:
        """How the engine of each shard runs."""
        return Execution(self.strategy, self.level, self.propagation)

    @property
    def clock(self) -> Duration | DataFrame | None:
        """The timer in use: recorded arrivals replace the wall clock."""
        replayed = self.arrival is not None and not isinstance(self.timer, DataFrame)
        return None if replayed else self.timer

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """The columns that results have besides those of the query."""
        return () if self.time_column is None else (self.time_column,)

    def inputs_for(self, sources: Sequence[Source], per_second: int | None) -> Inputs:
        """What these options promise about streams, checked against them."""
        names = [source.name for source in sources]
        if self.inputs is None:
            found = inputs_of(
                self.bounds,
                names,
                self.enforce,
                self.guard,
                per_second,
                self.skew,
                self.witnesses,
                [source.name for source in sources if source.time is not TimeKind.EXTERNAL],
            )
            found = replace(found, policies=self._policies(names, per_second))
        else:
            found = self.inputs
        found.check(sources)
        if not (self.punctuations or self.heartbeats):
            return found
        said, _ = row_promises(self.punctuations, self.heartbeats, sources)
        return replace(found, row_promises=said)

    def speakers_for(self, sources: Sequence[Source]) -> dict[str, DataFrame]:
        """The DataFrames among `punctuations`, by the names that they have in `Inputs.row_promises`."""
        return row_promises(self.punctuations, {}, sources)[1]

    def _policies(self, streams: Sequence[str], per_second: int | None) -> dict[str, Policy]:
        """When each stream makes watermarks without rows."""
        by_stream = dict.fromkeys(streams, self.idle) if isinstance(self.idle, str) else self.idle
        for name in by_stream:
            if name not in streams:
                message = f"idle names {name!r}, which the query does not read"
                raise SparkError("HR-SP25", message, place="idle", hint=nearest(name, streams))
        return {name: policy(str(each), per_second, f"idle, {name}") for name, each in by_stream.items()}

    def partitions_in(self, spark: SparkSession) -> int:
        """How many partitions a shuffle has in a session."""
        return int(spark.conf.get(PARTITIONS) or 1)

    def shards_in(self, spark: SparkSession, partitions: int) -> int:
        """How many shards a host with a key has in a session whose shuffles have so many partitions."""
        wanted = cores_of(lambda name: spark.conf.get(name, None)) if self.shards is None else self.shards
        return partitions if wanted is None else max(1, min(wanted, partitions))

    def job_partitions_in(self, spark: SparkSession) -> int:
        """How many partitions with state a job has, which Spark starts with the settings of the job.

        Spark starts a Python task for each of them in each micro-batch, with or without a shard.
        """
        return self.shards_in(spark, self.partitions_in(spark))

    def budget_in(self, spark: SparkSession) -> int | None:
        """How many bytes of state all queries and shards together may hold in a session."""
        if self.memory is None:
            return None
        return budget_bytes(self.memory, lambda: executor_bytes(lambda name: spark.conf.get(name, None)))


NAMES: Final = tuple(each.name for each in fields(SparkOptions))
_DEFAULTS: Final = {each.name: each.default for each in fields(SparkOptions)}
_IN_INPUTS: Final = ("bounds", "skew", "idle")
"""The options that `inputs` replaces."""

_NONE: Final = type(None)
_ACCEPTED: Final[dict[str, tuple[type, ...]]] = {
    "enforce": (str,),
    "skew": (Mapping, _NONE),
    "idle": (str, Mapping),
    "strategy": (str,),
    "level": (str,),
    "propagation": (str,),
    "guard": (str, int, timedelta, _NONE),
    "inputs": (Inputs, _NONE),
    "punctuations": (Mapping,),
    "heartbeats": (Mapping,),
    "timer": (str, int, timedelta, DataFrame, _NONE),
    "reached": (Mapping,),
    "arrival": (str, _NONE),
    "ending": (DataFrame, _NONE),
    "witnesses": (Mapping,),
    "time_column": (str, _NONE),
    "shards": (int, _NONE),
    "memory": (str, int, _NONE),
    "policy": (str,),
    "reoptimize": (int, bool),
    "ordered": (bool,),
    "native": (bool,),
}
"""The types of each option except `bounds`, which `inputs_of` checks."""


# A share of the executors' memory, for all queries and shards together: `memory="25 %"`.
#
# If Spark limits the memory of Python (`spark.executor.pyspark.memory`), it is a share of that. The number of
# executors counts if the settings say it; with dynamic allocation there may be one.

Setting = Callable[[str], str | None]
"""Looks up a setting in Spark's configuration."""

PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PYTHON: Final = "spark.executor.pyspark.memory"
_EXECUTOR: Final = "spark.executor.memory"
_DRIVER: Final = "spark.driver.memory"
_EXECUTORS: Final = "spark.executor.instances"
_MOST_EXECUTORS: Final = "spark.dynamicAllocation.maxExecutors"
_EXECUTOR_CORES: Final = "spark.executor.cores"
_DEFAULT: Final = "1g"
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*).*\])?")


def executor_bytes(setting: Setting) -> int:
    """The memory of the executors of a session together; with a local master, the driver is the executor."""
    local = _LOCAL.fullmatch(setting("spark.master") or "")
    executor = _DRIVER if local else _EXECUTOR
    written = setting(_PYTHON) or setting(executor) or _DEFAULT
    dynamic = setting("spark.dynamicAllocation.enabled") == "true"
    executors = None if local or dynamic else setting(_EXECUTORS)
    return spark_bytes(written) * max(1, int(executors or 1))


def _tasks(setting: Setting, local: re.Match[str] | None) -> int:
    """How many tasks an executor runs at once; with a local master, the driver is the executor."""
    if local:
        cores = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
    else:
        cores = int(setting(_EXECUTOR_CORES) or 1)
    return max(1, cores // int(setting("spark.task.cpus") or 1))


def cores_of(setting: Setting) -> int | None:
    """How many tasks a session runs at once, by its settings, or at most with dynamic allocation.

    None if the settings do not tell.
    """
    local = _LOCAL.fullmatch(setting("spark.master") or "")
    if local:
        return _tasks(setting, local)
    dynamic = setting("spark.dynamicAllocation.enabled") == "true"
    executors = setting(_MOST_EXECUTORS if dynamic else _EXECUTORS)
    if executors is not None and executors.isdecimal() and setting(_EXECUTOR_CORES) is not None:
        return max(1, int(executors)) * _tasks(setting, None)
    known = None if dynamic else setting("spark.default.parallelism")
    return int(known) if known is not None and known.isdecimal() else None


def spark_bytes(written: str) -> int:
    """A size as Spark writes it: '2g', '512m', '1024k'; a number alone counts mebibytes."""
    size = written.strip().upper().removesuffix("B")
    if size.isdecimal():
        unit = "B" if written.strip().upper().endswith("B") else "MiB"
        return budget_bytes(f"{size} {unit}")
    return budget_bytes(f"{size[:-1]} {size[-1]}iB")
