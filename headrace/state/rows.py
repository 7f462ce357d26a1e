"""A store of rows under ascending ids: append, take anywhere, forget from the head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Ids, Mask
from headrace.schema import Schema
from headrace.spill.store import SpillStore
from headrace.state.columns import Column, column_for
from headrace.state.part import widened


class RowStore:
    """Rows with ids base … next − 1.

    The cost of appending and forgetting follows the number of rows; a snapshot costs the rows appended since
    the last one.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.base = 0
        self.next = 0
        self._columns: list[Column] = [column_for(field.type) for field in schema]
        self._marked = 0

    def __len__(self) -> int:
        return self.next - self.base

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with the rows."""
        return tuple(self._columns)

    def append(self, data: pa.RecordBatch) -> int:
        """Add rows; returns the id of the first."""
        first = self.next
        for column, array in zip(self._columns, data.columns, strict=True):
            column.append(array)
        self.next += data.num_rows
        return first

    def take(self, ids: Ids) -> list[pa.Array]:
        """The columns of the rows with these ids."""
        indices = ids - self.base if self.base else ids
        return [column.take(indices) for column in self._columns]

    def rows(self, ids: Ids) -> pa.RecordBatch:
        """The rows with these ids."""
        if not self._columns:
            return bare_rows(len(ids))
        return pa.RecordBatch.from_arrays(self.take(ids), schema=self.schema)

    def drop_before(self, id: int) -> None:
        """Forget the rows with smaller ids."""
        count = min(id, self.next) - self.base
        if count <= 0:
            return
        for column in self._columns:
            column.drop(count)
        self.base += count

    def compact(self, keep: Mask) -> None:
        """Keep only some rows, under new ids from 0."""
        data = self.rows(np.flatnonzero(keep) + self.base)
        self._clear(0)
        self.append(data)

    def _clear(self, base: int) -> None:
        self._columns = [column_for(field.type) for field in self.schema]
        self.base = self.next = base
        self._marked = -1

    def fit(self) -> None:
        """Free spare room."""
        for column in self._columns:
            column.fit()

    def bytes(self) -> int:
        return sum(c.bytes() for c in self._columns)

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        return sum(column.spare_bytes() for column in self._columns)

    def release(self) -> None:
        """Free spare room."""
        for column in self._columns:
            column.release()

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move all columns into mapped files of a spill store."""
        for column in self._columns:
            for buffer in column.buffers():
                buffer.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return sum(buffer.mapped_bytes() for column in self._columns for buffer in column.buffers())

    def changes(self, full: bool) -> Mapping[str, Any]:
        reset = full or self._marked < 0
        begin = self.base if reset else max(self.base, self._marked)
        rows = self.rows(np.arange(begin, self.next))
        self._marked = self.next
        return {"reset": reset, "base": self.base, "begin": begin, "rows": rows}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"] or chunk["begin"] != self.next:
            self._clear(chunk["begin"])
        self.append(widened(chunk["rows"], self.schema))
        self.drop_before(chunk["base"])
        self._marked = self.next


def bare_rows(rows: int) -> pa.RecordBatch:
    """A batch of rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
