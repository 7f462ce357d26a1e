"""Arrays that lie on a shelf: the same values, in pages of a file that the system brings and takes away.

State that is looked up all over, such as a table of groups, cannot be put away piece by piece. Its arrays can
still leave memory: into a *room*, a file of which the space is set aside beforehand (a full disk is then an
error at that moment, and never later) and which is mapped. What is looked at is read, page by page; what is
not, is not. Who uses such an array need not know.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from headrace.errors import SpillError
from headrace.flow.shelf import Shelf

Array = npt.NDArray[Any]
_CACHE_LINE = 64


@runtime_checkable
class Movable(Protocol):
    """A part of an operator's state that is made of arrays, which can go into rooms."""

    def bytes(self) -> int:
        """Bytes held in memory."""
        ...

    def move_out(self, shelf: Shelf) -> None:
        """Move arrays into rooms; those that grow stay there."""
        ...

    def room_bytes(self) -> int:
        """Bytes of rooms on a shelf that is not memory."""
        ...


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike, shelf: Shelf | None = None) -> Array:
    """An array of zeros in a room, if a shelf is given and it is worth one; else an unset one in memory.

    The first line of several values begins with a cache line, so none straddles two. Where the disk is full,
    it is in memory after all.
    """
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    if shelf is not None and size >= max(1, shelf.least) and not kind.hasobject:
        with suppress(SpillError):
            return _shaped(shelf.room(size), kind, shape)
    if len(shape) == 1:
        return np.empty(shape, kind)
    raw = np.empty(size + _CACHE_LINE, np.uint8)
    begin = -raw.ctypes.data % _CACHE_LINE
    return raw[begin : begin + size].view(kind).reshape(shape)


def moved(array: Array, shelf: Shelf) -> Array:
    """The same values in a room; the array itself if it is in one or is not worth one."""
    if in_room(array) or array.nbytes < max(1, shelf.least) or array.dtype.hasobject:
        return array
    room = _shaped(shelf.room(array.nbytes), array.dtype, array.shape)
    room[...] = array
    pages = _pages(room)
    if pages is not None:
        pages.madvise(mmap.MADV_DONTNEED)  # a shared mapping: the values are the file's from here on
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


def in_room(array: Array) -> bool:
    """Whether an array lies in a file."""
    return _pages(array) is not None


def held(array: Array) -> int:
    """Bytes of an array that are memory."""
    return 0 if in_room(array) else int(array.nbytes)


def on_shelf(array: Array) -> int:
    """Bytes of an array that are a file's."""
    return int(array.nbytes) if in_room(array) else 0
