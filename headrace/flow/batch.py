"""The unit that flows: rows with their times (`design.md` §3).

A batch of a *stream* is rows that happen at `start`. A batch of a *relation* is a list of signed
intervals: an element with `sign` +1 puts one copy of its row into the relation in [start, end), one
with `sign` −1 takes one copy out of it in [start, end). `end == MAX_TIME` is open: lasting until a
withdrawal with the same row and the same end. A relation's content at an instant is the sum of the
signs of the elements that cover it, row by row; no sum is ever negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.compress import Compression
from headrace.flow.sorting import order_of
from headrace.kernels.compress import extent

Times = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows in order of `start`.

    `end` is None on streams. `sign` is None where every element is +1, the common case. `arrival` is the
    wall-clock instant at which the newest row behind each row entered, None where nobody measures.
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
        """The same times over other columns."""
        return type(self)(data, self.start, self.end, self.sign, self.arrival)

    def bytes(self) -> int:
        """Bytes of the rows and their times, as held by this view."""
        arrays = (self.start, self.end, self.sign, self.arrival)
        return int(self.data.nbytes) + sum(a.nbytes for a in arrays if a is not None)

    def signs(self) -> Signs:
        """`sign`, made explicit."""
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
    present = [a for a in arrays if a is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None


def _concat_signs(batches: list[Batch]) -> Signs | None:
    if all(b.sign is None for b in batches):
        return None
    return np.concatenate([b.signs() for b in batches])


class Extent(NamedTuple):
    """How far some times reach, and whether they are in order: known at one look at each."""

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
    """The same rows in memory of their own, where they were cut from something much greater."""
    if batch.data.get_total_buffer_size() <= 2 * batch.data.nbytes + 4096:
        return batch
    return batch.take(np.arange(len(batch)))
