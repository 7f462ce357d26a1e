"""Arrays on disk: the same values, in pages of a file that the system loads and evicts.

State with random access, such as a hash table of groups, cannot be spilled piece by piece. But its arrays can
move into *mapped files*. The space of such a file is allocated in advance, so that a full disk is an error at
that moment and never later. The system reads only the pages that are used. Code that uses the array does not
notice the difference.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from headrace.errors import SpillError
from headrace.spill.store import SpillStore

Array = npt.NDArray[Any]
_CACHE_LINE = 64


@runtime_checkable
class Movable(Protocol):
    """A part of an operator's state that consists of arrays, which can be moved into mapped files."""

    def bytes(self) -> int:
        """Bytes held in memory."""
        ...

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move arrays into mapped files; those that grow stay there."""
        ...

    def mapped_bytes(self) -> int:
        """Bytes of arrays that are mapped from disk."""
        ...


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike, spill_store: SpillStore | None = None) -> Array:
    """An array of zeros in a mapped file if it is large enough for one, else an uninitialised one in memory.

    Lines of several values start at a cache line, so none straddles two. If the disk is full, the array is in
    memory.
    """
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    if spill_store is not None and size >= max(1, spill_store.least) and not kind.hasobject:
        with suppress(SpillError):
            return _shaped(spill_store.room(size), kind, shape)
    if len(shape) == 1:
        return np.empty(shape, kind)
    raw = np.empty(size + _CACHE_LINE, np.uint8)
    begin = -raw.ctypes.data % _CACHE_LINE
    return raw[begin : begin + size].view(kind).reshape(shape)


def moved(array: Array, spill_store: SpillStore) -> Array:
    """The same values in a mapped file; the array itself if it is already mapped or too small."""
    if is_mapped(array) or array.nbytes < max(1, spill_store.least) or array.dtype.hasobject:
        return array
    room = _shaped(spill_store.room(array.nbytes), array.dtype, array.shape)
    room[...] = array
    pages = _pages(room)
    if pages is not None:
        pages.madvise(mmap.MADV_DONTNEED)  # a shared mapping: the values are in the file from here on
    return room


def _shaped(room: npt.NDArray[np.uint8], kind: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    return room.view(kind).reshape(shape)


def _pages(array: Array) -> mmap.mmap | None:
    """The mapping behind an array, if there is one."""
    whole: Any = array
    while isinstance(whole, np.ndarray):
        whole = whole.base
    whole = whole.obj if isinstance(whole, memoryview) else whole
    return whole if isinstance(whole, mmap.mmap) else None


def is_mapped(array: Array) -> bool:
    """Whether an array lies in a file."""
    return _pages(array) is not None


def held(array: Array) -> int:
    """Bytes of an array that are in memory."""
    return 0 if is_mapped(array) else int(array.nbytes)


def mapped_bytes(array: Array) -> int:
    """Bytes of an array that are in a mapped file."""
    return int(array.nbytes) if is_mapped(array) else 0
