"""One side of a join: the rows that can still meet a row of the other side, by key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.flow.columns import Buffer
from headrace.flow.keys import Words, encode_keys, equal_rows, is_exact
from headrace.flow.rows import RowStore
from headrace.flow.state import Chunk
from headrace.kernels.gather import first_above
from headrace.kernels.hashing import EMPTY
from headrace.kernels.join import END, SIGN, START, heads, link, pair_off, walk
from headrace.schema import Schema
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Ids = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int64]
_LOAD = 5 / 8


class JoinSide:
    """Rows under ascending ids with a hash chain per key.

    Adding and probing cost one cache miss or two a row, however many rows are held; expired rows fall off
    the head, rows that end out of order are compacted away when they are half of what is held.
    """

    def __init__(self, schema: Schema, keys: Sequence[str]) -> None:
        self.rows = RowStore(schema, ("start", "end", "sign"))
        self._keys = [schema.get_field_index(k) for k in keys]
        self.exact = not keys or is_exact([schema.field(k).type for k in keys])
        self._links = Buffer(np.int64, 4)
        self._table = _new_table(64)
        self._used = 0
        self._checked = 1024

    def words(self, data: pa.RecordBatch) -> tuple[Words, npt.NDArray[np.bool_] | None]:
        """The key words of some rows, and which have no null in the key (None: all)."""
        encoded = encode_keys([data.column(k) for k in self._keys], data.num_rows)
        return encoded.words, encoded.valid

    def key_columns(self, data: pa.RecordBatch | list[pa.Array]) -> list[pa.Array]:
        """The key columns of some rows."""
        return [data[k] for k in self._keys] if isinstance(data, list) else [data.column(k) for k in self._keys]

    def add(self, batch: Batch, words: Words) -> int:
        """Hold rows and link them by key; returns the id of the first."""
        assert batch.end is not None
        self._make_room(len(batch))
        signs = batch.signs().astype(np.int64)
        first = self.rows.append(batch.data, start=batch.start, end=batch.end, sign=signs)
        self._append_links(batch.start, batch.end, signs)
        self._used += link(self._table, self.links, words, first, self.rows.base)
        return first

    def _append_links(self, start: Ids, end: Ids, sign: Ids) -> None:
        lines = self._links.extend(len(start))
        lines[:, START], lines[:, END], lines[:, SIGN] = start, end, sign

    @property
    def links(self) -> npt.NDArray[np.int64]:
        """The chain lines of the rows held, the first that of `rows.base`."""
        return np.asarray(self._links.view, np.int64)

    def probe(self, words: Words, starts: Ids, ends: Ids) -> Pairs:
        """(probe, id) for every held row with the probe's word that is valid at a common instant."""
        cursors = np.empty(len(words), np.int64)
        heads(self._table, words, cursors)
        pairs = np.empty((max(1024, len(words) + len(words) // 4), 2), np.int64)
        at = filled = 0
        while True:
            at, filled = walk(self.links, self.rows.base, cursors, starts, ends, pairs, at, filled)
            if at == len(words):
                return pairs[:filled]
            pairs = np.concatenate([pairs, np.empty_like(pairs)])

    def expire(self, frontier: int) -> None:
        """Forget rows that end at or before `frontier` + 1: no row to come can meet them."""
        bound = frontier + 1 if frontier < MAX_TIME else frontier
        ends = self.rows.stamp("end")
        gone = first_above(ends, 0, bound)
        if gone:
            self.rows.drop_before(self.rows.base + gone)
            self._links.drop(gone)
        if len(self.rows) > 2 * self._checked:
            self._compact_if_half_dead(bound)

    def _compact_if_half_dead(self, bound: int) -> None:
        alive = self.rows.stamp("end") > bound
        if np.count_nonzero(alive) * 2 < len(alive):
            self.compact(alive)
        self._checked = max(1024, len(self.rows))

    def compact(self, keep: npt.NDArray[np.bool_]) -> None:
        """Keep some rows only, under new ids."""
        self.rows.compact(keep)
        self._relink(len(self.rows))

    def withdraw(self, negatives: Batch, words: Words, ids: Ids) -> None:
        """Cancel withdrawals (held under `ids`) against the rows they withdraw."""
        assert negatives.end is not None
        always = np.full(len(words), MIN_TIME, np.int64), np.full(len(words), MAX_TIME, np.int64)
        pairs = self.probe(words, *always)
        held = self.links[pairs[:, 1] - self.rows.base]
        fits = (held[:, SIGN] > 0) & (held[:, END] == negatives.end[pairs[:, 0]])
        mine = [c.take(pa.array(pairs[:, 0])) for c in negatives.data.columns]
        fits &= equal_rows(mine, self.rows.take(pairs[:, 1]), len(pairs))
        partner = np.full(len(negatives), EMPTY, np.int64)
        pair_off(pairs, fits, partner, np.zeros(len(self.rows), np.int64), self.rows.base, EMPTY)
        self.kill(np.concatenate([partner[partner != EMPTY], ids]))

    def kill(self, ids: Ids) -> None:
        """Let rows match nothing any more."""
        dead = np.full(len(ids), MIN_TIME, np.int64)
        self.rows.set_stamp("end", ids, dead)
        self.links[ids - self.rows.base, END] = MIN_TIME

    def _make_room(self, count: int) -> None:
        if self._used + count > _LOAD * len(self._table):
            self._relink(len(self.rows) + count)

    def _relink(self, size: int) -> None:
        """Build table and chains anew over the rows held, with room for `size`."""
        self._table = _new_table(max(64, 4 * size))
        self._links = Buffer(np.int64, 4)
        self._append_links(self.rows.stamp("start"), self.rows.stamp("end"), self.rows.stamp("sign"))
        held = np.arange(self.rows.base, self.rows.next)
        columns = self.key_columns(self.rows.take(held)) if self._keys else []
        words = encode_keys(columns, len(held)).words
        self._used = link(self._table, self.links, words, self.rows.base, self.rows.base)

    def bytes(self) -> int:
        return self.rows.bytes() + self._links.bytes() + int(self._table.nbytes)

    def changes(self, full: bool) -> Chunk:
        return self.rows.changes(full)

    def apply(self, chunk: Chunk) -> None:
        self.rows.apply(chunk)
        self._relink(len(self.rows))


def _new_table(slots: int) -> npt.NDArray[np.int64]:
    table = np.zeros((1 << (slots - 1).bit_length(), 2), np.int64)
    table[:, 1] = EMPTY
    return table
