"""Arrays indexed by group code, which track the codes that changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.arrays import Codes, Mask
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer
from headrace.state.part import Chunk


class CodeTable:
    """Named arrays with one value, or one line of `width` values, per code; new codes get a fill value.

    Code that writes through `table[name]` calls `touch(codes)`; a snapshot writes the touched codes.
    """

    def __init__(self, **columns: tuple[npt.DTypeLike, Any] | tuple[npt.DTypeLike, Any, int]) -> None:
        self._fills = {name: column[1] for name, column in columns.items()}
        self._buffers = {name: Buffer(column[0], *column[2:]) for name, column in columns.items()}
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
        """Make room for at least `size` codes."""
        if size <= self._size:
            return
        for name, buffer in self._buffers.items():
            buffer.extend(size - self._size)[:] = self._fills[name]
        self._size = size

    def widen(self, name: str, width: int) -> None:
        """Extend lines to at least `width` values, with fill values at the end."""
        lines = self._buffers[name].view
        if lines.shape[1] < width:
            more = np.full((len(lines), width - lines.shape[1]), self._fills[name], lines.dtype)
            self._buffers[name].replace(np.hstack([lines, more]))

    def widened(self, name: str, width: int) -> npt.NDArray[Any]:
        """Like `table[name]`, with lines of at least `width` values."""
        self.widen(name, width)
        return self[name]

    def narrow(self, name: str, keep: Mask) -> None:
        """Keep some columns of the lines; the next snapshot writes everything."""
        self._buffers[name].replace(np.ascontiguousarray(self._buffers[name].view[:, keep]))
        self._forget_changes(reset=True)

    def touch(self, codes: Codes) -> None:
        """Note that the values of these codes changed; after too many changes, a snapshot writes all."""
        if self._reset:
            return
        self._touched.append(codes)
        self._touches += len(codes)
        if self._touches > 2 * self._size + 1024:
            self._forget_changes(reset=True)

    def _forget_changes(self, reset: bool) -> None:
        self._touched, self._touches, self._reset = [], 0, reset

    def keep(self, keep: Mask) -> None:
        """Keep only some codes, which are renumbered."""
        for buffer in self._buffers.values():
            buffer.replace(buffer.view[keep].copy())
        self._size = int(np.count_nonzero(keep))
        self._forget_changes(reset=True)

    def bytes(self) -> int:
        return sum(b.bytes() for b in self._buffers.values()) + self.log_bytes()

    def log_bytes(self) -> int:
        """Bytes kept for the next snapshot."""
        return 8 * self._touches

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        return sum(buffer.spare_bytes() for buffer in self._buffers.values())

    def release(self) -> None:
        """Free spare room."""
        for buffer in self._buffers.values():
            buffer.release()

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move all columns into mapped files of a spill store."""
        for buffer in self._buffers.values():
            buffer.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return sum(buffer.mapped_bytes() for buffer in self._buffers.values())

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
            widths = {name: chunk[f"value:{name}"].shape[1:] for name in self._buffers}
            self._buffers = {name: Buffer(b.view.dtype, *widths[name]) for name, b in self._buffers.items()}
            self._size = 0
        self.grow(chunk["size"])
        for name in self._buffers:
            values = chunk[f"value:{name}"]
            if values.ndim == 2:
                self.widen(name, values.shape[1])
            self[name][chunk["codes"]] = values
        self._forget_changes(reset=False)
