"""The progress of a run: for the live view, the log and scripts."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.engine import Engine
from headrace.engine.reasons import Reason
from headrace.engine.scheduling import Waiting
from headrace.runtimes.embedded.outputs import Outputs
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class StreamProgress:
    """A stream: its row counts, its rate, its heartbeat, and the lag of the heartbeat behind the clock.

    `heartbeat` is None until there is a promise; `lag` is None then, and after the end of the stream.
    """

    rows_in: int
    rows_processed: int
    rows_late: int
    rows_rejected: int
    rows_per_second: float
    heartbeat: int | None
    lag: int | None
    ended: bool
    held_rows: int
    held_bytes: int
    rows_shed: int = 0


@dataclass(frozen=True)
class QueryProgress:
    """A query: its result rows, their rate, and the bytes that it uses, including shared ones."""

    rows_out: int
    rows_per_second: float
    bytes: int


@dataclass(frozen=True)
class Quality:
    """A window or granularity that may change: its bounds, its value, and how often it has changed."""

    what: str
    least: int
    most: int
    value: int
    changes: int


@dataclass(frozen=True)
class Progress:
    """A run at an instant: `state` is starting, running, stopped or finished; instants count ticks.

    `state_bytes` is the size of operator state (`operators`: by operator), `bytes` includes rows in buffers.
    `quality`: the windows and granularities that may change. `orders` and `conditions`: the joins and
    conditions that run in another order than planned. `reasons`: why rows were late or rejected. `commands`:
    the number of the last command of the control log that was applied or refused.
    """

    pipeline: str
    state: str
    clock: str
    now: int
    elapsed: float
    streams: dict[str, StreamProgress]
    queries: dict[str, QueryProgress]
    waiting: dict[str, Waiting]
    state_bytes: int
    bytes: int
    operators: dict[str, int]
    budget: int | None
    quality: dict[str, Quality]
    checkpoints: int
    checkpoint_bytes: int
    messages: tuple[str, ...] = field(default=())
    spilled_bytes: int = 0
    orders: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    commands: int = 0


def measure(
    engine: Engine,
    outputs: Outputs,
    *,
    pipeline: str,
    state: str,
    clock: str,
    elapsed: float,
    checkpoints: int,
    checkpoint_bytes: int,
    messages: tuple[str, ...],
    before: Progress | None,
    commands: int = 0,
) -> Progress:
    """The progress of a run; rates are averages since `before`, or since the start."""
    metrics = engine.metrics()
    span = max(elapsed - (before.elapsed if before else 0.0), 1e-9)
    streams = {}
    for name, source in metrics.sources.items():
        last = before.streams[name].rows_in if before and name in before.streams else 0
        beats = source.promised not in (MIN_TIME, MAX_TIME)
        streams[name] = StreamProgress(
            source.rows_in,
            source.rows_processed,
            source.rows_late,
            source.rows_rejected,
            (source.rows_in - last) / span,
            source.promised if source.promised != MIN_TIME else None,
            engine.now - source.promised if beats else None,
            source.promised == MAX_TIME,
            source.held_rows,
            source.held_bytes,
            source.rows_shed,
        )
    queries = {}
    for name, q in outputs.queries.items():
        fresh = q.rows - (before.queries[name].rows_out if before and name in before.queries else 0)
        queries[name] = QueryProgress(q.rows, fresh / span, metrics.memory.queries[name])
    held = {name: size for name, size in metrics.memory.states.items() if size}
    return Progress(
        pipeline,
        state,
        clock,
        engine.now,
        elapsed,
        streams,
        queries,
        engine.scheduling.waiting(),
        metrics.state_bytes,
        metrics.bytes,
        held,
        engine.memory.budget,
        {
            s.node: Quality(s.what, s.least, s.most, s.value, len(s.history) - 1)
            for s in engine.quality.settings()
        },
        checkpoints,
        checkpoint_bytes,
        messages,
        spilled_bytes=metrics.spilled_bytes,
        orders=metrics.orders,
        conditions=metrics.conditions,
        reasons=outputs.reasons.all(),
        commands=commands,
    )
