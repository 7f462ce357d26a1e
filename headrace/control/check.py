"""Checks a command against the pipeline in force, before it is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headrace.connectors.existing_output import is_there
from headrace.control.apply import (
    add_queries,
    external_stream,
    instant_of,
    punctuation_of,
    query_named,
    resized,
    stream_named,
)
from headrace.control.commands import (
    AddQuery,
    Command,
    Heartbeat,
    Pause,
    Punctuate,
    Reload,
    RemoveQuery,
    Resize,
    Resume,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    Stop,
)
from headrace.control.in_force import changed, query_table
from headrace.control.log import Entry
from headrace.control.reloading import check_table
from headrace.engine import Engine
from headrace.errors import ConnectorError, ControlError
from headrace.graph.levels import check_level
from headrace.pipeline.changing import BOUNDS, with_query
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.places import OUTPUTS
from headrace.scheduling.table import strategy


def check(command: Command, pipeline: Pipeline) -> Pipeline:
    """An error if a command cannot be applied to this pipeline; returns the pipeline after it."""
    _CHECKS[type(command)](command, pipeline)
    return changed(pipeline, Entry(1, command))


def _add(command: AddQuery, pipeline: Pipeline) -> None:
    if any(query.name == command.name for query in pipeline.queries):
        raise ControlError(
            "HR-L007",
            f"there is already a query {command.name!r}",
            hint=f"choose another name, or remove it first: headrace query remove … {command.name}",
        )
    after = with_query(pipeline, query_table(command))
    query = after.queries[-1]
    strange = [name for name in query.streams if name not in pipeline.streams]
    if strange:
        hint = f"declare it under [streams] in the file; streams: {', '.join(pipeline.streams)}"
        raise ControlError("HR-L008", f"the stream {strange[0]!r} is not in the pipeline file", hint=hint)
    for key in OUTPUTS:
        sink = getattr(query.spec, key)
        if getattr(sink, "type", None) == "files":
            _check_output(pipeline.path(sink.path), sink.existing)
    scratch = Engine()
    alone = with_query(_without_queries(after), query_table(command))
    add_queries(scratch, alone)


def _without_queries(pipeline: Pipeline) -> Pipeline:
    """The pipeline with its streams alone."""
    spec = pipeline.spec.model_copy(update={"queries": []})
    return replace(pipeline, spec=spec, queries=(), also_read=frozenset())


def _check_output(path: Path, existing: str) -> None:
    """An error if the output exists and must not be changed, or if its directory cannot be written to."""
    if existing == "error" and is_there(path):
        raise ConnectorError(
            "HR-C010",
            "the output already exists",
            place=str(path),
            hint='choose another path, or say what to do with it: existing = "replace" or "append"',
        )
    folder = next((each for each in path.absolute().parents if each.exists()), path.absolute().parent)
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        hint = "choose another path, or change the permissions of the directory"
        raise ConnectorError("HR-C012", f"cannot write to {folder}", place=str(path), hint=hint)


def _resize(command: Resize, pipeline: Pipeline) -> None:
    resized(pipeline, command)


def _bounds(command: SetBounds, pipeline: Pipeline) -> None:
    external_stream(pipeline, command.stream)
    strange = command.bounds.keys() - set(BOUNDS)
    if strange or not command.bounds:
        what = f"there is no bound {min(strange)!r}" if strange else "no bound is named"
        raise ControlError("HR-L009", what, place=command.stream, hint=f"bounds: {', '.join(BOUNDS)}")


def _heartbeat(command: Heartbeat, pipeline: Pipeline) -> None:
    external_stream(pipeline, command.stream)
    instant_of(pipeline, command.time, command.stream)


def _punctuate(command: Punctuate, pipeline: Pipeline) -> None:
    stream_named(pipeline, command.stream)
    punctuation_of(pipeline, command)


def _reload(command: Reload, pipeline: Pipeline) -> None:
    check_table(pipeline, command.table)
    if command.since is not None:
        instant_of(pipeline, command.since, command.table)


def _strategy(command: SetStrategy, pipeline: Pipeline) -> None:
    strategy(command.strategy)
    if command.query is not None:
        query_named(pipeline, command.query)


def _nothing(command: SetBudget | Stop, pipeline: Pipeline) -> None:
    """`changed` checks it, or there is nothing to check."""


_CHECKS: Final[dict[type[Command], Callable[[Any, Pipeline], object]]] = {
    AddQuery: _add,
    RemoveQuery: lambda command, pipeline: query_named(pipeline, command.name),
    Pause: lambda command, pipeline: query_named(pipeline, command.query),
    Resume: lambda command, pipeline: query_named(pipeline, command.query),
    Resize: _resize,
    SetBudget: _nothing,
    SetStrategy: _strategy,
    SetLevel: lambda command, pipeline: check_level(command.level),
    SetBounds: _bounds,
    Punctuate: _punctuate,
    Heartbeat: _heartbeat,
    Reload: _reload,
    Stop: _nothing,
}
