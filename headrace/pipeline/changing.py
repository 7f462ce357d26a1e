"""A pipeline with one more query, one less, or other bounds: what a command makes of a checked pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.memory.budget import budget_bytes
from headrace.pipeline.load import Path_, Reader
from headrace.pipeline.pipeline import Pipeline, PipelineQuery
from headrace.pipeline.spec import MemoryTable, QuerySpec, StreamSpec

BOUNDS: Final = ("disorder", "slack", "latency", "transit", "guard")
"""The bounds of a stream that can change while it is read."""


class _Changing(Reader):
    """Checks a table that does not come from the pipeline file; `name` says what it is."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        super().__init__("", pipeline.root, name, {}, pipeline.file, pipeline.functions.only_known())
        self.checks_sinks = True

    def _place(self, path: Path_) -> str:
        keys = ".".join(map(str, path[2:] if path[:1] == ("queries",) else path))
        return f"{self.name}: {keys}" if keys else self.name


def with_query(pipeline: Pipeline, table: Mapping[str, Any], since: int = 0, origin: str = "log") -> Pipeline:
    """The pipeline with one more query, which is checked like a query of the file."""
    reader = _Changing(pipeline, f"query {table.get('name', '')}".rstrip())
    spec = reader.valid(QuerySpec, table)
    made = replace(reader.query(0, spec, pipeline.catalog), since=since, origin=origin)
    after = _with_queries(pipeline, (*pipeline.queries, made))
    reader.check_places(after.spec)
    return after


def without_query(pipeline: Pipeline, name: str) -> Pipeline:
    """The pipeline without a query; the streams that it read are still read."""
    gone = [query for query in pipeline.queries if query.name == name]
    after = _with_queries(pipeline, tuple(query for query in pipeline.queries if query.name != name))
    return replace(after, also_read=pipeline.also_read.union(*(query.streams for query in gone)))


def with_paused(pipeline: Pipeline, name: str, paused: bool) -> Pipeline:
    """The pipeline with a query paused or not; the same one if there is no such query any more."""
    queries = (replace(each, paused=paused) if each.name == name else each for each in pipeline.queries)
    return replace(pipeline, queries=tuple(queries))


def _with_queries(pipeline: Pipeline, queries: tuple[PipelineQuery, ...]) -> Pipeline:
    """The pipeline with these queries, and their tables in its file."""
    spec = pipeline.spec.model_copy(update={"queries": [query.spec for query in queries]})
    return replace(pipeline, spec=spec, queries=queries)


def with_bounds(pipeline: Pipeline, stream: str, bounds: Mapping[str, Any]) -> Pipeline:
    """The pipeline with other bounds of a stream: those named, None for none; the others stay."""
    reader = _Changing(pipeline, f"stream {stream}")
    table = pipeline.streams[stream].spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    for key, value in bounds.items():
        inside = table if key == "guard" else table["bounds"]
        inside.pop(key, None)
        if value is not None:
            inside[key] = value
    spec = reader.valid(StreamSpec, table)
    made = reader.stream(stream, spec, pipeline.ticks_per_second)
    whole = pipeline.spec.model_copy(update={"streams": {**pipeline.spec.streams, stream: spec}})
    streams = {**pipeline.streams, stream: made}
    skew = reader.skew(whole, streams, pipeline.ticks_per_second)
    after = replace(pipeline, spec=whole, streams=streams, skew=skew)
    reader.at(("skew",), after.heartbeats)
    return after


def with_budget(pipeline: Pipeline, budget: str | int | None, policy: str) -> Pipeline:
    """The pipeline with another memory budget and policy."""
    reader = _Changing(pipeline, "budget")
    table = pipeline.spec.memory.model_dump(exclude_none=True) | {"policy": policy}
    table |= {"budget": budget}
    memory = reader.valid(MemoryTable, table)
    if budget is not None:
        reader.at(("memory", "budget"), lambda: budget_bytes(budget))
    return _with_spec(pipeline, {"memory": memory})


def with_execution(pipeline: Pipeline, **changed: str) -> Pipeline:
    """The pipeline with another strategy or level, which the caller has checked."""
    table = pipeline.spec.pipeline.model_copy(update=changed)
    return _with_spec(pipeline, {"pipeline": table})


def with_strategy_of(pipeline: Pipeline, query: str, strategy: str) -> Pipeline:
    """The pipeline with another strategy of a query, if it has the query; the caller has checked it."""
    return _with_queries(
        pipeline,
        tuple(_running(each, strategy) if each.name == query else each for each in pipeline.queries),
    )


def _running(each: PipelineQuery, strategy: str) -> PipelineQuery:
    """The query under another strategy."""
    asked = replace(each.query, service=replace(each.query.service, strategy=strategy))
    return replace(each, spec=each.spec.model_copy(update={"strategy": strategy}), query=asked)


def _with_spec(pipeline: Pipeline, tables: Mapping[str, Any]) -> Pipeline:
    """The pipeline with other tables of its file."""
    return replace(pipeline, spec=pipeline.spec.model_copy(update=tables))
