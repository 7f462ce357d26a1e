"""A store of rows under ascending ids: append, take anywhere, forget from the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.columns import Buffer, Column, column_for
from headrace.flow.state import Chunk
from headrace.schema import Schema

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class RowStore:
    """Rows with ids base … next − 1, and `stamps` int64 values beside each row.

    Appending and forgetting cost what is appended and forgotten; a snapshot costs the rows appended since
    the last one.
    """

    def __init__(self, schema: Schema, stamps: Sequence[str] = ()) -> None:
        self.schema = schema
        self.base = 0
        self.next = 0
        self._columns: list[Column] = [column_for(field.type) for field in schema]
        self._stamps = {name: Buffer(np.int64) for name in stamps}
        self._marked = 0
        self._edits: list[tuple[str, Ids, Ids]] = []
        self._edited = 0

    def __len__(self) -> int:
        return self.next - self.base

    def append(self, data: pa.RecordBatch, **stamps: Ids) -> int:
        """Add rows; returns the id of the first."""
        first = self.next
        for column, array in zip(self._columns, data.columns, strict=True):
            column.append(array)
        for name, buffer in self._stamps.items():
            buffer.append(stamps[name])
        self.next += data.num_rows
        return first

    def take(self, ids: Ids) -> list[pa.Array]:
        """The columns of the rows with these ids."""
        indices = ids - self.base if self.base else ids
        return [column.take(indices) for column in self._columns]

    def rows(self, ids: Ids) -> pa.RecordBatch:
        """The rows with these ids."""
        return (
            pa.RecordBatch.from_arrays(self.take(ids), schema=self.schema)
            if self._columns
            else bare_rows(len(ids))
        )

    def stamp(self, name: str) -> Ids:
        """The stamps of all rows, the first that of `base`; valid until the next append. Do not write."""
        return np.asarray(self._stamps[name].view, np.int64)

    def set_stamp(self, name: str, ids: Ids, values: Ids) -> None:
        """Change stamps of rows held."""
        np.asarray(self._stamps[name].view, np.int64)[ids - self.base] = values
        self._remember(name, ids, values)

    def _remember(self, name: str, ids: Ids, values: Ids) -> None:
        """Note what a snapshot must write; once that is more than what is held, it writes what is held."""
        if self._marked < 0:
            return
        self._edits.append((name, ids, values))
        self._edited += len(ids)
        if self._edited > 2 * len(self) + 1024:
            self._mark(-1)

    def _mark(self, id: int) -> None:
        """Rows before `id` are in the last snapshot; −1: none is."""
        self._marked, self._edits, self._edited = id, [], 0

    def drop_before(self, id: int) -> None:
        """Forget the rows with smaller ids."""
        count = min(id, self.next) - self.base
        if count <= 0:
            return
        for column in self._columns:
            column.drop(count)
        for buffer in self._stamps.values():
            buffer.drop(count)
        self.base += count

    def compact(self, keep: Mask) -> Ids:
        """Keep only some rows, under new ids from 0; returns the old ids of the kept rows."""
        kept = np.flatnonzero(keep) + self.base
        data = self.rows(kept)
        stamps = {name: self.stamp(name)[keep] for name in self._stamps}
        self._clear()
        self.append(data, **stamps)
        return kept

    def _clear(self) -> None:
        self._columns = [column_for(field.type) for field in self.schema]
        self._stamps = {name: Buffer(np.int64) for name in self._stamps}
        self.base = self.next = 0
        self._mark(-1)

    def bytes(self) -> int:
        return sum(c.bytes() for c in self._columns) + sum(b.bytes() for b in self._stamps.values())

    def changes(self, full: bool) -> Chunk:
        reset = full or self._marked < 0
        begin = self.base if reset else max(self.base, self._marked)
        ids = np.arange(begin, self.next)
        chunk: dict[str, Any] = {"reset": reset, "base": self.base, "begin": begin, "rows": self.rows(ids)}
        for name in self._stamps:
            chunk[f"stamp:{name}"] = self.stamp(name)[begin - self.base :].copy()
            edits = [] if reset else [(i, v) for n, i, v in self._edits if n == name]
            chunk[f"edit:{name}"] = _two_rows(edits)
        self._mark(self.next)
        return chunk

    def apply(self, chunk: Chunk) -> None:
        if chunk["reset"]:
            self._clear()
        begin = int(chunk["begin"])
        if begin != self.next:
            self._skip_to(begin)
        rows: pa.RecordBatch = chunk["rows"]
        self.append(rows, **{name: chunk[f"stamp:{name}"] for name in self._stamps})
        for name in self._stamps:
            ids, values = chunk[f"edit:{name}"]
            live = ids >= self.base
            np.asarray(self._stamps[name].view, np.int64)[ids[live] - self.base] = values[live]
        self.drop_before(int(chunk["base"]))
        self._mark(self.next)

    def _skip_to(self, id: int) -> None:
        """Go on at `id`: the rows before it came and went between two snapshots."""
        self.drop_before(self.next)
        self.base = self.next = id


def _two_rows(edits: list[tuple[Ids, Ids]]) -> Ids:
    """All ids, and below them all values."""
    if not edits:
        return np.empty((2, 0), np.int64)
    return np.array([np.concatenate(line) for line in zip(*edits, strict=True)], np.int64)


def bare_rows(rows: int) -> pa.RecordBatch:
    """A batch of rows with no columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
