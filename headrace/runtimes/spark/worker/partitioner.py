"""Partitioners pack the rows of one stream, as Spark reads them, for the shards that need them.

They run in `mapInArrow`, in the same stage as the scan. Every shard also gets the times that arrived on the
whole stream, so that all shards derive the same heartbeats in the same micro-batch, even shards without
rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Mask, Times
from headrace.connectors.encode import json_objects
from headrace.expressions import Expression, compile
from headrace.plan.analysis.partials import Partials
from headrace.plan.nodes.core import Source, TimeKind
from headrace.plan.nodes.trees import sources_of
from headrace.runtimes.spark.driver.reading import ALL
from headrace.runtimes.spark.worker.answers import REJECTED, RESULT, side_output, side_output_count
from headrace.runtimes.spark.worker.budgeting import batch_number
from headrace.runtimes.spark.worker.engine_cache import freeze_worker_heap
from headrace.runtimes.spark.worker.packing import (
    COMMANDS,
    ENDING,
    LARGE,
    NO_TIME,
    PASSING,
    ROWS,
    TIMER,
    Package,
    Route,
    packed_batch,
    to_ipc,
)
from headrace.runtimes.spark.worker.preaggregate import Preaggregation
from headrace.runtimes.spark.worker.promising import Speech
from headrace.runtimes.spark.worker.shards import shard_of, split
from headrace.runtimes.spark.worker.source_column import Cells, SourceColumn
from headrace.runtimes.spark.worker.task_files import TaskFile, TaskFiles
from headrace.schema import Schema
from headrace.time.row_promises import WILD, Said
from headrace.time.timestamp import FARTHEST, MAX_TIME, MIN_TIME

TIME = "__headrace_time"
NOW = "__headrace_now"
BAD = "__headrace_bad"
"""Why a row could not be read, as JSON: the code, the reason, and the text of the row if it was text."""
REACHED = "__headrace_reached"
"""When the row reached its source, if a rate limit may leave a backlog there."""
SAID = "__headrace_said_"
"""The names of columns with promises begin so, if the rows themselves are not read."""
KEEP = "__headrace_keep"
"""Whether the row passed the filters that Spark runs. A row that did not still carries its time."""

Array = Callable[[pa.RecordBatch], pa.Array]
Seen = tuple[Times, Times, Cells | None]
"""Times that arrived, the instant at which each arrived, and its source if that matters."""


@dataclass(frozen=True)
class StreamSpec:
    """How a stream is sent to the shards.

    `learns`: arrivals on it advance heartbeats; `counts`: every arrival does, not only the latest time of an
    instant. `recorded`: a micro-batch may hold rows of several instants. With `partials`, partial rows are
    sent. `lag`, if known, is how far behind the clock a row may be: rows further behind are sent one by one,
    since only the host knows whether they are late. `takes` is how much of its source a micro-batch reads
    (`headrace.runtimes.spark.driver.reading`). The plan does not read a `witness`: only its times are sent,
    because they may advance the heartbeats of other streams. `sources`: bounds hold for each group of
    sources, which a column names. `polled`: for so many ticks its source may not have looked for new rows.
    """

    number: int
    source: Source
    keys: tuple[Expression, ...] = ()
    learns: bool = True
    counts: bool = False
    guard: int = MAX_TIME
    recorded: bool = False
    partials: Partials | None = None
    lag: int | None = None
    witness: bool = False
    takes: str = ALL
    sources: SourceColumn | None = None
    polled: int = 0

    @property
    def read(self) -> Source:
        """The stream as Spark reads it."""
        return self.source if self.partials is None else sources_of(self.partials.chain)[0]

    @property
    def clockless(self) -> bool:
        """Whether the partitioner needs no clock; shards then get it per package, not per row."""
        return self.guard == MAX_TIME and self.lag is None and not self.recorded

    @property
    def external(self) -> bool:
        return self.source.time is TimeKind.EXTERNAL


@dataclass(frozen=True)
class Sent:
    """Rows to send: their times and arrivals, and what arrived with them on the whole stream.

    `sound` marks the rows that will not be rejected, `raw` counts the rows that partial rows represent.
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
    seen_cells: Cells | None = None
    cells: Cells | None = None


@dataclass(frozen=True)
class Target:
    """A host that reads a stream: how its shards get the rows, and where they are."""

    stream: StreamSpec
    route: Route

    def packages(self, sent: Sent, keys: list[Array], origin: int) -> list[Package]:
        """One package per shard. A witness stream sends only its times, and to every shard."""
        stream, shards = self.stream, len(self.route.shard_keys)
        if stream.witness:
            times = (sent.seen, sent.seen_at if stream.recorded else None)
            package = Package(
                stream.number, sent.now, seen=times[0], seen_at=times[1], seen_cells=sent.seen_cells
            )
            return [package] * shards
        rows, ticks, clocks, cells = sent.rows, sent.times, sent.clocks, sent.cells
        if not keys:  # any shard is right: all rows go to the same one, as they are
            ends = np.where(np.arange(shards) < origin % shards, 0, rows.num_rows)
            bounds = np.concatenate(([0], ends))
        else:
            order, bounds = split(shard_of([key(rows) for key in keys], rows.num_rows, shards), shards)
            if shards > 1:
                rows, clocks = rows.take(pa.array(order)), clocks[order]
                ticks = None if ticks is None else ticks[order]
                cells = None if cells is None else cells[order]
        return [
            Package(
                stream.number,
                sent.now,
                rows.slice(begin, stop - begin) if stop > begin else None,
                None if ticks is None else ticks[begin:stop],
                clocks[begin:stop] if stream.recorded else None,
                sent.seen,
                sent.seen_at if stream.recorded else None,
                cells=None if cells is None else cells[begin:stop],
                seen_cells=sent.seen_cells,
            )
            for begin, stop in pairwise(bounds.tolist())
        ]


class Partitioner:
    """Packs the rows of a stream by shard, once for each host that reads it.

    Rows are read and checked once. The first host that reads the rows also gets those that are rejected.
    With `files`, the results are written here, and hosts get only what they need to know about the rows.
    """

    def __init__(
        self, targets: Sequence[Target], speech: Speech | None = None, files: TaskFiles | None = None
    ) -> None:
        self._targets = sorted(targets, key=lambda each: each.stream.witness)
        self._speech = speech
        self._files = files

    @property
    def _stream(self) -> StreamSpec:
        """The stream, as the first host reads it."""
        return self._targets[0].stream

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._files is None:
            yield from self._packed(batches, None)
        else:
            with self._files.opened(batch_number() or 0, task_number()) as file:
                yield from self._packed(batches, file)
        freeze_worker_heap()

    def _packed(self, batches: Iterator[pa.RecordBatch], file: TaskFile | None) -> Iterator[pa.RecordBatch]:
        """The packages for all hosts; with a `file`, it gets the results."""
        keys = [[compile(key, t.stream.source.schema) for key in t.stream.keys] for t in self._targets]
        reduced = [
            None if t.stream.partials is None else Preaggregation(t.stream.partials) for t in self._targets
        ]
        origin = task_number()
        number, reached = -1, NO_TIME
        for number, batch in enumerate(_gathered(batches)):
            reached = max(reached, _reached(batch))
            good, bad = self._parted(batch)
            if bad is not None:
                yield self._to_first(bad, origin, number)
            if self._speech is not None and good.num_rows:
                good, spoken = self._spoken(self._speech, good, origin, number)
                yield from spoken
            if not good.num_rows:
                continue
            arrived = self._arrived(good)
            if file is not None:
                arrived = file.take(arrived)
            for i, target in enumerate(self._targets):
                reduce = reduced[i]
                sent = arrived if reduce is None else self._reduced(arrived, reduce)
                packages = target.packages(sent, keys[i], origin)
                yield packed_batch(target.route, target.route.shard_keys, origin, number, packages)
                if i == 0 and sent.rejected:
                    yield self._to_first(self._rejected_count(sent), origin, number)
        if self._stream.takes != ALL:
            for target in self._targets:
                shard_keys = target.route.shard_keys
                last = [Package(target.stream.number, 0, reached=reached) for _ in shard_keys]
                yield packed_batch(target.route, shard_keys, origin, number + 1, last)
        if file is not None:
            file.close()
            for package in self._about(file):
                yield self._to_first(package, origin, number + 2)

    def _about(self, file: TaskFile) -> Iterator[Package]:
        """What the host and the driver must know about the results that were written here."""
        assert self._files is not None
        if file.read:
            yield Package(self._stream.number, 0, written=file.read)
        if file.rows:
            made = {"query": self._files.query, "stream": file.name, "rows": file.rows}
            told = np.frombuffer(to_ipc(side_output(RESULT, 0, made)), np.uint8)
            yield Package(PASSING, 0, side_output=told)

    def _to_first(self, package: Package, origin: int, number: int) -> pa.RecordBatch:
        """A package for the first shard of the first host."""
        route = self._targets[0].route
        return packed_batch(route, route.shard_keys[:1], origin, number, [package])

    def _parted(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Package | None]:
        """Good rows, and a package of bad ones, which the first shard rejects."""
        if BAD not in batch.schema.names or batch.column(BAD).null_count == batch.num_rows:
            return batch, None
        is_good = batch.column(BAD).is_null()
        bad = batch.filter(pc.invert(is_good))
        texts = json_objects(typed(bad, self._stream.read.schema)).to_pylist()
        reasons = [json.loads(each) for each in bad.column(BAD).to_pylist()]
        rows = [each if len(each) == 3 else [*each, text] for each, text in zip(reasons, texts, strict=True)]
        body = np.frombuffer(json.dumps(rows).encode(), np.uint8)
        return batch.filter(is_good), Package(self._stream.number, int(_clocks(bad).max()), bad=body)

    def _spoken(
        self, speech: Speech, batch: pa.RecordBatch, origin: int, number: int
    ) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
        """The rows that are data, and the packages with what the rows promise."""
        rows, made = spoken_rows(batch, speech.schema), []
        data = np.ones(batch.num_rows, np.bool_)
        for mine, now, said in speech.said(rows, _clocks(batch)):
            if said.data is not None:
                data[mine] = said.data
            if said.wild is not None:
                wild = json_objects(rows.filter(pa.array(mine)).filter(pa.array(said.wild))).to_pylist()
                body = json.dumps([["HR-R045", WILD, text] for text in wild]).encode()
                package = Package(self._stream.number, now, bad=np.frombuffer(body, np.uint8))
                made.append(self._to_first(package, origin, number))
            made += spoken_packages(speech, now, said, origin, number)
        return (batch if data.all() else batch.filter(pa.array(data))), made

    def _arrived(self, batch: pa.RecordBatch) -> Sent:
        """The rows of one Arrow batch with their times, before they are divided among shards."""
        clocks = _clocks(batch)
        rows = typed(batch, self._stream.read.schema)
        if not self._stream.external:
            return _kept(Sent(int(clocks[-1]), rows, None, clocks), batch)
        times = batch.column(TIME)
        sound = self._sound(times, clocks)
        sources = self._stream.sources
        cells = None if sources is None else sources.of(batch, rows)
        seen, seen_at, seen_cells = self._seen(times, clocks, sound, cells)
        judged = None if sources is None or not sources.judged else cells
        sent = Sent(int(clocks[-1]), rows, _filled(times), clocks, seen, seen_at, sound)
        return _kept(replace(sent, seen_cells=seen_cells, cells=judged), batch)

    def _reduced(self, sent: Sent, reduce: Preaggregation) -> Sent:
        """Partial rows in place of the rows; rows that will be rejected are counted here."""
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

    def _rejected_count(self, sent: Sent) -> Package:
        """The number of rows that were rejected before they became part of a partial row."""
        rows = to_ipc(side_output_count(REJECTED, 0, self._stream.source.name, sent.rejected))
        return Package(PASSING, sent.now, side_output=np.frombuffer(rows, np.uint8))

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
        """The usual case, which two passes over the times can confirm."""
        if times.null_count or self._stream.guard != MAX_TIME or not len(ticks):
            return False
        return bool(ticks.min() > -FARTHEST and ticks.max() < FARTHEST)

    def _seen(
        self, times: pa.Array, clocks: Times, sound: Mask, cells: Cells | None
    ) -> tuple[Times | None, Times | None, Cells | None]:
        """The times that advance heartbeats."""
        if not self._stream.learns:
            return None, None, None
        ticks = _filled(times)
        if not sound.all():
            ticks, clocks = ticks[sound], clocks[sound]
            cells = None if cells is None else cells[sound]
        if self._stream.counts:
            return ticks, clocks, cells
        if self._stream.sources is not None and cells is not None:
            return self._stream.sources.greatest(ticks, clocks, cells)
        return _greatest(ticks, clocks)


def _reached(batch: pa.RecordBatch) -> int:
    """The newest instant at which one of the rows reached its source, if known."""
    if REACHED not in batch.schema.names:
        return NO_TIME
    newest = pc.max(batch.column(REACHED)).as_py()
    return NO_TIME if newest is None else int(newest)


def _clocks(batch: pa.RecordBatch) -> Times:
    """When each row arrived; 0 if the partitioner does not know."""
    if NOW not in batch.schema.names:
        return np.broadcast_to(np.int64(0), batch.num_rows)  # takes no memory, and is known to be constant
    clocks: Times = batch.column(NOW).to_numpy()
    return clocks


def _filled(times: pa.Array) -> Times:
    """Times as numbers, with `NO_TIME` for missing ones; the engine rejects those rows."""
    known = pc.fill_null(times, NO_TIME) if times.null_count else times
    ticks: Times = known.to_numpy(zero_copy_only=False)
    return ticks


def _kept(sent: Sent, batch: pa.RecordBatch) -> Sent:
    """Remove the rows that Spark filtered out, after their times have been recorded."""
    if KEEP not in batch.schema.names:
        return sent
    kept = batch.column(KEEP)
    mask = kept.to_numpy(zero_copy_only=False)
    if mask.all():
        return sent
    return replace(
        sent,
        rows=sent.rows.filter(kept),
        times=None if sent.times is None else sent.times[mask],
        clocks=sent.clocks[mask],
        sound=None if sent.sound is None else sent.sound[mask],
        cells=None if sent.cells is None else sent.cells[mask],
    )


def spoken_rows(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The columns that promises are made of: added under names of their own, or those of the stream."""
    columns = [name for name in batch.schema.names if name.startswith(SAID)]
    return typed(batch.select(columns) if columns else batch, schema)


def spoken_packages(
    speech: Speech, now: int, said: Said, origin: int, number: int
) -> Iterator[pa.RecordBatch]:
    """What rows promise, for every shard that must hear it."""
    for hearer, packages in speech.packages(now, said):
        yield packed_batch(hearer.route, hearer.route.shard_keys, origin, number, packages)


class PromiseBroadcast:
    """Sends what the rows of a stream promise about others; no query reads the stream itself."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        origin = task_number()
        for number, batch in enumerate(_gathered(batches)):
            for _, now, said in self._speech.said(spoken_rows(batch, self._speech.schema), _clocks(batch)):
                yield from spoken_packages(self._speech, now, said, origin, number)


class ClockBroadcast:
    """Sends every shard the instant since which Spark has polled all sources.

    If a micro-batch has several ticks, the first one counts (`headrace.runtimes.spark.driver.timer`), or the
    `newest` if the timer is a DataFrame of the user.
    """

    def __init__(self, routes: Sequence[Route], newest: bool = False) -> None:
        self._routes = routes
        self._of = max if newest else min

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ticks = [t for b in batches for t in b.column(NOW).drop_null().to_pylist()]
        for route in self._routes if ticks else ():
            packages = [Package(TIMER, 0, clock=self._of(ticks)) for _ in route.shard_keys]
            yield packed_batch(route, route.shard_keys, task_number(), 0, packages)


class TickBroadcast:
    """Sends every shard the recorded instants, or, by `stream`, the end of all streams."""

    stream = TIMER

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clocks = [np.unique(b.column(NOW).to_numpy()) for b in batches if b.num_rows]
        for number, now in enumerate(np.unique(np.concatenate(clocks)) if clocks else ()):
            for route in self._routes:
                packages = [Package(self.stream, int(now)) for _ in route.shard_keys]
                yield packed_batch(route, route.shard_keys, task_number(), number, packages)


class CommandBroadcast:
    """Sends every shard the commands of the control log: one row is one file of it.

    `stream` says what the files are: commands, or choices of sizes.
    """

    def __init__(self, routes: Sequence[Route], stream: int = COMMANDS) -> None:
        self._routes, self._stream = routes, stream

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [text for batch in batches for text in batch.column(0).to_pylist()]
        body = np.frombuffer(json.dumps(found).encode(), np.uint8)
        for route in self._routes if found else ():
            packages = [Package(self._stream, 0, commands=body) for _ in route.shard_keys]
            yield packed_batch(route, route.shard_keys, task_number(), 0, packages)


class EndBroadcast(TickBroadcast):
    """Sends every shard the end of all streams, when its one row comes."""

    stream = ENDING


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark's batches, concatenated into larger ones. Batches that are large are not copied."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        is_large = batch.num_rows >= LARGE
        if held and (is_large or rows >= ROWS):
            yield pa.concat_batches(held)
            held, rows = [], 0
        if is_large:
            yield batch
        elif batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
    if held:
        yield pa.concat_batches(held)


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The payload in the types of the plan; Spark has fewer types than Arrow."""
    columns = []
    for i, field in enumerate(schema):
        column = batch.column(i)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _greatest(times: Times, clocks: Times) -> Seen:
    """The latest time of each instant."""
    if not len(times) or clocks.strides == (0,) or bool((clocks == clocks[0]).all()):
        return np.array([times.max()], np.int64) if len(times) else times, clocks[:1], None
    instants, which = np.unique(clocks, return_inverse=True)
    best = np.full(len(instants), NO_TIME, np.int64)
    np.maximum.at(best, which, times)
    return best, instants, None


def task_number() -> int:
    """The partition of this task. Hosts sort packages by it: their order does not depend on the shuffle."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
