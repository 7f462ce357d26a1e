"""Where state goes that memory has no room for: the seam between operators, which do no I/O, and a disk.

What is put on a shelf never changes: it is read, as often as need be, or dropped. An operator keeps a small
summary of what it has put away, so that it need not read what cannot matter, and drops it unread when its
time is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Handle:
    """A name on a shelf, and the size of what is under it."""

    name: str
    rows: int
    bytes: int


class Shelf(Protocol):
    """Keeps record batches under names that it chooses.

    Laws: `get` gives what was put, or fails with a `SpillError`; it never gives anything else. `put` either
    keeps all of a batch or fails and keeps nothing of it.
    """

    in_memory: bool
    """Whether what it keeps counts as memory."""
    least: int
    """Bytes below which an array is not worth a room."""

    def put(self, rows: pa.RecordBatch) -> Handle:
        """Keep rows."""
        ...

    def get(self, handle: Handle) -> pa.RecordBatch:
        """The rows, read no sooner than they are looked at where that can be."""
        ...

    def drop(self, handle: Handle) -> None:
        """Forget rows; they are not asked for again."""
        ...

    def room(self, bytes: int) -> npt.NDArray[np.uint8]:
        """Zeros to write into, of which the space is set aside; they go when nothing refers to them."""
        ...


class Held:
    """A shelf in memory: where spilled state of a snapshot goes in an engine that was given no other."""

    in_memory = True
    least = 0

    def __init__(self) -> None:
        self._kept: dict[str, pa.RecordBatch] = {}
        self._names: Iterator[int] = count()

    def put(self, rows: pa.RecordBatch) -> Handle:
        handle = Handle(str(next(self._names)), rows.num_rows, rows.nbytes)
        self._kept[handle.name] = rows
        return handle

    def get(self, handle: Handle) -> pa.RecordBatch:
        return self._kept[handle.name]

    def drop(self, handle: Handle) -> None:
        del self._kept[handle.name]

    def room(self, bytes: int) -> npt.NDArray[np.uint8]:
        return np.zeros(bytes, np.uint8)


@runtime_checkable
class Spillable(Protocol):
    """A part of an operator's state that can be put away, a piece at a time."""

    shelf: Shelf

    def bytes(self) -> int:
        """Bytes held in memory."""
        ...

    def spill(self, bytes: int) -> None:
        """Put away about so many bytes, more where less is not worth it."""
        ...

    def spilled_bytes(self) -> int:
        """Bytes that are on the shelf."""
        ...
