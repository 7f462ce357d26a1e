"""One side of a join: the rows that can still meet a row of the other side, by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Ids, Lines, Mask, Words
from headrace.flow.batch import Batch, concat, sort_by_start
from headrace.kernels.gather import first_above
from headrace.kernels.hashing import EMPTY
from headrace.kernels.join import END, NEXT, START, WORD, enter, heads, pair_off, walk
from headrace.operators.state.spilled_join_rows import Pairs, SpilledJoinRows
from headrace.schema import Schema
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer
from headrace.state.keys import encode_keys, equal_rows, is_exact
from headrace.state.rows import RowStore
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_BUCKETS = 48
"""Approximate bytes of buckets per row of the larger side."""


class Buckets:
    """The hash table of both sides: for each bucket, the newest row of either."""

    def __init__(self) -> None:
        self.table = _new_table(64)
        self.sides: list[JoinSide] = []

    def fit(self, rows: int) -> bool:
        """Resize to at least two buckets per row of the larger side, and not many more.

        Returns True if all rows were linked again; a row must never be linked twice.
        """
        if 2 * rows <= len(self.table) <= 16 * rows + 64:
            return False
        self._rebuild(rows)
        return True

    def release(self) -> None:
        """Use no more buckets than the rows need."""
        rows = max(len(side.rows) for side in self.sides)
        if len(self.table) > 4 * rows + 128:
            self._rebuild(rows)

    def spare_bytes(self) -> int:
        """Bytes of unused capacity."""
        return int(self.table.nbytes) - _BUCKETS * max(len(side.rows) for side in self.sides)

    def _rebuild(self, rows: int) -> None:
        """Replace the table by one for this many rows, and link all rows again."""
        self.table = _new_table(2 * rows + 64)
        for side in self.sides:
            side.link_from(side.rows.base)

    def bytes(self) -> int:
        return int(self.table.nbytes)


class JoinSide:
    """Rows under ascending ids with a hash chain per bucket.

    Adding and probing cost a cache miss or two per row, however many rows are held; expiring costs nothing.
    Rows expire from the head. If rows end out of order, because a window got smaller, expired rows are
    compacted away once they are a quarter of all. The oldest rows may be spilled (`spilled`); on disk they
    are looked up by key.
    """

    def __init__(
        self, schema: Schema, keys: Sequence[str], buckets: Buckets, null_safe: tuple[int, ...] = ()
    ) -> None:
        self.rows = RowStore(schema)
        self._keys = [schema.get_field_index(k) for k in keys]
        self._null_safe = null_safe
        self.exact = not keys or (not null_safe and is_exact([schema.field(k).type for k in keys]))
        self._links = Buffer(np.int64, 4)
        self._buckets = buckets
        self._side = len(buckets.sides)
        buckets.sides.append(self)
        self._newest_end = MIN_TIME
        self._ordered_ends = True
        self._unchecked = 0
        self._bound = MIN_TIME
        self._killed: list[Ids] = []
        self._dead = 0
        self.spilled = SpilledJoinRows(schema, self._keys, null_safe)
        self.closed = False

    @property
    def links(self) -> Lines:
        """The chain lines of the rows held, starting with `rows.base`."""
        return self._links.view

    def words(self, data: pa.RecordBatch) -> tuple[Words, Mask | None]:
        """The key words of some rows, and which can match (None: all); a null key may match nothing."""
        encoded = encode_keys(self.key_columns(data.columns), data.num_rows, self._null_safe)
        return encoded.words, encoded.valid

    def key_columns(self, columns: list[pa.Array]) -> list[pa.Array]:
        """The key columns among all columns."""
        return [columns[k] for k in self._keys]

    def add(self, batch: Batch, words: Words) -> Ids:
        """Add rows and link them by key; returns where the other side's rows of each bucket begin."""
        assert batch.end is not None
        self._buckets.fit(max(len(self.rows) + len(batch), *(len(s.rows) for s in self._buckets.sides)))
        first = self.rows.append(batch.data)
        lines = self._links.extend(len(batch))
        lines[:, START], lines[:, END], lines[:, WORD] = batch.start, batch.end, words
        self._note_ends(batch.end)
        lines[:, NEXT] = 0 if batch.sign is None else batch.sign < 0
        return self.link_from(first)

    def link_from(self, first: int) -> Ids:
        """Link the rows from an id on; returns where the other side's rows of each bucket begin."""
        partners = np.empty(self.rows.next - first, np.int64)
        enter(self._buckets.table, self._side, self.links, first, self.rows.base, partners)
        return partners

    def meet(self, cursors: Ids, words: Words, starts: Ids, ends: Ids, signs: Ids) -> Pairs:
        """Every pair of a probe and a held row with the same word and a common instant."""
        out = np.empty((5, max(tuning.current.match_room, len(words) + len(words) // 4)), np.int64)
        at = filled = 0
        while True:
            probe, id, start, end, sign = out
            at, filled = walk(
                self.links,
                self.rows.base,
                cursors,
                words,
                starts,
                ends,
                signs,
                probe,
                id,
                start,
                end,
                sign,
                at,
                filled,
            )
            if at == len(words):
                return Pairs(*out[:, :filled])
            out = np.concatenate([out, np.empty_like(out)], axis=1)

    def heads(self, words: Words) -> Ids:
        """Where the rows of each word's bucket begin."""
        found = np.empty(len(words), np.int64)
        heads(self._buckets.table, self._side, words, found)
        return found

    def expire(self, frontier: int) -> None:
        """Forget rows that end at or before `frontier` + 1: no future row can meet them."""
        bound = frontier + 1 if frontier < MAX_TIME else frontier
        self._bound = max(self._bound, bound)
        gone = first_above(self.links[:, END], bound)
        if gone:
            self._drop(gone)
        if not self._ordered_ends and 4 * self._unchecked > len(self.rows) + tuning.current.compact_after:
            self._compact(bound, 4)
        if self.spilled:
            self.spilled.expire(bound)

    def _drop(self, count: int) -> None:
        """Forget the oldest rows."""
        self.rows.drop_before(self.rows.base + count)
        self._links.drop(count)
        self._buckets.fit(max(len(side.rows) for side in self._buckets.sides))

    def _note_ends(self, ends: Ids) -> None:
        """Track whether rows end in the order in which they came: then the rows at the head expire first."""
        self._unchecked += len(ends)
        if len(ends) == 0:
            return
        if self._ordered_ends:
            self._ordered_ends = bool(ends[0] >= self._newest_end and np.all(ends[:-1] <= ends[1:]))
        self._newest_end = max(self._newest_end, int(ends.max()))

    def _compact(self, bound: int, share: int) -> None:
        """Forget all rows that are over at `bound`, if they are more than one in `share`."""
        ends = self.links[:, END]
        alive = ends > bound
        if (len(alive) - np.count_nonzero(alive)) * share > len(alive):
            self.keep(alive)
            ends = self.links[:, END]
        self._ordered_ends = bool(np.all(ends[:-1] <= ends[1:]))
        self._unchecked = 0

    def release(self) -> None:
        """Drop expired rows now, and free unused memory."""
        if not self._ordered_ends:
            self._compact(self._bound, len(self.rows) + 1)
        self.rows.release()
        self._links.release()
        self._buckets.release()

    def keep(self, alive: Mask) -> None:
        """Keep some rows only, under new ids."""
        self._links.replace(self.links[alive].copy())
        self.rows.compact(alive)
        self._killed, self._dead = [], 0
        self._relink()

    def _relink(self) -> None:
        """Rebuild the hash chains of all rows held."""
        self._buckets.table[:, self._side] = EMPTY
        self.link_from(self.rows.base)
        self._buckets.fit(max(len(side.rows) for side in self._buckets.sides))

    def withdraw(self, negatives: Batch, words: Words, ids: Ids) -> None:
        """Cancel withdrawals (held under `ids`) against the rows they withdraw."""
        assert negatives.end is not None
        cursors = self.heads(words)
        low, high = np.full(len(words), MIN_TIME, np.int64), np.full(len(words), MAX_TIME, np.int64)
        pairs = self.meet(cursors, words, low, high, np.ones(len(words), np.int64))
        fits = (pairs.sign > 0) & (pairs.end == negatives.end[pairs.probe])
        probes, candidates = pairs.probe[fits], pairs.id[fits]
        mine = [c.take(pa.array(probes)) for c in negatives.data.columns]
        same = equal_rows(mine, self.rows.take(candidates), len(probes))
        distinct, rows = np.unique(candidates, return_inverse=True)
        partner = np.full(len(negatives), EMPTY, np.int64)
        pair_off(np.ascontiguousarray(probes), rows, same, partner, np.zeros(len(distinct), np.bool_))
        if self.spilled:
            left = np.flatnonzero(partner == EMPTY)
            self.spilled.withdraw(negatives.take(left), words[left])
        self.kill(np.concatenate([distinct[partner[partner != EMPTY]], ids]))

    def close(self, punctuation: Punctuation) -> None:
        """No future row of the other side matches: forget the rows that could only meet such rows."""
        self.closed = True
        if self.spilled:
            self.spilled.close(punctuation)
        self.kill(self._matching(punctuation))

    def holds(self, punctuation: Punctuation) -> bool:
        """Whether a row that is not over matches; assumes so if rows are spilled."""
        if self.spilled:
            return True
        ids = self._matching(punctuation)
        return bool((self.links[ids - self.rows.base, END] > self._bound).any())

    def _matching(self, punctuation: Punctuation) -> Ids:
        """The ids of the rows that match.

        Constants for all key columns are looked up by key; other patterns need a scan of all rows.
        """
        names = [self.rows.schema.names[k] for k in self._keys]
        wanted = [punctuation.columns.get(name) for name in names]
        if wanted and all(isinstance(p, Constant) for p in wanted):
            return self._with_key([p.value for p in wanted if isinstance(p, Constant)])
        rows = self.rows.rows(np.arange(self.rows.base, self.rows.next))
        speaks_of = punctuation.matches(np.full(rows.num_rows, MIN_TIME, np.int64), rows)
        return np.flatnonzero(speaks_of) + self.rows.base

    def _with_key(self, values: list[Any]) -> Ids:
        """The ids of the rows with these key values."""
        types = [self.rows.schema.field(k).type for k in self._keys]
        columns = [pa.array([v], t) for v, t in zip(values, types, strict=True)]
        words = encode_keys(columns, 1, self._null_safe).words
        low, high = np.full(1, MIN_TIME, np.int64), np.full(1, MAX_TIME, np.int64)
        ids = self.meet(self.heads(words), words, low, high, np.ones(1, np.int64)).id
        mine = [c.take(pa.array(np.zeros(len(ids), np.int64))) for c in columns]
        return ids[equal_rows(mine, self.key_columns(self.rows.take(ids)), len(ids))]

    def kill(self, ids: Ids) -> None:
        """Mark rows so that they match nothing; once half of all rows are dead, forget them."""
        self._bury(ids)
        self._killed.append(ids)
        if 2 * self._dead > len(self.rows):
            self.keep(self.links[:, END] > MIN_TIME)

    def _bury(self, ids: Ids) -> None:
        """Mark rows as dead: their intervals become empty, so they match nothing."""
        self.links[ids - self.rows.base, END] = MIN_TIME
        self._dead += len(ids)

    def held(self) -> Batch:
        """The living rows, spilled ones included, in order of start."""
        lines = self.links
        alive = np.flatnonzero(lines[:, END] > MIN_TIME)
        rows = self.rows.rows(alive + self.rows.base)
        here = Batch(rows, lines[alive, START].copy(), lines[alive, END].copy())
        return sort_by_start(concat([*self.spilled.held(), here]))

    # -------------------------------------------------------------------------------------------- spilling

    @property
    def spill_store(self) -> SpillStore:
        """The store for spilled rows."""
        return self.spilled.spill_store

    @spill_store.setter
    def spill_store(self, spill_store: SpillStore) -> None:
        self.spilled.spill_store = spill_store

    def spill(self, bytes: int) -> None:
        """Spill the oldest rows: those that end first go together, so they can expire on disk unread."""
        before = self.bytes()
        if not len(self.rows):
            return
        share = max(bytes, tuning.current.spill_file_bytes, before // 4) / before
        count = len(self.rows) if share > 0.75 else max(1, int(share * len(self.rows)))
        lines = self.links[:count]
        alive = lines[:, END] > MIN_TIME
        ids = np.flatnonzero(alive) + self.rows.base
        self.spilled.put_rows(lines[alive], self.rows.take(ids))
        self._drop(count)
        self._links.fit()
        self.rows.fit()
        self._dead = int(np.count_nonzero(self.links[:, END] == MIN_TIME))
        self._buckets.fit(max(len(side.rows) for side in self._buckets.sides))

    def spilled_bytes(self) -> int:
        return self.spilled.spilled_bytes()

    # --------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        held = self.rows.bytes() + self._links.bytes() + self._buckets.bytes() // 2
        return held + self.spilled.bytes() + self.log_bytes()

    def spare_bytes(self) -> int:
        """Bytes of unused capacity."""
        return self.rows.spare_bytes() + self._links.spare_bytes() + self._buckets.spare_bytes() // 2

    def own_bytes(self) -> int:
        """Bytes of this side's rows, without unused capacity and logs, plus a share of the buckets."""
        lines = self.rows.bytes() - self.rows.spare_bytes() + 32 * len(self.rows)
        sizes = [len(side.rows) for side in self._buckets.sides]
        buckets = _BUCKETS * max(sizes) * len(self.rows) // max(1, sum(sizes))
        return lines + buckets + self.spilled.bytes()

    def log_bytes(self) -> int:
        """Bytes that are kept for the next snapshot."""
        return sum(ids.nbytes for ids in self._killed)

    def changes(self, full: bool) -> Mapping[str, Any]:
        chunk = dict(self.rows.changes(full))
        lines = self.links[int(chunk["begin"]) - self.rows.base :].copy()
        lines[:, NEXT] &= 1
        killed: list[Ids] = [] if chunk["reset"] else self._killed
        chunk["links"] = lines
        chunk["killed"] = np.concatenate(killed) if killed else np.empty(0, np.int64)
        chunk["closed"] = self.closed
        self._killed = []
        return chunk | self.spilled.changes(full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.spilled.apply(chunk)
        self.closed = chunk["closed"]
        if chunk["reset"]:
            self._links = Buffer(np.int64, 4)
        else:
            self._forget_before(chunk["base"])
        begin = chunk["begin"]
        self.rows.apply(chunk)
        self._note_ends(chunk["links"][:, END])
        self._links.extend(len(chunk["links"]))[:] = chunk["links"]
        if chunk["reset"]:
            self._buckets.table[:, self._side] = EMPTY
        if not self._buckets.fit(max(len(side.rows) for side in self._buckets.sides)):
            self.link_from(begin)
        killed = chunk["killed"]
        self._bury(killed[killed >= self.rows.base])
        self._killed = []

    def _forget_before(self, id: int) -> None:
        """Forget the rows with smaller ids."""
        gone = min(id, self.rows.next) - self.rows.base
        if gone > 0:
            self._drop(gone)


def _new_table(buckets: int) -> npt.NDArray[np.int64]:
    """An empty hash table with at least this many buckets; the number is a power of two."""
    return np.full((1 << (buckets - 1).bit_length(), 2), EMPTY, np.int64)
