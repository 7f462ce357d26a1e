"""The durable run: read, push, answer, commit; and go on from the last commit after whatever happened."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.connectors.contract import Commit
from headrace.connectors.identity import Names
from headrace.connectors.shelf import DirectoryShelf
from headrace.connectors.tables import digest
from headrace.engine import Engine
from headrace.errors import DurabilityError
from headrace.pipeline import Pipeline
from headrace.runtimes.embedded.feeds import Feed, Step, SystemFeed
from headrace.runtimes.embedded.opening import Opening, shelf_of
from headrace.runtimes.embedded.outputs import Outputs
from headrace.runtimes.embedded.progress import Progress, measure
from headrace.runtimes.embedded.record import Recorder
from headrace.runtimes.embedded.steady import STEP, SteadyClock
from headrace.runtimes.embedded.store import Checkpoint, Store
from headrace.time.clock import Clock, ManualClock, SimulatedClock, SystemClock
from headrace.time.timestamp import FARTHEST, MIN_TIME

POLL: Final = 0.02
"""Seconds to wait before asking silent sources again."""
NOTES: Final = 50
"""Notes about what became of files and clocks that are shown: the newest."""


@dataclass(frozen=True)
class Result:
    """How a run ended: `finished` (all is read and answered), or `stopped` (it can go on)."""

    state: str
    progress: Progress


class Runner:
    """Runs a pipeline in this process.

    Laws: a row takes part in exactly one commit; outputs show commits only, or are cut back to one by the
    next start; memory does not grow with what was read. While a sink waits,
    no source is read but for one block ahead.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        clock: Clock | None = None,
        wait: Callable[[float], None] = time.sleep,
        into: str | Path | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.engine: Engine
        self.outputs: Outputs
        self.feed: Feed
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._clock = clock or SystemClock()
        if not isinstance(self._clock, ManualClock | SimulatedClock):
            self._clock = SteadyClock(self._clock, self._notes.append)
        self._wait = wait
        self._into = None if into is None else Path(into)
        self._stop = False
        table = pipeline.spec.pipeline
        durable = table.checkpoint is not None and self._into is None
        self._store = Store(pipeline.path(str(table.checkpoint))) if durable else None
        self._recorder = self._recording()
        self._messages: list[str] = list(pipeline.warnings)
        self._begun = time.monotonic()
        self._rows = 0
        self._committed = (0, self._begun)
        self._commits = 0
        self._before: Progress | None = None
        self._state = "starting"

    def _recording(self) -> Recorder | None:
        record = self.pipeline.spec.pipeline.record
        if record is None or self._into is not None:
            return None
        return Recorder(self.pipeline.path(record), self.pipeline)

    def stop(self) -> None:
        """Stop after the step at hand, with a commit. Safe to call from a signal handler."""
        self._stop = True

    def run(
        self,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        every: float = 0.5,
        max_steps: int | None = None,
    ) -> Result:
        """Run until all is read, or until it is told to stop; `on_progress` hears of it now and then."""
        self._begun = time.monotonic()
        if self._store is not None:
            self._store.open()
        try:
            self._open()
            if self._state != "finished":
                self._loop(on_progress, every, max_steps)
            result = Result(self._state, self.progress())
        finally:
            self._close()
        if on_progress is not None:
            on_progress(result.progress)
        return result

    def replay(
        self, commits: Iterable[list[Step]], on_progress: Callable[[Progress], None] | None = None
    ) -> Result:
        """Make recorded steps in place of reading; a commit after each list of them."""
        self._begun = time.monotonic()
        try:
            self._open_outputs()
            for steps in commits:
                for step in steps:
                    self.apply(step)
                self._commit()
                if on_progress is not None:
                    on_progress(self.progress())
            self._state = "finished"
            return Result(self._state, self.progress())
        finally:
            self._close()

    # --- starting

    def _open_outputs(self) -> None:
        """For a replay: an engine and outputs, and nothing to read."""
        self.engine = self.build_engine()
        opening = Opening(self.pipeline, self._clock, 0, self._into)
        self._clock_kind = "recorded"
        self.outputs = opening.outputs()
        self.outputs.open(self.outputs.begin())
        self._state = "running"

    def _open(self) -> None:
        """Go on from the newest checkpoint that is whole, or begin."""
        self.engine = self.build_engine()
        self._table_files = _digests(self.pipeline)
        checkpoint = self._newest()
        self._started = checkpoint.body["started"] if checkpoint else self._clock.now()
        opening = Opening(self.pipeline, self._clock, self._started, self._into, self._notes.append)
        self._clock_kind = opening.kind
        self.outputs = opening.outputs()
        self.feed = opening.feed()
        if isinstance(self.feed, SystemFeed):
            self._rows_may_wait()
        self._spools, self._finished = opening.spools, opening.finished
        if checkpoint is None:
            self._begin()
        else:
            self._resume(checkpoint)
        self.progress()  # rates count from here

    def _rows_may_wait(self) -> None:
        """Nothing is known yet of what reached the sources, now or while nobody read."""
        for stream in self.pipeline.read.values():
            if stream.external:
                self.engine.read_until(stream.name, MIN_TIME)

    def build_engine(self) -> Engine:
        """An engine with the pipeline's streams and queries and nothing in it."""
        engine = Engine(
            strategy=self.pipeline.spec.pipeline.strategy, now=-FARTHEST, shelf=shelf_of(self.pipeline)
        )
        heartbeats = self.pipeline.heartbeats()
        streams = self.pipeline.read.values()
        if heartbeats is not None:
            rules = {s.definition.source: s.rules for s in streams if s.external}
            engine.manage(heartbeats, rules, self.pipeline.promises())
        for query in self.pipeline.queries:
            engine.add(query.name, query.query)
        memory = self.pipeline.spec.memory
        engine.budget(memory.budget, policy=memory.policy)
        engine.reoptimize_every(self.pipeline.spec.pipeline.reoptimize)
        return engine

    def _newest(self) -> Checkpoint | None:
        if self._store is None:
            return None
        whole = self._store.candidates()
        if not whole:
            return None
        chosen = whole[0]
        self._check_same(chosen)
        if chosen.number < self._store.newest:
            self._go_back(chosen)
        elif self._store.damaged:
            self._messages.append("an older checkpoint was damaged; the next commit replaces it")
        return chosen

    def _check_same(self, checkpoint: Checkpoint) -> None:
        """State belongs to the streams and queries it was made by."""
        assert self._store is not None
        before, now = checkpoint.body.get("table_files", {}), self._table_files
        table = next((name for name in now if name in before and before[name] != now[name]), None)
        if table is not None:
            raise DurabilityError(
                "HR-D005",
                f"the file of table {table} is not what it was when the checkpoint was made",
                place=str(self.pipeline.path(self.pipeline.spec.tables[table].path)),
                hint="answers so far used the old rows: put the old file back, or give the pipeline a new "
                "checkpoint and new outputs to use the new one from the start",
            )
        changed = _difference(_lasting(checkpoint.body["tables"]), _lasting(_essence(self.pipeline)))
        if changed:
            raise DurabilityError(
                "HR-D005",
                f"the checkpoint is of another pipeline: {changed} is not what it was",
                place=str(self._store.path),
                hint="undo the change, or give the changed pipeline a checkpoint and outputs of its own",
            )

    def _go_back(self, checkpoint: Checkpoint) -> None:
        """The newest checkpoint is torn: the one before it serves."""
        assert self._store is not None
        self._store.go_back_to(checkpoint)
        self._messages.append("the newest checkpoint was torn; went on from the one before it")

    def _begin(self) -> None:
        """The first commit says that nothing was done, before anything is: a crash can then be told."""
        self._state = "running"
        commits = self.outputs.begin()
        if self._store is not None:
            self._decide(self._store, commits, None)
        self.outputs.open(commits)
        if self._recorder is not None:
            self._recorder.open(None)

    def _resume(self, checkpoint: Checkpoint) -> None:
        assert self._store is not None
        body = checkpoint.body
        self.engine.restore(self._store.snapshots(checkpoint))
        self.outputs.open(body["sinks"])
        for name, rows in body["answered"].items():
            self.outputs.queries[name].rows = rows
        self.outputs.reasons.restore(body.get("reasons", ()))
        if self._recorder is not None:
            self._recorder.open(body["record"])
        for name, spool in self._spools.items():
            spool.secured = body["spools"][name]
        self.feed.restore(body["feed"])
        self._messages += [spool.lost for spool in self._spools.values() if spool.lost]
        self._compare_clocks(body["feed"]["now"])
        self._state = "finished" if body["finished"] else "running"
        self._store.sweep()

    def _compare_clocks(self, before: int) -> None:
        """By the system's clock, promises of an earlier run hold until the clock has caught up."""
        behind = before - self._clock.now() if isinstance(self.feed, SystemFeed) else 0
        if behind > STEP:
            self._notes.append(
                f"the clock is {behind // STEP:,} s behind that of the last commit: until it has caught up, "
                "rows are judged by the promises that were made then"
            )

    # --- running

    def _loop(
        self, on_progress: Callable[[Progress], None] | None, every: float, max_steps: int | None
    ) -> None:
        told, steps = self._begun, 0
        while not self._stop and not self.feed.finished and (max_steps is None or steps < max_steps):
            step = self.feed.next()
            if step is None:
                self._idle()
            else:
                self.apply(step)
                steps += 1
            if self._commit_due():
                self._commit()
            if on_progress is not None and time.monotonic() - told >= every:
                on_progress(self.progress())
                told = time.monotonic()
        self._state = "finished" if self.feed.finished else "stopped"
        self._commit()

    def apply(self, step: Step) -> None:
        """Everything of an instant is pushed before it is run; then its answers are taken."""
        if self._recorder is not None:
            self._recorder.write(step)
        for piece in step.pieces:
            for bad in piece.bad:
                self.engine.reject(piece.stream, [bad.raw], str(bad.code), bad.reason)
            if piece.shed:
                self.engine.shed(piece.stream, piece.shed)
            if len(piece):
                self.engine.push(piece.stream, piece.data, piece.times, now=step.now)
        for stream, instant in step.read.items():
            self.engine.read_until(stream, instant)
        for stream in step.ends:
            self.engine.end(stream)
        self.engine.advance(step.now)
        self.outputs.take(self.engine)
        self._rows += step.rows

    def _idle(self) -> None:
        """Nothing came: time passes all the same, and may prove something."""
        if isinstance(self.feed, SystemFeed):
            self.apply(Step(self._clock.now(), read=dict(self.feed.read)))
        self._wait(POLL)

    def _commit_due(self) -> bool:
        table = self.pipeline.spec.pipeline
        rows, at = self._committed
        if table.every_rows is not None and self._rows - rows >= table.every_rows:
            return True
        return time.monotonic() - at >= table.interval

    def _commit(self) -> None:
        """Make everything up to here count, by one rename; then show it."""
        commits = self.outputs.prepare()
        recorded = self._recorder.prepare() if self._recorder is not None else None
        if self._store is not None:
            self._decide(self._store, commits, recorded)
        self.outputs.publish(commits)
        if self._recorder is not None and recorded is not None:
            self._recorder.publish(recorded)
        if self._store is not None:
            self._sweep(self._store)
        self._committed = (self._rows, time.monotonic())
        self._commits += 1

    def _sweep(self, store: Store) -> None:
        """Remove what no checkpoint that is kept needs."""
        store.sweep()
        positions = store.oldest.body["feed"]["streams"]
        for name, spool in self._spools.items():
            spool.forget(positions[name]["at"]["bytes"])
        for name, finished in self._finished.items():
            finished.forget(positions[name]["at"]["log"])

    def _decide(self, store: Store, commits: dict[str, Commit], recorded: Commit | None) -> None:
        for spool in self._spools.values():
            spool.secure()
        for finished in self._finished.values():
            finished.secure()
        body: dict[str, Any] = {
            "tables": _essence(self.pipeline),
            "table_files": self._table_files,
            "started": self._started,
            "feed": self.feed.state(),
            "spools": {name: spool.secured for name, spool in self._spools.items()},
            "sinks": commits,
            "record": recorded,
            "answered": {name: query.rows for name, query in self.outputs.queries.items()},
            "reasons": self.outputs.reasons.state(),
            "finished": self._state == "finished",
        }
        store.commit(self.engine, body)

    # --- telling

    def progress(self) -> Progress:
        """Where the run is now."""
        now = measure(
            self.engine,
            self.outputs,
            pipeline=self.pipeline.name,
            state=self._state,
            clock=self._clock_kind,
            elapsed=time.monotonic() - self._begun,
            checkpoints=self._commits,
            checkpoint_bytes=self._store.bytes_written if self._store else 0,
            messages=(*self._messages, *self._notes),
            before=self._before,
        )
        self._before = now
        return now

    def _close(self) -> None:
        for each in ("feed", "outputs"):
            if hasattr(self, each):
                getattr(self, each).close()
        if self._recorder is not None:
            self._recorder.close()
        if self._store is not None:
            self._store.close()
        shelf = self.engine.shelf if hasattr(self, "engine") else None
        if isinstance(shelf, DirectoryShelf):
            shelf.close()


def _essence(pipeline: Pipeline) -> dict[str, Any]:
    """What of a pipeline its state depends on."""
    tables = pipeline.tables()
    names = Names(pipeline.root)
    for each in tables["tables"].values():
        each["path"] = names.of(Path(each["path"]))
    kept = {key: tables[key] for key in ("streams", "tables", "queries", "skew")}
    return kept | {"clock": tables["pipeline"].get("clock"), "strategy": tables["pipeline"]["strategy"]}


def _digests(pipeline: Pipeline) -> dict[str, str | None]:
    """What the files of tables hold, by the name of the table."""
    return {name: digest(pipeline.path(table.path)) for name, table in pipeline.spec.tables.items()}


def _lasting(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables without what counts at the first start only."""
    queries = [{key: _lasting_sink(each) for key, each in query.items()} for query in tables["queries"]]
    return tables | {"queries": queries}


def _lasting_sink(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != "existing"} if isinstance(value, dict) else value


def _difference(a: Any, b: Any, at: str = "") -> str:
    """The first place in which two trees differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            found = _difference(a.get(key), b.get(key), f"{at}.{key}" if at else key)
            if found:
                return found
        return ""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return next((f for i, (x, y) in pairs if (f := _difference(x, y, f"{at}.{i}"))), "")
    return "" if a == b else at
