"""What a run can tell of itself while it runs: for a live view, for lines of text, for scripts."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.engine import Engine
from headrace.engine.reasons import Reason
from headrace.graph.origins import sources_behind
from headrace.runtimes.embedded.outputs import Outputs
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class StreamProgress:
    """A stream: its account, the rate it comes at, its heartbeat and how far that is behind the clock.

    `heartbeat` is None while nothing is promised; `lag` is None then, and once the stream has ended.
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
    """A query: rows it answered, the rate, and the bytes that it uses, shared ones included."""

    rows_out: int
    rows_per_second: float
    bytes: int


@dataclass(frozen=True)
class Waiting:
    """An operator that holds rows until its inputs have heartbeats of `wanted`, and the streams that lack it.

    `since` is the instant since which it has let nothing out, where that is measured.
    """

    wanted: int
    since: int | None
    streams: tuple[str, ...]


@dataclass(frozen=True)
class Quality:
    """A window or granularity that may change: its bounds, its value now, how often it has changed."""

    what: str
    least: int
    most: int
    value: int
    changes: int


@dataclass(frozen=True)
class Progress:
    """A run at an instant: `state` is starting, running, stopped or finished; instants count ticks.

    `state_bytes` is what operators hold (`operators`: each of them), `bytes` that and rows on their way.
    `quality` is that of the windows and granularities that may change. `orders` and `conditions`: which joins
    and conditions run in another order than planned. `reasons`: why rows were late or rejected.
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
) -> Progress:
    """The progress of a run; rates are since `before`, or since the start."""
    metrics = engine.metrics()
    span = max(elapsed - (before.elapsed if before else 0.0), 1e-9)
    streams = {}
    for name, source in metrics.sources.items():
        last = before.streams[name].rows_in if before else 0
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
        fresh = q.rows - (before.queries[name].rows_out if before else 0)
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
        _waiting(engine),
        metrics.state_bytes,
        metrics.bytes,
        held,
        None if engine.manager is None else engine.manager.budget,
        {s.node: Quality(s.what, s.least, s.most, s.value, len(s.history) - 1) for s in engine.settings()},
        checkpoints,
        checkpoint_bytes,
        messages,
        spilled_bytes=metrics.spilled_bytes,
        orders=metrics.orders,
        conditions=metrics.conditions,
        reasons=outputs.reasons.all(),
    )


def _waiting(engine: Engine) -> dict[str, Waiting]:
    found = {}
    for node in engine.graph.nodes:
        needs = node.operator.needs()
        if needs:
            wanted = max(need.heartbeat for need in needs)
            behind = [s for need in needs for s in sources_behind(node.predecessors[need.input])]
            holding = dict.fromkeys(s.name for s in behind if s.promised < wanted)
            found[node.name] = Waiting(wanted, node.waiting_since, tuple(holding))
    return found
