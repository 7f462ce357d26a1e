"""Panes of groups, and the windows that close over them.

A pane is the time between two edges of windows. The data of one group in one pane is an *entry*; entries are
in order of pane, linked within their group. A window that closes is a list of groups, each with its first and
last entry in the window; the partial values of a window are computed from these two ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace import tuning
from headrace.aggregates.panes.entries import Entries
from headrace.arrays import Ints, Mask
from headrace.kernels.aggregate_panes import assign_slots, link_ahead, link_back, walk_windows
from headrace.kernels.hashing import EMPTY
from headrace.plan.nodes.windows import Sliding
from headrace.spill.mapped_arrays import held, mapped_bytes, moved
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_FAR = 2**61


@dataclass(frozen=True)
class Closing:
    """Windows that close together: output rows rows[w] … rows[w + 1] − 1 are those of window `windows[w]`.

    Each output row is a group `codes` with its first and last entry. `cuts[w]` is the first entry after the
    block edge in window w (`headrace.kernels.aggregate_panes`).
    """

    windows: Ints
    rows: Ints
    cuts: Ints
    codes: Ints
    heads: Ints
    tails: Ints


@dataclass(frozen=True)
class Scan:
    """What must be scanned before windows close: blocks of entries, by the entries at which they begin.

    `begin` … `stop` − 1 have just been closed, in the blocks `open`; the blocks `done` are complete.
    """

    begin: int
    stop: int
    open: Ints
    done: Ints


class PaneLog:
    """The entries of all panes that may be in a future window. Only the last pane is open."""

    def __init__(self, window: Sliding) -> None:
        self.spec = window
        self.entries = Entries()
        self.entries.add_column("code", np.int32, None)
        self.entries.add_column("back", np.int32, None, kept=False)
        self.entries.add_column("ahead", np.int32, kept=False)
        self._slide, self._rest = window.slide, window.size % window.slide
        self.panes = 2 * (window.size // window.slide) + (1 if self._rest else 0)
        self._block = -(-window.size // window.slide)
        self._open_end = MIN_TIME
        self._numbers, self._firsts = Buffer(np.int64), Buffer(np.int64)
        self._latest, self._place = Buffer(np.int64), Buffer(np.int64)
        self._live: Ints = np.empty((0, 3), np.int64)
        self.window = -_FAR
        self._due: int | None = None
        self._scratch = _Scratch(0)
        self._forget_derived()

    def _forget_derived(self) -> None:
        """Reset what is derived from the entries: links, windows entered, blocks scanned."""
        self._due = None
        self._linked = False
        self._entered = self._left = self._alive = 0
        self._scanned = self._complete = self.entries.base

    def _link(self) -> None:
        """Rebuild the links between all entries, after a restore."""
        if self._linked:
            return
        self._linked = True
        entries, base = self.entries, self.entries.base
        groups = int(entries.read("code", base).max(initial=-1)) + 1
        for buffer in (self._latest, self._place):
            buffer.replace(np.full(groups, EMPTY, np.int64))
        link_back(entries["code"], base, entries.next, self._latest.view, entries["back"])
        link_ahead(entries["back"], entries["ahead"], base, entries.next)

    # ------------------------------------------------------------------------------------------ rows in

    def take(self, times: Ints, codes: Ints, groups: int) -> Ints:
        """The entry of each row; `groups` is the number of codes so far."""
        self._link()
        self.know(groups)
        entries, size = self.entries, len(times)
        slots, code, back = np.empty((3, size), np.int64)
        panes = np.empty((size, 2), np.int64)
        window = [self._slide, self._rest, self.spec.offset]
        state = [*window, self._open_end, entries.settled, entries.base, entries.next]
        added, opened, self._open_end = assign_slots(
            times, codes, np.array(state, np.int64), self._latest.view, slots, code, back, panes
        )
        if opened:
            self._due = None
            self._numbers.append(panes[:opened, 0])
            self._firsts.append(panes[:opened, 1])
            entries.settled = int(panes[opened - 1, 1])
        if added:
            self._append(code[:added], back[:added])
        return slots

    def _append(self, code: Ints, back: Ints) -> None:
        """Add entries for these groups; `back` is the distance to each group's previous entry."""
        entries, begin = self.entries, self.entries.next
        entries.extend(len(code))
        entries.write("code", begin, code)
        entries.write("back", begin, back)
        link_ahead(entries["back"], entries["ahead"], begin, entries.next)

    def know(self, groups: int) -> None:
        """Make room for this many groups."""
        if len(self._place) < groups:
            for buffer in (self._latest, self._place):
                buffer.extend(groups - len(buffer))[:] = EMPTY

    # -------------------------------------------------------------------------------------- windows out

    def due(self) -> int:
        """The instant at which the next window with rows is answered, or MAX_TIME."""
        if self._due is None:
            self._due = self._next_answer()
        return self._due

    def _next_answer(self) -> int:
        """The last tick of the first window still to close that has rows, or MAX_TIME."""
        numbers = self._numbers.view
        if not len(numbers) or numbers[-1] < 2 * self.window - self.panes:
            return MAX_TIME
        at = int(np.searchsorted(numbers, max(2 * self.window - self.panes, -_FAR)))
        return self.first_answer(int(numbers[at]))

    def first_answer(self, pane: int) -> int:
        """The last tick of the first window still to close that holds a pane."""
        return max(self.window, pane // 2 + 1) * self._slide + self.spec.shift - 1

    def close(self, frontier: int) -> tuple[Scan, Closing] | None:
        """Close some of the windows that are answered at or before `frontier`; None if none is left.

        The cost depends on the entries that enter and leave and on the output rows; silence costs nothing.
        """
        due = self.due()
        if due > frontier or due == MAX_TIME:
            return None
        self._link()
        last = int(self._numbers.view[-1]) // 2 + 1 + self._block
        return self._walk(min((frontier + 1 - self.spec.shift) // self._slide, last) + 1)

    def _walk(self, stop: int) -> tuple[Scan, Closing]:
        """Close windows up to but not including `stop`, or until the output is full."""
        self._make_room()
        self._due = None
        entries, out = self.entries, self._scratch
        state = [self.window, stop, self.panes, self._entered, self._left, self._alive]
        self.window, self._entered, self._left, self._alive, rows, closed = walk_windows(
            entries["code"],
            entries["ahead"],
            np.asarray(self._numbers.view, np.int64),
            self.bounds(),
            self._live,
            self._place.view,
            np.array(state, np.int64),
            out.codes,
            out.heads,
            out.tails,
            out.windows,
        )
        out.used, out.closed = max(out.used, rows), max(out.closed, closed)
        windows = out.windows[:closed, 0].copy()
        offsets = np.append(out.windows[:closed, 1], rows)
        codes, heads, tails = (column[:rows].copy() for column in (out.codes, out.heads, out.tails))
        return self._scan(), Closing(windows, offsets, self._cuts(windows), codes, heads, tails)

    def numbers(self) -> Ints:
        """The panes held, in order."""
        return np.asarray(self._numbers.view, np.int64)

    def bounds(self) -> Ints:
        """The first entry of each pane, and the end of the last."""
        return np.append(self._firsts.view, self.entries.next)

    def _make_room(self) -> None:
        """Make room for all groups in the list of live groups and in the output."""
        groups = len(self._place)
        if len(self._live) < groups:
            bigger = np.empty((2 * groups, 3), np.int64)
            bigger[: self._alive] = self._live[: self._alive]
            self._live = bigger
        room = max(tuning.current.pane_chunk, groups)
        if self._scratch.room < room:
            self._scratch = _Scratch(room)

    def _first_of(self, panes: Ints) -> Ints:
        """The first entry in each of some panes or later."""
        at = np.searchsorted(self._numbers.view, panes)
        firsts: Ints = self.bounds()[at]
        return firsts

    def _cuts(self, windows: Ints) -> Ints:
        """Where the block edge is in each window; a window that ends with its block is entirely before it."""
        cuts = self._first_of(2 * self._block * ((windows - 1) // self._block))
        return np.where(windows % self._block == 0, self.entries.next, cuts)

    def _scan(self) -> Scan:
        """The entries closed and the blocks completed since the last scan."""
        bounds = self.bounds()
        begin, stop = self._scanned, int(bounds[self._entered])
        complete = np.array([2 * self._block * ((self.window - 1) // self._block)])
        done = min(int(self._first_of(complete)[0]), stop)
        scan = Scan(begin, stop, self._edges(begin, stop), self._edges(self._complete, done))
        self._scanned, self._complete = stop, max(self._complete, done)
        return scan

    def _edges(self, begin: int, stop: int) -> Ints:
        """The entries at which the blocks begin that hold `begin` … `stop` − 1, and `stop`."""
        if stop <= begin:
            return np.empty(0, np.int64)
        firsts = np.asarray(self._firsts.view, np.int64)
        low, high = np.searchsorted(firsts, [begin, stop - 1], side="right") - 1
        blocks = np.unique(self._numbers.view[low : high + 1] // (2 * self._block))
        return np.append(self._first_of(2 * self._block * blocks), stop)

    def drop(self) -> None:
        """Forget the panes that no future window needs."""
        gone = self._left
        if gone:
            self.drop_panes(gone)
            self._entered, self._left = self._entered - gone, 0

    def drop_panes(self, count: int) -> None:
        """Forget the first panes."""
        self.entries.drop_before(int(self.bounds()[count]))
        self._numbers.drop(count)
        self._firsts.drop(count)

    # ------------------------------------------------------------------------------------------- groups

    @property
    def groups(self) -> int:
        """For how many groups there is room."""
        return len(self._place)

    def held(self, groups: int = 0) -> Mask:
        """Which groups have an entry; `groups` is the number of codes so far."""
        self._link()
        self.know(groups)
        held: Mask = np.asarray(self._latest.view >= self.entries.base)
        return held

    def last_answer(self, codes: Ints) -> int:
        """The last tick of the last window that has an entry of some groups, MIN_TIME if there is none."""
        self._link()
        newest = int(self._latest.view[codes[codes < len(self._latest)]].max(initial=EMPTY))
        if newest < self.entries.base:
            return MIN_TIME
        return self.last_answer_of(
            int(self._numbers.view[np.searchsorted(self._firsts.view, newest, side="right") - 1])
        )

    def last_answer_of(self, pane: int) -> int:
        """The last tick of the last window that holds a pane; MIN_TIME if that window has closed."""
        window = max((pane + self.panes) // 2, pane // 2 + 1)
        return MIN_TIME if window < self.window else window * self._slide + self.spec.shift - 1

    def remap(self, new: Ints, keep: Mask) -> None:
        """Give the groups new codes; groups that are not kept have no entry."""
        for buffer in (self._latest, self._place):
            buffer.replace(buffer.view[keep].copy())
        self._live[: self._alive, 0] = new[self._live[: self._alive, 0]]
        self._fit(int(np.count_nonzero(keep)))
        self.entries.rewrite("code", new[self.entries.read("code", self.entries.base)])

    def _fit(self, groups: int) -> None:
        """Free room for groups if it is more than eight times what is needed."""
        if len(self._live) > 8 * max(groups, self._alive, 1):
            self._live = self._live[: self._alive].copy()
        if self._scratch.used > 8 * groups:
            self._scratch = _Scratch(0)

    # --------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        """Bytes held."""
        buffers = (self._numbers, self._firsts, self._latest, self._place)
        own = sum(b.bytes() for b in buffers) + held(self._live) + self._scratch.bytes()
        return self.entries.bytes() + own

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move entries and links into mapped files of a spill store."""
        self.entries.move_to_disk(spill_store)
        for buffer in (self._numbers, self._firsts, self._latest, self._place):
            buffer.move_to_disk(spill_store)
        self._live = moved(self._live, spill_store)
        self._scratch = _Scratch(0)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        buffers = (self._numbers, self._firsts, self._latest, self._place)
        return self.entries.mapped_bytes() + sum(b.mapped_bytes() for b in buffers) + mapped_bytes(self._live)

    def release(self) -> None:
        """Free unused capacity."""
        self.entries.release()
        for buffer in (self._numbers, self._firsts, self._latest, self._place):
            buffer.release()
        self._scratch = _Scratch(0)

    def changes(self, full: bool) -> Mapping[str, Any]:
        """The entries that changed, their panes, and the position of the log."""
        chunk = self.entries.changes(full)
        since = int(np.searchsorted(self._firsts.view, chunk["begin"]))
        chunk |= {"numbers": self._numbers.view[since:].copy(), "firsts": self._firsts.view[since:].copy()}
        return {**chunk, "open_end": self._open_end, "window": self.window}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        """Take over what `changes` gave."""
        self.entries.apply(chunk)
        firsts = np.asarray(self._firsts.view, np.int64)
        kept = firsts < chunk["begin"] if not chunk["reset"] else np.zeros(len(firsts), np.bool_)
        kept &= firsts >= chunk["base"]
        self._numbers.replace(np.concatenate((self._numbers.view[kept], chunk["numbers"])))
        self._firsts.replace(np.concatenate((firsts[kept], chunk["firsts"])))
        self._open_end, self.window = chunk["open_end"], chunk["window"]
        self._forget_derived()


class _Scratch:
    """Room for the output of one walk; not state."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.codes, self.heads, self.tails = (np.empty(room, np.int64) for _ in range(3))
        self.windows = np.empty((tuning.current.pane_windows if room else 0, 2), np.int64)
        self.used = self.closed = 0

    def bytes(self) -> int:
        """Bytes that have been written to; the rest takes no memory."""
        return 24 * self.used + 16 * self.closed
