"""The fan: rows of one stream, as Spark reads them, packed for the shards that need them.

Runs in `mapInArrow`, in the same stage as the scan. Every shard also learns what arrived on the whole
stream, so that all shards derive the same heartbeats in the same micro-batch, those without rows too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.encode import json_objects
from headrace.expressions import Expression, compile
from headrace.plan.nodes import Source, TimeKind
from headrace.plan.partials import Partials
from headrace.plan.trees import sources_of
from headrace.runtimes.spark.notes import REJECTED, counted
from headrace.runtimes.spark.packing import (
    ENDING,
    NO_TIME,
    PACKED,
    PASSING,
    ROWS,
    TIMER,
    Package,
    Times,
    packed,
    to_ipc,
)
from headrace.runtimes.spark.preaggregate import Preaggregation
from headrace.runtimes.spark.reading import ALL
from headrace.runtimes.spark.settling import settle
from headrace.runtimes.spark.shards import shard_of, split
from headrace.time.timestamp import FARTHEST, MAX_TIME, MIN_TIME

TIME = "__headrace_time"
NOW = "__headrace_now"
BAD = "__headrace_bad"
"""What is wrong with a row that is none, as JSON: the code, the reason, and its text if it came as text."""
REACHED = "__headrace_reached"
"""When the row reached its source, where a rate limit may leave a backlog there."""
KEEP = "__headrace_keep"
"""Whether the row goes on. One that Spark has sifted out still brings its time."""

Array = Callable[[pa.RecordBatch], pa.Array]
Mask = npt.NDArray[np.bool_]
Seen = tuple[Times, Times]
"""Times that arrived, and when each did."""


@dataclass(frozen=True)
class StreamSpec:
    """A stream on its way into the shards.

    `learns`: its arrivals prove something; `counts`: every one does, not just the greatest of an instant.
    `several`: one micro-batch may hold rows of several instants. With `partials`, partial rows are sent;
    `lag`, if known, is how far behind the clock a row may be: rows further behind are sent one by one, since
    only the host knows whether they are late. `takes` is how much of what reached its source a micro-batch
    takes (`headrace.runtimes.spark.reading`). A `witness` is not read by the plan: its times are sent for
    what they prove of other streams, its rows are not.
    """

    number: int
    source: Source
    keys: tuple[Expression, ...] = ()
    learns: bool = True
    counts: bool = False
    guard: int = MAX_TIME
    several: bool = False
    partials: Partials | None = None
    lag: int | None = None
    witness: bool = False
    takes: str = ALL

    @property
    def read(self) -> Source:
        """The stream as it comes from Spark."""
        return self.source if self.partials is None else sources_of(self.partials.chain)[0]

    @property
    def clockless(self) -> bool:
        """Whether the fan has no use for the clock, which shards are then told behind it, not row by row."""
        return self.guard == MAX_TIME and self.lag is None and not self.several

    @property
    def external(self) -> bool:
        return self.source.time is TimeKind.EXTERNAL


@dataclass(frozen=True)
class Sent:
    """Rows on their way: their times and arrivals, and what arrived on the whole stream with them.

    `sound` are the rows that will not be rejected, `raw` the rows that partial rows stand for.
    """

    now: int
    rows: pa.RecordBatch
    times: Times | None
    clocks: Times
    seen: Times | None = None
    seen_at: Times | None = None
    sound: Mask | None = None
    raw: int = 0
    rejected: int = 0


class Fan:
    """Packs the rows of a stream by shard."""

    def __init__(self, stream: StreamSpec, names: list[int]) -> None:
        self._stream = stream
        self._names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = [compile(key, self._stream.source.schema) for key in self._stream.keys]
        partials = self._stream.partials
        reduce = None if partials is None else Preaggregation(partials)
        origin = task_number()
        number, reached = -1, NO_TIME
        for number, batch in enumerate(_gathered(batches)):
            reached = max(reached, _reached(batch))
            good, bad = self._parted(batch)
            packages, names = [], list[int]()
            if good.num_rows:
                sent = self._arrived(good) if reduce is None else self._reduced(self._arrived(good), reduce)
                packages, names = self._packages(sent, keys, origin), [*self._names]
                if sent.rejected:
                    packages.append(_note(sent))
                    names.append(self._names[0])
            if bad is not None:
                packages.append(bad)
                names.append(self._names[0])
            yield pa.RecordBatch.from_pydict(packed(names, origin, number, packages), schema=PACKED)
        if self._stream.takes != ALL:
            last = [Package(self._stream.number, 0, reached=reached) for _ in self._names]
            yield pa.RecordBatch.from_pydict(packed(self._names, origin, number + 1, last), schema=PACKED)
        settle()

    def _parted(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Package | None]:
        """The rows, and what came in their place and is none: the first shard is told to reject it."""
        if BAD not in batch.schema.names or batch.column(BAD).null_count == batch.num_rows:
            return batch, None
        is_good = batch.column(BAD).is_null()
        bad = batch.filter(pc.invert(is_good))
        texts = json_objects(typed(bad, self._stream.read.schema)).to_pylist()
        told = [json.loads(each) for each in bad.column(BAD).to_pylist()]
        rows = [each if len(each) == 3 else [*each, text] for each, text in zip(told, texts, strict=True)]
        body = np.frombuffer(json.dumps(rows).encode(), np.uint8)
        return batch.filter(is_good), Package(self._stream.number, int(_clocks(bad).max()), bad=body)

    def _arrived(self, batch: pa.RecordBatch) -> Sent:
        clocks = _clocks(batch)
        rows = typed(batch, self._stream.read.schema)
        if not self._stream.external:
            return _kept(Sent(int(clocks[-1]), rows, None, clocks), batch)
        times = batch.column(TIME)
        sound = self._sound(times, clocks)
        seen, seen_at = self._seen(times, clocks, sound)
        return _kept(Sent(int(clocks[-1]), rows, _filled(times), clocks, seen, seen_at, sound), batch)

    def _reduced(self, sent: Sent, reduce: Preaggregation) -> Sent:
        """Partial rows in place of the rows; those that are none of the stream are counted here."""
        assert sent.times is not None
        assert sent.sound is not None
        rows, times, clocks = sent.rows, sent.times, sent.clocks
        if not sent.sound.all():
            rows, times, clocks = rows.filter(pa.array(sent.sound)), times[sent.sound], clocks[sent.sound]
        doubtful = MIN_TIME if self._stream.lag is None else sent.now - 1 - self._stream.lag
        partial, greatest = reduce(rows, times, times <= doubtful)
        return replace(
            sent,
            rows=partial,
            times=greatest,
            clocks=np.full(len(greatest), sent.now, np.int64),
            raw=len(times),
            rejected=int(np.count_nonzero(~sent.sound)),
        )

    def _packages(self, sent: Sent, keys: list[Array], origin: int) -> list[Package]:
        if self._stream.witness:
            times = (sent.seen, sent.seen_at if self._stream.several else None)
            package = Package(self._stream.number, sent.now, seen=times[0], seen_at=times[1])
            return [package] * len(self._names)
        rows, ticks, clocks = sent.rows, sent.times, sent.clocks
        shards = len(self._names)
        places = (
            shard_of([key(rows) for key in keys], rows.num_rows, shards)
            if keys
            else np.full(rows.num_rows, origin % shards, np.intp)
        )
        order, bounds = split(places, shards)
        if shards > 1:
            rows, clocks = rows.take(pa.array(order)), clocks[order]
            ticks = None if ticks is None else ticks[order]
        several = self._stream.several
        return [
            Package(
                self._stream.number,
                sent.now,
                rows.slice(begin, stop - begin) if stop > begin else None,
                None if ticks is None else ticks[begin:stop],
                clocks[begin:stop] if several else None,
                sent.seen,
                sent.seen_at if several else None,
            )
            for begin, stop in pairwise(bounds.tolist())
        ]

    def _sound(self, times: pa.Array, clocks: Times) -> Mask:
        """Which rows will not be rejected."""
        ticks = _filled(times)
        if self._all_sound(times, ticks):
            return np.ones(len(ticks), np.bool_)
        valid = times.is_valid().to_numpy(zero_copy_only=False)
        limit = np.minimum(clocks, MAX_TIME - self._stream.guard) + self._stream.guard
        sound: Mask = valid & (ticks > -FARTHEST) & (ticks < FARTHEST) & (ticks <= limit)
        return sound

    def _all_sound(self, times: pa.Array, ticks: Times) -> bool:
        """What nearly always holds, and is seen in two passes."""
        if times.null_count or self._stream.guard != MAX_TIME or not len(ticks):
            return False
        return bool(ticks.min() > -FARTHEST and ticks.max() < FARTHEST)

    def _seen(self, times: pa.Array, clocks: Times, sound: Mask) -> tuple[Times | None, Times | None]:
        """The times that prove something."""
        if not self._stream.learns:
            return None, None
        ticks = _filled(times)
        if not sound.all():
            ticks, clocks = ticks[sound], clocks[sound]
        return (ticks, clocks) if self._stream.counts else _greatest(ticks, clocks)


def _reached(batch: pa.RecordBatch) -> int:
    """The newest instant at which one of the rows reached its source, if known."""
    if REACHED not in batch.schema.names:
        return NO_TIME
    newest = pc.max(batch.column(REACHED)).as_py()
    return NO_TIME if newest is None else int(newest)


def _clocks(batch: pa.RecordBatch) -> Times:
    """When each row arrived, as far as the fan is told."""
    if NOW not in batch.schema.names:
        return np.broadcast_to(np.int64(0), batch.num_rows)  # no memory, and known to be all one
    clocks: Times = batch.column(NOW).to_numpy()
    return clocks


def _filled(times: pa.Array) -> Times:
    """Times as numbers, `NO_TIME` where there is none: the engine rejects those rows."""
    known = pc.fill_null(times, NO_TIME) if times.null_count else times
    ticks: Times = known.to_numpy(zero_copy_only=False)
    return ticks


def _kept(sent: Sent, batch: pa.RecordBatch) -> Sent:
    """Without the rows that Spark sifted out: their times have been seen."""
    if KEEP not in batch.schema.names:
        return sent
    kept = batch.column(KEEP)
    mask = kept.to_numpy(zero_copy_only=False)
    return replace(
        sent,
        rows=sent.rows.filter(kept),
        times=None if sent.times is None else sent.times[mask],
        clocks=sent.clocks[mask],
        sound=None if sent.sound is None else sent.sound[mask],
    )


def _note(sent: Sent) -> Package:
    """Rows that were rejected before they became part of a partial row: only their number is wanted."""
    told = to_ipc(counted(REJECTED, 0, sent.rejected))
    return Package(PASSING, sent.now, note=np.frombuffer(told, np.uint8))


class Clock:
    """The fan of the timer: tells every shard since when all sources have been asked.

    Of several ticks in a micro-batch our own timers' first one counts (`headrace.runtimes.spark.timer`), and
    the `newest` of a timer that the user gave.
    """

    def __init__(self, names: list[int], newest: bool = False) -> None:
        self._names = names
        self._of = max if newest else min

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ticks = [t for b in batches for t in b.column(NOW).drop_null().to_pylist()]
        if ticks:
            packages = [Package(TIMER, 0, clock=self._of(ticks)) for _ in self._names]
            columns = packed(self._names, task_number(), 0, packages)
            yield pa.RecordBatch.from_pydict(columns, schema=PACKED)


class Tick:
    """The fan of recorded instants: tells every shard the time, or, by `says`, that all streams end."""

    says = TIMER

    def __init__(self, names: list[int]) -> None:
        self._names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clocks = [np.unique(b.column(NOW).to_numpy()) for b in batches if b.num_rows]
        for number, now in enumerate(np.unique(np.concatenate(clocks)) if clocks else ()):
            packages = [Package(self.says, int(now)) for _ in self._names]
            columns = packed(self._names, task_number(), number, packages)
            yield pa.RecordBatch.from_pydict(columns, schema=PACKED)


class End(Tick):
    """The fan of the end: with its one row every shard learns that nothing more comes."""

    says = ENDING


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark's batches put together to larger ones."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= ROWS:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if held:
        yield pa.concat_batches(held)


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The payload in the types the plan was made for; Spark has fewer types than Arrow."""
    columns = []
    for i, field in enumerate(schema):
        column = batch.column(i)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _greatest(times: Times, clocks: Times) -> Seen:
    """The greatest time of each instant."""
    if not len(times) or clocks.strides == (0,) or bool((clocks == clocks[0]).all()):
        return np.array([times.max()], np.int64) if len(times) else times, clocks[:1]
    instants, which = np.unique(clocks, return_inverse=True)
    best = np.full(len(instants), NO_TIME, np.int64)
    np.maximum.at(best, which, times)
    return best, instants


def task_number() -> int:
    """The partition this task works on: packages are put in one order, whatever way they came."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
