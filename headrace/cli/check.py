"""What a pipeline file means, in words and as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.cli.why import length
from headrace.pipeline import Pipeline
from headrace.pipeline.pipeline import PipelineStream


def summary(pipeline: Pipeline) -> dict[str, Any]:
    """The essentials as data."""
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
        "warnings": list(pipeline.warnings),
    }


def describe(pipeline: Pipeline) -> str:
    """The essentials in words."""
    lines = [f"{pipeline.name} is valid; runtime: {pipeline.runtime}"]
    lines += [f"  stream {name}: {stream_line(stream)}" for name, stream in pipeline.streams.items()]
    for query in pipeline.queries:
        columns = ", ".join(f"{f.name} {f.type}" for f in query.query.schema)
        lines.append(f"  query {query.name} reads {', '.join(query.streams)} and answers ({columns})")
    return "\n".join([*lines, *(f"  warning: {each}" for each in pipeline.warnings)])


def stream_line(stream: PipelineStream) -> str:
    """Where a stream comes from, and what is known of its lateness."""
    column = f" in {stream.definition.time_column}" if stream.definition.time_column else ""
    said = stream.lateness
    tell: Callable[[int], str] = str if stream.definition.ticks_per_second is None else length
    known = [f"{n} {tell(t)}" for n, t in (("disorder", said.disorder), ("latency", said.latency)) if t]
    if said.confidence is not None:
        known.append(f"disorder learned, {said.confidence.promise}")
    source = stream.spec.source
    where = getattr(source, "path", None) or source.type
    return f"{where}, {stream.definition.time.value} time{column}, {', '.join(known) or 'rows in order'}"
