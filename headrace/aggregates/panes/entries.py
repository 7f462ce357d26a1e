"""A table of entries under ascending ids, in rings: grow at the tail, forget at the head, move nothing.

A growing array that is emptied from the front must move its content from time to time; with 100 times the
state, that was measured to be half of the cost of a sliding aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import tuning
from headrace.spill.mapped_arrays import empty, held, mapped_bytes, moved
from headrace.spill.store import SpillStore

Array = npt.NDArray[Any]
_SMALL = 64


class Entries:
    """Named rings of equal size, a power of two; entry `id` is at id mod size. Ids: `base` … `next` − 1.

    `kept` columns are saved; the others are computed from them after a restore. Entries
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
        self._spill_store: SpillStore | None = None

    def __len__(self) -> int:
        return self.next - self.base

    def add_column(
        self, name: str, dtype: npt.DTypeLike, fill: Any = 0, kept: bool = True, width: int = 0
    ) -> None:
        """Add a column, of lines if it has a `width`. `fill` is None if entries are always written first."""
        assert name not in self._rings, name
        shape = (self._size, width) if width else (self._size,)
        self._spaces[name] = self._rings[name] = np.full(shape, fill or 0, dtype)
        self._fills[name] = fill
        if kept:
            self._kept.append(name)

    def widen(self, name: str, width: int) -> None:
        """Make the lines of a column at least `width` long, padded with zeros."""
        ring = self._rings[name]
        if ring.shape[1] < width:
            self._spaces[name] = self._rings[name] = self._space(ring.dtype, (width,))
            self._rings[name] = self._spaces[name][: self._size]
            self._rings[name][:, : ring.shape[1]] = ring
            self._rings[name][:, ring.shape[1] :] = 0

    def narrow(self, name: str, keep: npt.NDArray[np.bool_]) -> None:
        """Keep some columns of the lines; the next snapshot writes everything."""
        ring = np.ascontiguousarray(self._rings[name][:, keep])
        self._spaces[name] = self._rings[name] = (
            ring if self._spill_store is None else moved(ring, self._spill_store)
        )
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
        """Forget the entries with smaller ids; free memory if seven eighths of it is unused."""
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
        """Make the rings larger, in the reserve behind them if possible: then only wrapped entries move."""
        pieces = self._pieces(self.base, self.next)
        self._size = _power(entries)
        for name, ring in self._rings.items():
            if self._size > len(self._spaces[name]):
                self._spaces[name] = self._space(ring.dtype, ring.shape[1:])
            self._rings[name] = self._spaces[name][: self._size]
            self._move(ring, pieces, self._rings[name])

    def _space(self, dtype: np.dtype[Any], line: tuple[int, ...]) -> Array:
        """Space for a ring: in memory with a reserve, on disk without one, where it would take up space."""
        if self._spill_store is None:
            return np.empty((tuning.current.pane_reserve * self._size, *line), dtype)
        return empty((self._size, *line), dtype, self._spill_store)

    def _move(self, ring: Array, pieces: list[slice], target: Array) -> None:
        """Copy the entries in `pieces` of a ring to their places in `target`, unless already there."""
        begin, stays = self.base, target.ctypes.data == ring.ctypes.data
        for piece in pieces:
            size, at = piece.stop - piece.start, begin & (self._size - 1)
            if at != piece.start or not stays:
                target[at : at + size] = ring[piece]
            begin += size

    def _shrink(self, entries: int) -> None:
        """Move everything to smaller rings, with room for `entries`."""
        held = {name: self.read(name, self.base) for name in self._rings}
        self._size = _power(entries)
        for name, values in held.items():
            self._spaces[name] = self._rings[name] = empty(
                (self._size, *values.shape[1:]), values.dtype, self._spill_store
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

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the rings into mapped files of a spill store."""
        self._spill_store = spill_store
        for name, ring in self._rings.items():
            self._spaces[name] = self._rings[name] = moved(ring, spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return sum(map(mapped_bytes, self._rings.values()))

    def release(self) -> None:
        """Free unused capacity."""
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
        """Make the lines of a column at least `width` long, or exactly."""
        if exactly and self._rings[name].shape[1] > width:
            self.narrow(name, np.arange(self._rings[name].shape[1]) < width)
        self.widen(name, width)


def _power(entries: int) -> int:
    """The size of a ring with room for this many entries."""
    return max(_SMALL, 1 << (entries - 1).bit_length())
