"""The spill store, for state that does not fit into memory: between operators, which do no I/O, and a disk.

Spilled data never changes: it is read as often as needed, or dropped. An operator keeps a small summary of
its spilled data, so that it reads only what it needs, and drops expired data unread.
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
    """A name in the store, with the number of rows and bytes."""

    name: str
    rows: int
    bytes: int


class SpillStore(Protocol):
    """Keeps record batches under names that it chooses.

    Guarantees: `get` returns exactly the rows that were put, or raises a `SpillError`. `put` stores the whole
    batch, or raises an error and stores nothing.
    """

    in_memory: bool
    """Whether its content counts as memory."""

    @property
    def least(self) -> int:
        """The size in bytes below which an array is not worth a mapped file."""
        ...

    def put(self, rows: pa.RecordBatch) -> Handle:
        """Store rows."""
        ...

    def get(self, handle: Handle) -> pa.RecordBatch:
        """The rows; where possible, pages are read only when they are used."""
        ...

    def drop(self, handle: Handle) -> None:
        """Delete rows, which are not needed again."""
        ...

    def room(self, bytes: int) -> npt.NDArray[np.uint8]:
        """Zeros in allocated space to write into; freed with the last reference."""
        ...


class MemorySpillStore:
    """A spill store in memory, for engines without another one."""

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
    """A part of an operator's state that can be spilled, a piece at a time."""

    spill_store: SpillStore

    def bytes(self) -> int:
        """Bytes held in memory."""
        ...

    def spill(self, bytes: int) -> None:
        """Spill about this many bytes, or more if less is not worth it."""
        ...

    def spilled_bytes(self) -> int:
        """Bytes that are on disk."""
        ...
