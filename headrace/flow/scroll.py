"""Rows on a shelf in order of time: read from the front as their time comes, page by page."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.shelf import Shelf

Times = npt.NDArray[np.int64]


class Scroll:
    """Rows that were put away together, the first column their time; those already taken are over."""

    def __init__(self, rows: pa.RecordBatch, shelf: Shelf) -> None:
        times: Times = rows.column(0).to_numpy()
        self.first, self.last = int(times[0]), int(times[-1])
        self._shelf = shelf
        self.handle = shelf.put(rows)
        self._taken = 0

    def __len__(self) -> int:
        return self.handle.rows - self._taken

    def rest(self) -> pa.RecordBatch:
        """Every row still to come."""
        return self._shelf.get(self.handle).slice(self._taken)

    def take(self, until: int) -> pa.RecordBatch:
        """Remove and return the rows with time ≤ `until`."""
        rest = self.rest()
        times: Times = rest.column(0).to_numpy()
        count = int(np.searchsorted(times, until, side="right"))
        self._taken += count
        if len(self):
            self.first = int(times[count])
        else:
            self.drop()
        return rest.slice(0, count)

    def bytes(self) -> int:
        """Bytes in memory."""
        return self.handle.bytes if self._shelf.in_memory else 64

    def spilled_bytes(self) -> int:
        """Bytes on a shelf that is not memory."""
        return 0 if self._shelf.in_memory else self.handle.bytes

    def drop(self) -> None:
        """Forget all rows."""
        self._shelf.drop(self.handle)
