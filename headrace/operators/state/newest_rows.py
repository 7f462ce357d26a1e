"""The state of row windows: the n newest rows of each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import tuning
from headrace.arrays import Ids, Ints, Mask
from headrace.kernels.hashing import EMPTY
from headrace.kernels.newest import GONE, NONE, enqueue, enqueue_each, gather, upsert
from headrace.schema import Schema
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer
from headrace.state.key_index import GroupIndex
from headrace.state.rows import RowStore, bare_rows
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MIN_TIME


class NewestRows:
    """Rows in order of entry, chained by partition; a row that is one too many displaces the oldest.

    Adding a row takes constant time. Displaced rows stay in the store until they are half of it. Partitions
    and chains are derived from the rows, so a snapshot holds only the rows. With `deletes`, a boolean column,
    each partition has at most one row, and a row in which it is true takes that one out without replacing it.
    """

    def __init__(self, schema: Schema, keys: Sequence[str], limit: int, deletes: str | None = None) -> None:
        self._keys = list(keys)
        self._limit = limit
        self._deletes = deletes
        self.rows = RowStore(schema)
        self._unchain()

    def _unchain(self) -> None:
        """Start with no partitions and no chains."""
        self._partitions = GroupIndex(pa.schema([self.rows.schema.field(k) for k in self._keys]))
        self._heads, self._tails, self._sizes = Buffer(np.int64), Buffer(np.int64), Buffer(np.int64)
        self._following = Buffer(np.int64)
        self._displaced = 0

    def add(self, data: pa.RecordBatch) -> Ids:
        """Add rows in order; returns for each the id of the row that it displaces, or NONE."""
        self.rows.append(data)
        return self._chain(data)

    def push(self, data: pa.RecordBatch) -> tuple[Ids, Ids]:
        """Add rows in order; returns the rows that are displaced, and the positions of those that do it."""
        displaced = self.add(data)
        by = np.flatnonzero(displaced != NONE)
        return displaced[by], by

    def content(self, ids: Ids) -> pa.RecordBatch:
        """The rows with these ids."""
        return self.rows.rows(ids)

    def _chain(self, data: pa.RecordBatch) -> Ids:
        """Link the last rows of the store, which are `data`."""
        codes = self._codes(data)
        heads, tails, sizes, following = (np.asarray(b.view, np.int64) for b in self._buffers())
        displaced = np.empty(len(codes), np.int64)
        first = self.rows.next - len(codes)
        if self._deletes is None:
            enqueue(codes, first, self._limit, heads, tails, sizes, following, displaced)
        else:
            deletes = is_true(data.column(self._deletes))
            upsert(codes, deletes, first, heads, sizes, following, displaced)
            self._displaced += int(np.count_nonzero(deletes))
        self._displaced += int(np.count_nonzero(displaced != NONE))
        return displaced

    def _codes(self, data: pa.RecordBatch) -> Ids:
        """The partition of each row; makes room for chains and rows."""
        codes: Ids = self._partitions.codes([data.column(name) for name in self._keys], data.num_rows)
        self._have_chains(len(self._partitions))
        self._following.extend(len(codes))
        return codes

    def _buffers(self) -> tuple[Buffer, Buffer, Buffer, Buffer]:
        return self._heads, self._tails, self._sizes, self._following

    def _have_chains(self, count: int) -> None:
        """Add chains until there is one for each of `count` partitions."""
        fresh = count - len(self._sizes)
        if fresh > 0:
            for buffer in (self._heads, self._tails, self._sizes):
                buffer.extend(fresh)[:] = 0

    def tidy(self) -> None:
        """Free displaced rows once they are half of the store; ids change."""
        if 2 * self._displaced > len(self.rows) + tuning.current.compact_after:
            self._keep(self._live())

    def close(self, punctuation: Punctuation) -> None:
        """Forget the partitions that match a punctuation on keys: nothing can displace their rows."""
        closed = punctuation.matches(np.full(len(self.rows), MIN_TIME), self._all())
        if closed.any():
            self._keep(self._live() & ~closed)

    def remap(self, name: str, new: Ints) -> None:
        """Replace the numbers in a column by others; rows whose number becomes EMPTY are forgotten."""
        data = self._all()
        at = data.schema.get_field_index(name)
        codes = new[data.column(at).to_numpy()]
        kept = np.flatnonzero(self._live() & (codes != EMPTY))
        data = data.set_column(at, data.schema.field(at), pa.array(codes)).take(pa.array(kept))
        self.rows.compact(np.zeros(len(self.rows), np.bool_))
        self._unchain()
        self.add(data)

    def values(self, name: str) -> Ints:
        """The numbers in a column of all rows in the store."""
        at = self.rows.schema.get_field_index(name)
        found: Ints = self.rows.take(np.arange(self.rows.base, self.rows.next))[at].to_numpy()
        return found

    def _live(self) -> Mask:
        """Which rows of the store have not been displaced."""
        live: Mask = np.asarray(self._following.view) != GONE
        return live

    def _all(self) -> pa.RecordBatch:
        """All rows in the store, displaced ones included."""
        return self.rows.rows(np.arange(len(self.rows)))

    def _keep(self, rows: Mask) -> None:
        """Keep some rows, and rebuild the chains."""
        self.rows.compact(rows)
        self._unchain()
        self._chain(self._all())

    def bytes(self) -> int:
        return self.rows.bytes() + self._partitions.bytes() + sum(b.bytes() for b in self._buffers())

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the arrays into mapped files of a spill store."""
        for part in (self.rows, self._partitions, *self._buffers()):
            part.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return sum(part.mapped_bytes() for part in (self.rows, self._partitions, *self._buffers()))

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self.rows.changes(full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.rows.apply(chunk)
        if chunk["reset"]:
            self._unchain()
        self._chain(chunk["rows"])


def is_true(flags: pa.Array) -> Mask:
    """Where a boolean column is true; NULL is not."""
    mask: Mask = pc.fill_null(flags, pa.scalar(False)).to_numpy(zero_copy_only=False)
    return mask


class ResizedRows(NewestRows):
    """The newest rows, where how many these are may change: each row comes with the number then in force.

    It is stored with the row, so that chains can still be derived from the rows alone: a row that has stayed
    never was one too many, however many others have left since.
    """

    LIMIT: Final = "headrace rows in force"

    def __init__(self, schema: Schema, keys: Sequence[str]) -> None:
        self._content = schema
        super().__init__(schema.append(pa.field(self.LIMIT, pa.int64())), keys, 0)

    def push_under(self, data: pa.RecordBatch, limits: Ints) -> tuple[Ids, Ids]:
        """Like `push`; the partition of each row is left with at most its `limits` rows."""
        lines = pa.RecordBatch.from_arrays([*data.columns, pa.array(limits)], schema=self.rows.schema)
        self.rows.append(lines)
        return self._displace(lines)

    def content(self, ids: Ids) -> pa.RecordBatch:
        columns = self.rows.take(ids)[:-1]
        if not columns:
            return bare_rows(len(ids))
        return pa.RecordBatch.from_arrays(columns, schema=self._content)

    def held(self, least: int) -> tuple[int, int, int]:
        """How many rows stay, how many partitions have `least` rows or more, and the rows of the others."""
        sizes = np.asarray(self._sizes.view, np.int64)
        return int(sizes.sum()), int(np.count_nonzero(sizes >= least)), int(sizes[sizes < least].sum())

    def spare_bytes(self) -> int:
        """Bytes of displaced rows that are still in the store, and of spare room."""
        displaced = self.rows.bytes() * self._displaced // max(1, len(self.rows))
        return max(displaced, self.rows.spare_bytes())

    def release(self) -> None:
        """Free the displaced rows."""
        if self._displaced:
            self._keep(self._live())
        self.rows.release()

    def _chain(self, data: pa.RecordBatch) -> Ids:
        return self._displace(data)[0]

    def _displace(self, data: pa.RecordBatch) -> tuple[Ids, Ids]:
        """Link the last rows of the store, which are `data`."""
        codes = self._codes(data)
        limits = data.column(self.LIMIT).to_numpy()
        heads, tails, sizes, following = (np.asarray(b.view, np.int64) for b in self._buffers())
        displaced, by = np.empty((2, len(self.rows)), np.int64)
        first = self.rows.next - len(codes)
        count = enqueue_each(codes, limits, first, heads, tails, sizes, following, displaced, by)
        self._displaced += count
        return displaced[:count], by[:count]


class PendingRows(NewestRows):
    """Rows in order of entry, chained by partition, until `slide` of them are there: then they are released.

    What is kept is that of `NewestRows`, with released rows in place of displaced ones.
    """

    def __init__(self, schema: Schema, keys: Sequence[str], slide: int) -> None:
        super().__init__(schema, keys, slide)

    def release_with(self, data: pa.RecordBatch) -> tuple[Ids, Ids]:
        """Add rows in order; returns the rows that are released, and the position of the row that does it."""
        self.rows.append(data)
        return self._gather(data)

    def _chain(self, data: pa.RecordBatch) -> Ids:
        return self._gather(data)[0]

    def _gather(self, data: pa.RecordBatch) -> tuple[Ids, Ids]:
        """Link the last rows of the store, which are `data`."""
        codes = self._codes(data)
        heads, tails, sizes, following = (np.asarray(b.view, np.int64) for b in self._buffers())
        released, by = np.empty((2, len(self.rows)), np.int64)
        first = self.rows.next - len(codes)
        count = gather(codes, first, self._limit, heads, tails, sizes, following, released, by)
        self._displaced += count
        return released[:count], by[:count]
