"""A table of entries under ascending ids: grow at the tail, forget from the head, snapshot what is new."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from headrace.flow.columns import Buffer

Array = npt.NDArray[Any]


class Entries:
    """Named columns of equal length; ids run from `base` to `next` − 1.

    `kept` columns are the state; the others follow from them and are computed anew after a restore. Entries
    before `settled` no longer change, so a snapshot writes those that were not settled at the last one.
    """

    def __init__(self) -> None:
        self.base = 0
        self.next = 0
        self.settled = 0
        self.on_restore: Callable[[], None] = _nothing
        self._columns: dict[str, Buffer] = {}
        self._fills: dict[str, Any] = {}
        self._kept: list[str] = []
        self._marked = -1

    def __len__(self) -> int:
        return self.next - self.base

    def add_column(self, name: str, dtype: npt.DTypeLike, fill: Any = 0, kept: bool = True) -> None:
        """Have one more column; only before the first entry."""
        assert self.next == 0 and name not in self._columns, name
        self._columns[name] = Buffer(dtype)
        self._fills[name] = fill
        if kept:
            self._kept.append(name)

    def __getitem__(self, name: str) -> Array:
        """The values of a column, writable, the first that of `base`; valid until `extend` or `drop`."""
        return self._columns[name].view

    def extend(self, count: int) -> None:
        """Add entries at the tail, with fill values."""
        for name, buffer in self._columns.items():
            buffer.extend(count)[:] = self._fills[name]
        self.next += count

    def drop_before(self, id: int) -> None:
        """Forget the entries with smaller ids."""
        count = id - self.base
        if count <= 0:
            return
        for buffer in self._columns.values():
            buffer.drop(count)
        self.base = id

    def rewrite(self, name: str, values: Array) -> None:
        """Replace a whole column; the next snapshot writes everything."""
        self._columns[name].view[:] = values
        self._marked = -1

    def bytes(self) -> int:
        """Bytes held."""
        return sum(b.bytes() for b in self._columns.values())

    def changes(self, full: bool) -> dict[str, Any]:
        """The entries that are new or were not settled at the last call."""
        reset = full or self._marked < 0
        begin = self.base if reset else min(max(self.base, self._marked), self.next)
        chunk = {"reset": reset, "base": self.base, "begin": begin, "next": self.next}
        chunk |= {"settled": self.settled}
        chunk |= {f"entry:{name}": self[name][begin - self.base :].copy() for name in self._kept}
        self._marked = self.settled
        return chunk

    def apply(self, chunk: Mapping[str, Any]) -> None:
        """Take over what `changes` gave."""
        begin, count = chunk["begin"], chunk["next"] - chunk["begin"]
        if chunk["reset"] or begin > self.next:
            self._cut(0)
            self.base = self.next = begin
        else:
            self._cut(max(begin - self.base, 0))
        self.extend(count)
        for name in self._kept:
            self[name][len(self) - count :] = chunk[f"entry:{name}"]
        self.settled = self._marked = chunk["settled"]
        self.drop_before(chunk["base"])
        self.on_restore()

    def _cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        for buffer in self._columns.values():
            buffer.replace(buffer.view[:count].copy())
        self.next = self.base + count


def _nothing() -> None:
    """What follows a restore where nothing was derived."""
