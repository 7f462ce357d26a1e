"""Panes that are still open, of rows in any order of time: a cell for each pane and group with rows in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace import tuning
from headrace.arrays import Ints, Times
from headrace.kernels.cells import find_cells, index_cells
from headrace.kernels.hashing import EMPTY
from headrace.plan.nodes.windows import Sliding
from headrace.spill.mapped_arrays import held
from headrace.spill.store import SpillStore
from headrace.state.code_table import CodeTable
from headrace.time.timestamp import MAX_TIME

_SMALL = 16


class OpenPanes:
    """A table with a line for each cell: its pane, its group and its partial values.

    A row costs one probe, whatever its time. Cells that are over have no group, and are dropped once they are
    a quarter of all. The size of the table is a power of two, as the kernels need. Which cell belongs to a
    pane and a group is derived from the table.
    """

    def __init__(self, window: Sliding, columns: Mapping[str, Any]) -> None:
        self.spec = window
        self._rest = window.size % window.slide
        fixed: dict[str, Any] = {"pane": (np.int64, 0), "code": (np.int64, EMPTY)}
        self.table = CodeTable(**fixed, **columns)
        self.next = 0
        self._over = 0
        self._stamp = 0
        self._least: int | None = None
        self._start_over()

    def _start_over(self) -> None:
        """Forget what is derived from the table."""
        self.table.grow(_SMALL)
        self._index = np.full(2 * len(self.table), EMPTY, np.int64)
        self._marks = np.zeros(len(self.table), np.int64)
        self._stale = True

    def __len__(self) -> int:
        """How many cells are open."""
        return self.next - self._over

    # ------------------------------------------------------------------------------------------ rows in

    def take(self, times: Times, codes: Ints) -> Ints:
        """The cell of each row."""
        self._rebuild_if_stale()
        self._stamp += 1
        size = len(times)
        cells, touched = np.empty((2, size), np.int64)
        window = [self.spec.slide, self._rest, self.spec.offset]
        begin, done, seen = self.next, 0, 0
        while True:
            state = [*window, self.next, len(self.table) - self.next, self._stamp]
            lines = (self.table["pane"], self.table["code"], self._marks)
            done, added, seen = find_cells(
                times, codes, np.array(state, np.int64), self._index, *lines, done, seen, cells, touched
            )
            self.next += added
            if done == size:
                break
            self._grow()
        self.table.touch(touched[:seen].copy())
        if self.next > begin:
            first = int(self.table["pane"][begin : self.next].min())
            self._least = first if self._least is None else min(first, self._least)
        return cells

    def _grow(self) -> None:
        """Make room for twice as many cells."""
        self.table.grow(2 * len(self.table))
        self._stale = True
        self._rebuild_if_stale()

    def _rebuild_if_stale(self) -> None:
        """Rebuild the index, after a restore or when cells have other codes."""
        if not self._stale:
            return
        self._stale = False
        self._index = np.full(2 * len(self.table), EMPTY, np.int64)
        index_cells(self._index, self.table["pane"], self.table["code"], self.next)
        marks = self._marks
        self._marks = np.zeros(len(self.table), np.int64)
        self._marks[: min(len(marks), len(self._marks))] = marks[: len(self._marks)]

    # ---------------------------------------------------------------------------------------- cells out

    @property
    def least(self) -> int | None:
        """The first pane that is open; None if there is none."""
        return self._least

    def over(self, frontier: int) -> Ints:
        """The open cells of panes that are over, in order of pane: no row at or before `frontier` comes."""
        if self._least is None:
            return np.empty(0, np.int64)
        limit = MAX_TIME if frontier == MAX_TIME else min(self.pane_of(frontier + 1), MAX_TIME)
        return self._before(limit) if self._least < limit else np.empty(0, np.int64)

    def _before(self, limit: int) -> Ints:
        """The open cells of panes before one, in order of pane."""
        pane, code = self.table["pane"][: self.next], self.table["code"][: self.next]
        found = np.flatnonzero((pane < limit) & (code != EMPTY))
        return found[np.argsort(pane[found], kind="stable")]

    def of_groups(self, codes: Ints) -> Ints:
        """The open cells of some groups, in order of pane."""
        found = np.flatnonzero(np.isin(self.table["code"][: self.next], codes[codes != EMPTY]))
        return found[np.argsort(self.table["pane"][found], kind="stable")]

    def codes(self) -> Ints:
        """The group of every open cell."""
        code = self.table["code"][: self.next]
        return np.asarray(code[code != EMPTY], np.int64)

    def close(self, cells: Ints) -> None:
        """Mark cells as over."""
        self.table["code"][cells] = EMPTY
        self.table.touch(cells)
        self._over += len(cells)
        self._find_least()

    def _find_least(self) -> None:
        """Find the first open pane."""
        code = self.table["code"][: self.next]
        panes = self.table["pane"][: self.next][code != EMPTY]
        self._least = int(panes.min()) if len(panes) else None

    # ------------------------------------------------------------------------------------------- panes

    def pane_of(self, time: int) -> int:
        """The number of the pane that holds a time, as in `headrace.kernels.cells`."""
        slide = self.spec.slide
        offset = (time - self.spec.offset) % slide
        return 2 * ((time - self.spec.offset) // slide) - (1 if offset < self._rest else 0)

    def starts(self, cells: Ints) -> Times:
        """When the panes of some cells begin."""
        panes = self.table["pane"][cells]
        begins = (panes + 1) // 2 * self.spec.slide + self.spec.offset
        return np.where(panes % 2 == 0, begins + self._rest, begins)

    # ------------------------------------------------------------------------------------------- state

    def is_due_to_forget(self) -> bool:
        """Whether enough cells are over."""
        return 4 * self._over > self.next + tuning.current.compact_after

    def forget(self) -> Ints:
        """Drop the cells that are over; returns the new cell for each old one, EMPTY if it is dropped."""
        keep = np.asarray(self.table["code"] != EMPTY)
        moved = np.where(keep, np.cumsum(keep) - 1, EMPTY)
        self.table.keep(keep)
        self.next, self._over = int(np.count_nonzero(keep)), 0
        self.table.grow(max(_SMALL, 1 << (self.next - 1).bit_length()))
        self._marks = np.zeros(0, np.int64)
        self._stale = True
        return moved

    def regroup(self, new: Ints) -> None:
        """Groups have new codes."""
        code = self.table["code"][: self.next]
        there = np.flatnonzero(code != EMPTY)
        code[there] = new[code[there]]
        self.table.touch(there)
        self._stale = True

    def bytes(self) -> int:
        """Bytes held."""
        return self.table.bytes() + held(self._index) + held(self._marks)

    def log_bytes(self) -> int:
        """Bytes kept for the next snapshot."""
        return self.table.log_bytes()

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the table into mapped files of a spill store."""
        self.table.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return self.table.mapped_bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        """What changed since the last call."""
        return {**self.table.changes(full), "next": self.next, "over": self._over}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        """Take over what `changes` gave."""
        self.table.apply(chunk)
        self.next, self._over = chunk["next"], chunk["over"]
        self._start_over()
        self._find_least()
