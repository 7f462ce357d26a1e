"""Applies a command to an engine, at the instant at which the engine is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from headrace.control.commands import (
    AddQuery,
    Command,
    Heartbeat,
    Instant,
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
from headrace.control.log import Entry, log_of
from headrace.control.reloading import rows_in
from headrace.engine import Engine
from headrace.errors import ControlError, GraphError
from headrace.pipeline.load import instant
from headrace.pipeline.pipeline import Pipeline, PipelineQuery, PipelineStream
from headrace.plan.nodes.core import Granularity, Plan
from headrace.plan.nodes.quality import adaptable, bounds_of, counts_rows
from headrace.plan.nodes.trees import sources_of
from headrace.spill.store import SpillStore
from headrace.time.durations import readable, ticks
from headrace.time.punctuation import Between, Constant, OneOf, Pattern, Punctuation
from headrace.time.timestamp import MAX_TIME

SpillTo = Callable[[], SpillStore]
"""Makes the store that state spills to, once a budget asks for it."""


def apply(entry: Entry, engine: Engine, after: Pipeline, spill_to: SpillTo | None = None) -> None:
    """Apply a command to an engine; `after` is the pipeline with the change (`in_force.changed`)."""
    _APPLY[type(entry.command)](engine, entry.command, after, spill_to)


def add_queries(engine: Engine, pipeline: Pipeline) -> None:
    """Declare the streams of a pipeline to a new engine, and add its queries."""
    declare_streams(engine, pipeline)
    for query in pipeline.queries:
        engine.add(query.name, query.query, since=query.since)
        if query.paused:
            engine.pause(query.name)


def declare_streams(engine: Engine, pipeline: Pipeline) -> None:
    """Tell the engine the streams that are read, with their bounds and rules; again if they have changed."""
    heartbeats = pipeline.heartbeats()
    streams = pipeline.read.values()
    if heartbeats is not None:
        managed = (s for s in streams if s.name in heartbeats.streams)
        rules = {s.definition.source: s.rules for s in managed}
        engine.streams.manage_again(heartbeats, rules, pipeline.promises())
    engine.streams.recognise(pipeline.row_promises)
    for stream in streams:
        by_source = stream.lateness.by_source()
        if by_source is not None:
            engine.streams.set_bounds(stream.definition.source, by_source, stream.rules)
        if not stream.external and stream.name not in engine.streams:
            engine.streams.declare(stream.definition.source)
    engine.streams.use_policies(pipeline.policies())


def _add(engine: Engine, command: AddQuery, after: Pipeline, spill_to: SpillTo | None) -> None:
    query = query_named(after, command.name)
    if any(name not in engine.streams for name in query.streams):
        declare_streams(engine, after)
    engine.add(query.name, query.query, since=query.since)


def _remove(engine: Engine, command: RemoveQuery, after: Pipeline, spill_to: SpillTo | None) -> None:
    engine.remove(command.name)


def _resize(engine: Engine, command: Resize, after: Pipeline, spill_to: SpillTo | None) -> None:
    resize_from(engine, *resized(after, command), command.query)


def resize_from(engine: Engine, node: Plan, size: int, at: int | None, query: str) -> None:
    """Resize from an instant on, or as soon as possible if rows of that instant have been answered.

    A command is written while rows flow, so its instant may pass before it is applied; and shards of one job
    have answered for different rows, but must all do the same.
    """
    try:
        engine.quality.resize(node, size, at=at, query=query)
    except GraphError as error:
        if error.code != "HR-G017":
            raise
        engine.quality.resize(node, size, query=query)


def _budget(engine: Engine, command: SetBudget, after: Pipeline, spill_to: SpillTo | None) -> None:
    memory = after.spec.memory
    if memory.budget is not None and memory.policy == "spill" and engine.memory.store is None and spill_to:
        engine.memory.use(spill_to())
    engine.memory.set_budget(memory.budget, policy=memory.policy)


def _strategy(engine: Engine, command: SetStrategy, after: Pipeline, spill_to: SpillTo | None) -> None:
    if command.query is None:
        engine.scheduling.use(command.strategy)
    else:
        engine.scheduling.use_for(command.query, command.strategy)


def _bounds(engine: Engine, command: SetBounds, after: Pipeline, spill_to: SpillTo | None) -> None:
    if command.stream in engine.streams:
        declare_streams(engine, after)


def _punctuate(engine: Engine, command: Punctuate, after: Pipeline, spill_to: SpillTo | None) -> None:
    engine.streams.punctuate(command.stream, punctuation_of(after, command))


def _heartbeat(engine: Engine, command: Heartbeat, after: Pipeline, spill_to: SpillTo | None) -> None:
    engine.streams.heartbeat(command.stream, instant_of(after, command.time))


def _reload(engine: Engine, command: Reload, after: Pipeline, spill_to: SpillTo | None) -> None:
    if command.table not in engine.graph.tables:
        return
    log = None if after.spec.pipeline.checkpoint is None else log_of(after)
    at = None if command.since is None else instant_of(after, command.since)
    engine.reload(command.table, rows_in(command, log), at=at)


_APPLY: Final[dict[type[Command], Callable[[Engine, Any, Pipeline, SpillTo | None], None]]] = {
    AddQuery: _add,
    RemoveQuery: _remove,
    Pause: lambda engine, command, after, spill_to: engine.pause(command.query),
    Resume: lambda engine, command, after, spill_to: engine.resume(command.query),
    Resize: _resize,
    SetBudget: _budget,
    SetStrategy: _strategy,
    SetLevel: lambda engine, command, after, spill_to: engine.scheduling.set_level(command.level),
    SetBounds: _bounds,
    Punctuate: _punctuate,
    Heartbeat: _heartbeat,
    Reload: _reload,
    Stop: lambda engine, command, after, spill_to: None,  # the runtime stops
}


# --- what a command refers to -----------------------------------------------------------------------------


def query_named(pipeline: Pipeline, name: str) -> PipelineQuery:
    """The query in force under a name."""
    for query in pipeline.queries:
        if query.name == name:
            return query
    known = ", ".join(query.name for query in pipeline.queries) or "none"
    raise ControlError("HR-L006", f"there is no query {name!r}", hint=f"queries in force: {known}")


def stream_named(pipeline: Pipeline, name: str) -> PipelineStream:
    """The stream of a name, if a query reads it."""
    if name not in pipeline.streams:
        hint = f"streams: {', '.join(pipeline.streams)}"
        raise ControlError("HR-L008", f"there is no stream {name!r}", hint=hint)
    if name not in pipeline.read:
        hint = f"streams that are read: {', '.join(pipeline.read)}"
        raise ControlError("HR-L008", f"no query reads the stream {name!r}", hint=hint)
    return pipeline.streams[name]


def external_stream(pipeline: Pipeline, name: str) -> PipelineStream:
    """The stream of a name, if its rows bring their times."""
    stream = stream_named(pipeline, name)
    if not stream.external:
        kind = stream.definition.time.value
        raise ControlError(
            "HR-L008", f"the stream {name!r} has {kind} time, so it takes no bounds or promises"
        )
    return stream


def instant_of(pipeline: Pipeline, written: Instant, place: str = "") -> int:
    """An instant as a tick."""
    if isinstance(written, str) and re.fullmatch(r"\s*-?\d+\s*", written):
        written = int(written)
    try:
        found = instant(written, pipeline.ticks_per_second)
        assert found is not None
    except ValueError as error:
        hint = "write an ISO date and time, such as 2024-05-01T12:00:00Z, or a number of ticks"
        raise ControlError(
            "HR-L009", f"{written!r} is not an instant: {error}", place=place, hint=hint
        ) from None
    if abs(found) >= MAX_TIME:
        raise ControlError("HR-L009", f"the instant {written!r} is out of range", place=place)
    return found


def windows_of(query: PipelineQuery) -> dict[str, Plan]:
    """The nodes of a query's plan that may change, by the names that commands use for them.

    Names follow from the query alone; in the plan that it shares with others, two windows may be one node.
    """
    found: dict[str, Plan] = {}
    written, running = query.query.optimized_plan, query.query.plan
    for plan, node in dict(zip(adaptable(written), adaptable(running), strict=True)).items():
        of = "granularity" if isinstance(plan, Granularity) else sources_of(plan)[0].name
        count = sum(name.partition("#")[0] == of for name in found)
        found[f"{of}#{count + 1}" if count else of] = node
    return found


def resized(pipeline: Pipeline, command: Resize) -> tuple[Plan, int, int | None]:
    """The node of the query's plan to change, its new size in ticks, and the instant from which it holds."""
    windows = windows_of(query_named(pipeline, command.query))
    names = ", ".join(windows)
    if not windows:
        raise ControlError(
            "HR-L009",
            f"query {command.query!r} has no window or granularity that may change",
            hint="write [RANGE MIN 2 HOURS, MAX 5 HOURS] or [GRANULARITY COARSEST …, FINEST …]",
        )
    if command.of is None and len(windows) > 1:
        raise ControlError(
            "HR-L009",
            f"query {command.query!r} has several windows: say which one",
            hint=f"one of: {names}",
        )
    name = next(iter(windows)) if command.of is None else command.of
    if name not in windows:
        raise ControlError(
            "HR-L009",
            f"query {command.query!r} has no window {name!r} that may change",
            hint=f"one of: {names}",
        )
    domain = pipeline.ticks_per_second
    rows = counts_rows(windows[name])
    size = _count(command.size, name) if rows else ticks(command.size, domain, command.query)
    bounds = bounds_of(windows[name])
    assert bounds is not None
    if size not in bounds:
        least, most, step = (
            f"{each} rows" if rows else readable(each, domain)
            for each in (bounds.least, bounds.most, bounds.step)
        )
        steps = f", in steps of {step}" if bounds.step > 1 else ""
        raise ControlError(
            "HR-L009",
            f"{command.size!r} is outside of the bounds of {name!r} in query {command.query!r}",
            hint=f"from {least} to {most}{steps}",
        )
    return windows[name], size, None if command.since is None else instant_of(pipeline, command.since)


def _count(written: str | int, window: str) -> int:
    """The number of rows of a window: `500` or `500 rows`."""
    digits = str(written).lower().removesuffix("rows").strip()
    if not digits.isdecimal() or len(digits) > 18:
        raise ControlError(
            "HR-L009", f"{written!r} is not a number of rows", place=window, hint="write 500, or 500 rows"
        )
    return int(digits)


def punctuation_of(pipeline: Pipeline, command: Punctuate) -> Punctuation:
    """The punctuation, with values of the types of the columns."""
    stream = stream_named(pipeline, command.stream)
    patterns = []
    for column, written in command.patterns.items():
        if column not in stream.schema.names:
            hint = f"columns: {', '.join(stream.schema.names)}"
            raise ControlError("HR-L009", f"stream {command.stream!r} has no column {column!r}", hint=hint)
        patterns.append((column, _pattern(column, written, stream.schema.field(column).type)))
    if not patterns and command.until is None:
        hint = "name columns, such as auction=7, or an instant (until)"
        raise ControlError(
            "HR-L009", "a punctuation without a pattern promises the end of the stream", hint=hint
        )
    until = MAX_TIME if command.until is None else instant_of(pipeline, command.until)
    return Punctuation(until, tuple(patterns))


def _pattern(column: str, written: Mapping[str, Any], of: pa.DataType) -> Pattern:
    """A pattern on one column."""
    keys = frozenset(written)
    if keys == {"is"}:
        return Constant(_value(column, written["is"], of))
    if keys == {"in"} and written["in"]:
        return OneOf(tuple(_value(column, each, of) for each in written["in"]))
    if keys and keys <= {"from", "to"}:
        ends = {key: _value(column, each, of) for key, each in written.items()}
        return Between(ends.get("from"), ends.get("to"))
    hint = 'write {"is": value}, {"in": [values]} or {"from": low, "to": high}'
    raise ControlError("HR-L009", f"{dict(written)!r} is not a pattern", place=column, hint=hint)


def _value(column: str, written: Any, of: pa.DataType) -> Any:
    """A value of a column's type, from JSON or from text."""
    try:
        if isinstance(written, str) and not pa.types.is_string(of):
            return pa.scalar(written).cast(of).as_py()
        return pa.scalar(written, of).as_py()
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        reason = f"{written!r} is not a value of type {of}"
        raise ControlError("HR-L009", reason, place=column, hint=str(error)) from None
