"""Measures a run: its status, for the live view, the log, other terminals and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import time
from typing import Any

from headrace.engine import Engine
from headrace.engine.declared import Declared
from headrace.engine.metrics import Metrics, SourceMetrics
from headrace.pipeline import Pipeline
from headrace.runtimes.embedded.outputs import Outputs
from headrace.runtimes.status import OperatorStatus, Quality, QueryStatus, Status, StreamStatus, Wait
from headrace.time.timestamp import MAX_TIME, MIN_TIME


def measure(
    engine: Engine,
    outputs: Outputs,
    *,
    pipeline: Pipeline,
    state: str,
    clock: str,
    elapsed: float,
    checkpoints: int,
    checkpoint_bytes: int,
    messages: tuple[str, ...],
    before: Status | None,
    commands: int = 0,
) -> Status:
    """The status of a run; rates are averages since `before`, or since the start."""
    metrics = engine.metrics()
    held = {name: size for name, size in metrics.memory.states.items() if size}
    sinks = outputs.spent()
    queries = {
        name: QueryStatus(
            q.rows,
            0.0,
            metrics.memory.queries[name],
            tuple(sorted(q.streams)),
            sinks.get(name, 0.0),
            engine.held(name) is not None,
            engine.held(name) or 0,
        )
        for name, q in outputs.queries.items()
    }
    settings = engine.quality.settings()
    return Status(
        pipeline.name,
        state,
        clock,
        engine.now,
        elapsed,
        _streams(engine, pipeline, metrics),
        queries,
        waits(engine, metrics),
        metrics.state_bytes,
        metrics.bytes,
        held,
        engine.memory.budget,
        {each.node: Quality.of(each) for each in settings},
        checkpoints,
        checkpoint_bytes,
        messages,
        spilled_bytes=metrics.spilled_bytes,
        orders=metrics.orders,
        conditions=metrics.conditions,
        reasons=outputs.reasons.all(),
        commands=commands,
        file=None if pipeline.file is None else str(pipeline.file),
        ticks_per_second=pipeline.ticks_per_second,
        written=time(),
        dropping=engine.scheduling.dropping(),
        graph=operators(engine, metrics),
    ).after(before)


def operators(engine: Engine, metrics: Metrics) -> dict[str, OperatorStatus]:
    """The operators of the graph, inputs first."""
    found = {}
    for each in engine.shape.operators:
        node = metrics.nodes[each.name]
        found[each.name] = OperatorStatus(
            each.kind,
            each.detail,
            each.inputs,
            each.answers,
            each.waits,
            node.rows_out,
            queued=node.queued_rows,
        )
    return found


def waits(engine: Engine, metrics: Metrics) -> tuple[Wait, ...]:
    """The queries that wait, by operator."""
    memory = metrics.memory
    return tuple(
        Wait(query, name, each.streams, each.wanted, each.since, each.rows, memory.states[name])
        for name, each in engine.scheduling.waiting().items()
        for query in each.queries
    )


def _streams(engine: Engine, pipeline: Pipeline, metrics: Metrics) -> dict[str, StreamStatus]:
    """The streams with their bounds."""
    sources = source_names(pipeline)
    return {
        name: replace(
            _stream(source, engine.now, engine.streams.declared(name), sources.get(name, "")),
            slowest=engine.streams.slowest(name),
        )
        for name, source in metrics.sources.items()
    }


def _stream(source: SourceMetrics, now: int, bounds: Declared, described: str) -> StreamStatus:
    """A stream as its metrics and its bounds describe it."""
    beats = source.known not in (MIN_TIME, MAX_TIME)
    return StreamStatus(
        source.rows_in,
        source.rows_processed,
        source.rows_late,
        source.rows_rejected,
        0.0,
        None if source.known == MIN_TIME else source.known,
        now - source.known if beats else None,
        source.known == MAX_TIME,
        source.held_rows,
        source.held_bytes,
        source.rows_shed,
        read_until=source.read_until,
        disorder=bounds.disorder,
        latency=bounds.latency,
        learned=bounds.learned,
        source=described,
        lags=source.lags,
    )


def source_names(pipeline: Pipeline) -> Mapping[str, str]:
    """What each stream reads, in a few words."""
    return {
        name: _described(stream.spec.source) if stream.of is None else f"the rows of {stream.of}"
        for name, stream in pipeline.streams.items()
    }


def _described(source: Any) -> str:
    """What a source reads, in a few words."""
    if source.type == "history":
        return f"{_described(source.history)}, then {_described(source.live)}"
    place = getattr(source, "path", None) or getattr(source, "table", None)
    if source.type == "tcp":
        place = f"{source.host}:{source.port}"
    if source.type == "kafka":
        place = ", ".join(source.topics)
    return f"{source.type} {place}" if place else str(source.type)
