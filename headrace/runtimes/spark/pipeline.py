"""A pipeline file on Spark: a streaming query for each of its queries, one checkpoint for each.

Streams that end, end: the run reads all files there are in one micro-batch, with it says that nothing more
comes (`End`), and stops by itself. Otherwise it runs until it is stopped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.inputs import Inputs
from headrace.engine.reasons import Reason, merged
from headrace.errors import PipelineError, SparkError
from headrace.pipeline import Pipeline, PipelineQuery
from headrace.pipeline.pipeline import LATE, REJECTED
from headrace.runtimes.spark.frames import ARRIVAL, Frames
from headrace.runtimes.spark.lock import is_contended, lock
from headrace.runtimes.spark.outputs import KINDS, Sink, outputs
from headrace.runtimes.spark.progress import Progress, read
from headrace.runtimes.spark.session import session
from headrace.runtimes.spark.sinks import Sinks

LOOK = 1
"""Seconds between two looks at the running queries."""

QUIET: dict[str, Any] = {"spark.ui.showConsoleProgress": False, "spark.log.level": "ERROR"}
Told = Callable[[Progress], object]


@dataclass
class Account:
    """What a query took and gave in this run."""

    batches: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    answers: int = 0
    late: int = 0
    rejected: int = 0
    reasons: tuple[Reason, ...] = ()

    def add(self, progress: Progress) -> None:
        """Count a micro-batch. What a host says of the rows of a stream counts from its first start."""
        self.batches += 1
        self.answers += progress.results
        self.late += progress.late
        self.rejected += progress.rejected
        self.reasons = merged((*self.reasons, *progress.reasons))
        self.rows |= {name: each.rows for name, each in progress.streams.items()}


@dataclass(frozen=True)
class Result:
    """How a run ended: `finished` or `stopped`, and the account of each query."""

    state: str
    queries: dict[str, Account]


class Runner:
    """Runs a pipeline on Spark, in the session that is given or in one of its own."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession | None = None) -> None:
        if pipeline.spec.pipeline.record is not None:
            raise PipelineError(
                "HR-F017",
                "a run on Spark is not recorded",
                place="pipeline.record",
                hint='leave record out, or runtime = "embedded"',
            )
        for name, stream in pipeline.spec.streams.items():
            if stream.shed is not None:
                raise PipelineError(
                    "HR-F017",
                    "nothing is shed on Spark: its sources wait",
                    place=f"streams.{name}.shed",
                    hint="leave shed out; maxFilesPerTrigger, maxOffsetsPerTrigger limit what a batch takes",
                )
        self.pipeline = pipeline
        self._given = spark
        self._stopping = False

    def stop(self) -> None:
        """Stop soon. A micro-batch that is cut short is run again the next time, to the same outputs."""
        self._stopping = True

    def run(self, on_progress: Told | None = None) -> Result:
        """Run until all streams have ended, or until stopped."""
        with ExitStack() as stack:
            spark = self._given or session(self.pipeline.name, **QUIET)
            if self._given is None:
                stack.callback(spark.stop)
            home = self._home(stack)
            stack.enter_context(lock(home, spark))  # before generators and sinks write anything
            frames = Frames(spark, self.pipeline, home)
            sinks = {query.name: self._sinks(frames, query) for query in self.pipeline.queries}
            tell, accounts = on_progress or (lambda progress: None), dict[str, Account]()
            for together in self._turns(frames):
                if not self._stopping:
                    running = [self._start(stack, frames, each, sinks[each.name]) for each in together]
                    accounts |= self._watched(running, tell)
        return Result("stopped" if self._stopping else "finished", accounts)

    def _turns(self, frames: Frames) -> list[tuple[PipelineQuery, ...]]:
        """Queries that end have the machine to themselves, one after the other; others run side by side."""
        queries = self.pipeline.queries
        return [(query,) for query in queries] if frames.bounded else [queries]

    def _home(self, stack: ExitStack) -> Path:
        written = self.pipeline.spec.pipeline.checkpoint
        if written is None:
            return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace")))
        return self.pipeline.path(written).absolute() / "spark"

    # --- starting

    def _start(
        self, stack: ExitStack, frames: Frames, query: PipelineQuery, sinks: Mapping[str, Sink]
    ) -> StreamingQuery:
        inputs = self._inputs()
        made = outputs(
            query.query,
            streams={name: frames.of(name) for name in query.streams},
            inputs=inputs,
            witnesses={name: frames.of(name) for name in sorted(inputs.heard_by(query.streams))},
            memory=self.pipeline.spec.memory.budget,
            policy=self.pipeline.spec.memory.policy,
            reoptimize=self.pipeline.spec.pipeline.reoptimize,
            timer=None if frames.bounded or frames.replays else "1 second",
            time_column=query.spec.sink.time,
            arrival=ARRIVAL if frames.replays else None,
            kinds=frozenset(sinks),
            ending=_ending(frames.spark, frames.home) if frames.bounded else None,
        )
        started = made.start(
            checkpoint=str(_checkpoint(frames, query)),
            name=query.name,
            trigger={"availableNow": True} if frames.bounded else None,
            **sinks,
        )
        stack.callback(started.stop)
        return started

    def _sinks(self, frames: Frames, query: PipelineQuery) -> dict[str, Sink]:
        """The sinks of a query; what is wrong with one is said before anything runs."""
        fresh = not (_checkpoint(frames, query) / "offsets").exists()
        make, spec, place = Sinks(self.pipeline, fresh), query.spec, f"queries.{query.name}"
        found = {KINDS[0]: make.answers(spec.sink, query.query.schema, f"{place}.sink")}
        if spec.late is not None:
            found["late"] = make.of(spec.late, LATE, f"{place}.late")
        if spec.rejected is not None:
            found["rejected"] = make.of(spec.rejected, REJECTED, f"{place}.rejected")
        return found

    def _inputs(self) -> Inputs:
        """What the file promises of its streams, as the embedded runtime has it.

        A stream of one query may vouch for a stream of another, which then reads its times.
        """
        rules = {name: stream.rules for name, stream in self.pipeline.read.items()}
        return Inputs(self.pipeline.heartbeats(), self.pipeline.promises(), rules=rules)

    # --- running

    def _watched(self, running: list[StreamingQuery], tell: Told) -> dict[str, Account]:
        """Tell of the queries until all have ended; what fails one of them is raised."""
        accounts = {query.name: Account() for query in running}
        seen = {query.name: -1 for query in running}
        active = running
        while active and not self._stopping:
            self._wait(active)
            for query in running:
                seen[query.name] = _told(query, seen[query.name], accounts[query.name], tell)
            active = [query for query in running if query.isActive]
        for query in active:
            query.stop()
            _told(query, seen[query.name], accounts[query.name], tell)
        return accounts

    def _wait(self, active: list[StreamingQuery]) -> None:
        """Until a query ends, or for a moment; what stopped one stops all."""
        try:
            active[0].awaitTermination(LOOK)
            for query in active:
                if (failed := query.exception()) is not None:
                    raise failed
        except PySparkException as error:
            if is_contended(error):
                raise  # `lock` says it in words
            raise SparkError(
                "HR-SP30",
                f"a query of the pipeline failed: {_gist(error)}",
                place=self.pipeline.name,
                hint="what was committed is safe; run it again to go on",
            ) from error


def _checkpoint(frames: Frames, query: PipelineQuery) -> Path:
    return frames.home / "queries" / query.name


def _told(query: StreamingQuery, last: int, account: Account, tell: Told) -> int:
    """Count and tell the micro-batches since the last one that was told; the number of the newest."""
    for each in map(read, query.recentProgress):
        if each.hosted and each.batch > last:
            last = each.batch
            account.add(each)
            tell(each)
    return last


def _gist(error: PySparkException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith(("headrace", "HR-"))), lines[0])


def _ending(spark: SparkSession, home: Path) -> DataFrame:
    """A stream of one row, which is there from the start."""
    folder = home / "ending"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "row.txt").write_text("end\n")
    return spark.readStream.text(str(folder))
