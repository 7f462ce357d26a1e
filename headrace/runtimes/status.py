"""The status of a run, in one form for both runtimes: `why`, `top` and `status` read it.

The embedded runner measures it, and the driver of a Spark job merges it from what its shards report. A status
continues the one before it: since when a stream is silent or an operator waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from headrace.drawing.explanation import PAGE
from headrace.drawing.svg import escape
from headrace.engine.quality import Setting
from headrace.engine.reasons import Reason
from headrace.engine.scheduling import Dropping
from headrace.runtimes.words import MICROS, html_table, instant, length, size
from headrace.time.sources import SlowestGroup
from headrace.time.timestamp import FARTHEST

STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPED: Final = "stopped"
FINISHED: Final = "finished"
FAILED: Final = "failed"
KILLED: Final = "killed"
"""The state of a run whose status says running, but whose process has ended."""

EMBEDDED_FILE: Final = "status.json"
"""The status of an embedded run, in its checkpoint directory."""
SPARK_FILE: Final = "_headrace.status.json"
"""The status of a Spark job, in its checkpoint. Spark does not read files whose names begin with `_`."""


@dataclass(frozen=True)
class Recent:
    """What came in the last interval between two statuses in which anything came."""

    rows: int = 0
    late: int = 0
    rejected: int = 0

    @property
    def used(self) -> int:
        """Rows that were neither late nor rejected."""
        return self.rows - self.late - self.rejected


@dataclass(frozen=True)
class StreamStatus:
    """A stream: its row counts, its rate, its heartbeat, and the lag of the heartbeat behind the clock.

    `heartbeat` is None until there is a promise; `lag` is None then, and after the end of the stream.
    `arrived` is the instant of its last row, `moved` the instant at which its heartbeat last advanced, and
    `read_until` the instant up to which its source has been read (None: rows do not wait there). `disorder`
    and `latency` are its bounds in ticks, if they are declared; `learned`: estimated from arrivals. `lags`
    are pairs (bound, rows): so many rows of this run need a bound on disorder of up to that many ticks.
    `slowest` is the group of sources that holds the stream back, if it has sources by a column.
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
    arrived: int | None = None
    moved: int | None = None
    read_until: int | None = None
    disorder: int | None = None
    latency: int | None = None
    learned: bool = False
    recent: Recent = Recent()
    source: str = ""
    lags: tuple[tuple[int, int], ...] = ()
    slowest: SlowestGroup | None = None

    def after(self, before: StreamStatus | None, now: int, span: float) -> StreamStatus:
        """With what follows from the status before it, `span` seconds ago."""
        known = before or StreamStatus(0, 0, 0, 0, 0.0, None, None, False, 0, 0)
        new = Recent(
            self.rows_in - known.rows_in,
            self.rows_late - known.rows_late,
            self.rows_rejected - known.rows_rejected,
        )
        came = new.rows > 0
        moved = self.heartbeat != known.heartbeat
        return replace(
            self,
            rows_per_second=max(0, new.rows) / span,
            arrived=now if came else known.arrived,
            moved=now if moved and self.heartbeat is not None else known.moved,
            recent=new if came else known.recent,
        )


@dataclass(frozen=True)
class QueryStatus:
    """A query: its result rows, their rate, and the bytes that it uses, including shared ones.

    `sink_seconds` is the time that its sinks took since the last status. While it is `paused`, `held` rows of
    answers wait to be written.
    """

    rows_out: int
    rows_per_second: float
    bytes: int
    streams: tuple[str, ...] = ()
    sink_seconds: float = 0.0
    paused: bool = False
    held: int = 0


@dataclass(frozen=True)
class OperatorStatus:
    """An operator of the graph (`headrace.engine.shape`): what it has emitted, and the rows in its inputs."""

    kind: str
    detail: str
    inputs: tuple[str, ...]
    answers: tuple[str, ...] = ()
    waits: bool = False
    rows_out: int = 0
    rows_per_second: float = 0.0
    queued: int = 0


HISTORY: Final = 60
"""How many changes of a window or granularity a status contains: the newest ones."""


@dataclass(frozen=True)
class Quality:
    """A window or granularity that may change: its bounds, its value, and how often it has changed.

    `history` are the newest pairs (t, value): rows with time ≥ t get the value. `queries` use it. `rows`: the
    values are numbers of rows.
    """

    what: str
    least: int
    most: int
    value: int
    changes: int
    queries: tuple[str, ...] = ()
    history: tuple[tuple[int, int], ...] = ()
    rows: bool = False

    @staticmethod
    def read(plain: Mapping[str, Any]) -> Quality:
        """The setting of plain data."""
        history = tuple((at, value) for at, value in plain.get("history", ()))
        return _made(Quality, {**plain, "history": history})

    @staticmethod
    def of(setting: Setting) -> Quality:
        """The setting of an engine."""
        past = setting.history
        return Quality(
            setting.what,
            setting.least,
            setting.most,
            setting.value,
            len(past) - 1,
            setting.queries,
            tuple(past[-HISTORY:]),
            setting.rows,
        )


History = tuple[tuple[int, int], ...]
"""Pairs (t, value): rows with time ≥ t get the value, until the next pair."""
Histories = dict[str, tuple[History, ...]]
"""By query, the history of each window and granularity that may change, in the order of its plan."""


@dataclass(frozen=True)
class Wait:
    """A query that waits in an operator until its streams have a heartbeat of `wanted`.

    `since`: the instant since which the operator has emitted nothing. `streams` lack the heartbeat; the one
    that is furthest behind comes first. `rows` and `bytes` are held by the operator.
    """

    query: str
    operator: str
    streams: tuple[str, ...]
    wanted: int
    since: int | None
    rows: int = 0
    bytes: int = 0

    @property
    def place(self) -> tuple[str, str]:
        """Where it waits."""
        return self.query, self.operator


@dataclass(frozen=True)
class LostExecutor:
    """An executor of Spark that was lost: at an instant in seconds of the system's clock, and why.

    `left` is the number of executors that are there.
    """

    name: str
    at: float
    reason: str
    left: int


@dataclass(frozen=True)
class Status:
    """A run at an instant: `state` is starting, running, stopped, finished or failed; instants count ticks.

    `state_bytes` is the size of operator state (`operators`: by operator), `bytes` includes rows in buffers.
    `quality`: the windows and granularities that may change. `orders` and `conditions`: the joins and
    conditions that run in another order than planned. `reasons`: why rows were late or rejected. `commands`:
    the number of the last command of the control log that was applied or refused.

    `written` is when the status was made, in seconds of the system's clock, and `span` the seconds since the
    one before. `begun` is the instant of the first status of this run. `clock_moved` is when the run's clock
    last advanced, by the system's clock. `writing`: the queries whose sinks
    are being written now. On Spark, `batch` is the number
    of the micro-batch, and `ticking` says whether a timer makes one at least every few seconds. `histories`,
    on Spark too, has by query the pairs (t, value) of each of its windows and granularities that may change,
    from the beginning, in the order of the plan. `graph` are the operators, inputs first. `lost` are the
    executors of Spark that were lost since the micro-batch before.
    """

    pipeline: str
    state: str
    clock: str
    now: int
    elapsed: float
    streams: dict[str, StreamStatus] = field(default_factory=dict)
    queries: dict[str, QueryStatus] = field(default_factory=dict)
    waiting: tuple[Wait, ...] = ()
    state_bytes: int = 0
    bytes: int = 0
    operators: dict[str, int] = field(default_factory=dict)
    budget: int | None = None
    quality: dict[str, Quality] = field(default_factory=dict)
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    messages: tuple[str, ...] = field(default=())
    spilled_bytes: int = 0
    orders: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    commands: int = 0
    runtime: str = "embedded"
    file: str | None = None
    ticks_per_second: int | None = MICROS
    written: float = 0.0
    span: float = 0.0
    begun: int | None = None
    clock_moved: float = 0.0
    dropping: tuple[Dropping, ...] = ()
    error: str = ""
    writing: tuple[str, ...] = ()
    batch: int | None = None
    ticking: bool = True
    graph: dict[str, OperatorStatus] = field(default_factory=dict)
    histories: Histories = field(default_factory=dict)
    lost: tuple[LostExecutor, ...] = ()

    @property
    def clock_per_second(self) -> int:
        """The ticks of the run's clock in a second; a run over sequence numbers counts microseconds."""
        return self.ticks_per_second or MICROS

    def seconds(self, ticks: int) -> float:
        """A span of the run's clock in seconds."""
        return ticks / self.clock_per_second

    def after(self, before: Status | None) -> Status:
        """With what follows from the status before it."""
        span = max(self.elapsed - (before.elapsed if before else 0.0), 1e-9)
        streams = {
            name: each.after(before.streams.get(name) if before else None, self.now, span)
            for name, each in self.streams.items()
        }
        queries = {
            name: replace(each, rows_per_second=max(0, each.rows_out - _rows_out(before, name)) / span)
            for name, each in self.queries.items()
        }
        graph = {
            name: replace(each, rows_per_second=max(0, each.rows_out - _emitted(before, name)) / span)
            for name, each in self.graph.items()
        }
        same_clock = before is not None and before.now == self.now
        return replace(
            self,
            streams=streams,
            queries=queries,
            graph=graph,
            waiting=_continued(self.waiting, before, self.now),
            span=span,
            begun=_first_instant(self.now, before),
            clock_moved=before.clock_moved if before is not None and same_clock else self.written,
        )

    def plain(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)

    def text(self) -> str:
        """As JSON."""
        return json.dumps(self.plain())

    def __str__(self) -> str:
        lines = [self._headline]
        lines += [
            f"  stream {name}: {rows} rows, heartbeat {beat}, lag {lag}, {late} late, {rejected} rejected"
            for name, rows, beat, lag, late, rejected in self._stream_cells()
        ]
        lines += [f"  query {name}: {rows} results, {held}" for name, rows, held in self._query_cells()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        streams = html_table(("stream", "rows", "heartbeat", "lag", "late", "rejected"), self._stream_cells())
        queries = html_table(("query", "results", "memory"), self._query_cells())
        return f'<div style="{PAGE}"><p>{escape(self._headline)}</p>{streams}{queries}</div>'

    @property
    def _headline(self) -> str:
        batch = "" if self.batch is None else f", micro-batch {self.batch}"
        return f"{self.pipeline} {self.state}{batch}, {size(self.bytes)} of state"

    def _stream_cells(self) -> list[tuple[str, ...]]:
        """The figures of each stream."""
        per_second = self.ticks_per_second
        return [
            (
                name,
                f"{s.rows_in:,}",
                "ended" if s.ended else "-" if s.heartbeat is None else instant(s.heartbeat, per_second),
                "-" if s.lag is None else length(max(0, s.lag), per_second),
                f"{s.rows_late:,}",
                f"{s.rows_rejected:,}",
            )
            for name, s in self.streams.items()
        ]

    def _query_cells(self) -> list[tuple[str, ...]]:
        """The figures of each query."""
        return [(name, f"{q.rows_out:,}", size(q.bytes)) for name, q in self.queries.items()]

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Status:
        """The status of plain data; keys of another version are left out."""
        given = dict(plain)
        given["streams"] = {n: _stream(each) for n, each in plain.get("streams", {}).items()}
        given["queries"] = {n: _made(QueryStatus, each) for n, each in plain.get("queries", {}).items()}
        given["quality"] = {n: Quality.read(each) for n, each in plain.get("quality", {}).items()}
        given["graph"] = {n: _made(OperatorStatus, each) for n, each in plain.get("graph", {}).items()}
        given["waiting"] = tuple(_made(Wait, each) for each in plain.get("waiting", ()))
        given["reasons"] = tuple(_made(Reason, each) for each in plain.get("reasons", ()))
        given["dropping"] = tuple(_made(Dropping, each) for each in plain.get("dropping", ()))
        given["histories"] = histories_of(plain.get("histories", {}))
        given["lost"] = tuple(_made(LostExecutor, each) for each in plain.get("lost", ()))
        return _made(Status, given)

    @staticmethod
    def read(text: str) -> Status:
        """The status that `text` wrote; ValueError if it is damaged."""
        plain = json.loads(text)
        if not isinstance(plain, dict) or not isinstance(plain.get("waiting", ()), list):
            raise ValueError("not a status")
        try:
            return Status.of(plain)
        except TypeError as error:
            raise ValueError(str(error)) from None


def _stream(plain: Mapping[str, Any]) -> StreamStatus:
    lags = tuple((int(bound), int(rows)) for bound, rows in plain.get("lags", ()))
    parts = {
        "recent": _made(Recent, plain.get("recent", {})),
        "lags": lags,
        "slowest": slowest_of(plain.get("slowest")),
    }
    return _made(StreamStatus, {**plain, **parts})


def slowest_of(plain: Mapping[str, Any] | None) -> SlowestGroup | None:
    """The slowest group of sources, from plain data."""
    return None if plain is None else _made(SlowestGroup, plain)


T = TypeVar("T")


def histories_of(plain: Mapping[str, Any]) -> Histories:
    """Histories from JSON."""
    return {
        query: tuple(tuple((int(at), int(value)) for at, value in history) for history in each)
        for query, each in plain.items()
    }


def _made(of: type[T], plain: Mapping[str, Any]) -> T:
    """An object of a dataclass; lists become tuples, and keys that it does not have are left out."""
    known = {each.name for each in fields(of)}  # type: ignore[arg-type]
    given = {name: value for name, value in plain.items() if name in known}
    return of(**{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()})


def _rows_out(before: Status | None, query: str) -> int:
    found = None if before is None else before.queries.get(query)
    return 0 if found is None else found.rows_out


def _emitted(before: Status | None, operator: str) -> int:
    found = None if before is None else before.graph.get(operator)
    return 0 if found is None else found.rows_out


def _first_instant(now: int, before: Status | None) -> int | None:
    """The instant of the first status whose clock has been set."""
    if before is not None and before.begun is not None:
        return before.begun
    return None if abs(now) >= FARTHEST else now


def _continued(waiting: Iterable[Wait], before: Status | None, now: int) -> tuple[Wait, ...]:
    """The waits, each since when it began: a wait for the same heartbeat goes on."""
    known = {each.place: each for each in before.waiting} if before is not None else {}
    found = []
    for each in waiting:
        old = known.get(each.place)
        since = now if each.since is None else each.since
        if old is not None and old.since is not None and old.wanted == each.wanted:
            since = min(since, old.since)
        found.append(replace(each, since=since))
    return tuple(found)
