"""Arrays by group code that know which codes changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.flow.columns import Buffer
from headrace.flow.shelf import Shelf
from headrace.flow.state import Chunk

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class CodeTable:
    """Named arrays, one value per code 0 … n − 1, with a fill value for new codes.

    Who writes through `table[name]` says so with `touch(codes)`; a snapshot writes the touched codes.
    """

    def __init__(self, **columns: tuple[npt.DTypeLike, Any]) -> None:
        self._fills = {name: fill for name, (_, fill) in columns.items()}
        self._buffers = {name: Buffer(dtype) for name, (dtype, _) in columns.items()}
        self._size = 0
        self._touched: list[Codes] = []
        self._touches = 0
        self._reset = True

    def __len__(self) -> int:
        return self._size

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self._buffers)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The values of one column, writable, valid until the next `grow`."""
        return self._buffers[name].view

    def grow(self, size: int) -> None:
        """Have at least `size` codes."""
        if size <= self._size:
            return
        for name, buffer in self._buffers.items():
            buffer.extend(size - self._size)[:] = self._fills[name]
        self._size = size

    def touch(self, codes: Codes) -> None:
        """Say that the values of these codes changed; once that is more than all, a snapshot writes all."""
        if self._reset:
            return
        self._touched.append(codes)
        self._touches += len(codes)
        if self._touches > 2 * self._size + 1024:
            self._forget_changes(reset=True)

    def _forget_changes(self, reset: bool) -> None:
        self._touched, self._touches, self._reset = [], 0, reset

    def keep(self, keep: Mask) -> None:
        """Forget codes; the kept ones move up."""
        for buffer in self._buffers.values():
            buffer.replace(buffer.view[keep].copy())
        self._size = int(np.count_nonzero(keep))
        self._forget_changes(reset=True)

    def bytes(self) -> int:
        return sum(b.bytes() for b in self._buffers.values()) + self.log_bytes()

    def log_bytes(self) -> int:
        """Bytes that are kept for the next snapshot."""
        return 8 * self._touches

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        return sum(buffer.spare_bytes() for buffer in self._buffers.values())

    def release(self) -> None:
        """Give spare room back."""
        for buffer in self._buffers.values():
            buffer.release()

    def move_out(self, shelf: Shelf) -> None:
        """Move all columns into rooms of a shelf."""
        for buffer in self._buffers.values():
            buffer.move_out(shelf)

    def room_bytes(self) -> int:
        """Bytes on a shelf."""
        return sum(buffer.room_bytes() for buffer in self._buffers.values())

    def changes(self, full: bool) -> Chunk:
        whole = full or self._reset
        codes = np.arange(self._size) if whole else self._changed_codes()
        chunk: dict[str, Any] = {"size": self._size, "reset": whole, "codes": codes}
        chunk |= {f"value:{name}": b.view[codes] for name, b in self._buffers.items()}
        self._forget_changes(reset=False)
        return chunk

    def _changed_codes(self) -> Codes:
        return np.unique(np.concatenate(self._touched)) if self._touched else np.empty(0, np.int64)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._buffers = {name: Buffer(b.view.dtype) for name, b in self._buffers.items()}
            self._size = 0
        self.grow(chunk["size"])
        for name, buffer in self._buffers.items():
            buffer.view[chunk["codes"]] = chunk[f"value:{name}"]
        self._forget_changes(reset=False)
