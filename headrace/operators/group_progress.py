"""How far time has come for each group, where the sources of its rows are promised about one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Ints, Times
from headrace.flow.arc import Reader
from headrace.state.key_index import GroupIndex
from headrace.time.timestamp import MAX_TIME


class BySource(Protocol):
    """A stream whose sources are told apart by a column; each is in a cell."""

    @property
    def each_made(self) -> int:
        """Counts the promises made about cells."""
        ...

    @property
    def each(self) -> Times:
        """By cell, the time up to which rows are complete."""
        ...

    def cells(self, column: pa.Array) -> Ints:
        """The cell of each value of the column."""
        ...


class GroupProgress:
    """A group is complete as far as its own source is, on every stream that its rows come from.

    `key` is the position of the column that names the source, among those of the groups. While rows are on
    the `path` from the streams, nothing new is known: they may be earlier than the promise.
    """

    def __init__(self, key: int, streams: Sequence[BySource], path: Sequence[Reader]) -> None:
        self._key, self._streams, self._path = key, tuple(streams), tuple(path)
        self._used = -1
        self._cells = [np.empty(0, np.int64) for _ in self._streams]
        self._of_epoch = -1
        self._before: list[Times] = []

    @property
    def news(self) -> bool:
        """Whether a promise was made that has not been used."""
        return self._made() != self._used and all(reader.rows == 0 for reader in self._path)

    def _made(self) -> int:
        return sum(stream.each_made for stream in self._streams)

    def complete(self, groups: GroupIndex, last: Callable[[Times], Times]) -> Times | None:
        """By group, the time up to which it is complete; None if that releases nothing new.

        `last` gives the last time up to which there may be a result, so that other news are skipped.
        """
        self._used = self._made()
        each = [last(stream.each) for stream in self._streams]
        if self._before and all(map(np.array_equal, each, self._before)):
            return None
        self._before = each
        self._find_cells(groups)
        found = np.full(len(groups), MAX_TIME, np.int64)
        for times, cells in zip(each, self._cells, strict=True):
            np.minimum(found, times[cells], out=found)
        return found

    def _find_cells(self, groups: GroupIndex) -> None:
        """Find the cells of groups that are new since the last time."""
        if self._of_epoch != groups.epoch:
            self._cells = [np.empty(0, np.int64) for _ in self._streams]
            self._of_epoch = groups.epoch
        known = len(self._cells[0])
        if known < len(groups):
            values = groups.keys.take(np.arange(known, len(groups)))[self._key]
            fresh = (stream.cells(values) for stream in self._streams)
            self._cells = [np.concatenate(pair) for pair in zip(self._cells, fresh, strict=True)]
