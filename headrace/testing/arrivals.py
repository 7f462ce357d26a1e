"""Seeded arrivals: Poisson, bursts, silence, disorder, skew, a coarse clock.

A generator makes one stream; modifiers turn arrivals into other arrivals, so that scenarios compose:

    rng = np.random.default_rng(7)
    fast = poisson(50.0, 10_000, rng)
    slow = starts_late(poisson(0.05, 10, rng, stream=1), 20 * SECOND)
    both = merge(late(fast, 2 * SECOND, rng), slow)

For rates per second, a tick is a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.arrays import Mask, Times
from headrace.errors import InputError
from headrace.flow.batch import Batch, sort_by_start
from headrace.schema import DataType, Schema

SECOND: Final = 1_000_000
Rng = np.random.Generator


@dataclass(frozen=True)
class Arrivals:
    """Rows in order of `arrival`, with their `time` and the number of their `stream`."""

    arrival: Times
    time: Times
    stream: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival)

    def take(self, indices: npt.NDArray[np.int64] | Mask) -> Self:
        """The rows at `indices`, or where a mask holds."""
        return type(self)(self.arrival[indices], self.time[indices], self.stream[indices])

    def of(self, stream: int) -> Self:
        """The rows of one stream."""
        return self.take(self.stream == stream)


def arrivals_at(times: Times, stream: int = 0) -> Arrivals:
    """Rows that arrive in order, exactly at their times."""
    ordered = np.sort(times.astype(np.int64))
    return Arrivals(ordered, ordered, np.full(len(ordered), stream, np.int64))


def poisson(rate: float, count: int, rng: Rng, *, start: int = 0, stream: int = 0) -> Arrivals:
    """`count` independent rows, on average `rate` per second."""
    gaps = rng.exponential(SECOND / rate, count)
    return arrivals_at(start + np.cumsum(gaps).astype(np.int64), stream)


def bursts(
    size: int, every: int, count: int, rng: Rng, *, within: int = 0, start: int = 0, stream: int = 0
) -> Arrivals:
    """`count` bursts of `size` rows, one every `every` ticks, each spread over at most `within` ticks."""
    begin = start + every * np.repeat(np.arange(count, dtype=np.int64), size)
    return arrivals_at(begin + rng.integers(0, within + 1, len(begin)), stream)


def stops(arrivals: Arrivals, instant: int) -> Arrivals:
    """No rows from `instant` on."""
    return arrivals.take(arrivals.arrival < instant)


def starts_late(arrivals: Arrivals, instant: int) -> Arrivals:
    """No rows before `instant`."""
    return arrivals.take(arrivals.arrival >= instant)


def silent(arrivals: Arrivals, begin: int, end: int) -> Arrivals:
    """No rows in [begin, end)."""
    return arrivals.take((arrivals.arrival < begin) | (arrivals.arrival >= end))


def late(arrivals: Arrivals, most: int, rng: Rng) -> Arrivals:
    """Each row delayed by 0 … `most` ticks, so no time is more than `most` behind one that came before."""
    delayed = arrivals.arrival + rng.integers(0, most + 1, len(arrivals))
    return _by_arrival(replace(arrivals, arrival=delayed))


def shuffled(arrivals: Arrivals, k: int, rng: Rng) -> Arrivals:
    """Each row moves by at most `k` places; the instants of arrival stay the same."""
    places = np.arange(len(arrivals)) + rng.integers(0, k + 1, len(arrivals))
    order = np.argsort(places, kind="stable")
    return Arrivals(arrivals.arrival, arrivals.time[order], arrivals.stream[order])


def skewed(arrivals: Arrivals, ticks: int, stream: int | None = None) -> Arrivals:
    """The clock of one stream (or of all) is `ticks` slow: its rows have earlier times."""
    behind = np.full(len(arrivals), True) if stream is None else arrivals.stream == stream
    return replace(arrivals, time=np.where(behind, arrivals.time - ticks, arrivals.time))


def coarse(arrivals: Arrivals, grain: int) -> Arrivals:
    """Times of a clock that ticks once per `grain`: many rows are simultaneous."""
    return replace(arrivals, time=arrivals.time // grain * grain)


def merge(*streams: Arrivals) -> Arrivals:
    """All rows by arrival; simultaneous ones in the order of the arguments."""
    parts = [(a.arrival, a.time, a.stream) for a in streams]
    return _by_arrival(Arrivals(*(np.concatenate(columns) for columns in zip(*parts, strict=True))))


def disorder(arrivals: Arrivals) -> int:
    """The largest difference in time by which a row came after a later one: the δ that the stream needs."""
    if not len(arrivals):
        return 0
    return int(np.max(np.maximum.accumulate(arrivals.time) - arrivals.time))


def _by_arrival(arrivals: Arrivals) -> Arrivals:
    return arrivals.take(np.argsort(arrivals.arrival, kind="stable"))


def to_batch(arrivals: Arrivals, schema: Schema, rng: Rng, *, keys: int = 10, nulls: float = 0.0) -> Batch:
    """The rows as a batch in order of time, with random columns of `schema`.

    Integers and strings have one of `keys` values, floats are quarters in [0, 100), so that their sums are
    exact; each value is null with probability `nulls`.
    """
    columns = [_column(field.type, len(arrivals), rng, keys, nulls) for field in schema]
    data = pa.RecordBatch.from_arrays(columns, schema=schema)
    return sort_by_start(Batch(data, arrivals.time, arrival=arrivals.arrival))


def _column(of: DataType, count: int, rng: Rng, keys: int, nulls: float) -> pa.Array:
    """Random values of a type, with a share of nulls."""
    make = next((make for holds, make in COLUMNS if holds(of)), None)
    if make is None:
        raise InputError(
            "HR-I100",
            f"the generator cannot make values of type {of}",
            hint="use integers, floats, strings or bools",
        )
    mask = rng.random(count) < nulls if nulls else None
    return pa.array(make(rng, count, keys), mask=mask).cast(of)


Column = Callable[[Rng, int, int], npt.NDArray[Any]]

COLUMNS: Final[tuple[tuple[Callable[[DataType], bool], Column], ...]] = (
    (pt.is_boolean, lambda rng, count, keys: rng.random(count) < 0.5),
    (pt.is_integer, lambda rng, count, keys: rng.integers(0, keys, count)),
    (pt.is_floating, lambda rng, count, keys: rng.integers(0, 400, count) / 4),
    (pt.is_string, lambda rng, count, keys: rng.integers(0, keys, count).astype(str)),
    (pt.is_timestamp, lambda rng, count, keys: rng.integers(0, keys, count)),
)
