"""The unit that flows through a query: a batch of rows with their times.

A batch of a *stream* has rows that happen at `start`. A batch of a *relation* is a list of signed intervals:
an element with `sign` +1 adds one copy of its row to the relation in [start, end), one with `sign` −1 removes
one copy in [start, end). `end == MAX_TIME` is open: the row lasts until a withdrawal with the same row and
the same end. The content of a relation at an instant is, row by row, the sum of the signs of the elements
that cover it; no sum is ever negative.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Indices, Ints, Mask, Times, Words
from headrace.flow.fixed64 import empty, from_words, is_constant, is_plain, place_of, words_of
from headrace.kernels.gather import compress, extent

# The order of rows by time, as fast as the disorder allows.


def order_of(times: Ints) -> Ints:
    """The permutation that sorts times; equal times keep their order.

    NumPy's stable sort merges runs and is slow if there are none. In that case each time is packed into one
    word with its position, if both fit: words are sorted several at once, and no two are equal.
    """
    rows = len(times)
    tuned = tuning.current
    if rows < tuned.merge_rows or tuned.merge_run * int(np.count_nonzero(times[1:] < times[:-1])) < rows:
        return np.argsort(times, kind="stable")
    bits = (rows - 1).bit_length()
    low = int(times.min())
    if int(times.max()) - low >= 1 << (63 - bits):
        return np.argsort(times, kind="stable")
    words = (times - low) << bits
    words |= np.arange(rows)
    words.sort()
    words &= (1 << bits) - 1
    return words


def order_of_changes(times: Ints, signs: npt.NDArray[np.int8] | None) -> Ints:
    """The permutation that sorts changes of a relation: at each instant, rows that come before withdrawals.

    So no matter where the changes are cut, no withdrawal comes before the row that it withdraws.
    """
    if signs is None:
        return order_of(times)
    gone = signs < 0
    comings_first = np.concatenate([np.flatnonzero(~gone), np.flatnonzero(gone)])
    order: Ints = comings_first[order_of(times[comings_first])]
    return order


# Filtering by a mask: each word is read once, and arrays that columns share are filtered once.


class Compression:
    """One filter, applied column by column."""

    def __init__(self, mask: Mask, kept: int) -> None:
        self._mask, self._kept = np.ascontiguousarray(mask), kept
        self._moved: dict[object, Words] = {}
        self._arrow: pa.Array | None = None

    def rows(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch."""
        if not data.num_columns:
            return data.filter(self._as_arrow())
        return pa.RecordBatch.from_arrays([self._column(each) for each in data.columns], schema=data.schema)

    def _column(self, column: pa.Array) -> pa.Array:
        """Filter one column: with our own kernel if it is a plain 64-bit column, else with Arrow."""
        if not is_plain(column):
            return column.filter(self._as_arrow())
        return from_words(column.type, self.words(words_of(column)))

    def words(self, words: Words) -> Words:
        """The words of the selected rows."""
        if is_constant(words):
            return words[: self._kept]
        place = place_of(words)
        if place not in self._moved:
            out = empty(self._kept + 1)
            compress(np.ascontiguousarray(words), self._mask.view(np.uint8), out)
            self._moved[place] = out[: self._kept]
        return self._moved[place]

    def optional(self, words: Words | None) -> Words | None:
        """Like `words`, for an array that may be missing."""
        return None if words is None else self.words(words)

    def _as_arrow(self) -> pa.Array:
        if self._arrow is None:
            self._arrow = pa.array(self._mask)
        return self._arrow

    def signs(self, signs: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        """The signs of the selected rows, if there are any."""
        return None if signs is None else signs[self._mask]


Signs = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows in order of `start`.

    `end` is None on streams. `sign` is None where every element is +1, the common case. `arrival` is the
    wall-clock instant at which the newest row behind each row entered, None if it is not measured.
    """

    data: pa.RecordBatch
    start: Times
    end: Times | None = None
    sign: Signs | None = None
    arrival: Times | None = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def first(self) -> int:
        """The earliest start."""
        return int(self.start[0])

    @property
    def last(self) -> int:
        """The latest start."""
        return int(self.start[-1])

    def slice(self, begin: int, stop: int) -> Self:
        """Rows begin … stop − 1, sharing memory."""
        if begin == 0 and stop == len(self.start):
            return self
        cut = slice(begin, stop)
        return type(self)(
            self.data.slice(begin, stop - begin),
            self.start[cut],
            None if self.end is None else self.end[cut],
            None if self.sign is None else self.sign[cut],
            None if self.arrival is None else self.arrival[cut],
        )

    def filter(self, mask: Mask) -> Self:
        """Rows where `mask` holds."""
        kept = int(np.count_nonzero(mask))
        if kept == len(mask):
            return self
        those = Compression(mask, kept)
        return type(self)(
            those.rows(self.data),
            those.words(self.start),
            those.optional(self.end),
            those.signs(self.sign),
            those.optional(self.arrival),
        )

    def take(self, indices: Indices) -> Self:
        """Rows at `indices`; the caller keeps them in order of start."""
        return type(self)(
            self.data.take(pa.array(indices)),
            self.start[indices],
            None if self.end is None else self.end[indices],
            None if self.sign is None else self.sign[indices],
            None if self.arrival is None else self.arrival[indices],
        )

    def with_data(self, data: pa.RecordBatch) -> Self:
        """The same times with other columns."""
        return type(self)(data, self.start, self.end, self.sign, self.arrival)

    def bytes(self) -> int:
        """Bytes of the rows and their times, as held by this view."""
        arrays = (self.start, self.end, self.sign, self.arrival)
        return int(self.data.nbytes) + sum(a.nbytes for a in arrays if a is not None)

    def signs(self) -> Signs:
        """The signs, with +1 for each row if `sign` is None."""
        return np.ones(len(self.start), np.int8) if self.sign is None else self.sign


def concat(batches: list[Batch]) -> Batch:
    """The rows of `batches` one after the other; all are streams or all relations."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        pa.concat_batches([b.data for b in batches]),
        np.concatenate([b.start for b in batches]),
        _optional([b.end for b in batches]),
        _concat_signs(batches),
        _optional([b.arrival for b in batches]),
    )


def _optional(arrays: list[Times | None]) -> Times | None:
    """The arrays concatenated; None if one is missing."""
    present = [a for a in arrays if a is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None


def _concat_signs(batches: list[Batch]) -> Signs | None:
    """The signs of all batches; None if no batch has any."""
    if all(b.sign is None for b in batches):
        return None
    return np.concatenate([b.signs() for b in batches])


class Extent(NamedTuple):
    """The least and the greatest of some times, and whether they are in order, found in one pass."""

    low: int
    high: int
    ordered: bool

    @classmethod
    def of(cls, times: Times) -> Extent:
        """Of at least one time."""
        return cls(*extent(np.ascontiguousarray(times)))


def sort_by_start(batch: Batch) -> Batch:
    """The same rows in order of start, stable."""
    if len(batch) < 2 or Extent.of(batch.start).ordered:
        return batch
    return batch.take(order_of(batch.start))


def compacted(batch: Batch) -> Batch:
    """The same rows, copied if they are a slice of something much larger."""
    if batch.data.get_total_buffer_size() <= 2 * batch.data.nbytes + 4096:
        return batch
    return batch.take(np.arange(len(batch)))


# Counts bytes in memory: each buffer once, and whole even if only a slice of it is used.


class Holdings:
    """Counts buffers by address. A slice holds the whole buffer that it was cut from."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def add(self, batches: Iterable[Batch]) -> int:
        """Bytes that these batches hold and that no batch counted before holds."""
        return sum(self._batch(batch) for batch in batches)

    def _batch(self, batch: Batch) -> int:
        columns = sum(self._column(column) for column in batch.data.columns)
        times = (batch.start, batch.end, batch.sign, batch.arrival)
        return columns + sum(self._array(each) for each in times if each is not None)

    def _column(self, column: pa.Array) -> int:
        return sum(self._once(b.address, b.size) for b in column.buffers() if b is not None)

    def _array(self, array: npt.NDArray[Any]) -> int:
        """Count the whole array that a slice was cut from."""
        whole = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        return self._once(whole.__array_interface__["data"][0], whole.nbytes)

    def _once(self, address: int, size: int) -> int:
        """The size of a buffer the first time it is seen, then 0."""
        if address in self._seen:
            return 0
        self._seen.add(address)
        return size
