"""Rows on disk in order of time: read from the front as their time comes, page by page."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Times
from headrace.spill.store import SpillStore


class SortedRun:
    """Rows that were spilled together, sorted by their first column, the time; taken from the front."""

    def __init__(self, rows: pa.RecordBatch, spill_store: SpillStore) -> None:
        times: Times = rows.column(0).to_numpy()
        self.first, self.last = int(times[0]), int(times[-1])
        self._spill_store = spill_store
        self.handle = spill_store.put(rows)
        self._taken = 0

    def __len__(self) -> int:
        return self.handle.rows - self._taken

    def rest(self) -> pa.RecordBatch:
        """All rows not yet taken."""
        return self._spill_store.get(self.handle).slice(self._taken)

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
        return self.handle.bytes if self._spill_store.in_memory else 64

    def spilled_bytes(self) -> int:
        """Bytes on disk; 0 if the spill store is in memory."""
        return 0 if self._spill_store.in_memory else self.handle.bytes

    def drop(self) -> None:
        """Forget all rows."""
        self._spill_store.drop(self.handle)
