"""Maps group keys to dense codes: equal keys have equal codes; null is a key like any other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Codes, Mask, Words
from headrace.kernels.hashing import EMPTY, find, find_or_add, insert_codes
from headrace.schema import Schema
from headrace.spill.mapped_arrays import empty, held, is_mapped, mapped_bytes, moved
from headrace.spill.store import SpillStore
from headrace.state.keys import encode_keys, equal_rows, is_exact
from headrace.state.part import Chunk
from headrace.state.rows import RowStore, bare_rows
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import MIN_TIME

_SLOTS = 36
"""About the bytes of the hash table per key."""
_RESALT = np.int64(-7046029254386353131)


class GroupIndex:
    """The code of a key is the id of its row in `keys`, counted from 0.

    A lookup costs one probe per row, for any number of keys. If words are hashes, every hit is verified; a
    key whose word belongs to another key tries the next word in its own sequence, so codes are exact.
    """

    def __init__(self, schema: Schema) -> None:
        self.keys = RowStore(schema)
        self._exact = is_exact([f.type for f in schema])
        self._table = _new_table(64)
        self._used = 0
        self._null_code = EMPTY
        self._spill_store: SpillStore | None = None
        self.epoch = 0
        """Keys keep their codes as long as this stays the same."""

    def __len__(self) -> int:
        return len(self.keys)

    def codes(self, columns: Sequence[pa.Array], rows: int) -> Codes:
        """The codes of some keys; new keys get the next codes, almost in order of first appearance."""
        if not columns:
            return self._single(rows)
        encoded = encode_keys(columns, rows)
        if self._exact and encoded.valid is not None:
            return self._with_nulls(columns, encoded.words, encoded.valid)
        return self._resolve(columns, encoded.words)

    def matching(self, punctuation: Punctuation) -> Codes:
        """The codes of the keys that match a punctuation on key columns.

        Constants for all key columns are looked up; other patterns cost a scan of all keys.
        """
        if len(self.keys) == 0:
            return np.empty(0, np.int64)
        wanted = [punctuation.columns.get(name) for name in self.keys.schema.names]
        if all(isinstance(p, Constant) for p in wanted):
            values = [p.value for p in wanted if isinstance(p, Constant)]
            return self._find([pa.array([v], f.type) for v, f in zip(values, self.keys.schema, strict=True)])
        rows = self.keys.rows(np.arange(len(self.keys)))
        return np.flatnonzero(punctuation.matches(np.full(rows.num_rows, MIN_TIME, np.int64), rows))

    def _find(self, columns: Sequence[pa.Array]) -> Codes:
        """The code of one key, if it has one."""
        encoded = encode_keys(columns, 1)
        if self._exact and encoded.valid is not None:
            return np.array([self._null_code][: self._null_code != EMPTY], np.int64)
        words, code = encoded.words, np.empty(1, np.int64)
        while True:
            find(self._table, words, code)
            if code[0] == EMPTY:
                return code[:0]
            if self._exact or equal_rows(columns, self.keys.take(code), 1)[0]:
                return code
            words = _next_word(words)

    def compact(self, keep: Mask) -> Codes:
        """Keep only some keys; returns the new code for each old one, EMPTY if it is forgotten."""
        remap = np.full(len(keep), EMPTY, np.int64)
        remap[keep] = np.arange(np.count_nonzero(keep))
        self.keys.compact(keep)
        self._reindex()
        return remap

    def _single(self, rows: int) -> Codes:
        """Without key columns all rows are one group, with code 0."""
        if len(self.keys) == 0 and rows:
            self.keys.append(bare_rows(1))
        return np.zeros(rows, np.int64)

    def _with_nulls(self, columns: Sequence[pa.Array], words: Words, valid: Mask) -> Codes:
        """The codes of keys, some of them null; the null key has a code that no word maps to."""
        codes = np.empty(len(words), np.int64)
        there = np.flatnonzero(valid)
        codes[there] = self._resolve([c.take(pa.array(there)) for c in columns], words[there])
        if self._null_code == EMPTY:
            self._null_code = self._add([pa.nulls(1, c.type) for c in columns])
        codes[~valid] = self._null_code
        return codes

    def _resolve(self, columns: Sequence[pa.Array], words: Words) -> Codes:
        """The codes of keys, added if new; a key whose word another key has tries its next word."""
        known = len(self.keys)
        codes = self._place(columns, words)
        if self._exact or len(self.keys) - known == len(words):
            return codes
        wrong = np.flatnonzero(~equal_rows(columns, self.keys.take(codes), len(codes)))
        if len(wrong):
            picked = [c.take(pa.array(wrong)) for c in columns]
            codes[wrong] = self._resolve(picked, _next_word(words[wrong]))
        return codes

    def _place(self, columns: Sequence[pa.Array], words: Words) -> Codes:
        """Find or add each word; the first row of each new word becomes its key."""
        codes = np.empty(len(words), np.int64)
        start = self.keys.next
        done = added = 0
        while True:
            room = len(self._table) * 5 // 8 - self._used
            done, new = find_or_add(self._table, words, codes, done, start + added, room)
            added += new
            self._used += new
            if done == len(words):
                break
            self._grow(added * (len(words) - done) // max(1, done))
        if added == len(words):
            self._add(columns)
        elif added:
            fresh = np.flatnonzero(codes >= start)[::-1]
            first = np.empty(added, np.int64)
            first[codes[fresh] - start] = fresh  # backwards: the first row of a key is written last
            self._add([c.take(pa.array(first)) for c in columns])
        return codes

    def _add(self, columns: Sequence[pa.Array]) -> int:
        """Keep keys that are not known yet; returns the code of the first of them."""
        return self.keys.append(pa.RecordBatch.from_arrays(list(columns), schema=self.keys.schema))

    def _grow(self, more: int = 0) -> None:
        """Double the slots, or make room for `more` keys: an estimate, so at most eight times as many."""
        old = self._table[self._table[:, 1] != EMPTY]
        enough = min(8 * (self._used + more) // 5 + 1, 8 * len(self._table))
        self._table = _new_table(max(2 * len(self._table), enough), self._spill_store)
        words, codes = np.ascontiguousarray(old[:, 0]), np.ascontiguousarray(old[:, 1])
        insert_codes(self._table, words, codes, np.empty(len(old), np.bool_))

    def _reindex(self) -> None:
        """Rebuild the index of all keys: the code of a key is its position."""
        self.epoch += 1
        self._table = _new_table(2 * len(self.keys) + 64, self._spill_store)
        self._used, self._null_code = 0, EMPTY
        self._index_from(0)

    def _index_from(self, begin: int) -> None:
        """Index the keys with codes from `begin` on."""
        codes = np.arange(begin, len(self.keys))
        columns = self.keys.take(codes)
        if not columns or not len(codes):
            return
        while self._used + len(codes) > len(self._table) * 5 // 8:
            self._grow()
        encoded = encode_keys(columns, len(codes))
        words = encoded.words
        if self._exact and encoded.valid is not None:
            self._null_code = int(codes[~encoded.valid][0])
            words, codes = words[encoded.valid], codes[encoded.valid]
        self._insert(words, codes)

    def _insert(self, words: Words, codes: Codes) -> None:
        """Enter the words of stored keys into the hash table; those that clash try their next word."""
        while len(codes):
            clashed = np.empty(len(codes), np.bool_)
            insert_codes(self._table, words, codes, clashed)
            self._used += int(np.count_nonzero(~clashed))
            words, codes = _next_word(words[clashed]), codes[clashed]

    def bytes(self) -> int:
        return self.keys.bytes() + held(self._table)

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        table = 0 if is_mapped(self._table) else int(self._table.nbytes) - _SLOTS * len(self.keys)
        return self.keys.spare_bytes() + table

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move keys and table into mapped files of a spill store."""
        self._spill_store = spill_store
        self._table = moved(self._table, spill_store)
        self.keys.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return self.keys.mapped_bytes() + mapped_bytes(self._table)

    def release(self) -> None:
        """Free spare room."""
        self.keys.release()
        if len(self._table) > _slots(2 * len(self.keys) + 64):
            self._reindex()

    def changes(self, full: bool) -> Chunk:
        return self.keys.changes(full)

    def apply(self, chunk: Chunk) -> None:
        begin = len(self.keys)
        self.keys.apply(chunk)
        if chunk["reset"]:
            self._reindex()
        else:
            self._index_from(begin)


def _next_word(words: Words) -> Words:
    """The next word in the sequence of a key, after a collision."""
    return words * _RESALT + 1


def _new_table(slots: int, spill_store: SpillStore | None = None) -> npt.NDArray[np.int64]:
    """An empty hash table of (word, code), in a mapped file if there is a spill store."""
    if spill_store is None:
        table = np.zeros((_slots(slots), 2), np.int64)
    else:
        table = empty((_slots(slots), 2), np.int64, spill_store)
        table[:, 0] = 0
    table[:, 1] = EMPTY
    return table


def _slots(least: int) -> int:
    """The next power of two."""
    return 1 << (least - 1).bit_length()
