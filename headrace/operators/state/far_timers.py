"""Rows that end in the far future, on disk: a row without a nearer end need not be held in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Events
from headrace.kernels.hashing import EMPTY
from headrace.spill.sorted_run import SortedRun
from headrace.spill.store import MemorySpillStore, SpillStore
from headrace.state.key_index import GroupIndex
from headrace.state.timeline import Timeline
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_OWN = 2
"""Columns of a sorted run before those of the content: time, delta."""


class Holder(Protocol):
    """The object that holds the contents and the ends in memory."""

    contents: GroupIndex
    ends: Timeline

    def drop_idle(self) -> None:
        """Forget contents that have no end in memory."""
        ...


class FarTimers:
    """Events (time, content, delta) without codes; contents get a code when their time comes."""

    def __init__(self, holder: Holder) -> None:
        self.spill_store: SpillStore = MemorySpillStore()
        self._holder = holder
        self._scrolls: dict[int, SortedRun] = {}
        self._next = self._marked = 0
        self._taken_to = MIN_TIME

    def __bool__(self) -> bool:
        return bool(self._scrolls)

    def next(self) -> int:
        """The time of the earliest event, or MAX_TIME."""
        return min((sorted_run.first for sorted_run in self._scrolls.values()), default=MAX_TIME)

    def take(self, until: int) -> Events:
        """Remove and return the events with time ≤ `until`, in any order, with codes."""
        self._taken_to = max(self._taken_to, until)
        found = []
        for serial, sorted_run in list(self._scrolls.items()):
            if sorted_run.first <= until:
                found.append(self._events(sorted_run.take(until)))
                if not len(sorted_run):
                    del self._scrolls[serial]
        return np.concatenate(found) if found else np.empty((0, 3), np.int64)

    def _events(self, rows: pa.RecordBatch) -> Events:
        """The events of rows that were read from disk, with codes for their contents."""
        codes = self._holder.contents.codes(rows.columns[_OWN:], rows.num_rows)
        return np.stack([rows.column(0).to_numpy(), codes, rows.column(1).to_numpy()], axis=1)

    def speaks_of(self, punctuation: Punctuation) -> bool:
        """Whether a punctuation matches some content on disk. Reads all contents on disk."""
        schema = self._holder.contents.keys.schema
        for sorted_run in self._scrolls.values():
            rows = pa.RecordBatch.from_arrays(sorted_run.rest().columns[_OWN:], schema=schema)
            if punctuation.matches(np.full(rows.num_rows, MIN_TIME, np.int64), rows).any():
                return True
        return False

    # ----------------------------------------------------------------------------------------- spilling

    def spill(self, bytes: int) -> None:
        """Spill the latest ends, and the contents that have no other."""
        ends, contents = self._holder.ends, self._holder.contents
        if not len(contents) or not len(contents.keys.schema):
            return
        if len(ends):
            self._put_away(bytes)
        self._holder.drop_idle()

    def _put_away(self, bytes: int) -> None:
        """Write about this many bytes of the latest ends to disk, with their contents."""
        before, ends = self._held(), self._holder.ends
        share = max(bytes, tuning.current.spill_file_bytes, before // 4) / before
        keep = 0 if share > 0.75 else len(ends) - max(1, int(share * len(ends)))
        events = ends.furthest(keep)
        events = events[events[:, 1] != EMPTY]  # the content is forgotten: its end no longer counts
        contents = self._holder.contents.keys.take(events[:, 1])
        columns = [pa.array(events[:, 0].copy()), pa.array(events[:, 2].copy()), *contents]
        names = [str(i) for i in range(len(columns))]
        self._keep(self._next, pa.RecordBatch.from_arrays(columns, names=names))
        ends.cut(keep)

    def _keep(self, serial: int, rows: pa.RecordBatch) -> None:
        """Store rows as a sorted run under a serial number."""
        if rows.num_rows:
            self._scrolls[serial] = SortedRun(rows, self.spill_store)
        self._next = max(self._next, serial + 1)

    def _held(self) -> int:
        return self._holder.ends.bytes() + self._holder.contents.bytes() + self.bytes()

    def spilled_bytes(self) -> int:
        return sum(sorted_run.spilled_bytes() for sorted_run in self._scrolls.values())

    # -------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        return sum(sorted_run.bytes() for sorted_run in self._scrolls.values())

    def changes(self, full: bool) -> Mapping[str, Any]:
        chunk: dict[str, Any] = {"taken": self._taken_to}
        chunk["far"] = np.array(list(self._scrolls), np.int64)
        for serial, sorted_run in self._scrolls.items():
            if full or serial >= self._marked:
                chunk[f"far:{serial}"] = sorted_run.rest()
        self._marked = self._next
        return chunk

    def apply(self, chunk: Mapping[str, Any]) -> None:
        serials = chunk["far"].tolist()
        for serial in [s for s in self._scrolls if s not in serials or f"far:{s}" in chunk]:
            self._scrolls.pop(serial).drop()
        for serial in serials:
            if f"far:{serial}" in chunk:
                self._keep(serial, chunk[f"far:{serial}"])
            elif self._scrolls[serial].first <= chunk["taken"]:
                self._scrolls[serial].take(chunk["taken"])
        self._taken_to = chunk["taken"]
        self._marked = self._next
