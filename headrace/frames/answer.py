"""`headrace.sql`: a query over tables, answered in one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace import tuning
from headrace.arrays import Times
from headrace.connectors.contract import Bad, Block, Position, Span
from headrace.connectors.late_and_rejected import LATE_SCHEMA, REJECTED_SCHEMA, late_rows, rejected_rows
from headrace.engine import Engine
from headrace.engine.inputs import Inputs
from headrace.errors import InputError, SparkError, SqlError, TimeError
from headrace.expressions.types import INSTANT
from headrace.flow.batch import Batch, order_of
from headrace.frames.result import Result
from headrace.frames.sources import Frame, Time, catalog_of, frames_of
from headrace.graph.table import one_batch
from headrace.runtimes.embedded.feeds import ArrivalFeed, EventFeed, Feed, Step
from headrace.runtimes.embedded.inflow import Inflow
from headrace.runtimes.embedded.timing import Timing, running_newest
from headrace.runtimes.spark.driver.bounds import AllBounds, inputs_of
from headrace.schema import show_columns
from headrace.sql import Code, Query, StreamDef, query
from headrace.time.punctuation import Late, Rejected
from headrace.time.row_promises import ticks_of
from headrace.time.timestamp import FARTHEST, MIN_TIME


def sql(
    text: str,
    sources: Mapping[str, Any] | None = None,
    /,
    *,
    time: Time = None,
    bounds: AllBounds = None,
    **named: Any,
) -> Result:
    """The answer of a query over tables: DataFrames, Arrow data, relations, lists of dicts, files.

        headrace.sql("SELECT item, count(*) AS n FROM clicks [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item",
                     clicks=df, time="at")

    Each source is a keyword, or an entry of the mapping `sources` if its name is not a Python name: anything
    with the Arrow C stream protocol (pandas, Polars, DuckDB, pyarrow), a list of dicts, a dict of lists, or
    the path of a CSV, JSON lines, Parquet or Arrow file.

    `time` names the time column: one name for all sources that have this column, or a name for each stream.
    By default it is the only column of a source that holds timestamps. Sources without a time column are
    tables, which the query may join. Timestamps count microseconds; integers are sequence numbers.

    Without `bounds`, rows are taken in the order of their times, whatever their order in the table, so that
    no row is late. With `bounds` (`{"clicks": {"disorder": "10 seconds"}}`, as on Spark) the streams that it
    names are read in the order of the table, as if each row arrived when its stream had come to the newest
    time so far; a row that is 10 seconds or more behind the newest before it is in `late`. Rows without a
    valid time and unreadable lines of a file are in `rejected`.
    """
    frames = frames_of(named_sources(sources, named), time)
    found = _query(text, frames)
    inputs = None if bounds is None else _inputs(bounds, found)
    return _answer(found, frames, inputs)


def named_sources(
    given: Mapping[str, Any] | None, named: Mapping[str, Any], place: str = "headrace.sql"
) -> dict[str, Any]:
    """The sources by name; a name that is given twice is an error."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(
            "HR-I075",
            f"sources are given by name, not as {type(given).__name__}",
            place=place,
            hint=f'{place}("… FROM clicks …", clicks=rows), or {{"clicks": rows}}',
        )
    twice = next((name for name in given or {} if name in named), None)
    if twice is not None:
        raise InputError(
            "HR-I077", f"the source {twice!r} is given twice", place=twice, hint="leave one of them out"
        )
    return {**(given or {}), **named}


def _query(text: str, frames: Mapping[str, Frame]) -> Query:
    """The query; an error about a table says that it would be a stream with a time column."""
    try:
        return query(text, catalog_of(frames))
    except SqlError as error:
        tables = [frame for frame in frames.values() if frame.time is None]
        if error.code not in (Code.WINDOW_ON_RELATION, Code.NO_STREAM) or not tables:
            raise
        columns = "; ".join(f"{each.name} ({show_columns(each.rows.schema)})" for each in tables)
        hint = f"without a time column these are tables: {columns}; name it: time={{…: …}}"
        raise SqlError(
            error.code,
            error.message,
            line=error.line,
            column=error.column,
            excerpt=error.excerpt,
            hint=hint,
        ) from None


def _inputs(bounds: AllBounds, found: Query) -> Inputs:
    """The bounds as promises for the engine."""
    streams = [source.name for source in found.sources]
    try:
        return inputs_of(bounds, streams, "strict", None, found.ticks_per_second)
    except SparkError as error:  # the same keys as on Spark, but there is no Spark here
        raise TimeError("HR-T075", error.message, place=error.place, hint=error.hint) from None


# Running.


class TableSource:
    """The rows of a frame as a source, in blocks; bad input comes with the first."""

    bounded = True

    def __init__(self, rows: pa.RecordBatch, bad: tuple[Bad, ...], arrival: Times | None) -> None:
        self._rows, self._bad, self._arrival = rows, bad, arrival
        self._at = 0
        self.ended = False

    def read(self) -> Block | None:
        begin, size = self._at, tuning.current.batch_rows
        bad, self._bad = self._bad, ()
        if begin >= self._rows.num_rows and not bad:
            self.ended = True
            return None
        self._at = begin + size
        arrival = None if self._arrival is None else self._arrival[begin : self._at]
        return Block(self._rows.slice(begin, size), bad, arrival)

    def position(self) -> Position:
        return self._at

    def seek(self, position: Position, span: Span | None = None) -> None:
        self._at = position

    def close(self) -> None:
        """Nothing is open."""


def _answer(found: Query, frames: Mapping[str, Frame], inputs: Inputs | None) -> Result:
    """Read all streams to their end, and gather what comes out."""
    engine = Engine(now=-FARTHEST)
    if inputs is not None:
        inputs.install(engine, found.sources)
    engine.add(found.name, found)
    feed = _feed(found, frames, inputs)
    answers: list[Batch] = []
    late: list[Late] = []
    rejected: list[Rejected] = []
    for step in _steps(feed):
        _apply(engine, step)
        answers += engine.drain(found.name)
        late += engine.drain_late()
        rejected += engine.drain_rejected()
    return Result(
        pa.Table.from_batches([batch.data for batch in answers], found.schema),
        answer_times(found, answers),
        pa.Table.from_batches([late_rows(late)] if late else [], LATE_SCHEMA),
        pa.Table.from_batches([rejected_rows(rejected)] if rejected else [], REJECTED_SCHEMA),
    )


def _feed(found: Query, frames: Mapping[str, Frame], inputs: Inputs | None) -> Feed:
    """The streams: in the order of their times, or with the arrivals by which bounds judge them."""
    inflows = [_inflow(frames[stream.name], inputs) for stream in found.streams]
    return EventFeed(inflows) if inputs is None else ArrivalFeed(inflows)


def _inflow(frame: Frame, inputs: Inputs | None) -> Inflow:
    """The rows of a stream, sorted unless bounds say how far they may be out of order."""
    assert frame.time is not None
    rows = one_batch(frame.rows, frame.rows.schema)
    ticks, known = ticks_of(rows.column(rows.schema.get_field_index(frame.time)), None)
    if inputs is None or not _is_bounded(frame.name, inputs):
        order = order_of(ticks)
        rows, ticks, known = rows.take(pa.array(order)), ticks[order], known[order]
    arrival = None if inputs is None else _arrivals(ticks, known)
    timing = Timing(frame.time, None, tuple(rows.schema.names))
    return Inflow(frame.name, TableSource(rows, frame.bad, arrival), rows.schema, timing)


def _is_bounded(stream: str, inputs: Inputs) -> bool:
    """Whether `bounds` covers a stream."""
    managed = inputs.heartbeats is not None and stream in inputs.heartbeats.streams
    return managed or stream in inputs.promises


def _arrivals(ticks: Times, known: Any) -> Times:
    """When each row arrives: at the newest time so far, and one tick after it if the row is behind it.

    So a row is judged by all rows before it in the table.
    """
    newest = running_newest(ticks, known, MIN_TIME)
    behind = known & (ticks < newest)
    arrivals: Times = np.maximum.accumulate(newest + behind) if len(newest) else newest
    return arrivals


def _steps(feed: Feed) -> Iterator[Step]:
    """The steps of a feed whose sources all end."""
    while not feed.finished:
        step = feed.next()
        if step is not None:
            yield step


def _apply(engine: Engine, step: Step) -> None:
    """Push the rows of one instant, and run."""
    for piece in step.pieces:
        for bad in piece.bad:
            engine.streams.reject(piece.stream, [bad.raw], str(bad.code), bad.reason)
        if len(piece):
            engine.push(piece.stream, piece.data, piece.times, now=step.now)
    for stream in step.ends:
        engine.streams.end(stream)
    engine.advance(step.now)


def answer_times(found: Query, answers: list[Batch]) -> pa.Array:
    """The times of the answers, in the type of the time columns."""
    ticks = np.concatenate([batch.start for batch in answers]) if answers else np.empty(0, np.int64)
    if found.ticks_per_second is None:
        return pa.array(ticks, pa.int64())
    types = {_time_type(stream) for stream in found.streams}
    return pa.array(ticks, types.pop() if len(types) == 1 else INSTANT)


def _time_type(stream: StreamDef) -> pa.DataType:
    if stream.time_column is None:
        return INSTANT
    of = stream.schema.field(stream.time_column).type
    return of if pt.is_timestamp(of) else INSTANT
