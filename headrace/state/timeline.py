"""Future events: a priority queue over time, for arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Events
from headrace.errors import SpillError
from headrace.flow.batch import order_of
from headrace.spill.sorted_run import SortedRun
from headrace.spill.store import MemorySpillStore, SpillStore
from headrace.time.timestamp import MAX_TIME, MIN_TIME


class Timeline:
    """Events (time, payload …) as int64 rows, taken in order of time; equal times in any order.

    A list of runs, each sorted by time. New events that come after the end of a run extend it, which is the
    common case for fixed windows; others start a new run, and runs of similar size are merged, so an event is
    moved at most log n times. Events at MAX_TIME never happen and are not kept. Events in the far future may
    be spilled until their time comes.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._runs: list[_Run] = []
        self._taken_to = MIN_TIME
        self._added: list[Events] = []
        self._new = 0
        self._reset = True
        self._count = 0
        self.spill_store: SpillStore = MemorySpillStore()
        self._spilled: list[SortedRun] = []

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
        """Note what the next snapshot writes; if that is more than all events held, it writes these."""
        if self._reset:
            return
        self._added.append(events)
        self._new += len(events)
        if self._new > self._count + 1024:
            self._forget_changes(reset=True)

    def _forget_changes(self, reset: bool) -> None:
        self._added, self._new, self._reset = [], 0, reset

    def _place(self, events: Events) -> None:
        """Append sorted events to a run that ends before them, or start a run and merge small ones."""
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
        return min([first, *(sorted_run.first for sorted_run in self._spilled)]) if self._spilled else first

    def take(self, until: int) -> Events:
        """Remove and return the events with time ≤ `until`, in order."""
        self._taken_to = max(self._taken_to, until)
        pieces = [piece for run in self._runs if len(piece := run.take(until))]
        self._runs = [run for run in self._runs if len(run)]
        if self._spilled:
            pieces += [
                _lines(sorted_run.take(until)) for sorted_run in self._spilled if sorted_run.first <= until
            ]
            self._spilled = [sorted_run for sorted_run in self._spilled if len(sorted_run)]
        taken = _merge(pieces) if pieces else np.empty((0, self.width), np.int64)
        self._count -= len(taken)
        return taken

    def remap(self, column: int, new: npt.NDArray[np.int64]) -> None:
        """Replace payload `column` by `new[value]`, after codes were compacted."""
        for run in self._runs:
            run.view[:, column] = new[run.view[:, column]]
        self._rewrite(column, new)
        self._forget_changes(reset=True)

    def _rewrite(self, column: int, new: npt.NDArray[np.int64]) -> None:
        """Rewrite spilled events; if that fails, load them into memory."""
        spilled, self._spilled = self._spilled, []
        for old in spilled:
            events = _lines(old.rest())
            events[:, column] = new[events[:, column]]
            self._put_back(events)
            old.drop()

    def rewrite(self, change: Callable[[Events], Events]) -> None:
        """Replace the events in memory by others, which `change` returns in order of time."""
        held = [run.view for run in self._runs]
        if held:
            events = change(_merge(held))
            self._count += len(events) - sum(map(len, held))
            self._runs = [_Run(events)] if len(events) else []
        self._forget_changes(reset=True)

    def widen(self, width: int) -> None:
        """Give all events more columns, of zeros."""
        more = width - self.width
        self._runs = [_Run(_padded(run.view, more)) for run in self._runs]
        spilled, self._spilled = self._spilled, []
        for old in spilled:
            self._put_back(_padded(_lines(old.rest()), more))
            old.drop()
        self.width = width
        self._forget_changes(reset=True)

    def _put_back(self, events: Events) -> None:
        """Spill events that were spilled before; if that fails, load them into memory."""
        try:
            self._spilled.append(SortedRun(_batch(events), self.spill_store))
        except SpillError:
            self._place(events)

    def discard(self, column: int, value: int) -> None:
        """Drop the events in memory whose payload `column` is `value`: they would have no effect."""
        kept = [run.view[run.view[:, column] != value] for run in self._runs]
        self._count -= sum(len(run) for run in self._runs) - sum(map(len, kept))
        self._runs = [_Run(events) for events in kept if len(events)]
        self._forget_changes(reset=True)

    def values(self, column: int) -> Events:
        """One payload column of all pending events, in any order."""
        pending = [run.view[:, column] for run in self._runs]
        pending += [sorted_run.rest().column(column).to_numpy() for sorted_run in self._spilled]
        return np.concatenate(pending) if pending else np.empty(0, np.int64)

    # ------------------------------------------------------------------------------------------- spilling

    def spill(self, bytes: int) -> None:
        """Spill the events that are furthest in the future."""
        before = self.bytes()
        held = sum(len(run) for run in self._runs)
        if not held:
            return
        share = max(bytes, tuning.current.spill_file_bytes, before // 4) / before
        keep = 0 if share > 0.75 else held - max(1, int(share * held))
        self._spilled.append(SortedRun(_batch(self.furthest(keep)), self.spill_store))
        self._count += held - keep
        self.cut(keep)

    def furthest(self, keep: int) -> Events:
        """The events in memory, without the first `keep`."""
        return _merge([run.view for run in self._runs])[keep:]

    def cut(self, keep: int) -> None:
        """Keep only the first `keep` events in memory."""
        events = _merge([run.view for run in self._runs])
        self._count -= len(events) - keep
        self._runs = [_Run(events[:keep])] if keep else []

    def spilled_bytes(self) -> int:
        return sum(sorted_run.spilled_bytes() for sorted_run in self._spilled)

    # --------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        spilled = sum(sorted_run.bytes() for sorted_run in self._spilled)
        return sum(run.bytes() for run in self._runs) + spilled + self.log_bytes()

    def log_bytes(self) -> int:
        """Bytes kept for the next snapshot."""
        return 8 * self.width * self._new

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        return sum(run.bytes() - 8 * self.width * len(run) for run in self._runs)

    def release(self) -> None:
        """Free spare room."""
        for run in self._runs:
            run.release()

    def changes(self, full: bool) -> Mapping[str, Any]:
        whole = full or self._reset
        parts = [run.view for run in self._runs] if whole else self._added
        parts = [*parts, *(_lines(sorted_run.rest()) for sorted_run in self._spilled)] if whole else parts
        pending = [p[p[:, 0] > self._taken_to] for p in parts]
        events = np.concatenate(pending) if pending else np.empty((0, self.width), np.int64)
        self._forget_changes(reset=False)
        return {"reset": whole, "taken": self._taken_to, "events": events}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._runs, self._count = [], 0
            for sorted_run in self._spilled:
                sorted_run.drop()
            self._spilled = []
        self.add(chunk["events"])
        self.take(chunk["taken"])
        self._forget_changes(reset=False)


class _Run:
    """Events in order of time, taken from the front; shrinks when seven eighths of the space are dead."""

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
        """Append events; the array grows by a third when it is full."""
        if self._tail + len(events) > len(self._array):
            live = len(self)
            room = np.empty((max(64, 4 * (live + len(events)) // 3), self._array.shape[1]), np.int64)
            room[:live] = self.view
            self._array, self._head, self._tail = room, 0, live
        self._array[self._tail : self._tail + len(events)] = events
        self._tail += len(events)

    def take(self, until: int) -> Events:
        """Remove and return the events up to `until`; shrink an array that is almost empty."""
        count = int(np.searchsorted(self.view[:, 0], until, side="right"))
        taken = self.view[:count]
        self._head += count
        if len(self._array) > tuning.current.shrink_above and 8 * len(self) < len(self._array):
            self._array, self._head, self._tail = self.view.copy(), 0, len(self)
        return taken

    def release(self) -> None:
        """Free spare room, unless there is little of it."""
        if 8 * len(self._array) > 9 * len(self) + 512:
            self._array, self._head, self._tail = self.view.copy(), 0, len(self)

    def bytes(self) -> int:
        return int(self._array.nbytes)


def _padded(events: Events, columns: int) -> Events:
    """The events with more columns, of zeros."""
    return np.hstack([events, np.zeros((len(events), columns), np.int64)])


def _batch(events: Events) -> pa.RecordBatch:
    """Events as a batch, to spill them."""
    columns = [pa.array(np.ascontiguousarray(column)) for column in events.T]
    return pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])


def _lines(rows: pa.RecordBatch) -> Events:
    """Events from a spilled batch."""
    return np.stack([column.to_numpy() for column in rows.columns], axis=1)


def _merge(pieces: list[Events]) -> Events:
    """The events of several sorted arrays in order of time."""
    if len(pieces) == 1:
        return pieces[0]
    events = np.concatenate(pieces)
    return events[order_of(events[:, 0])]
