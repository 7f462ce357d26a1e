"""A pipeline file on Spark: all its queries are one job, a Spark streaming query with one checkpoint.

With a checkpoint, the job follows the control log. What its shards cannot change while they run, such as the
guard of a stream, the driver changes by starting the job again, which keeps its state.

If all streams end, the run reads all files in one micro-batch, ends the streams with it (`EndBroadcast`) and
stops by itself. Otherwise it runs until it is stopped.
"""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.connectors.late_and_rejected import LATE_SCHEMA, REJECTED_SCHEMA
from headrace.engine.reasons import Reason, merged
from headrace.errors import PipelineError, SparkError
from headrace.pipeline import Pipeline, PipelineQuery
from headrace.pipeline.secrets import revealed, revealed_options
from headrace.runtimes.embedded.evolving import OUTPUTS, continued_outputs
from headrace.runtimes.embedded.progress import source_names
from headrace.runtimes.reloading import Reloader
from headrace.runtimes.spark.driver.control_log import ControlLog
from headrace.runtimes.spark.driver.job import Control, Job
from headrace.runtimes.spark.driver.lock import is_contended, lock
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.preview import JOB, check_definition, definition_of, home_of
from headrace.runtimes.spark.driver.progress import Progress, read
from headrace.runtimes.spark.driver.session import keeping_interrupts, session
from headrace.runtimes.spark.driver.sinks import Sinks
from headrace.runtimes.spark.driver.source_names import OWN, named_sources, reader
from headrace.runtimes.spark.driver.sources import ARRIVAL, Frames
from headrace.runtimes.spark.driver.status import write_end
from headrace.runtimes.spark.driver.writing import JobQuery, Sink
from headrace.runtimes.spark.types import spark_schema
from headrace.runtimes.spark.versions import refuse_connect
from headrace.runtimes.spark.worker.host import by_value
from headrace.runtimes.status import FAILED, FINISHED, STOPPED

LOOK = 1
"""Seconds between two checks of the running job."""

QUIET: dict[str, Any] = {"spark.ui.showConsoleProgress": False, "spark.log.level": "ERROR"}
OnProgress = Callable[[Progress], object]


@dataclass
class Account:
    """What a query read and wrote in this run."""

    batches: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    answers: int = 0
    late: int = 0
    rejected: int = 0
    reasons: tuple[Reason, ...] = ()

    def add(self, progress: Progress, query: PipelineQuery) -> None:
        """Add a micro-batch. The rows of a stream are counted from the first start of the job."""
        self.batches += 1
        self.answers += progress.queries.get(query.name, 0)
        read = {name: each for name, each in progress.streams.items() if name in query.streams}
        self.late += sum(each.late for each in read.values())
        self.rejected += sum(each.rejected for each in read.values())
        reasons = (each for each in progress.reasons if each.stream in read)
        self.reasons = merged((*self.reasons, *reasons))
        self.rows |= {name: each.rows for name, each in read.items()}


@dataclass(frozen=True)
class Result:
    """How a run ended, `finished` or `stopped`, and the account of each query."""

    state: str
    queries: dict[str, Account]


class Runner:
    """Runs a pipeline on Spark, in the given session or in a new one."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession | None = None,
        *,
        reset: Collection[str] = (),
        reload: Collection[str] = (),
        say: Callable[[str], object] = lambda message: None,
    ) -> None:
        if pipeline.spec.pipeline.record is not None:
            raise PipelineError(
                "HR-F017",
                "runs on Spark cannot be recorded",
                place="pipeline.record",
                hint='leave record out, or set runtime = "embedded"',
            )
        for name, stream in pipeline.spec.streams.items():
            if stream.shed is not None:
                raise PipelineError(
                    "HR-F017",
                    "load shedding is not available on Spark, whose sources wait",
                    place=f"streams.{name}.shed",
                    hint="leave shed out; limit micro-batches by maxFilesPerTrigger or maxOffsetsPerTrigger",
                )
        self.pipeline = pipeline
        self._given, self._say = spark, say
        self._reset, self._reload = frozenset(reset), frozenset(reload)
        self._stopping = False
        self._accounts: dict[str, Account] = {}

    def stop(self) -> None:
        """Stop soon. An interrupted micro-batch runs again at the next start, with the same output."""
        self._stopping = True

    def run(self, on_progress: OnProgress | None = None) -> Result:
        """Run until all streams have ended, or until stopped."""
        with ExitStack() as stack:
            with keeping_interrupts():
                wanted = {**QUIET, **session_settings(self.pipeline)}
                spark = self._given or session(self.pipeline.name, **wanted)
            if self._given is None:
                stack.callback(spark.stop)
            refuse_connect(
                spark,
                "a pipeline file",
                "use headrace.spark.job in Python, or a session without Spark Connect (unset SPARK_REMOTE): "
                "the driver must follow the control log and print to its own terminal",
            )
            for name in self.pipeline.functions.modules():
                by_value(name)
            home = self._home(stack)
            stack.enter_context(lock(home, spark))  # before generators and sinks write anything
            log = self._control_log(Frames(spark, self.pipeline, home))
            report = on_progress or (lambda progress: None)
            reloader = None if log is None else Reloader.of(self.pipeline, self._say)
            if reloader is not None:
                reloader.start(at_once=(home / JOB).is_dir())
                stack.callback(reloader.stop)
            while self._runs(spark, home, log, report):
                self._reset = self._reload = frozenset()
        return Result("stopped" if self._stopping else "finished", self._accounts)

    def _control_log(self, frames: Frames) -> ControlLog | None:
        """The control log; runs that end, and replays, take only the commands that are there at the start."""
        if self.pipeline.spec.pipeline.checkpoint is None:
            return None
        log = ControlLog(self.pipeline, self._say)
        self.pipeline = log.start()
        return None if frames.bounded or frames.replays else log

    def _runs(self, spark: SparkSession, home: Path, log: ControlLog | None, report: OnProgress) -> bool:
        """Run the job once; true if it must be started again, because of a command."""
        if self._stopping:
            return False
        if log is not None:
            self.pipeline = log.start()
        self._accounts |= {q.name: Account() for q in self.pipeline.queries if q.name not in self._accounts}
        with named_sources(spark):
            frames = Frames(spark, self.pipeline, home)
            job = self._job(frames, log)
            past = frames.pasts.unread
            ends = bool(past) or frames.bounded
            trigger = {"availableNow": True} if ends else trigger_of(self.pipeline)
            running = job.start(trigger=trigger, reset=self._reset, reload=self._reload)
        if str(job.changes):
            self._say(f"this start {job.changes}")
        if job.moved:
            self._say(job.moved)
        try:
            self._watch(running, job, log, report)
        except SparkError as error:
            write_end(spark, job.checkpoint, FAILED, str(error))
            raise
        finally:
            running.stop()
        again = log is not None and log.must_start_again and not self._stopping
        if past and not (again or self._stopping):
            for name in past:
                frames.pasts.finish(name)
            self._say(
                f"the history of {', '.join(past)} has been read: what comes after it is read from here on"
            )
            return True
        if not again:
            write_end(spark, job.checkpoint, STOPPED if self._stopping else FINISHED)
        return again

    def _home(self, stack: ExitStack) -> Path:
        """The directory for checkpoints: that of the pipeline file, or a temporary one."""
        found = home_of(self.pipeline)
        return found or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace")))

    # --- starting

    def _job(self, frames: Frames, log: ControlLog | None) -> Job:
        """All queries as one job; an error in one of them is reported before anything runs."""
        checkpoint = frames.home / JOB
        if (frames.home / "queries").exists():
            raise SparkError(
                "HR-SP21",
                "the checkpoint was written by a version of Headrace with one Spark query per query",
                place=str(frames.home),
                hint="continue with that version, or start with a new checkpoint and new outputs",
            )
        options = SparkOptions(
            inputs=self.pipeline.inputs(),
            **asdict(self.pipeline.execution),
            memory=self.pipeline.spec.memory.budget,
            policy=self.pipeline.spec.memory.policy,
            reoptimize=self.pipeline.spec.pipeline.reoptimize,
            shards=self.pipeline.spec.spark.shards,
            timer=None if frames.bounded or frames.replays else "1 second",
            arrival=ARRIVAL if frames.replays else None,
            ending=_ending(frames.spark, frames.home) if frames.bounded and not frames.pasts.unread else None,
        )
        streams = {name: self._declared(name, frames.of(name)) for name in self.pipeline.read}
        job = Job(streams, options, str(checkpoint), self.pipeline.name, controlled=False)
        job.file = None if self.pipeline.file is None else str(self.pipeline.file)
        job.source_names = source_names(self.pipeline)
        if log is not None:
            commands = log.stream(frames.spark)
            job.follow(Control(self.pipeline, log.position, commands, lambda: self._current(job, log)))
        written = self._written(job)
        for query in self.pipeline.queries:
            self._add(job, query, written)
        return job

    def _written(self, job: Job) -> frozenset[str]:
        """The outputs that were written before; an error if the file cannot go on with the checkpoint."""
        job.definition = definition_of(self.pipeline)
        record = job.record
        check_definition(self.pipeline, job.definition, record, job.checkpoint, self._reset, self._reload)
        if record is None:
            return frozenset()
        known = {f"{name}/{output}" for name in job.started() for output in OUTPUTS}
        before = record.definition
        if not before:
            return frozenset(known)
        noted = {f"{each['name']}/{output}" for each in before["queries"] for output in OUTPUTS}
        return frozenset(known & (continued_outputs(before, job.definition) | (known - noted)))

    def _add(self, job: Job, query: PipelineQuery, written: Collection[str] = ()) -> None:
        """Add a query with its sinks to a job; `written` are outputs that go on."""
        home = Path(job.checkpoint).parent
        sinks = self._sinks(query, written, job.when_accepted, home)
        job.add(
            query.name,
            query.query,
            sink=sinks.get("sink"),
            late=sinks.get("late"),
            rejected=sinks.get("rejected"),
            time_column=query.spec.sink.time,
        )

    def _current(self, job: Job, log: ControlLog) -> Mapping[str, JobQuery]:
        """The queries with their sinks, after the commands that shards may have applied by now."""
        pipeline = log.look(job.has_home)
        named = {query.name: query for query in pipeline.queries}
        for name in job.queries.keys() - named:
            job.remove(name)
        job.when_accepted.clear()
        for name in named.keys() - job.queries:
            self._add(job, named[name])
        for each in job.when_accepted:
            each()
        self.pipeline = pipeline
        job.limit(pipeline.spec.memory.budget)
        return job.with_sinks

    def _sinks(
        self,
        query: PipelineQuery,
        written: Collection[str],
        when_accepted: list[Callable[[], object]],
        home: Path,
    ) -> dict[str, Sink]:
        """The sinks of a query; `home` is the directory of its checkpoint."""
        spec, place = query.spec, f"queries.{query.name}"

        def make(output: str) -> Sinks:
            return Sinks(self.pipeline, home, f"{query.name}/{output}" not in written, when_accepted)

        found = {"sink": make("sink").answers(spec.sink, query.query.schema, f"{place}.sink")}
        if spec.late is not None:
            found["late"] = make("late").of(spec.late, LATE_SCHEMA, f"{place}.late")
        if spec.rejected is not None:
            found["rejected"] = make("rejected").of(spec.rejected, REJECTED_SCHEMA, f"{place}.rejected")
        return found

    def _declared(self, name: str, df: DataFrame) -> DataFrame:
        """A stream that only promises something about others, in the types of the file.

        Streams that queries read are cast where they are read.
        """
        if any(name in query.streams for query in self.pipeline.queries):
            return df
        fields = spark_schema(self.pipeline.streams[name].schema)
        return df.withColumns({each.name: df[each.name].cast(each.dataType) for each in fields})

    # --- running

    def _watch(self, running: StreamingQuery, job: Job, log: ControlLog | None, report: OnProgress) -> None:
        """Report the progress of the job until it ends or must stop; raise if it fails."""
        last = -1
        while running.isActive and not self._stopping:
            self._wait(running)
            last = self._reported(running, last, report)
            if log is not None:
                log.look(job.has_home)
                self._stopping |= log.must_stop
                if log.must_start_again:
                    break
        running.stop()
        self._wait(running)
        self._reported(running, last, report)

    def _reported(self, running: StreamingQuery, last: int, report: OnProgress) -> int:
        """Count and report the micro-batches after number `last`; returns the number of the newest."""
        for each in map(read, running.recentProgress):
            if each.hosted and each.batch > last:
                last = each.batch
                for query in self.pipeline.queries:
                    self._accounts.setdefault(query.name, Account()).add(each, query)
                report(each)
        return last

    def _wait(self, running: StreamingQuery) -> None:
        """Wait for a moment, or until the job ends; raise if it failed."""
        try:
            running.awaitTermination(LOOK)
            if (failed := running.exception()) is not None:
                raise failed
        except PySparkException as error:
            if is_contended(error):
                raise  # `lock` turns it into HR-SP22
            raise SparkError(
                "HR-SP30",
                f"the pipeline failed: {_gist(error)}",
                place=self.pipeline.name,
                hint="committed output is safe; run the pipeline again to continue",
            ) from error


def session_settings(pipeline: Pipeline) -> dict[str, Any]:
    """The settings of the session that `[spark]` asks for."""
    spec = pipeline.spec.spark
    found = revealed_options(spec.settings, "spark.settings")
    jars = [each for written in spec.jars for each in _jars(pipeline, written)]
    if jars:
        found["spark.jars"] = ",".join(jars)
    if spec.packages:
        found["spark.jars.packages"] = ",".join(spec.packages)
    return found


def _jars(pipeline: Pipeline, written: str) -> list[str]:
    """The jars that a path or pattern means; a URI is left as it is."""
    path = revealed(written, "spark.jars")
    if "://" in path:
        return [path]
    found = sorted(glob.glob(str(pipeline.path(path).absolute())))
    if not found:
        raise PipelineError(
            "HR-F016",
            f"there are no jars {written!r}",
            place="spark.jars",
            hint="give an existing file or a pattern",
        )
    return found


def trigger_of(pipeline: Pipeline) -> dict[str, Any] | None:
    """How often a micro-batch may begin; None: as soon as the last one has ended."""
    wanted = pipeline.spec.spark.trigger
    return None if wanted is None else {"processingTime": f"{round(wanted * 1000)} milliseconds"}


def _gist(error: PySparkException) -> str:
    """The line of a Spark exception that has the error of Headrace, or else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith(("headrace", "HR-"))), lines[0])


def _ending(spark: SparkSession, home: Path) -> DataFrame:
    """A stream of one row, which exists from the start."""
    folder = home / "ending"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "row.txt").write_text("end\n")
    return reader(spark, f"{OWN}end").text(str(folder))
