"""A side of a join whose rows are in the answer, or not, while they have no partner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ids, Mask, Words
from headrace.flow.batch import Batch
from headrace.kernels.join import END, NEXT, START, WORD
from headrace.kernels.partners import ARMED, COVER, SLOT, WIDTH, follow, settle
from headrace.operators.state.join_side import Buckets, JoinSide
from headrace.schema import Schema
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer
from headrace.state.timeline import Timeline
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Lines = npt.NDArray[np.int64]


class FollowedSide(JoinSide):
    """Rows with their marks (`headrace.kernels.partners`), and timers for when partners end.

    Its rows are not spilled, because partners change their marks; their columns can move to mapped files.
    `semi`: a row is in the answer while it has a partner; otherwise while it has none.
    """

    def __init__(
        self,
        schema: Schema,
        keys: Sequence[str],
        buckets: Buckets,
        null_safe: tuple[int, ...] = (),
        *,
        semi: bool = False,
    ) -> None:
        super().__init__(schema, keys, buckets, null_safe)
        self._semi = semi
        self._marks = Buffer(np.int64, WIDTH)
        self._timers = Timeline(2)
        self._stale = False
        self._touched: list[Ids] = []
        self._told = 0
        self.has_withdrawals = False
        """Whether some row may be a withdrawal."""

    @property
    def marks(self) -> Lines:
        """The marks of the rows held, starting with `rows.base`."""
        return self._marks.view

    def add(self, batch: Batch, words: Words) -> Ids:
        lines = self._marks.extend(len(batch))
        lines[:] = 0
        lines[:, COVER], lines[:, ARMED], lines[:, SLOT] = batch.start, MAX_TIME, -1
        self.has_withdrawals = self.has_withdrawals or batch.sign is not None
        return super().add(batch, words)

    def next_end(self) -> int:
        """The earliest instant at which a row may lose its last partner."""
        self._rebuild_if_stale()
        return self._timers.next()

    # ----------------------------------------------------------------------------------------- following

    def follow(self, ids: Ids, times: Ids, ends: Ids, signs: Ids) -> tuple[Lines, Ids]:
        """Apply partners that come or are withdrawn, in order of time, comings first.

        Returns the changes of the answer, and the positions of events that need `follow_again`.
        """
        self._touch(ids)
        deferred = np.zeros(len(ids), np.bool_)
        none = np.empty(0, np.int64)
        changes = self._follow(ids, times, ends, signs, deferred, none, np.empty((0, 3), np.int64), none)
        return changes, np.flatnonzero(deferred)

    def follow_again(self, ids: Ids, times: Ids, ends: Ids, signs: Ids, rows: Ids, held: Lines) -> Lines:
        """Apply the events that were left over; `held` are lines (id, end, start, sign) of all partners.

        `rows` are the ids of the rows that need them, as `deferred_rows` returned them.
        """
        slots = self.marks[held[:, 0] - self.rows.base, SLOT]
        order = np.lexsort((-held[:, 1], slots))
        begins = np.searchsorted(slots[order], np.arange(len(rows) + 1))
        lines = np.ascontiguousarray(held[order, 1:])
        seen = np.full(len(rows), MIN_TIME, np.int64)
        changes = self._follow(ids, times, ends, signs, np.zeros(len(ids), np.bool_), begins, lines, seen)
        self.marks[rows - self.rows.base, SLOT] = -1
        return changes

    def deferred_rows(self, ids: Ids) -> Ids:
        """The rows of deferred events, in the order of their slots."""
        rows = np.unique(ids)
        return rows[np.argsort(self.marks[rows - self.rows.base, SLOT])]

    def _follow(
        self,
        ids: Ids,
        times: Ids,
        ends: Ids,
        signs: Ids,
        deferred: Mask,
        begins: Ids,
        held: Lines,
        seen: Ids,
    ) -> Lines:
        out = np.empty((2 * len(ids), 3), np.int64)
        rows = ids - self.rows.base
        lists = (deferred, begins, held, seen)
        filled = follow(self.links, self.marks, rows, times, ends, signs, *lists, self._semi, out)
        return out[:filled]

    def settle(self, first: int, ids: Ids, frontier: int) -> Lines:
        """Decide about the rows from id `first` on, about `ids`, and about rows whose partners have ended."""
        self._rebuild_if_stale()
        fired = self._timers.take(frontier)[:, 1]
        fired = fired[fired >= self.rows.base] - self.rows.base
        fired = fired[self.links[fired, END] > MIN_TIME]
        self.marks[fired, ARMED] = MAX_TIME
        self._touch(fired + self.rows.base)
        rows = np.concatenate([np.arange(first, self.rows.next), ids]) - self.rows.base
        rows = np.concatenate([rows, fired])
        out, timers = np.empty((len(rows), 3), np.int64), np.empty((len(rows), 2), np.int64)
        filled, armed = settle(self.links, self.marks, rows, frontier, self._semi, out, timers)
        timers = timers[:armed]
        timers[:, 1] += self.rows.base
        self._timers.add(timers)
        return out[:filled]

    def changed(self, changes: Lines) -> tuple[Ids, Ids, Ids, npt.NDArray[np.int8]]:
        """The ids, starts, ends and signs of some changes of the answer."""
        rows = changes[:, 1]
        ends = self.links[rows, END]
        return rows + self.rows.base, changes[:, 0].copy(), ends, changes[:, 2].astype(np.int8)

    def row_signs(self, ids: Ids) -> Ids:
        """−1 for withdrawals, +1 for all other rows."""
        signs: Ids = 1 - 2 * (self.links[ids - self.rows.base, NEXT] & 1)
        return signs

    def intervals(self, ids: Ids) -> tuple[Words, Ids, Ids]:
        """The words, starts and ends of some rows."""
        lines = self.links[ids - self.rows.base]
        words, starts, ends = (np.ascontiguousarray(lines[:, i]) for i in (WORD, START, END))
        return words, starts, ends

    def _rebuild_if_stale(self) -> None:
        """Set the timers of all rows again, after rows got new ids or were restored."""
        if not self._stale:
            return
        self._stale, self._timers = False, Timeline(2)
        armed = np.flatnonzero((self.marks[:, ARMED] < MAX_TIME) & (self.links[:, END] > MIN_TIME))
        self._timers.add(np.stack([self.marks[armed, ARMED], armed + self.rows.base], axis=1))

    # --------------------------------------------------------------------------- rows that go, and memory

    def _drop(self, count: int) -> None:
        self._marks.drop(count)
        super()._drop(count)

    def keep(self, alive: Mask) -> None:
        self._marks.replace(self.marks[alive].copy())
        self._touched, self._told, self._stale = [], 0, True
        super().keep(alive)

    def release(self) -> None:
        super().release()
        self._marks.release()
        self._timers.release()

    def spill(self, bytes: int) -> None:
        """Rows stay in memory, where their marks change."""

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the columns of the rows into mapped files."""
        self.rows.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes of columns that are mapped from disk."""
        return self.rows.mapped_bytes()

    def bytes(self) -> int:
        return super().bytes() + self._marks.bytes() + self._timers.bytes()

    def spare_bytes(self) -> int:
        return super().spare_bytes() + self._marks.spare_bytes() + self._timers.spare_bytes()

    def own_bytes(self) -> int:
        return super().own_bytes() + 8 * WIDTH * len(self.rows) + 16 * len(self._timers)

    def log_bytes(self) -> int:
        return super().log_bytes() + 8 * self._told

    # ---------------------------------------------------------------------------------------- snapshots

    def _touch(self, ids: Ids) -> None:
        """Note rows whose marks may change, for the next snapshot."""
        if len(ids):
            self._touched.append(ids)
            self._told += len(ids)
        if self._told > 2 * len(self.rows) + 1024:
            self._touched = [self._distinct()]
            self._told = len(self._touched[0])

    def _distinct(self) -> Ids:
        """The ids of the rows that were touched and are still held, in order: by a mask, not by sorting."""
        mask = np.zeros(len(self.rows), np.bool_)
        for ids in self._touched:
            mask[ids[ids >= self.rows.base] - self.rows.base] = True
        return np.flatnonzero(mask) + self.rows.base

    def changes(self, full: bool) -> Mapping[str, Any]:
        chunk = dict(super().changes(full))
        begin = int(chunk["begin"])
        touched = self._distinct()
        touched = touched[touched < begin]
        chunk["marks"] = self.marks[begin - self.rows.base :].copy()
        chunk["touched"] = touched
        chunk["touched_marks"] = self.marks[touched - self.rows.base].copy()
        self._touched, self._told = [], 0
        return chunk

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._marks = Buffer(np.int64, WIDTH)
        super().apply(chunk)
        self._marks.append(chunk["marks"])
        self.marks[chunk["touched"] - self.rows.base] = chunk["touched_marks"]
        self._touched, self._told, self._stale = [], 0, True
        self.has_withdrawals = True
