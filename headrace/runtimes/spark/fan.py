"""The fan: rows of one stream, as Spark reads them, packed for the shards that need them.

Runs in `mapInArrow`, in the same stage as the scan. Every shard also learns what arrived on the whole
stream, so that all shards derive the same heartbeats in the same micro-batch, those without rows too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import Expression, compile
from headrace.plan.nodes import Source, TimeKind
from headrace.runtimes.spark.packing import PACKED, ROWS, TIMER, Package, Times, packed
from headrace.runtimes.spark.shards import shard_of, split
from headrace.time.timestamp import FARTHEST, MAX_TIME

TIME = "__headrace_time"
NOW = "__headrace_now"

Array = Callable[[pa.RecordBatch], pa.Array]
Seen = tuple[Times, Times]
"""Times that arrived, and when each did."""


@dataclass(frozen=True)
class StreamSpec:
    """A stream on its way into the shards.

    `learns`: its arrivals prove something; `counts`: every one does, not just the greatest of an instant.
    `several`: one micro-batch may hold rows of several instants.
    """

    number: int
    source: Source
    keys: tuple[Expression, ...] = ()
    learns: bool = True
    counts: bool = False
    guard: int = MAX_TIME
    several: bool = False

    @property
    def external(self) -> bool:
        return self.source.time is TimeKind.EXTERNAL


class Fan:
    """Packs the rows of a stream by shard."""

    def __init__(self, stream: StreamSpec, names: list[int]) -> None:
        self._stream = stream
        self._names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = [compile(key, self._stream.source.schema) for key in self._stream.keys]
        origin = task_number()
        for number, batch in enumerate(_gathered(batches)):
            packages = self._packages(batch, keys, origin)
            yield pa.RecordBatch.from_pydict(packed(self._names, origin, number, packages), schema=PACKED)

    def _packages(self, batch: pa.RecordBatch, keys: list[Array], origin: int) -> list[Package]:
        clocks = batch.column(NOW).to_numpy()
        rows = _typed(batch, self._stream.source.schema)
        times = batch.column(TIME) if self._stream.external else None
        seen, seen_at = self._seen(times, clocks)
        ticks = None if times is None else _filled(times)
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
                int(clocks[-1]),
                rows.slice(begin, stop - begin) if stop > begin else None,
                None if ticks is None else ticks[begin:stop],
                clocks[begin:stop] if several else None,
                seen,
                seen_at if several else None,
            )
            for begin, stop in pairwise(bounds.tolist())
        ]

    def _seen(self, times: pa.Array | None, clocks: Times) -> tuple[Times | None, Times | None]:
        """The times that prove something: those of rows that will not be rejected."""
        if times is None or not self._stream.learns:
            return None, None
        valid = times.is_valid().to_numpy(zero_copy_only=False)
        ticks = pc.fill_null(times, 0).to_numpy(zero_copy_only=False)
        limit = np.minimum(clocks, MAX_TIME - self._stream.guard) + self._stream.guard
        sound = valid & (ticks > -FARTHEST) & (ticks < FARTHEST) & (ticks <= limit)
        ticks, clocks = ticks[sound], clocks[sound]
        return (ticks, clocks) if self._stream.counts else _greatest(ticks, clocks)


NO_TIME = -(1 << 63)
"""Stands for a missing time, on which no row can be."""


def _filled(times: pa.Array) -> Times:
    """Times as numbers, `NO_TIME` where there is none: the engine rejects those rows."""
    known = pc.fill_null(times, NO_TIME) if times.null_count else times
    ticks: Times = known.to_numpy(zero_copy_only=False)
    return ticks


class Tick:
    """The fan of the timer: tells every shard what time it is."""

    def __init__(self, names: list[int]) -> None:
        self._names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clocks = [np.unique(b.column(NOW).to_numpy()) for b in batches if b.num_rows]
        for number, now in enumerate(np.unique(np.concatenate(clocks)) if clocks else ()):
            packages = [Package(TIMER, int(now)) for _ in self._names]
            columns = packed(self._names, task_number(), number, packages)
            yield pa.RecordBatch.from_pydict(columns, schema=PACKED)


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


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The payload in the types the plan was made for; Spark has fewer types than Arrow."""
    columns = []
    for i, field in enumerate(schema):
        column = batch.column(i)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _greatest(times: Times, clocks: Times) -> Seen:
    """The greatest time of each instant."""
    if not len(times) or bool((clocks == clocks[0]).all()):
        return times[[np.argmax(times)]] if len(times) else times, clocks[:1]
    instants, which = np.unique(clocks, return_inverse=True)
    best = np.full(len(instants), NO_TIME, np.int64)
    np.maximum.at(best, which, times)
    return best, instants


def task_number() -> int:
    """The partition this task works on: packages are put in one order, whatever way they came."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
