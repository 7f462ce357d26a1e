"""Rows on disk, found by a 64-bit word: pieces sorted by word, each with a small summary in memory.

A lookup reads only the pages with the rows of its word, in the pieces whose summary does not rule out the
word. Rows are deleted one by one; a piece with half of its rows deleted is rewritten, and an expired piece is
dropped without being read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Ids, Mask
from headrace.errors import SpillError
from headrace.kernels.hashing import add_words, may_have, new_filter
from headrace.spill.store import MemorySpillStore, SpillStore

WORD, END = "headrace:word", "headrace:end"
"""The first two columns of every piece: the word of a row, and when it ends."""


class Piece:
    """Rows of one spill: where they are, which words they may have, and when the last of them ends."""

    def __init__(self, rows: pa.RecordBatch, spill_store: SpillStore) -> None:
        """`rows` are in order of word."""
        words = ints(rows, WORD)
        self.last_end = int(ints(rows, END).max())
        self.schema = rows.schema
        self._filter = new_filter(len(words))
        add_words(self._filter, words)
        self._spill_store = spill_store
        self.handle = spill_store.put(rows)
        self._dead: Mask | None = None
        self._news: list[Ids] = []

    def __len__(self) -> int:
        return self.handle.rows

    def read(self) -> pa.RecordBatch:
        """All rows, including dead ones."""
        return self._spill_store.get(self.handle)

    def alive(self) -> Mask:
        """Which rows are not dead."""
        return np.ones(len(self), np.bool_) if self._dead is None else ~self._dead

    def find(self, words: Ids) -> tuple[pa.RecordBatch, Ids, Ids] | None:
        """Pairs of a word (by position) and a living row of that word, and the rows to take them from."""
        maybe = np.empty(len(words), np.bool_)
        may_have(self._filter, words, maybe)
        asked = np.flatnonzero(maybe)
        if not len(asked):
            return None
        rows = self.read()
        held = ints(rows, WORD)
        low = np.searchsorted(held, words[asked], side="left")
        counts = np.searchsorted(held, words[asked], side="right") - low
        probes = np.repeat(asked, counts)
        places = np.arange(len(probes)) + np.repeat(low - (np.cumsum(counts) - counts), counts)
        if self._dead is not None:
            living = ~self._dead[places]
            probes, places = probes[living], places[living]
        return (rows, probes, places) if len(probes) else None

    def bury(self, places: Ids) -> None:
        """Mark rows as dead."""
        if self._dead is None:
            self._dead = np.zeros(len(self), np.bool_)
        self._dead[places] = True
        self._news.append(places)

    def dead(self) -> int:
        """How many rows are dead."""
        return 0 if self._dead is None else int(np.count_nonzero(self._dead))

    def news(self) -> Ids:
        """The rows that died since the last call."""
        places = np.concatenate(self._news) if self._news else np.empty(0, np.int64)
        self._news = []
        return places

    def bytes(self) -> int:
        """Bytes in memory."""
        held = self.handle.bytes if self._spill_store.in_memory else 0
        return held + int(self._filter.nbytes) + (0 if self._dead is None else self._dead.nbytes)

    def drop(self) -> None:
        """Forget all rows."""
        self._spill_store.drop(self.handle)


class SpilledRows:
    """The pieces of one part of an operator's state."""

    def __init__(self) -> None:
        self.spill_store: SpillStore = MemorySpillStore()
        self._pieces: dict[int, Piece] = {}
        self._next = 0
        self._marked = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __iter__(self) -> Iterator[Piece]:
        return iter(list(self._pieces.values()))

    def __len__(self) -> int:
        return sum(len(piece) - piece.dead() for piece in self._pieces.values())

    def put(self, words: Ids, ends: Ids, columns: list[pa.Array], names: list[str]) -> None:
        """Spill rows."""
        order = pa.array(np.argsort(words, kind="stable"))
        arrays = [pa.array(words), pa.array(ends), *columns]
        rows = pa.RecordBatch.from_arrays([a.take(order) for a in arrays], names=[WORD, END, *names])
        self._keep(self._next, rows)

    def _keep(self, serial: int, rows: pa.RecordBatch) -> None:
        """Write rows as the piece with this number."""
        if rows.num_rows:
            self._pieces[serial] = Piece(rows, self.spill_store)
        self._next = max(self._next, serial + 1)

    def find(self, words: Ids) -> Iterator[tuple[Piece, pa.RecordBatch, Ids, Ids]]:
        """Per piece that has any: the rows, and pairs of a word (by position) and one of its rows."""
        for piece in self:
            found = piece.find(words)
            if found is not None:
                yield piece, *found

    def expire(self, bound: int) -> None:
        """Drop the pieces in which all rows have ended by `bound`."""
        over = [serial for serial, piece in self._pieces.items() if piece.last_end <= bound]
        for serial in over:
            self._pieces.pop(serial).drop()

    def tidy(self) -> None:
        """Drop dead pieces and rewrite those that are half dead; if the disk is full, try again later."""
        for serial, piece in list(self._pieces.items()):
            if 2 * piece.dead() >= len(piece):
                with suppress(SpillError):
                    rows = piece.read().filter(pa.array(piece.alive()))
                    self._keep(self._next, rows)
                    self._pieces.pop(serial).drop()

    def clear(self) -> None:
        """Forget everything."""
        for piece in self:
            piece.drop()
        self._pieces = {}

    def bytes(self) -> int:
        """Bytes in memory: the summaries, and the rows too if the spill store is in memory."""
        return sum(piece.bytes() for piece in self._pieces.values())

    def spilled_bytes(self) -> int:
        """Bytes on disk; 0 if the spill store is in memory."""
        return sum(p.handle.bytes for p in self._pieces.values() if not self.spill_store.in_memory)

    # --------------------------------------------------------------------------------------------- state

    def changes(self, full: bool) -> dict[str, Any]:
        """For a snapshot: new pieces, and the rows that died in the others. Empty if there are no pieces."""
        chunk: dict[str, Any] = {}
        if self._pieces:
            chunk["shelved"] = np.array(list(self._pieces), np.int64)
        for serial, piece in self._pieces.items():
            if full or serial >= self._marked:
                chunk[f"shelved:{serial}"] = piece.read()
                chunk[f"dead:{serial}"] = np.flatnonzero(~piece.alive())
                piece.news()
            elif len(news := piece.news()):
                chunk[f"dead:{serial}"] = news
        self._marked = self._next
        return chunk

    def apply(self, chunk: Mapping[str, Any]) -> None:
        """Apply what `changes` returned, and put the rows into this engine's own spill store."""
        serials = chunk["shelved"].tolist() if "shelved" in chunk else []
        for serial in [s for s in self._pieces if s not in serials or f"shelved:{s}" in chunk]:
            self._pieces.pop(serial).drop()
        for serial in serials:
            if f"shelved:{serial}" in chunk:
                self._keep(serial, chunk[f"shelved:{serial}"])
            if f"dead:{serial}" in chunk and len(chunk[f"dead:{serial}"]):
                self._pieces[serial].bury(chunk[f"dead:{serial}"])
                self._pieces[serial].news()
        self._next = max([self._next, *(s + 1 for s in serials)])
        self._marked = self._next


def ints(rows: pa.RecordBatch, name: str) -> Ids:
    """An int64 column without nulls, as it lies in memory."""
    values: Ids = rows.column(name).to_numpy(zero_copy_only=True)
    return values
