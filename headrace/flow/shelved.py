"""Rows on a shelf, found by a 64-bit word: pieces sorted by word, each with a small summary in memory.

A look-up reads the pages where a row of its word lies, of the pieces whose summary does not rule the word
out. Rows die one by one; a piece of which half is dead is written anew, and one that is over is dropped
unread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import SpillError
from headrace.flow.shelf import Held, Shelf
from headrace.kernels.bloom import add_words, may_have, new_filter

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
WORD, END = "headrace:word", "headrace:end"
"""The first two columns of every piece: the word of a row, and when it is over."""


class Piece:
    """Rows of one spill: where they are, which words they may have, when the last of them is over."""

    def __init__(self, rows: pa.RecordBatch, shelf: Shelf) -> None:
        """`rows` are in order of word."""
        words = ints(rows, WORD)
        self.last_end = int(ints(rows, END).max())
        self.schema = rows.schema
        self._filter = new_filter(len(words))
        add_words(self._filter, words)
        self._shelf = shelf
        self.handle = shelf.put(rows)
        self._dead: Mask | None = None
        self._news: list[Ids] = []

    def __len__(self) -> int:
        return self.handle.rows

    def read(self) -> pa.RecordBatch:
        """All rows, the dead too."""
        return self._shelf.get(self.handle)

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
        """Rows are dead from now on."""
        if self._dead is None:
            self._dead = np.zeros(len(self), np.bool_)
        self._dead[places] = True
        self._news.append(places)

    def dead(self) -> int:
        """How many rows are dead."""
        return 0 if self._dead is None else int(np.count_nonzero(self._dead))

    def news(self) -> Ids:
        """What died since the last call."""
        places = np.concatenate(self._news) if self._news else np.empty(0, np.int64)
        self._news = []
        return places

    def bytes(self) -> int:
        """Bytes in memory."""
        held = self.handle.bytes if self._shelf.in_memory else 0
        return held + int(self._filter.nbytes) + (0 if self._dead is None else self._dead.nbytes)

    def drop(self) -> None:
        """Forget all rows."""
        self._shelf.drop(self.handle)


class Shelved:
    """The pieces of one part of an operator's state."""

    def __init__(self) -> None:
        self.shelf: Shelf = Held()
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
        """Put rows away."""
        order = pa.array(np.argsort(words, kind="stable"))
        arrays = [pa.array(words), pa.array(ends), *columns]
        rows = pa.RecordBatch.from_arrays([a.take(order) for a in arrays], names=[WORD, END, *names])
        self._keep(self._next, rows)

    def _keep(self, serial: int, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._pieces[serial] = Piece(rows, self.shelf)
        self._next = max(self._next, serial + 1)

    def find(self, words: Ids) -> Iterator[tuple[Piece, pa.RecordBatch, Ids, Ids]]:
        """Per piece that has any: the rows, and pairs of a word (by position) and one of its rows."""
        for piece in self:
            found = piece.find(words)
            if found is not None:
                yield piece, *found

    def expire(self, bound: int) -> None:
        """Drop the pieces of which every row is over at `bound`."""
        over = [serial for serial, piece in self._pieces.items() if piece.last_end <= bound]
        for serial in over:
            self._pieces.pop(serial).drop()

    def tidy(self) -> None:
        """Drop pieces that are dead, and write those anew of which half is; where the disk is full, later."""
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
        """Bytes in memory: the summaries, and on a shelf in memory all."""
        return sum(piece.bytes() for piece in self._pieces.values())

    def spilled_bytes(self) -> int:
        """Bytes on a shelf that is not memory."""
        return sum(p.handle.bytes for p in self._pieces.values() if not self.shelf.in_memory)

    # --------------------------------------------------------------------------------------------- state

    def changes(self, full: bool) -> dict[str, Any]:
        """What a snapshot writes: pieces that are new, what died in the others. Nothing if there are none."""
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
        """Take over what `changes` gave; onto the own shelf, whatever shelf it was on."""
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
