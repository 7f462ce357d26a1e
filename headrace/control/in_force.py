"""What is in force: the pipeline file, changed by the commands of the log in their order.

The file and the log may say different things about one name. A command holds until the file says something
new: if the file's text for a query, or its value of a setting, is not the one that the command replaced, the
file is newer and wins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.control.commands import (
    AddQuery,
    Command,
    Pause,
    RemoveQuery,
    Resume,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    describe,
    to_json,
)
from headrace.control.log import Entry
from headrace.errors import ControlError, HeadraceError
from headrace.pipeline.changing import (
    with_bounds,
    with_budget,
    with_execution,
    with_paused,
    with_query,
    with_strategy_of,
    without_query,
)
from headrace.pipeline.pipeline import Pipeline

Change = Callable[[Pipeline, Any, int], Pipeline]


def _add(pipeline: Pipeline, command: AddQuery, number: int) -> Pipeline:
    """The query as in the log; or, if the file has it too by now, as in the file."""
    if any(query.name == command.name for query in pipeline.queries):
        since = tuple(
            replace(query, since=number) if query.name == command.name else query
            for query in pipeline.queries
        )
        return replace(pipeline, queries=since)
    return with_query(pipeline, query_table(command), number)


def query_table(command: AddQuery) -> Mapping[str, Any]:
    """The query as a table of the pipeline file."""
    return {key: value for key, value in to_json(command).items() if key != "kind"}


def _strategy(pipeline: Pipeline, command: SetStrategy, number: int) -> Pipeline:
    """Another strategy: of a query, or of all operators whose query has none."""
    if command.query is None:
        return with_execution(pipeline, strategy=command.strategy)
    return with_strategy_of(pipeline, command.query, command.strategy)


CHANGES: Final[dict[type[Command], Change]] = {
    AddQuery: _add,
    RemoveQuery: lambda pipeline, command, number: without_query(pipeline, command.name),
    Pause: lambda pipeline, command, number: with_paused(pipeline, command.query, True),
    Resume: lambda pipeline, command, number: with_paused(pipeline, command.query, False),
    SetBudget: lambda pipeline, command, number: with_budget(pipeline, command.budget, command.policy),
    SetStrategy: _strategy,
    SetLevel: lambda pipeline, command, number: with_execution(pipeline, level=command.level),
    SetBounds: lambda pipeline, command, number: with_bounds(pipeline, command.stream, command.bounds),
}
"""What a command changes in the pipeline; the other kinds change only the engine."""


def changed(pipeline: Pipeline, entry: Entry) -> Pipeline:
    """The pipeline after a command."""
    change = CHANGES.get(type(entry.command))
    return pipeline if change is None else change(pipeline, entry.command, entry.number)


def in_force(file: Pipeline, entries: Iterable[Entry]) -> Pipeline:
    """The pipeline after these commands: `file` is what the pipeline file says now."""
    entries = [entry for entry in entries if entry.refused is None]
    pipeline = file
    for i, entry in enumerate(entries):
        if not _counts(file, pipeline, entry):
            continue
        try:
            pipeline = changed(pipeline, entry)
        except HeadraceError as error:
            if not _is_removed_later(entry.command, entries[i + 1 :]):
                raise _outdated(entry, error) from error
    return pipeline


def _counts(file: Pipeline, pipeline: Pipeline, entry: Entry) -> bool:
    """Whether a command still counts: the file says what it said when the command was written.

    A command counts in any case if it does not say what it replaces.
    """
    command = entry.command
    if isinstance(command, RemoveQuery):
        running = next((query for query in pipeline.queries if query.name == command.name), None)
        if running is None or running.origin != "file":
            return True
    return entry.replaces is None or replaced(file, command) == entry.replaces


def replaced(file: Pipeline, command: Command) -> str | None:
    """What the pipeline file says about that which a command changes, as a short digest; None: nothing."""
    said = _SAYS.get(type(command))
    found = None if said is None else said(file, command)
    if found is None:
        return None
    return hashlib.blake2b(json.dumps(found, sort_keys=True).encode(), digest_size=8).hexdigest()


def _query_in_file(file: Pipeline, command: RemoveQuery) -> Any:
    """The query in the file, with its text."""
    tables = {table["name"]: table for table in file.tables()["queries"]}
    return tables.get(command.name)


def _stream_in_file(file: Pipeline, command: SetBounds) -> Any:
    """The bounds of the stream in the file, and its guard."""
    stream = file.streams.get(command.stream)
    if stream is None:
        return None
    table = stream.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: table.get(key) for key in ("bounds", "guard")}


def _strategy_in_file(file: Pipeline, command: SetStrategy) -> Any:
    """The strategy of the pipeline in the file, or of a query in it."""
    if command.query is None:
        return file.spec.pipeline.strategy
    return {each.name: each.spec.strategy or "" for each in file.queries}.get(command.query)


_SAYS: Final[dict[type[Command], Callable[[Pipeline, Any], Any]]] = {
    RemoveQuery: _query_in_file,
    SetBounds: _stream_in_file,
    SetBudget: lambda file, command: file.spec.memory.model_dump(mode="json"),
    SetStrategy: _strategy_in_file,
    SetLevel: lambda file, command: file.spec.pipeline.level,
}


def _is_removed_later(command: Command, later: list[Entry]) -> bool:
    """Whether a query that the file no longer allows is removed by a later command."""
    if not isinstance(command, AddQuery):
        return False
    gone = (each.command for each in later if isinstance(each.command, RemoveQuery))
    return any(each.name == command.name for each in gone)


def _outdated(entry: Entry, error: HeadraceError) -> ControlError:
    """The error for a command that the pipeline file no longer fits."""
    name = getattr(entry.command, "name", None)
    way = (
        f"remove the query: headrace query remove PIPELINE {name}" if name else "undo the change of the file"
    )
    return ControlError(
        "HR-L011",
        f"command {entry.number} ({describe(entry.command)}) does not fit the pipeline file any more: "
        f"[{error.code}] {error.message}",
        place=error.place,
        hint=f"{way}; or change the file back",
    )
