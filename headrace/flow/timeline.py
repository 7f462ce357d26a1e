"""Events that are still to happen: a priority queue over time, for arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import SpillError
from headrace.flow.scroll import Scroll
from headrace.flow.shelf import Held, Shelf
from headrace.flow.sorting import order_of
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Times = npt.NDArray[np.int64]
Events = npt.NDArray[np.int64]

_SMALL = 4096
_WORTH = 1 << 20
"""Bytes below which a file is not worth while."""


class Timeline:
    """Events (time, payload …) as int64 rows, taken out in order of time; equal times in no set order.

    A list of runs, each sorted by time. New events that come in order after a run extend it, the common
    case of fixed windows; others start a run of their own, and runs of like size are merged, so an event is
    moved at most log n times. Events at MAX_TIME never happen and are not kept. Those of the far future may
    be put on a shelf until their time comes.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._runs: list[_Run] = []
        self._taken_to = MIN_TIME
        self._added: list[Events] = []
        self._new = 0
        self._reset = True
        self._count = 0
        self.shelf: Shelf = Held()
        self._shelved: list[Scroll] = []

    def __len__(self) -> int:
        return self._count

    def add(self, events: Events) -> None:
        """Add events, an array of shape (n, width) whose first column is the time."""
        times = events[:, 0]
        if len(times) and times.max() == MAX_TIME:
            events = events[times < MAX_TIME]
            times = events[:, 0]
        if len(events) == 0:
            return
        if not bool(np.all(times[:-1] <= times[1:])):
            events = events[order_of(times)]
        self._count += len(events)
        self._remember(events)
        self._place(events)

    def _remember(self, events: Events) -> None:
        """Note what a snapshot must write; once that is more than what is held, it writes what is held."""
        if self._reset:
            return
        self._added.append(events)
        self._new += len(events)
        if self._new > self._count + 1024:
            self._forget_changes(reset=True)

    def _forget_changes(self, reset: bool) -> None:
        self._added, self._new, self._reset = [], 0, reset

    def _place(self, events: Events) -> None:
        for run in reversed(self._runs):
            if run.last <= events[0, 0]:
                run.extend(events)
                return
        self._runs.append(_Run(events))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            newer = self._runs.pop()
            self._runs[-1] = _Run(_merge([self._runs[-1].view, newer.view]))

    def next(self) -> int:
        """The time of the earliest event, or MAX_TIME."""
        first = min((run.first for run in self._runs), default=MAX_TIME)
        return min([first, *(scroll.first for scroll in self._shelved)]) if self._shelved else first

    def take(self, until: int) -> Events:
        """Remove and return the events with time ≤ `until`, in order."""
        self._taken_to = max(self._taken_to, until)
        pieces = [piece for run in self._runs if len(piece := run.take(until))]
        self._runs = [run for run in self._runs if len(run)]
        if self._shelved:
            pieces += [_lines(scroll.take(until)) for scroll in self._shelved if scroll.first <= until]
            self._shelved = [scroll for scroll in self._shelved if len(scroll)]
        taken = _merge(pieces) if pieces else np.empty((0, self.width), np.int64)
        self._count -= len(taken)
        return taken

    def remap(self, column: int, new: npt.NDArray[np.int64]) -> None:
        """Replace payload `column` by `new[value]`, when codes were compacted."""
        for run in self._runs:
            run.view[:, column] = new[run.view[:, column]]
        self._rewrite(column, new)
        self._forget_changes(reset=True)

    def _rewrite(self, column: int, new: npt.NDArray[np.int64]) -> None:
        """What is on the shelf is written anew; where that cannot be, it comes back."""
        shelved, self._shelved = self._shelved, []
        for old in shelved:
            events = _lines(old.rest())
            events[:, column] = new[events[:, column]]
            try:
                self._shelved.append(Scroll(_batch(events), self.shelf))
            except SpillError:
                self._place(events)
            old.drop()

    def values(self, column: int) -> Events:
        """One payload of every pending event, in no set order."""
        pending = [run.view[:, column] for run in self._runs]
        pending += [scroll.rest().column(column).to_numpy() for scroll in self._shelved]
        return np.concatenate(pending) if pending else np.empty(0, np.int64)

    # ------------------------------------------------------------------------------------------- spilling

    def spill(self, bytes: int) -> None:
        """Put away the events that are furthest off."""
        before = self.bytes()
        held = sum(len(run) for run in self._runs)
        if not held:
            return
        share = max(bytes, _WORTH, before // 4) / before
        keep = 0 if share > 0.75 else held - max(1, int(share * held))
        self._shelved.append(Scroll(_batch(self.furthest(keep)), self.shelf))
        self._count += held - keep
        self.cut(keep)

    def furthest(self, keep: int) -> Events:
        """The events in memory but for the first `keep`."""
        return _merge([run.view for run in self._runs])[keep:]

    def cut(self, keep: int) -> None:
        """Have only the first `keep` events in memory."""
        events = _merge([run.view for run in self._runs])
        self._count -= len(events) - keep
        self._runs = [_Run(events[:keep])] if keep else []

    def spilled_bytes(self) -> int:
        return sum(scroll.spilled_bytes() for scroll in self._shelved)

    # --------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        shelved = sum(scroll.bytes() for scroll in self._shelved)
        return sum(run.bytes() for run in self._runs) + shelved + self.log_bytes()

    def log_bytes(self) -> int:
        """Bytes that are kept for the next snapshot."""
        return 8 * self.width * self._new

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        return sum(run.bytes() - 8 * self.width * len(run) for run in self._runs)

    def release(self) -> None:
        """Give spare room back."""
        for run in self._runs:
            run.release()

    def changes(self, full: bool) -> Mapping[str, Any]:
        whole = full or self._reset
        parts = [run.view for run in self._runs] if whole else self._added
        parts = [*parts, *(_lines(scroll.rest()) for scroll in self._shelved)] if whole else parts
        pending = [p[p[:, 0] > self._taken_to] for p in parts]
        events = np.concatenate(pending) if pending else np.empty((0, self.width), np.int64)
        self._forget_changes(reset=False)
        return {"reset": whole, "taken": self._taken_to, "events": events}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._runs, self._count = [], 0
            for scroll in self._shelved:
                scroll.drop()
            self._shelved = []
        self.add(chunk["events"])
        self.take(chunk["taken"])
        self._forget_changes(reset=False)


class _Run:
    """Events in order of time, taken from the front; space that is seven eighths dead is given back."""

    __slots__ = ("_array", "_head", "_tail")

    def __init__(self, events: Events) -> None:
        self._array = events.copy()
        self._head = 0
        self._tail = len(events)

    def __len__(self) -> int:
        return self._tail - self._head

    @property
    def view(self) -> Events:
        return self._array[self._head : self._tail]

    @property
    def first(self) -> int:
        return int(self._array[self._head, 0])

    @property
    def last(self) -> int:
        return int(self._array[self._tail - 1, 0])

    def extend(self, events: Events) -> None:
        if self._tail + len(events) > len(self._array):
            live = len(self)
            room = np.empty((max(64, 4 * (live + len(events)) // 3), self._array.shape[1]), np.int64)
            room[:live] = self.view
            self._array, self._head, self._tail = room, 0, live
        self._array[self._tail : self._tail + len(events)] = events
        self._tail += len(events)

    def take(self, until: int) -> Events:
        count = int(np.searchsorted(self.view[:, 0], until, side="right"))
        taken = self.view[:count]
        self._head += count
        if len(self._array) > _SMALL and 8 * len(self) < len(self._array):
            self._array, self._head, self._tail = self.view.copy(), 0, len(self)
        return taken

    def release(self) -> None:
        if 8 * len(self._array) > 9 * len(self) + 512:
            self._array, self._head, self._tail = self.view.copy(), 0, len(self)

    def bytes(self) -> int:
        return int(self._array.nbytes)


def _batch(events: Events) -> pa.RecordBatch:
    """Events as they go on a shelf."""
    columns = [pa.array(np.ascontiguousarray(column)) for column in events.T]
    return pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])


def _lines(rows: pa.RecordBatch) -> Events:
    """Events that were on a shelf."""
    return np.stack([column.to_numpy() for column in rows.columns], axis=1)


def _merge(pieces: list[Events]) -> Events:
    if len(pieces) == 1:
        return pieces[0]
    events = np.concatenate(pieces)
    return events[order_of(events[:, 0])]
