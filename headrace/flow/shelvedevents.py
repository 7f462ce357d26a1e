"""Events of the far future on a shelf: read from the front as their time comes, page by page."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.shelf import Shelf

Events = npt.NDArray[np.int64]


class ShelvedEvents:
    """Events in order of time that were put away together; those before `taken` have happened."""

    def __init__(self, events: Events, shelf: Shelf) -> None:
        columns = [pa.array(np.ascontiguousarray(column)) for column in events.T]
        names = [str(i) for i in range(events.shape[1])]
        self._shelf = shelf
        self.handle = shelf.put(pa.RecordBatch.from_arrays(columns, names=names))
        self.first, self.last = int(events[0, 0]), int(events[-1, 0])
        self._taken = 0

    def __len__(self) -> int:
        return self.handle.rows - self._taken

    def column(self, column: int) -> Events:
        """One number of every event still to happen."""
        return self._read(column)[self._taken :]

    def _read(self, column: int) -> Events:
        values: Events = self._shelf.get(self.handle).column(column).to_numpy(zero_copy_only=True)
        return values

    def all(self) -> Events:
        """Every event still to happen, in memory."""
        return self._lines(self._taken, self.handle.rows)

    def _lines(self, begin: int, stop: int) -> Events:
        rows = self._shelf.get(self.handle).slice(begin, stop - begin)
        return np.stack([c.to_numpy(zero_copy_only=True) for c in rows.columns], axis=1)

    def take(self, until: int) -> Events:
        """Remove and return the events with time ≤ `until`."""
        stop = self._taken + int(np.searchsorted(self.column(0), until, side="right"))
        taken = self._lines(self._taken, stop)
        self._taken = stop
        if len(self):
            self.first = int(self._read(0)[stop])
        else:
            self.drop()
        return taken

    def bytes(self) -> int:
        """Bytes in memory."""
        return self.handle.bytes if self._shelf.in_memory else 64

    def drop(self) -> None:
        """Forget all events."""
        self._shelf.drop(self.handle)
