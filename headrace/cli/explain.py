"""`headrace explain`: the queries of a pipeline, as planned and as they will run."""

from __future__ import annotations

from pathlib import Path

from headrace.cli.check import stream_line
from headrace.errors import PipelineError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner


def explained(file: Path, query: str | None, format: str) -> str:
    """Each query, or one: what is known of it before it runs, and the graph that runs it here."""
    pipeline = load(file)
    chosen = [each for each in pipeline.queries if query in (None, each.name)]
    if not chosen:
        names = ", ".join(each.name for each in pipeline.queries)
        raise PipelineError("HR-F016", f"no query {query!r}", place=str(file), hint=f"queries: {names}")
    engine = Runner(pipeline).build_engine()
    parts = []
    for each in chosen:
        planned, running = str(each.query.explain(format)), str(engine.explain(each.name, format))
        streams = [f"  {name}: {stream_line(pipeline.streams[name])}" for name in each.streams]
        known = ["", "streams", *streams] if streams else []
        parts += [f"== {each.name} ==", planned, *known, "", running, ""] if format == "text" else [running]
    return "\n".join(parts).rstrip()
