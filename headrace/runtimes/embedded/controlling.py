"""Commands of the control log in a run: which are new, and what they change besides the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from headrace import tuning
from headrace.control import AddQuery, Entry, Reload, RemoveQuery, Stop, apply, check, in_force, log_of
from headrace.control.commands import describe
from headrace.control.in_force import changed
from headrace.control.reloading import inline, with_reloaded_rows
from headrace.engine import Engine
from headrace.errors import ControlError, HeadraceError
from headrace.pipeline import Pipeline
from headrace.runtimes.embedded.factory import PipelineFactory, spill_store_of
from headrace.runtimes.embedded.feeds import Feed
from headrace.runtimes.embedded.outputs import Outputs
from headrace.spill.store import SpillStore
from headrace.time.clock import seconds

OUTPUT_CHANGES: Final = (AddQuery, RemoveQuery)
"""Commands that open or close outputs: a commit before and after them."""


class Control:
    """The control log as a run reads it. `position` is the number of the last command that was read."""

    def __init__(self, file: Pipeline, durable: bool, say: Callable[[str], None]) -> None:
        self._file, self._say = file, say
        self._log = log_of(file) if durable else None
        self.position = 0
        self._looked = -float("inf")
        self._stops_after: int | None = None
        self._damaged = False
        self._told = ""
        self._rows: dict[int, tuple[str, str]] = {}

    def resume(self, position: int) -> Pipeline:
        """Continue after the command `position`; returns the pipeline that was in force then."""
        entries = self._log.read(0, position) if self._log is not None else []
        if self._log is not None and len(entries) < position:
            raise ControlError(
                "HR-L005",
                f"the checkpoint contains {position} commands, but command {len(entries) + 1} is missing",
                place=str(self._log.path),
                hint="restore the control directory from a copy, or use a new checkpoint and new outputs",
            )
        self.position = position
        self._note_rows(entries)
        pipeline = in_force(self._file, entries)
        return pipeline if self._log is None else with_reloaded_rows(pipeline, entries, self._log)

    def new(self) -> list[Entry]:
        """The commands that were written since the last look, without those that were refused before."""
        if self._log is None or self._damaged or not self._is_due():
            return []
        found: list[Entry] = []
        position = self.position
        try:
            while entries := self._log.read(position, position + 1):
                found += entries
                position += 1
        except ControlError as error:
            self._report(error)
        self._note_rows(found)
        if self._stops_after is None:
            self._stops_after = position
        for entry in found:
            if entry.refused is not None and entry.number == self.position + 1:
                self.position = entry.number
        return [entry for entry in found if entry.refused is None]

    def _note_rows(self, entries: Iterable[Entry]) -> None:
        """Note which rows of reloaded tables the log keeps."""
        reloads = ((each.number, each.command) for each in entries if isinstance(each.command, Reload))
        self._rows |= {number: (each.table, each.rows) for number, each in reloads if each.rows is not None}

    def forget(self, position: int) -> None:
        """Delete the rows of reloads up to a command that every checkpoint contains, but the newest ones."""
        old = {number: each for number, each in self._rows.items() if number <= position}
        newest = {table: number for number, (table, _) in sorted(old.items())}
        gone = {number: rows for number, (table, rows) in old.items() if newest[table] != number}
        if gone and self._log is not None:
            self._log.forget(gone.values())
            self._rows = {number: each for number, each in self._rows.items() if number not in gone}

    def inline(self, entry: Entry) -> Entry:
        """The entry with everything in it, for a record of the run."""
        return entry if self._log is None else inline(entry, self._log)

    def _is_due(self) -> bool:
        """Whether it is time for another look."""
        now = seconds()
        if now - self._looked < tuning.current.control_seconds:
            return False
        self._looked = now
        return True

    def _report(self, error: ControlError) -> None:
        """Note that the log cannot be read, once; the run goes on without the commands."""
        self._damaged = error.code != "HR-L004"
        if str(error) != self._told:
            self._told = str(error)
            self._say(f"commands are not followed: [{error.code}] {error.message} ({error.place})")

    def refuse(self, entry: Entry, error: HeadraceError) -> None:
        """Note why a command was not applied; trouble with the disk is an error of the run instead."""
        if isinstance(error.__cause__, OSError):
            raise error
        assert self._log is not None
        self._log.refuse(entry, error)
        why = f"[{error.code}] {error.message}"
        self._say(f"command {entry.number} ({describe(entry.command)}) was refused: {why}")

    def stops(self, entry: Entry) -> bool:
        """Whether a command stops this run; one that was written before the run began does not."""
        return isinstance(entry.command, Stop) and entry.number > (self._stops_after or 0)


def change(
    entry: Entry,
    pipeline: Pipeline,
    engine: Engine,
    outputs: Outputs,
    factory: PipelineFactory,
    feed: Feed | None,
) -> Pipeline:
    """Apply a command and return the pipeline after it; `feed` is None in a replay, which reads nothing.

    If it cannot be applied, an error says why, and nothing has changed.
    """
    if feed is not None:
        check(entry.command, pipeline)
    after = changed(pipeline, entry)
    command = entry.command
    if isinstance(command, AddQuery):
        query = after.queries[-1].query
        engine.memory.admit(command.name, query.plan, query.ticks_per_second)  # before its outputs begin
        _add_outputs(command.name, after, outputs, factory, feed)
    apply(entry, engine, after, lambda: _spill_store(after))
    factory.pipeline = after
    if isinstance(command, RemoveQuery):
        outputs.remove(command.name)
    if feed is not None:
        for name, stream in after.read.items():
            if name not in feed.names and stream.of is None:
                factory.add_to(feed, stream)
    return after


def _add_outputs(
    name: str, after: Pipeline, outputs: Outputs, factory: PipelineFactory, feed: Feed | None
) -> None:
    """Begin the outputs of a new query; an error if it needs another clock, or if an output exists."""
    kind = factory.kind
    before, factory.pipeline = factory.pipeline, after
    try:
        if feed is not None and factory.kind != kind:
            raise ControlError(
                "HR-L010",
                f"query {name!r} reads a stream that needs the {factory.kind} clock, and the run uses the "
                f"{kind} clock",
                hint=f'set clock = "{kind}" under [pipeline], or stop the run and add the query to the file',
            )
        outputs.add(factory.query_outputs(after.queries[-1]))
    finally:
        factory.pipeline = before


def _spill_store(pipeline: Pipeline) -> SpillStore:
    """The store for state that spills."""
    store = spill_store_of(pipeline)
    assert store is not None
    return store
