"""A summary of a pipeline file, as text and as data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headrace.engine import Adopted
from headrace.errors import HeadraceError, PipelineError
from headrace.pipeline import Pipeline, load
from headrace.pipeline.hazards import hazards
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
        "warnings": [*pipeline.warnings, *hazards(pipeline)],
    }


def restart(pipeline: Pipeline) -> str:
    """What the next start keeps, begins and frees; empty if it is the first.

    Spark does not have to run for it.
    """
    if pipeline.spec.pipeline.checkpoint is None:
        return ""
    try:
        adopted = PREVIEWS[pipeline.runtime](pipeline)
    except HeadraceError as error:
        return f"the next start is refused: [{error.code}] {error.message}; {error.hint}"
    return "" if adopted is None else f"the next start {adopted}"


def _on_spark(pipeline: Pipeline) -> Adopted | None:
    """The preview of the Spark runtime, which needs PySpark if there is a checkpoint."""
    checkpoint = pipeline.spec.pipeline.checkpoint
    if checkpoint is None or not (pipeline.path(checkpoint) / "spark").is_dir():
        return None
    from headrace.spark import preview

    return preview(pipeline)


PREVIEWS: Final[dict[str, Callable[[Pipeline], Adopted | None]]] = {
    "embedded": lambda pipeline: Runner(pipeline).preview(),
    "spark": _on_spark,
}
"""By runtime, what the next start would do with the state of each query."""


def describe(pipeline: Pipeline) -> str:
    """Name, runtime, streams, queries and warnings of a pipeline, as text."""
    lines = [f"{pipeline.name} is valid; runtime: {pipeline.runtime}"]
    lines += [f"  stream {name}: {stream_line(stream)}" for name, stream in pipeline.streams.items()]
    for query in pipeline.queries:
        columns = ", ".join(f"{f.name} {f.type}" for f in query.query.schema)
        lines.append(f"  query {query.name} reads {', '.join(query.streams)} and returns ({columns})")
    said = restart(pipeline)
    lines += [f"  {said}"] if said else []
    return "\n".join([*lines, *(f"  warning: {each}" for each in (*pipeline.warnings, *hazards(pipeline)))])


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
    topics = ", ".join(getattr(source, "topics", ()))
    where = getattr(source, "path", None) or (f"{source.type} {topics}" if topics else source.type)
    where = where if stream.of is None else f"the rows of {stream.of}"
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
