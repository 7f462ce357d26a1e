"""Ends of the far future on a shelf, each with its content: what has no other need not be held in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.groups import GroupIndex
from headrace.flow.scroll import Scroll
from headrace.flow.shelf import Held, Shelf
from headrace.flow.timeline import Timeline
from headrace.kernels.hashing import EMPTY
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Events = npt.NDArray[np.int64]
_OWN = 2
"""Columns of a scroll before those of the content: time, delta."""
_WORTH = 1 << 20
"""Bytes below which a file is not worth while."""


class Holder(Protocol):
    """Who holds the contents and the ends that are near."""

    contents: GroupIndex
    ends: Timeline

    def drop_idle(self) -> None:
        """Forget contents that have no end in memory."""
        ...


class FarEnds:
    """Events (time, content, delta) without codes: they get these when their time comes."""

    def __init__(self, holder: Holder) -> None:
        self.shelf: Shelf = Held()
        self._holder = holder
        self._scrolls: dict[int, Scroll] = {}
        self._next = self._marked = 0
        self._taken_to = MIN_TIME

    def __bool__(self) -> bool:
        return bool(self._scrolls)

    def next(self) -> int:
        """The time of the earliest event, or MAX_TIME."""
        return min((scroll.first for scroll in self._scrolls.values()), default=MAX_TIME)

    def take(self, until: int) -> Events:
        """Remove and return the events with time ≤ `until`, in no set order, with codes."""
        self._taken_to = max(self._taken_to, until)
        found = []
        for serial, scroll in list(self._scrolls.items()):
            if scroll.first <= until:
                found.append(self._events(scroll.take(until)))
                if not len(scroll):
                    del self._scrolls[serial]
        return np.concatenate(found) if found else np.empty((0, 3), np.int64)

    def _events(self, rows: pa.RecordBatch) -> Events:
        codes = self._holder.contents.codes(rows.columns[_OWN:], rows.num_rows)
        return np.stack([rows.column(0).to_numpy(), codes, rows.column(1).to_numpy()], axis=1)

    def speaks_of(self, punctuation: Punctuation) -> bool:
        """Whether a punctuation is on some content here. Costs a look at all."""
        schema = self._holder.contents.keys.schema
        for scroll in self._scrolls.values():
            rows = pa.RecordBatch.from_arrays(scroll.rest().columns[_OWN:], schema=schema)
            if punctuation.matches(np.full(rows.num_rows, MIN_TIME, np.int64), rows).any():
                return True
        return False

    # ----------------------------------------------------------------------------------------- spilling

    def spill(self, bytes: int) -> None:
        """Put the furthest ends away, and the contents that have no other."""
        ends, contents = self._holder.ends, self._holder.contents
        if not len(contents) or not len(contents.keys.schema):
            return
        if len(ends):
            self._put_away(bytes)
        self._holder.drop_idle()

    def _put_away(self, bytes: int) -> None:
        before, ends = self._held(), self._holder.ends
        share = max(bytes, _WORTH, before // 4) / before
        keep = 0 if share > 0.75 else len(ends) - max(1, int(share * len(ends)))
        events = ends.furthest(keep)
        events = events[events[:, 1] != EMPTY]  # the content is forgotten: its end no longer counts
        contents = self._holder.contents.keys.take(events[:, 1])
        columns = [pa.array(events[:, 0].copy()), pa.array(events[:, 2].copy()), *contents]
        names = [str(i) for i in range(len(columns))]
        self._keep(self._next, pa.RecordBatch.from_arrays(columns, names=names))
        ends.cut(keep)

    def _keep(self, serial: int, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._scrolls[serial] = Scroll(rows, self.shelf)
        self._next = max(self._next, serial + 1)

    def _held(self) -> int:
        return self._holder.ends.bytes() + self._holder.contents.bytes() + self.bytes()

    def spilled_bytes(self) -> int:
        return sum(scroll.spilled_bytes() for scroll in self._scrolls.values())

    # -------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        return sum(scroll.bytes() for scroll in self._scrolls.values())

    def changes(self, full: bool) -> Mapping[str, Any]:
        chunk: dict[str, Any] = {"taken": self._taken_to}
        chunk["far"] = np.array(list(self._scrolls), np.int64)
        for serial, scroll in self._scrolls.items():
            if full or serial >= self._marked:
                chunk[f"far:{serial}"] = scroll.rest()
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
