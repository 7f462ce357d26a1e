"""Panes of groups, and the windows that close over them.

A pane is the time between two edges of windows. What one group has in one pane is an *entry*; entries lie in
order of pane, linked within their group. A window that closes is a list of groups, each with its first and
last entry in the window; what keeps partial values makes the window's value of these two ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.flow.columns import Buffer
from headrace.kernels.aggregate_panes import assign_slots, link_entries, walk_windows
from headrace.kernels.hashing import EMPTY
from headrace.operators.accumulators.entries import Entries
from headrace.plan.windows import Sliding
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
CHUNK = 1 << 17
_WINDOWS = 1 << 12
_FAR = 2**61


@dataclass(frozen=True)
class Closing:
    """Windows that close together: output rows rows[w] … rows[w + 1] − 1 are those of window `windows[w]`.

    Each output row is a group `codes` with the positions of its first and last entry. `cuts[w]` is the first
    entry after the block edge in window w (`headrace.kernels.aggregate_blocks`).
    """

    windows: Ints
    rows: Ints
    cuts: Ints
    codes: Ints
    heads: Ints
    tails: Ints


@dataclass(frozen=True)
class Scan:
    """What must be scanned before windows close: blocks of entries, by the positions at which they begin.

    `begin` … `stop` − 1 have just been closed, in the blocks `open`; the blocks `done` are complete.
    """

    begin: int
    stop: int
    open: Ints
    done: Ints


class PaneLog:
    """The entries of all panes that a window still to come can hold. One pane, the last, is open."""

    def __init__(self, window: Sliding) -> None:
        self.entries = Entries()
        for name in ("code", "pane"):
            self.entries.add_column(name, np.int64)
        for name in ("back", "ahead"):
            self.entries.add_column(name, np.int64, kept=False)
        self.entries.on_restore = self._forget_derived
        self.spec = window
        self._slide, self._rest = window.slide, window.size % window.slide
        self.panes = 2 * (window.size // window.slide) + (1 if self._rest else 0)
        self._block = -(-window.size // window.slide)
        self._open_end = MIN_TIME
        self._latest = Buffer(np.int64)
        self._place = Buffer(np.int64)
        self._live: Ints = np.empty((0, 3), np.int64)
        self.window = -_FAR
        self._scratch = _Scratch(0)
        self._forget_derived()

    def _forget_derived(self) -> None:
        """Count nothing as entered, linked or scanned: all of it follows from the entries."""
        self._linked = False
        self._entered = self._left = self._scanned = self._complete = self.entries.base
        self._alive = 0

    def _link(self) -> None:
        """Link all entries anew, after a restore."""
        self._linked = True
        codes = self.entries["code"]
        for buffer in (self._latest, self._place):
            buffer.replace(np.full(int(codes.max(initial=-1)) + 1, EMPTY, np.int64))
        link_entries(codes, self.entries.base, self._latest.view, self.entries["back"])
        self._link_ahead(0)

    def _link_ahead(self, begin: int) -> None:
        back = self.entries["back"][begin:]
        linked = np.flatnonzero(back)
        self.entries["ahead"][begin + linked - back[linked]] = back[linked]

    # ------------------------------------------------------------------------------------------ rows in

    def take(self, times: Ints, codes: Ints, groups: int) -> Ints:
        """The position of each row's entry; `groups` is the number of codes so far."""
        if not self._linked:
            self._link()
        self._grow(groups)
        entries, size = self.entries, len(times)
        new = np.empty((3, size), np.int64)
        slots = np.empty(size, np.int64)
        state = [self._slide, self._rest, self._open_end, entries.settled, entries.base, entries.next]
        added, self._open_end, entries.settled = assign_slots(
            times, codes, np.array(state, np.int64), self._latest.view, slots, *new
        )
        self._append(new[:, :added])
        return slots

    def _append(self, new: Ints) -> None:
        begin, added = len(self.entries), new.shape[1]
        if added:
            self.entries.extend(added)
            for name, values in zip(("code", "pane", "back"), new, strict=True):
                self.entries[name][begin:] = values
            self._link_ahead(begin)

    def _grow(self, groups: int) -> None:
        for buffer in (self._latest, self._place):
            if len(buffer) < groups:
                buffer.extend(groups - len(buffer))[:] = EMPTY

    # -------------------------------------------------------------------------------------- windows out

    def due(self) -> int:
        """The instant at which the next window with rows is answered, or MAX_TIME."""
        panes = self.entries["pane"]
        at = int(np.searchsorted(panes, max(2 * self.window - self.panes, -_FAR)))
        if at == len(panes):
            return MAX_TIME
        return max(self.window, int(panes[at]) // 2 + 1) * self._slide - 1

    def close(self, frontier: int) -> tuple[Scan, Closing] | None:
        """Some of the windows answered at or before `frontier` that are not closed yet; None when all are.

        Costs the entries that enter and leave and the rows that come out; silence costs nothing.
        """
        due = self.due()
        if due > frontier or due == MAX_TIME:
            return None
        if not self._linked:
            self._link()
        last = int(self.entries["pane"][-1]) // 2 + 1 + self._block
        return self._walk(min((frontier + 1) // self._slide, last) + 1)

    def _walk(self, stop: int) -> tuple[Scan, Closing]:
        entries, base = self.entries, self.entries.base
        self._make_room()
        out = self._scratch
        state = [self.window, stop, self.panes, base, self._entered - base, self._left - base, self._alive]
        self.window, entered, left, self._alive, rows, closed = walk_windows(
            entries["code"],
            entries["pane"],
            entries["ahead"],
            self._live,
            self._place.view,
            np.array(state, np.int64),
            *out.rows,
            out.windows,
        )
        self._entered, self._left = base + entered, base + left
        windows = out.windows[:closed, 0].copy()
        offsets = np.append(out.windows[:closed, 1], rows)
        codes, heads, tails = (column[:rows].copy() for column in out.rows)
        return self._scan(), Closing(windows, offsets, self._cuts(windows), codes, heads, tails)

    def _make_room(self) -> None:
        groups = len(self._place)
        if len(self._live) < groups:
            bigger = np.empty((2 * groups, 3), np.int64)
            bigger[: self._alive] = self._live[: self._alive]
            self._live = bigger
        if self._scratch.room < max(CHUNK, groups):
            self._scratch = _Scratch(max(CHUNK, groups))

    def _cuts(self, windows: Ints) -> Ints:
        """Where the block edge lies in each window; a window that ends with its block is all before it."""
        blocks = (windows - 1) // self._block
        cuts = np.searchsorted(self.entries["pane"], 2 * self._block * blocks)
        return np.where(windows % self._block == 0, len(self.entries), cuts)

    def _scan(self) -> Scan:
        """The entries closed and the blocks completed since the last scan."""
        base, panes = self.entries.base, self.entries["pane"]
        begin, stop = self._scanned - base, self._entered - base
        first = self._block_begin(int(panes[begin])) if begin < stop else begin
        complete = (self.window - 1) // self._block
        done = min(int(np.searchsorted(panes, 2 * self._block * complete)), stop)
        scan = Scan(begin, stop, self._edges(first, stop), self._edges(self._complete - base, done))
        self._scanned, self._complete = self._entered, max(self._complete, base + done)
        return scan

    def _block_begin(self, pane: int) -> int:
        length = 2 * self._block
        return int(np.searchsorted(self.entries["pane"], pane // length * length))

    def _edges(self, begin: int, stop: int) -> Ints:
        if stop <= begin:
            return np.empty(0, np.int64)
        blocks = self.entries["pane"][begin:stop] // (2 * self._block)
        inner = np.flatnonzero(blocks[1:] != blocks[:-1]) + begin + 1
        return np.concatenate(([begin], inner, [stop]))

    def drop(self) -> None:
        """Forget the entries that no window to come can hold."""
        self.entries.drop_before(self._left)

    # ------------------------------------------------------------------------------------------- groups

    @property
    def groups(self) -> int:
        """How many codes there are places for."""
        return len(self._place)

    def held(self) -> Mask:
        """Which groups have an entry."""
        if not self._linked:
            self._link()
        held: Mask = np.asarray(self._latest.view >= self.entries.base)
        return held

    def remap(self, new: Ints, keep: Mask) -> None:
        """Give the groups new codes; those that are not kept have no entry."""
        size = min(len(keep), len(self._latest))
        for buffer in (self._latest, self._place):
            buffer.replace(buffer.view[keep[:size]].copy())
        self._live[: self._alive, 0] = new[self._live[: self._alive, 0]]
        self.entries.rewrite("code", new[self.entries["code"]])

    # --------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        """Bytes held."""
        return self.entries.bytes() + self._latest.bytes() + self._place.bytes() + int(self._live.nbytes)

    def changes(self, full: bool) -> Mapping[str, Any]:
        """The entries that changed, and where the log stands."""
        return {**self.entries.changes(full), "open_end": self._open_end, "window": self.window}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        """Take over what `changes` gave."""
        self._open_end, self.window = chunk["open_end"], chunk["window"]
        self.entries.apply(chunk)


class _Scratch:
    """Room for the output of one walk; not state."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.rows = [np.empty(room, np.int64) for _ in range(3)]
        self.windows = np.empty((_WINDOWS if room else 0, 2), np.int64)
