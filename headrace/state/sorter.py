"""Rows that wait until they can be emitted in order of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.flow.batch import Batch, Holdings, compacted, concat, sort_by_start
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_TIMES = ("end", "sign", "arrival")


class Sorter:
    """A priority queue of rows by start; rows with equal starts keep their order.

    It keeps sorted runs and merges those of similar size, so a row is moved at most log n times.
    """

    def __init__(self) -> None:
        self._runs: list[Batch] = []
        self._taken_to = MIN_TIME
        self._added: list[Batch] | None = None

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, batch: Batch) -> None:
        """Add rows in any order."""
        if not len(batch):
            return
        self._remember(batch)
        self._runs.append(sort_by_start(batch))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            newer = self._runs.pop()
            self._runs[-1] = sort_by_start(concat([self._runs[-1], newer]))

    def _remember(self, batch: Batch) -> None:
        """Note what the next snapshot writes; if that is more than all rows held, it writes these."""
        if self._added is None:
            return
        self._added.append(batch)
        if sum(len(b) for b in self._added) > 2 * len(self) + 1024:
            self._added = None

    def next(self) -> int:
        """The earliest start, or MAX_TIME."""
        return min((run.first for run in self._runs), default=MAX_TIME)

    def last(self, punctuation: Punctuation) -> int:
        """The latest start of the rows that match a punctuation, or MIN_TIME."""
        spoken_of = ((run, np.flatnonzero(punctuation.matches(run.start, run.data))) for run in self._runs)
        return max((int(run.start[rows[-1]]) for run, rows in spoken_of if len(rows)), default=MIN_TIME)

    def take(self, until: int) -> Batch | None:
        """Remove and return the rows that start at or before `until`, in order."""
        self._taken_to = max(self._taken_to, until)
        pieces: list[Batch] = []
        rest: list[Batch] = []
        for run in self._runs:
            cut = int(np.searchsorted(run.start, until, side="right"))
            if cut:
                pieces.append(run.slice(0, cut))
            if cut < len(run):
                rest.append(run.slice(cut, len(run)))
        self._runs = rest
        return sort_by_start(concat(pieces)) if pieces else None

    def batches_held(self) -> list[Batch]:
        """The rows that wait, those that came first before those of the same time that came later."""
        return list(self._runs)

    def batches(self) -> list[Batch]:
        """The rows held, also for a snapshot."""
        return [*self._runs, *(self._added or ())]

    def bytes(self) -> int:
        return Holdings().add(self.batches())

    def log_bytes(self) -> int:
        """Bytes kept for the next snapshot."""
        return sum(batch.bytes() for batch in self._added or ())

    def release(self) -> None:
        """Copy the waiting rows, so that the batches they were cut from can be freed."""
        self._runs = [compacted(run) for run in self._runs]

    def changes(self, full: bool) -> Mapping[str, Any]:
        whole = full or self._added is None
        parts = self._runs if whole else self._added or []
        chunk: dict[str, Any] = {"reset": whole, "taken": self._taken_to, "rows": 0}
        held = [p.filter(p.start > self._taken_to) for p in parts]
        held = [p for p in held if len(p)]
        if held:
            rows = concat(held)
            chunk |= {"rows": len(rows), "data": rows.data, "start": rows.start}
            chunk |= {name: getattr(rows, name) for name in _TIMES if getattr(rows, name) is not None}
        self._added = []
        return chunk

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._runs = []
        if chunk["rows"]:
            times = {name: chunk.get(name) for name in _TIMES}
            self.add(Batch(chunk["data"], chunk["start"], **times))
        self.take(chunk["taken"])
        self._added = []
