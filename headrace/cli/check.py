"""A summary of a pipeline file, as text and as data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, PipelineError
from headrace.pipeline import Pipeline, load
from headrace.pipeline.pipeline import PipelineStream
from headrace.runtimes.embedded import Runner
from headrace.runtimes.words import length


def summary(pipeline: Pipeline) -> dict[str, Any]:
    """Name, runtime, streams, queries and warnings of a pipeline, as data."""
    return {
        "name": pipeline.name,
        "runtime": pipeline.runtime,
        "streams": {
            name: {
                "columns": {field.name: str(field.type) for field in stream.schema},
                "time": stream.definition.time.value,
                "source": stream.spec.source.type,
            }
            for name, stream in pipeline.streams.items()
        },
        "queries": {
            query.name: {
                "reads": list(query.streams),
                "columns": {field.name: str(field.type) for field in query.query.schema},
            }
            for query in pipeline.queries
        },
        "restart": restart(pipeline),
        "warnings": list(pipeline.warnings),
    }


def restart(pipeline: Pipeline) -> str:
    """What the next start on the embedded runtime keeps, begins and frees; empty if it is the first."""
    if pipeline.runtime != "embedded" or pipeline.spec.pipeline.checkpoint is None:
        return ""
    try:
        adopted = Runner(pipeline).preview()
    except HeadraceError as error:
        return f"the next start is refused: [{error.code}] {error.message}; {error.hint}"
    return "" if adopted is None else f"the next start {adopted}"


def describe(pipeline: Pipeline) -> str:
    """Name, runtime, streams, queries and warnings of a pipeline, as text."""
    lines = [f"{pipeline.name} is valid; runtime: {pipeline.runtime}"]
    lines += [f"  stream {name}: {stream_line(stream)}" for name, stream in pipeline.streams.items()]
    for query in pipeline.queries:
        columns = ", ".join(f"{f.name} {f.type}" for f in query.query.schema)
        lines.append(f"  query {query.name} reads {', '.join(query.streams)} and returns ({columns})")
    said = restart(pipeline)
    lines += [f"  {said}"] if said else []
    return "\n".join([*lines, *(f"  warning: {each}" for each in pipeline.warnings)])


def stream_line(stream: PipelineStream) -> str:
    """The source of a stream, and what is known about its lateness."""
    column = f" in {stream.definition.time_column}" if stream.definition.time_column else ""
    said = stream.lateness
    tell: Callable[[int], str] = str if stream.definition.ticks_per_second is None else length
    lengths = {key: getattr(said, key) for key in ("disorder", "latency", "skew", "transit")}
    known = [f"{key} {tell(ticks)}" for key, ticks in lengths.items() if ticks]
    known += [] if said.slack is None else [f"slack {said.slack} row{'' if said.slack == 1 else 's'}"]
    if said.confidence is not None:
        known.append(f"disorder estimated, {said.confidence.promise}")
    if said.sources is not None:
        known.append(f"for each of {said.sources.groups} groups of sources by {said.sources.column}")
        known += [] if said.sources.idle is None else [f"idle after {tell(said.sources.idle)}"]
    known = known or ["rows in order"]
    known += [] if stream.spec.idle is None else [f"idle: {stream.spec.idle}"]
    source = stream.spec.source
    where = getattr(source, "path", None) or source.type
    return f"{where}, {stream.definition.time.value} time{column}, {', '.join(known)}"


# `headrace explain`


def explained(file: Path, query: str | None, format: str) -> str:
    """Explain one query or all: the plan before it runs, and the operator graph that runs it."""
    pipeline = load(file)
    chosen = [each for each in pipeline.queries if query in (None, each.name)]
    if not chosen:
        names = ", ".join(each.name for each in pipeline.queries)
        raise PipelineError(
            "HR-F016", f"the query {query!r} does not exist", place=str(file), hint=f"queries: {names}"
        )
    engine = Runner(pipeline).build_engine()
    parts = []
    for each in chosen:
        planned, running = str(each.query.explain(format)), str(engine.explain(each.name, format))
        streams = [f"  {name}: {stream_line(pipeline.streams[name])}" for name in each.streams]
        known = ["", "streams", *streams] if streams else []
        parts += [f"== {each.name} ==", planned, *known, "", running, ""] if format == "text" else [running]
    return "\n".join(parts).rstrip()
