"""Progress of a query on Spark: observed metrics in each micro-batch, and a listener that reads them.

A host emits side outputs with its results (`headrace.runtimes.spark.worker.answers`). In each micro-batch
every shard emits rows of kind `metric`: one per stream (heartbeat, waiting, rows) and one with the bytes of
its state. Rows of kind `late` and `rejected` carry the number of rows that they represent. Only plain sums
are used, because Spark plans them again for each micro-batch.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from headrace.engine.reasons import Reason, merged
from headrace.runtimes.spark.worker.answers import KIND, LATE, METRICS, REASONS, REJECTED, RESULT, named
from headrace.time.timestamp import MIN_TIME

_LOG = logging.getLogger("headrace.spark")

NAME = "headrace"
"""The name of a query's metrics in `StreamingQueryProgress.observedMetrics`."""

_NUMBERED = count(1)
_OURS = re.compile(rf"{NAME}(_\d+)?")

# --- written by the query ---------------------------------------------------------------------------------


def own_name() -> str:
    """A name for the metrics of one `apply`: Spark refuses the same name twice in one query.

    The first in a process is `NAME`, the others are numbered.
    """
    number = next(_NUMBERED)
    return NAME if number == 1 else f"{NAME}_{number}"


def observed(wide: DataFrame, streams: Sequence[str], name: str = NAME) -> DataFrame:
    """The same rows, with the metrics of each micro-batch under `name` in the query's progress.

    Spark reports observed metrics as a flat row, so a stream's figures are named FIGURE:STREAM.
    """
    kind = F.col(KIND)
    figures = [
        # `count_if` would be one more projection of all columns, which is compiled in each micro-batch.
        F.count(F.when(kind.isNull(), F.lit(1))).alias("results"),
        _counts(kind == RESULT, "query", "rows").alias("queries"),
        F.count(named("state_bytes")).alias("shards"),
        F.coalesce(F.sum(named("state_bytes")), F.lit(0)).alias("state_bytes"),
        _lines(kind == REASONS, "body").alias("reasons"),
    ]
    for stream in streams:
        of_stream = F.col(named("stream")) == stream
        figures += [
            aggregate(of_stream & (kind == of), column).alias(f"{figure}:{stream}")
            for figure, (of, column, aggregate) in _FIGURES.items()
        ]
    return wide.observe(name, *figures)


def _lowest_of_all(rows: Column, figure: str) -> Column:
    """The smallest heartbeat of all shards; NULL while a shard has none."""
    value = F.coalesce(F.col(named(figure)), F.lit(MIN_TIME))
    return F.nullif(F.min(F.when(rows, value)), F.lit(MIN_TIME))


def _total(rows: Column, figure: str) -> Column:
    """The sum of a figure over the rows that match, or 0."""
    return F.coalesce(F.sum(F.when(rows, F.col(named(figure)))), F.lit(0))


def _lines(rows: Column, figure: str) -> Column:
    """Texts, one per line; there are few of them."""
    return F.array_join(F.collect_list(F.when(rows, F.decode(F.col(named(figure)), "UTF-8"))), "\n")


def _counts(rows: Column, label: str, figure: str) -> Column:
    """A label and a number per line; one figure for any number of queries."""
    line = F.concat_ws("\t", F.col(named(label)), F.col(named(figure)).cast("string"))
    return F.array_join(F.collect_list(F.when(rows, line)), "\n")


_FIGURES: dict[str, tuple[str, str, Callable[[Column, str], Column]]] = {
    "heartbeat": (METRICS, "heartbeat", _lowest_of_all),
    "waiting": (METRICS, "waiting", _total),
    "rows": (METRICS, "rows", _total),
    "late": (LATE, "rows", _total),
    "rejected": (REJECTED, "rows", _total),
}
"""By figure of a stream: the kind of side output, its column, and how the shards are put together."""


# --- read by a person -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamProgress:
    """A stream in one micro-batch: heartbeat in ticks (None until there is one), waiting rows, rows read.

    `rows` counts from the first start of the query, `late` and `rejected` only this micro-batch.
    """

    heartbeat: int | None
    waiting: int
    rows: int
    late: int = 0
    rejected: int = 0


@dataclass(frozen=True)
class EngineProgress:
    """The engine's figures of one `apply` in one micro-batch."""

    results: int
    late: int
    rejected: int
    shards: int
    engine_bytes: int
    streams: Mapping[str, StreamProgress]
    reasons: tuple[Reason, ...] = ()
    queries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """One micro-batch of a query: rows in and out, Spark's watermark, and the engine's figures.

    `dropped` counts rows that Spark's own operators dropped as late. The engine's figures (`results`, `late`,
    `rejected`, `reasons`, `streams`, `engine_bytes`) are set if the query runs on Headrace (`hosted`). If
    several results of `apply` are parts of one Spark query, they are totals; `engines` has each of them.
    """

    query: str
    batch: int
    at: str
    milliseconds: int
    rows: int
    watermark: str | None = None
    dropped: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    hosted: bool = False
    results: int = 0
    late: int = 0
    rejected: int = 0
    shards: int = 0
    engine_bytes: int = 0
    streams: Mapping[str, StreamProgress] = field(default_factory=dict)
    engines: Mapping[str, EngineProgress] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    queries: Mapping[str, int] = field(default_factory=dict)
    """The results of each query of a job."""

    @property
    def heartbeat(self) -> int | None:
        """The heartbeat of the whole query: the smallest of its streams; None while a stream has none."""
        beats = [stream.heartbeat for stream in self.streams.values()]
        known = [beat for beat in beats if beat is not None]
        return min(known) if known and len(known) == len(beats) else None

    def __str__(self) -> str:
        words = [f"{self.query} batch {self.batch}: {self.rows} rows in {self.milliseconds} ms"]
        if self.watermark is not None:
            words.append(f"watermark {self.watermark}")
        if self.dropped:
            words.append(f"{self.dropped} dropped by Spark as late")
        if self.hosted:
            words.append(f"{self.results} out, {self.late} late, {self.rejected} rejected")
            words += map(str, self.reasons)
            words += [_of_stream(name, stream) for name, stream in self.streams.items()]
            words.append(f"engine state {self.engine_bytes} bytes in {self.shards} shards")
        elif self.state_rows:
            words.append(f"state {self.state_rows} rows, {self.state_bytes} bytes")
        return "; ".join(words)


def _of_stream(name: str, stream: StreamProgress) -> str:
    beat = "no heartbeat yet" if stream.heartbeat is None else f"heartbeat {stream.heartbeat}"
    return f"{name}: {beat}, {stream.waiting} waiting"


def read(progress: StreamingQueryProgress) -> Progress:
    """A progress object of Spark as one flat object."""
    states = progress.stateOperators
    observed = {name: row for name, row in progress.observedMetrics.items() if _OURS.fullmatch(name)}
    return Progress(
        query=progress.name or str(progress.id),
        batch=progress.batchId,
        at=progress.timestamp,
        milliseconds=progress.batchDuration,
        rows=progress.numInputRows,
        watermark=progress.eventTime.get("watermark"),
        dropped=sum(state.numRowsDroppedByWatermark for state in states),
        state_rows=sum(state.numRowsTotal for state in states),
        state_bytes=sum(state.memoryUsedBytes for state in states),
        **_hosted({name: _engine(_figures(row.asDict())) for name, row in observed.items()}),
    )


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    """Figures by name. Spark Connect sends a list of values and their schema."""
    if set(row) != {"values", "schema"}:
        return row
    return dict(zip([field["name"] for field in row["schema"]["fields"]], row["values"], strict=True))


def _engine(row: Mapping[str, Any]) -> EngineProgress:
    """The observed metrics of a micro-batch, as progress of the engine."""
    names = [name.removeprefix("heartbeat:") for name in row if name.startswith("heartbeat:")]
    streams = {
        name: StreamProgress(**{figure: row[f"{figure}:{name}"] for figure in _FIGURES}) for name in names
    }
    queries: Counter[str] = Counter()
    for line in (row.get("queries") or "").splitlines():
        name, rows = line.rsplit("\t", 1)
        queries[name] += int(rows)
    reasons = [
        Reason(**each) for line in (row.get("reasons") or "").splitlines() for each in json.loads(line)
    ]
    return EngineProgress(
        results=row["results"] + queries.total(),
        late=sum(each.late for each in streams.values()),
        rejected=sum(each.rejected for each in streams.values()),
        shards=row["shards"],
        engine_bytes=row["state_bytes"],
        streams=streams,
        reasons=merged(reasons),
        queries=dict(queries),
    )


def _hosted(engines: Mapping[str, EngineProgress]) -> dict[str, Any]:
    """The totals of all engines; empty if there is no engine."""
    if not engines:
        return {}
    labels = ("results", LATE, REJECTED, "shards", "engine_bytes")
    totals = {label: sum(getattr(each, label) for each in engines.values()) for label in labels}
    streams: dict[str, StreamProgress] = {}
    for engine in engines.values():
        for name, figures in engine.streams.items():
            streams[name] = figures if name not in streams else _both(streams[name], figures)
    reasons = merged(reason for engine in engines.values() for reason in engine.reasons)
    queries = sum((Counter(engine.queries) for engine in engines.values()), Counter[str]())
    parts = {"streams": streams, "engines": engines, "reasons": reasons, "queries": dict(queries)}
    return {"hosted": True, **parts, **totals}


def _both(one: StreamProgress, other: StreamProgress) -> StreamProgress:
    """A stream that two engines read: the smaller heartbeat, the rows of both."""
    reached = [each.heartbeat for each in (one, other) if each.heartbeat is not None]
    least = min(reached) if len(reached) == 2 else None
    return StreamProgress(
        least,
        one.waiting + other.waiting,
        one.rows + other.rows,
        one.late + other.late,
        one.rejected + other.rejected,
    )


class Listener(StreamingQueryListener):
    """Keeps the latest progress of each query and passes it on; errors in the callback are logged."""

    def __init__(self, each: Callable[[Progress], object] | None = None, keep: int = 100) -> None:
        self._each = each or _log
        self._keep = keep
        self._history: dict[str, deque[Progress]] = {}

    def latest(self, query: str) -> Progress | None:
        history = self.history(query)
        return history[-1] if history else None

    def history(self, query: str) -> list[Progress]:
        return list(self._history.get(query, ()))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        _LOG.info("query %s started", event.name or event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        try:
            progress = read(event.progress)
            self._history.setdefault(progress.query, deque(maxlen=self._keep)).append(progress)
            self._each(progress)
        except Exception:  # Spark silently drops a listener that raises
            _LOG.exception("could not read a progress or pass it on")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        _LOG.info("query %s ended%s", event.id, f": {event.exception}" if event.exception else "")


def _log(progress: Progress) -> None:
    _LOG.info("%s", progress)


def listener(each: Callable[[Progress], object] | None = None, keep: int = 100) -> Listener:
    """A listener for `spark.streams.addListener` that passes each `Progress` to `each`, or logs it.

    It reads the figures of Spark's own operators for every query, and those of the engine if there is one.
    """
    return Listener(each, keep)
