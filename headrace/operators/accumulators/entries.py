"""A table of entries under ascending ids, in rings: grow at the tail, forget at the head, move nothing.

A growing array that is emptied from the front must move what it holds now and then; measured with 100 times
the state, that was half of the cost of a sliding aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.flow.rooms import empty, held, moved, on_shelf
from headrace.flow.shelf import Shelf

Array = npt.NDArray[Any]
_SMALL = 64
_RESERVE = 8
"""Space is asked for eightfold; the operating system gives it page by page, when it is first used."""


class Entries:
    """Named rings of equal size, a power of two; entry `id` is at id mod size. Ids: `base` … `next` − 1.

    `kept` columns are the state; the others follow from them and are computed anew after a restore. Entries
    before `settled` no longer change, so a snapshot writes those that were not settled at the last one.
    """

    def __init__(self) -> None:
        self.base = self.next = self.settled = 0
        self._size = _SMALL
        self._rings: dict[str, Array] = {}
        self._spaces: dict[str, Array] = {}
        self._fills: dict[str, Any] = {}
        self._kept: list[str] = []
        self._marked = -1
        self._shelf: Shelf | None = None

    def __len__(self) -> int:
        return self.next - self.base

    def add_column(
        self, name: str, dtype: npt.DTypeLike, fill: Any = 0, kept: bool = True, width: int = 0
    ) -> None:
        """Have one more column, with a `width` one of lines; what is written before read needs no `fill`."""
        assert name not in self._rings, name
        shape = (self._size, width) if width else (self._size,)
        self._spaces[name] = self._rings[name] = np.full(shape, fill or 0, dtype)
        self._fills[name] = fill
        if kept:
            self._kept.append(name)

    def widen(self, name: str, width: int) -> None:
        """Have lines of at least `width`, with zeros at their end."""
        ring = self._rings[name]
        if ring.shape[1] < width:
            self._spaces[name] = self._rings[name] = self._space(ring.dtype, (width,))
            self._rings[name] = self._spaces[name][: self._size]
            self._rings[name][:, : ring.shape[1]] = ring
            self._rings[name][:, ring.shape[1] :] = 0

    def narrow(self, name: str, keep: npt.NDArray[np.bool_]) -> None:
        """Keep some columns of the lines; the next snapshot writes everything."""
        ring = np.ascontiguousarray(self._rings[name][:, keep])
        self._spaces[name] = self._rings[name] = ring if self._shelf is None else moved(ring, self._shelf)
        self._marked = -1

    def __getitem__(self, name: str) -> Array:
        """The ring of a column, writable; valid until `extend` or `drop_before`."""
        return self._rings[name]

    def extend(self, count: int) -> None:
        """Add entries at the tail, with fill values."""
        if len(self) + count > self._size:
            self._grow(len(self) + count)
        for piece in self._pieces(self.next, self.next + count):
            for name, fill in self._fills.items():
                if fill is not None:
                    self._rings[name][piece] = fill
        self.next += count

    def drop_before(self, id: int) -> None:
        """Forget the entries with smaller ids; space that is seven eighths dead is given back."""
        self.base = max(self.base, id)
        if self._size > _SMALL and 8 * len(self) < self._size:
            self._shrink(2 * len(self))

    def _pieces(self, begin: int, end: int) -> list[slice]:
        """Where the entries `begin` … `end` − 1 lie."""
        first, last = begin & (self._size - 1), end & (self._size - 1)
        if begin == end:
            return []
        return [slice(first, last)] if first < last else [slice(first, self._size), slice(0, last)]

    def _grow(self, entries: int) -> None:
        """Make the rings larger, in the space behind them while there is any: then only what wraps moves."""
        pieces = self._pieces(self.base, self.next)
        self._size = _power(entries)
        for name, ring in self._rings.items():
            if self._size > len(self._spaces[name]):
                self._spaces[name] = self._space(ring.dtype, ring.shape[1:])
            self._rings[name] = self._spaces[name][: self._size]
            self._move(ring, pieces, self._rings[name])

    def _space(self, dtype: np.dtype[Any], line: tuple[int, ...]) -> Array:
        """Space for a ring: with a reserve in memory, and none on a shelf, where it would be set aside."""
        if self._shelf is None:
            return np.empty((_RESERVE * self._size, *line), dtype)
        return empty((self._size, *line), dtype, self._shelf)

    def _move(self, ring: Array, pieces: list[slice], target: Array) -> None:
        begin, stays = self.base, target.ctypes.data == ring.ctypes.data
        for piece in pieces:
            size, at = piece.stop - piece.start, begin & (self._size - 1)
            if at != piece.start or not stays:
                target[at : at + size] = ring[piece]
            begin += size

    def _shrink(self, entries: int) -> None:
        held = {name: self.read(name, self.base) for name in self._rings}
        self._size = _power(entries)
        for name, values in held.items():
            self._spaces[name] = self._rings[name] = empty(
                (self._size, *values.shape[1:]), values.dtype, self._shelf
            )
            self.write(name, self.base, values)

    def read(self, name: str, begin: int) -> Array:
        """A copy of a column from an id on."""
        ring = self._rings[name]
        return np.concatenate([ring[:0], *(ring[piece] for piece in self._pieces(begin, self.next))])

    def write(self, name: str, begin: int, values: Array) -> None:
        """Set a column from an id on."""
        done = 0
        for piece in self._pieces(begin, begin + len(values)):
            size = piece.stop - piece.start
            self._rings[name][piece] = values[done : done + size]
            done += size

    def rewrite(self, name: str, values: Array) -> None:
        """Replace a whole column; the next snapshot writes everything."""
        self.write(name, self.base, values)
        self._marked = -1

    # --------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        """Bytes held."""
        return sum(map(held, self._rings.values()))

    def move_out(self, shelf: Shelf) -> None:
        """Move the rings into rooms of a shelf."""
        self._shelf = shelf
        for name, ring in self._rings.items():
            self._spaces[name] = self._rings[name] = moved(ring, shelf)

    def room_bytes(self) -> int:
        """Bytes on a shelf."""
        return sum(map(on_shelf, self._rings.values()))

    def release(self) -> None:
        """Give spare room back."""
        if self._size > _power(len(self)) or any(len(s) > self._size for s in self._spaces.values()):
            self._shrink(len(self))

    def changes(self, full: bool) -> dict[str, Any]:
        """The entries that are new or were not settled at the last call."""
        reset = full or self._marked < 0
        begin = self.base if reset else min(max(self.base, self._marked), self.next)
        chunk: dict[str, Any] = {"reset": reset, "base": self.base, "begin": begin, "next": self.next}
        chunk["settled"] = self._marked = self.settled
        return chunk | {f"entry:{name}": self.read(name, begin) for name in self._kept}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        """Take over what `changes` gave."""
        begin = chunk["begin"]
        if chunk["reset"] or begin > self.next:
            self.base = begin
        self.next = begin
        self.extend(chunk["next"] - begin)
        for name in self._kept:
            values = chunk[f"entry:{name}"]
            if values.ndim == 2:
                self._fit(name, values.shape[1], chunk["reset"])
            self.write(name, begin, values)
        self.settled = self._marked = chunk["settled"]
        self.drop_before(chunk["base"])

    def _fit(self, name: str, width: int, exactly: bool) -> None:
        """Have lines of a width, or of more."""
        if exactly and self._rings[name].shape[1] > width:
            self.narrow(name, np.arange(self._rings[name].shape[1]) < width)
        self.widen(name, width)


def _power(entries: int) -> int:
    """The size of a ring that has room for so many."""
    return max(_SMALL, 1 << (entries - 1).bit_length())
