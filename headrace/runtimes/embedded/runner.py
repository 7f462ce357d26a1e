"""Runs a pipeline: read, push, write results, commit; after a crash, continue from the last commit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headrace import tuning
from headrace.connectors.contract import Commit
from headrace.control import Entry, Resume
from headrace.control.apply import add_queries
from headrace.engine import Adopted, Engine
from headrace.errors import DurabilityError, HeadraceError
from headrace.pipeline import Pipeline
from headrace.pipeline.sharing import start_together, with_shared_plans
from headrace.pipeline.spec import DeltaTo, IcebergTo
from headrace.runtimes.embedded.checkpoint import Checkpoint, Store
from headrace.runtimes.embedded.controlling import OUTPUT_CHANGES, Control, change
from headrace.runtimes.embedded.evolving import (
    check_clock,
    check_names,
    check_streams,
    check_tables,
    continued_outputs,
    difference,
    essence,
    lasting,
    table_digests,
    with_generations,
)
from headrace.runtimes.embedded.factory import PipelineFactory, spill_store_of
from headrace.runtimes.embedded.feeds import Feed, Step, SystemFeed
from headrace.runtimes.embedded.orders import Orders
from headrace.runtimes.embedded.outputs import Observer, Outputs
from headrace.runtimes.embedded.progress import measure
from headrace.runtimes.embedded.record import Recorded, Recorder
from headrace.runtimes.records import telling
from headrace.runtimes.reloading import Reloader
from headrace.runtimes.status import FAILED, FINISHED, RUNNING, STARTING, STOPPED, Status
from headrace.spill.directory import DirectorySpillStore
from headrace.time.clock import STEP, Clock, ManualClock, SimulatedClock, SteadyClock, SystemClock, seconds
from headrace.time.timestamp import FARTHEST, MIN_TIME

NOTES: Final = 50
"""The maximum number of notes about files and clocks that are shown: the newest ones."""


INTERVAL: Final = 0.5
"""Seconds after which answers are committed, and so can be seen, if the pipeline does not say otherwise."""
IDLE_INTERVAL: Final = 10.0
"""Seconds between commits while there are no new answers, and while lake tables are written: small commits
make many small files there."""


def interval_of(pipeline: Pipeline) -> float:
    """The seconds after which answers are committed."""
    given = pipeline.spec.pipeline.interval
    if given is not None:
        return given
    sinks = (sink for each in pipeline.spec.queries for sink in (each.sink, each.late, each.rejected))
    return IDLE_INTERVAL if any(isinstance(sink, DeltaTo | IcebergTo) for sink in sinks) else INTERVAL


@dataclass(frozen=True)
class Result:
    """How a run ended: `finished` (all input is processed), or `stopped` (it can continue)."""

    state: str
    progress: Status


class Runner:
    """Runs a pipeline in this process.

    Guarantees: a row is part of exactly one commit; outputs show only commits, or are truncated to one at the
    next start; memory does not grow with the amount of input. While a sink is busy, sources are read at most
    one block ahead.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        clock: Clock | None = None,
        wait: Callable[[float], None] = time.sleep,
        into: str | Path | None = None,
        reset: Collection[str] = (),
        reload: Collection[str] = (),
        observe: Observer | None = None,
    ) -> None:
        """`reset`: queries that start empty although the checkpoint has state for them.

        `reload`: tables whose file has changed since the checkpoint, and whose new rows count from here on.
        `observe` gets all output after each step, before it is committed.
        """
        self.pipeline = pipeline
        self._reset, self._reload = frozenset(reset), frozenset(reload)
        self.engine: Engine
        self.outputs: Outputs
        self.feed: Feed
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._clock = clock or SystemClock()
        if not isinstance(self._clock, ManualClock | SimulatedClock):
            self._clock = SteadyClock(self._clock, self._notes.append)
        self._wait = wait
        self._observe = observe
        self._into = None if into is None else Path(into)
        self._stop = False
        table = pipeline.spec.pipeline
        durable = table.checkpoint is not None and self._into is None
        self._store = Store(pipeline.path(str(table.checkpoint))) if durable else None
        self._control = Control(pipeline, durable, self._notes.append)
        self._together = start_together(pipeline)
        self._recorder = self._recording()
        self._messages: list[str] = list(pipeline.warnings)
        self._begun = seconds()
        self._orders = Orders()
        self._rows = 0
        self._committed = (0, self._begun)
        self._commits = 0
        self._before: Status | None = None
        self._differs = self._resumed = False
        self._state = STARTING
        self.result: Result | None = None
        """How the run ended."""

    def _recording(self) -> Recorder | None:
        """The recorder that the pipeline asks for; none while a recorded run is replayed."""
        record = self.pipeline.spec.pipeline.record
        if record is None or self._into is not None:
            return None
        return Recorder(self.pipeline.path(record), self.pipeline)

    def stop(self) -> None:
        """Stop after the current step, with a commit. Safe to call from a signal handler."""
        self._stop = True

    def run(
        self,
        *,
        on_progress: Callable[[Status], object] | None = None,
        every: float = 0.5,
        max_steps: int | None = None,
    ) -> Result:
        """Run until all input is processed or `stop` is called; calls `on_progress` every `every` seconds."""
        for _ in self.stepwise(on_progress=on_progress, every=every, max_steps=max_steps):
            pass
        assert self.result is not None
        return self.result

    def stepwise(
        self,
        *,
        on_progress: Callable[[Status], object] | None = None,
        every: float = 0.5,
        max_steps: int | None = None,
    ) -> Iterator[None]:
        """Like `run`, one step at a time. After `stop`, iterate to the end: this is when the run commits."""
        self._begun = seconds()
        on_progress = telling(on_progress)
        if self._store is not None:
            self._store.open()
        reloader = Reloader.of(self.pipeline, self._notes.append) if self._store is not None else None
        try:
            self._open()
            if reloader is not None and self._state != FINISHED:
                reloader.start(at_once=self._resumed)
            if self._state != FINISHED:
                yield from self._loop(on_progress, every, max_steps)
            self.result = Result(self._state, self.progress())
        except HeadraceError as error:
            if on_progress is not None and self._before is not None:
                on_progress(replace(self._before, state=FAILED, error=str(error), written=time.time()))
            raise
        finally:
            if reloader is not None:
                reloader.stop()
            self._close()
        if on_progress is not None:
            on_progress(self.result.progress)

    def replay(
        self, commits: Iterable[list[Step]], on_progress: Callable[[Status], object] | None = None
    ) -> Result:
        """Apply recorded steps instead of reading; a commit after each list of steps."""
        self._begun = seconds()
        try:
            self._open_outputs()
            for steps in commits:
                for step in steps:
                    self.apply(step)
                self._commit()
                if on_progress is not None:
                    on_progress(self.progress())
            self._state = FINISHED
            return Result(self._state, self.progress())
        finally:
            self._close()

    # --- starting

    def _open_outputs(self) -> None:
        """For a replay: open the engine and the outputs, without sources."""
        self.engine = self.build_engine()
        opening = PipelineFactory(self.pipeline, self._clock, 0, self._into)
        self._clock_kind = "recorded"
        self._factory = opening
        self.outputs = opening.outputs()
        self.outputs.open(self.outputs.begin())
        self._state = RUNNING

    def _open(self) -> None:
        """Continue from the newest complete checkpoint, or start from the beginning."""
        self._table_files = table_digests(self.pipeline)
        checkpoint = self._newest()
        self._resumed = checkpoint is not None
        if checkpoint is not None:
            self._mend(checkpoint)
        self.engine = self.build_engine()
        self._started = checkpoint.body["started"] if checkpoint else self._clock.now()
        opening = PipelineFactory(self.pipeline, self._clock, self._started, self._into, self._notes.append)
        self._factory, self._clock_kind = opening, opening.kind
        self.outputs = opening.outputs()
        self.outputs.observe = self._observe
        self.feed = opening.feed()
        if isinstance(self.feed, SystemFeed):
            self._rows_may_wait(self.pipeline.read)
        self._spools, self._finished = opening.spools, opening.finished
        if checkpoint is None:
            self._begin()
        else:
            self._resume(checkpoint)
        self.progress()  # rates count from here

    def _rows_may_wait(self, streams: Iterable[str]) -> None:
        """Stop promises by the clock for now: rows may have come to the sources while nobody read them."""
        for name in streams:
            if self.pipeline.streams[name].external:
                self.engine.streams.read_until(name, MIN_TIME)

    def build_engine(self, *, spills: bool = True) -> Engine:
        """A new engine with the pipeline's streams and queries."""
        store = spill_store_of(self.pipeline) if spills else None
        engine = self.pipeline.execution.engine(now=-FARTHEST, spill_to=store)
        self.pipeline = with_shared_plans(self.pipeline, self._together)
        add_queries(engine, self.pipeline)
        memory = self.pipeline.spec.memory
        if spills:
            engine.memory.set_budget(memory.budget, policy=memory.policy)
        engine.optimizer.reoptimize_every(self.pipeline.spec.pipeline.reoptimize)
        return engine

    def _newest(self) -> Checkpoint | None:
        """The newest complete checkpoint, if it belongs to this pipeline; None for a first start."""
        if self._store is None:
            return None
        whole = self._store.candidates()
        if not whole:
            return None
        chosen = whole[0]
        self.pipeline = self._control.resume(chosen.body.get("commands", 0))
        self._together = chosen.body.get("together", {})
        check_names(self.pipeline, self._reset, self._reload)
        check_tables(chosen.body.get("table_files", {}), self._table_files, self.pipeline, self._reload)
        if "since" in chosen.body:
            self._compare(chosen)
        else:
            self._check_same(chosen)
        return chosen

    def peek(self) -> Engine | None:
        """An engine with the state of the newest checkpoint, to look at; None if there is none yet."""
        if self._store is None or not self._store.path.is_dir():
            return None
        self._table_files = table_digests(self.pipeline)
        checkpoint = self._newest()
        if checkpoint is None:
            return None
        engine = self.build_engine(spills=False)
        engine.adopt(self._store.snapshots(checkpoint), reset=self._reset)
        return engine

    def preview(self) -> Adopted | None:
        """What the next start would do with the state of each query; None if it would be the first one.

        It changes nothing. If the next start would stop with an error, this is the error.
        """
        if self._store is None or not self._store.path.is_dir():
            return None
        self._table_files = table_digests(self.pipeline)
        checkpoint = self._newest()
        if checkpoint is None:
            return None
        engine = self.build_engine(spills=False)
        return engine.adopt(self._store.snapshots(checkpoint), reset=self._reset)

    def _compare(self, checkpoint: Checkpoint) -> None:
        """Compare the pipeline with that of the checkpoint; an error if a stream is not what it was."""
        assert self._store is not None
        body, place = checkpoint.body, str(self._store.path)
        before, now = lasting(body["tables"]), lasting(essence(self.pipeline))
        self._differs = difference(before, now) != "" or bool(self._reset or self._reload)
        check_streams(before["streams"], body["feed"]["streams"], self.pipeline, place)
        self.pipeline = with_generations(self.pipeline, body["since"], self._reset)
        if self._differs and self._recorder is not None:
            raise DurabilityError(
                "HR-D005",
                "the pipeline has changed, and a recorded run is a run of one pipeline",
                place=place,
                hint="undo the change, or remove record from [pipeline]",
            )

    def _check_same(self, checkpoint: Checkpoint) -> None:
        """An error if a checkpoint of an earlier format was written by another version of the pipeline."""
        assert self._store is not None
        changed = difference(lasting(checkpoint.body["tables"]), lasting(essence(self.pipeline)))
        if changed:
            raise DurabilityError(
                "HR-D005",
                f"the checkpoint belongs to another version of the pipeline: {changed} has changed",
                place=str(self._store.path),
                hint="undo the change, or use a new checkpoint and new outputs for the changed pipeline",
            )

    def _mend(self, checkpoint: Checkpoint) -> None:
        """Use an older checkpoint if the newest one is incomplete, and say so if another one is damaged."""
        assert self._store is not None
        if checkpoint.number < self._store.newest:
            self._store.go_back_to(checkpoint)
            said = "the newest checkpoint is incomplete; the run continues from the one before it"
            self._messages.append(said)
        elif self._store.damaged:
            self._messages.append("an older checkpoint is damaged; the next commit replaces it")

    def _begin(self) -> None:
        """Start from the beginning with an empty commit, so that a later start can detect a crash."""
        self._state = RUNNING
        commits = self.outputs.begin()
        if self._store is not None:
            self._decide(self._store, commits, None)
        self.outputs.open(commits)
        if self._recorder is not None:
            self._recorder.open(None)

    def _resume(self, checkpoint: Checkpoint) -> None:
        """Restore engine, outputs, spools and feed from a checkpoint."""
        assert self._store is not None
        body = checkpoint.body
        check_clock(body.get("clock"), self._clock_kind, str(self._store.path))
        adopted = self.engine.adopt(self._store.snapshots(checkpoint), reset=self._reset)
        self._use_new_rows()
        self.pipeline = with_generations(self.pipeline, adopted.since, ())
        self._factory.pipeline = self.pipeline
        continued = continued_outputs(body["tables"], essence(self.pipeline))
        left = {name: commit for name, commit in body["sinks"].items() if name not in continued}
        self._factory.leave(body["tables"]["queries"], left)
        self.outputs.resume(body["sinks"], continued)
        for name, rows in body["answered"].items():
            if name in self.outputs.queries:
                self.outputs.queries[name].rows = rows
        self.outputs.reasons.restore(body.get("reasons", ()))
        if self._recorder is not None:
            self._recorder.open(body["record"])
        for name, spool in self._spools.items():
            spool.secured = body["spools"].get(name, spool.secured)
        self.feed.restore(body["feed"])
        self._messages += [spool.lost for spool in self._spools.values() if spool.lost]
        self._compare_clocks(body["feed"]["now"])
        self._state = FINISHED if body["finished"] and self.feed.finished else RUNNING
        if self._state == FINISHED:
            said = (
                f"an earlier run has read all rows; to start over, remove {self._store.path} and the outputs"
            )
            self._messages.append(said)
        self._store.sweep()
        if self._differs:
            self._messages.append(f"the pipeline has changed: the restart {adopted}")
            self._commit()

    def _use_new_rows(self) -> None:
        """Give tables that are reloaded the rows that their files have now."""
        for query in self.pipeline.queries:
            for table in query.query.tables:
                if table.name in self._reload and table.data is not None:
                    self.engine.reload(table.name, table.data)

    def _compare_clocks(self, before: int) -> None:
        """Add a note if the system clock is behind the last commit, whose promises still hold."""
        behind = before - self._clock.now() if isinstance(self.feed, SystemFeed) else 0
        if behind > STEP:
            self._notes.append(
                f"the system clock is {behind // STEP:,} s behind its value at the last commit: "
                "until it catches up, the heartbeats of that commit decide which rows are late"
            )

    # --- running

    def _loop(
        self, on_progress: Callable[[Status], object] | None, every: float, max_steps: int | None
    ) -> Iterator[None]:
        """Step until the feed ends, a stop is requested or max_steps is reached; then commit."""
        told, steps = self._begun, 0
        while not self._stop and not self.feed.finished and (max_steps is None or steps < max_steps):
            for entry in self._control.new():
                self._obey(entry)
            if self._stop:
                break
            step = self.feed.next()
            if step is None:
                self._idle()
            else:
                self.apply(step)
                steps += 1
            if self._commit_due():
                self._commit()
            if on_progress is not None and seconds() - told >= every:
                on_progress(self.progress())
                told = seconds()
            yield
        self._state = FINISHED if self.feed.finished else STOPPED
        if self._state == FINISHED:
            self._end_pauses()
        self._commit()

    def _end_pauses(self) -> None:
        """The end of all input ends pauses: every answer is written."""
        for query in [query.name for query in self.pipeline.queries if query.paused]:
            entry = Entry(self._control.position, Resume(query))
            if self._recorder is not None:
                self._recorder.write(Step(self.engine.now, commands=(entry,)))
            self._change(entry)
            self.apply(Step(self.engine.now))

    def _obey(self, entry: Entry) -> None:
        """Apply a command between two steps, or note why it cannot be applied."""
        changes_outputs = isinstance(entry.command, OUTPUT_CHANGES)
        if changes_outputs:
            self._commit()  # a removed query has nothing left to write, and a new one starts with a commit
        self._control.position = entry.number
        try:
            self._change(entry)
        except HeadraceError as error:
            self._control.refuse(entry, error)
            return
        if self._recorder is not None:
            self._recorder.write(Step(self.engine.now, commands=(self._control.inline(entry),)))
        if changes_outputs:
            self._commit()
        self.apply(Step(self.engine.now))
        self._stop |= self._control.stops(entry)

    def _change(self, entry: Entry) -> None:
        """Apply a command to the pipeline, the engine, the sources and the outputs."""
        feed, before = getattr(self, "feed", None), self.pipeline.read
        self.pipeline = change(entry, self.pipeline, self.engine, self.outputs, self._factory, feed)
        if isinstance(feed, SystemFeed):
            orders = [name for name, each in self.pipeline.read.items() if each.of and name not in before]
            self._rows_may_wait([*orders, *(name for name in feed.names if name not in feed.read)])

    def apply(self, step: Step) -> None:
        """Push all rows of one instant, run the engine, and write the results."""
        if step.commands:
            for entry in step.commands:
                self._change(entry)
            return
        if self._recorder is not None:
            self._recorder.write(step)
        rows, step = step.rows, self._orders.whole(step, self.pipeline)
        for piece in step.pieces:
            for bad in piece.bad:
                self.engine.streams.reject(piece.stream, [bad.raw], str(bad.code), bad.reason)
            if piece.shed:
                self.engine.streams.shed(piece.stream, piece.shed)
            if len(piece):
                self.engine.push(piece.stream, piece.data, piece.times, now=step.now)
        for stream, instant in step.read.items():
            self.engine.streams.read_until(stream, instant)
        for stream in step.ends:
            self.engine.streams.end(stream)
        self.engine.advance(step.now)
        self.outputs.take(self.engine)
        self._rows += rows

    def _idle(self) -> None:
        """No rows came: advance the clock, which may release results."""
        if isinstance(self.feed, SystemFeed):
            self.apply(Step(self._clock.now(), read=dict(self.feed.read)))
        self._wait(tuning.current.poll_seconds)

    def _commit_due(self) -> bool:
        """True if enough rows or enough time have passed since the last commit.

        Answers that wait to be seen make it due sooner.
        """
        every = self.pipeline.spec.pipeline.every_rows
        rows, at = self._committed
        if every is not None and self._rows - rows >= every:
            return True
        waited, interval = seconds() - at, interval_of(self.pipeline)
        return waited >= (interval if self.outputs.waiting else max(interval, IDLE_INTERVAL))

    def _commit(self) -> None:
        """Commit everything up to here, by one rename; then publish the outputs."""
        commits = self.outputs.prepare()
        recorded = self._recorder.prepare() if self._recorder is not None else None
        if self._store is not None:
            self._decide(self._store, commits, recorded)
        self.outputs.publish(commits)
        if self._recorder is not None and recorded is not None:
            self._recorder.publish(recorded)
        if self._store is not None:
            self._sweep(self._store)
        self._committed = (self._rows, seconds())
        self._commits += 1

    def _sweep(self, store: Store) -> None:
        """Remove data that no kept checkpoint needs."""
        store.sweep()
        self._control.forget(store.oldest.body.get("commands", 0))
        streams = store.oldest.body["feed"]["streams"]
        for name, spool in self._spools.items():
            if (position := _position_of(name, streams)) is not None:
                spool.forget(position["bytes"])
        for name, finished in self._finished.items():
            if (position := _position_of(name, streams)) is not None:
                finished.forget(position["log"])

    def _decide(self, store: Store, commits: dict[str, Commit], recorded: Commit | None) -> None:
        """Make inputs durable, then write the checkpoint record: from here on the commit counts."""
        for spool in self._spools.values():
            spool.secure()
        for finished in self._finished.values():
            finished.secure()
        body: dict[str, Any] = {
            "tables": essence(self.pipeline),
            "together": self._together,
            "since": {query.name: query.since for query in self.pipeline.queries},
            "clock": self._clock_kind,
            "table_files": self._table_files,
            "started": self._started,
            "feed": self.feed.state(),
            "spools": {name: spool.secured for name, spool in self._spools.items()},
            "sinks": commits,
            "record": recorded,
            "answered": {name: query.rows for name, query in self.outputs.queries.items()},
            "reasons": self.outputs.reasons.state(),
            "finished": self._state == FINISHED,
            "commands": self._control.position,
        }
        store.commit(self.engine, body)

    # --- telling

    def progress(self) -> Status:
        """Where the run is now."""
        now = measure(
            self.engine,
            self.outputs,
            pipeline=self.pipeline,
            state=self._state,
            clock=self._clock_kind,
            elapsed=seconds() - self._begun,
            checkpoints=self._commits,
            checkpoint_bytes=self._store.bytes_written if self._store else 0,
            messages=(*self._messages, *self._notes),
            before=self._before,
            commands=self._control.position,
        )
        self._before = now
        return now

    def _close(self) -> None:
        """Close everything that was opened, also after a failed start."""
        for each in ("feed", "outputs"):
            if hasattr(self, each):
                getattr(self, each).close()
        if self._recorder is not None:
            self._recorder.close()
        if self._store is not None:
            self._store.close()
        spill_store = self.engine.memory.store if hasattr(self, "engine") else None
        if isinstance(spill_store, DirectorySpillStore):
            spill_store.close()


def _position_of(name: str, streams: Mapping[str, Any]) -> Any:
    """The position of a source in a checkpoint: of a stream, or of a part of one (`bids.live`)."""
    stream, _, part = name.partition(".")
    if stream not in streams:
        return None
    position = streams[stream]["at"]
    return position[part] if part else position


def replay(
    recorded: str | Path,
    into: str | Path,
    *,
    on_progress: Callable[[Status], object] | None = None,
    functions: Mapping[str, Any] | None = None,
) -> Result:
    """Replay a recorded run; outputs go to the directory `into`, under their own names.

    `functions`: the user-defined functions and aggregates of the run, by `module:name`. A recorded run never
    imports them by itself.
    """
    run = Recorded(recorded, functions)
    return Runner(run.pipeline, into=into).replay(run.commits(), on_progress)
