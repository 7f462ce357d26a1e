"""What a query on Spark tells about itself: observed metrics in each progress, a listener that reads them.

A host's answers come with notes (`headrace.runtimes.spark.notes`). In each micro-batch every shard writes,
with kind `metric`, one note per stream (heartbeat, waiting, rows) and one with the bytes of its state; a note
of another kind stands for so many rows of it. The sums are plain ones, for Spark plans them anew each time.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
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
from headrace.runtimes.spark.notes import KIND, LATE, METRICS, REASONS, REJECTED, RESULT, named
from headrace.time.timestamp import MIN_TIME

_LOG = logging.getLogger("headrace.spark")

NAME = "headrace"
"""Under which name the metrics of a query stand in `StreamingQueryProgress.observedMetrics`."""

_NUMBERED = count(1)
_OURS = re.compile(rf"{NAME}(_\d+)?")

# --- written by the query ---------------------------------------------------------------------------------


def own_name() -> str:
    """A name for the metrics of one `apply`: Spark refuses two of the same name in one of its queries.

    The first in a process is `NAME`, the others are numbered.
    """
    number = next(_NUMBERED)
    return NAME if number == 1 else f"{NAME}_{number}"


def observed(wide: DataFrame, streams: Sequence[str], name: str = NAME) -> DataFrame:
    """The same rows, with the metrics of each micro-batch under `name` in the query's progress.

    Spark hands observed metrics over as a flat row, so a stream's figures are named FIGURE:STREAM.
    """
    kind = F.col(KIND)
    figures = [
        (F.count_if(kind.isNull()) + _total(kind == RESULT, "rows")).alias("results"),
        *(_total(kind == each, "rows").alias(each) for each in (LATE, REJECTED)),
        F.count(named("state_bytes")).alias("shards"),
        F.coalesce(F.sum(named("state_bytes")), F.lit(0)).alias("state_bytes"),
        _lines(kind == REASONS, "body").alias("reasons"),
    ]
    for stream in streams:
        of_stream = F.col(named("stream")) == stream
        figures += [
            aggregate(of_stream & (kind == METRICS), figure).alias(f"{figure}:{stream}")
            for figure, aggregate in _FIGURES.items()
        ]
    return wide.observe(name, *figures)


def _lowest_of_all(rows: Column, figure: str) -> Column:
    """The least heartbeat of any shard; none while one of them has none."""
    value = F.coalesce(F.col(named(figure)), F.lit(MIN_TIME))
    return F.nullif(F.min(F.when(rows, value)), F.lit(MIN_TIME))


def _total(rows: Column, figure: str) -> Column:
    return F.coalesce(F.sum(F.when(rows, F.col(named(figure)))), F.lit(0))


def _lines(rows: Column, figure: str) -> Column:
    """Texts, a line each: there are few of them."""
    return F.array_join(F.collect_list(F.when(rows, F.decode(F.col(named(figure)), "UTF-8"))), "\n")


_FIGURES: dict[str, Callable[[Column, str], Column]] = {
    "heartbeat": _lowest_of_all,
    "waiting": _total,
    "rows": _total,
}


# --- read by a person -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamProgress:
    """A stream in one micro-batch: heartbeat in ticks (none: no promise yet), rows that wait, rows read."""

    heartbeat: int | None
    waiting: int
    rows: int


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


@dataclass(frozen=True)
class Progress:
    """One micro-batch of a query: what came in and out, what Spark's watermark did, and the engine's figures.

    `dropped` are rows that Spark's own operators threw away as late. The engine's figures (`results`, `late`,
    `rejected`, `reasons`, `streams`, `engine_bytes`) are there if the query has a Headrace host (`hosted`).
    Where several results of `apply` are parts of one Spark query, these are totals; `engines` has each.
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

    @property
    def heartbeat(self) -> int | None:
        """The heartbeat of the whole query: the least of its streams, none while one has none."""
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
    """What a progress of Spark says, in one flat object."""
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
    """Figures by name. Spark Connect sends them as a list of values beside their schema."""
    if set(row) != {"values", "schema"}:
        return row
    return dict(zip([field["name"] for field in row["schema"]["fields"]], row["values"], strict=True))


def _engine(row: Mapping[str, Any]) -> EngineProgress:
    names = [name.removeprefix("heartbeat:") for name in row if name.startswith("heartbeat:")]
    streams = {
        name: StreamProgress(**{figure: row[f"{figure}:{name}"] for figure in _FIGURES}) for name in names
    }
    figures = {label: row[label] for label in ("results", LATE, REJECTED, "shards")}
    told = [Reason(**each) for line in (row.get("reasons") or "").splitlines() for each in json.loads(line)]
    return EngineProgress(engine_bytes=row["state_bytes"], streams=streams, reasons=merged(told), **figures)


def _hosted(engines: Mapping[str, EngineProgress]) -> dict[str, Any]:
    """The figures of all engines together; none where there is no engine."""
    if not engines:
        return {}
    labels = ("results", LATE, REJECTED, "shards", "engine_bytes")
    totals = {label: sum(getattr(each, label) for each in engines.values()) for label in labels}
    streams: dict[str, StreamProgress] = {}
    for engine in engines.values():
        for name, figures in engine.streams.items():
            streams[name] = figures if name not in streams else _both(streams[name], figures)
    reasons = merged(reason for engine in engines.values() for reason in engine.reasons)
    return {"hosted": True, "streams": streams, "engines": engines, "reasons": reasons, **totals}


def _both(one: StreamProgress, other: StreamProgress) -> StreamProgress:
    """A stream that two engines read: the heartbeat that both have reached, the rows of both."""
    reached = [each.heartbeat for each in (one, other) if each.heartbeat is not None]
    least = min(reached) if len(reached) == 2 else None
    return StreamProgress(least, one.waiting + other.waiting, one.rows + other.rows)


class Listener(StreamingQueryListener):
    """Keeps the last progresses of each query and hands each on; an error there is logged, not raised."""

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
        except Exception:  # a listener that raises is dropped by Spark without a word
            _LOG.exception("a progress could not be read or handed on")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        _LOG.info("query %s ended%s", event.id, f": {event.exception}" if event.exception else "")


def _log(progress: Progress) -> None:
    _LOG.info("%s", progress)


def listener(each: Callable[[Progress], object] | None = None, keep: int = 100) -> Listener:
    """A listener for `spark.streams.addListener`: each progress as a `Progress`, to `each` or to the log.

    The figures of Spark's own operators are read for every query, those of the engine where there is a host.
    """
    return Listener(each, keep)
