"""The open sessions: their bounds, and which of them a row belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace import tuning
from headrace.arrays import Ints, Mask
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sessions import (
    NEWER,
    OLDER,
    assign_sessions,
    gather_sessions,
    judge_rows,
    link_sessions,
    unlink,
)
from headrace.spill.store import SpillStore
from headrace.state.code_table import CodeTable
from headrace.state.columns import Buffer
from headrace.state.key_index import GroupIndex
from headrace.time.timestamp import FARTHEST, MAX_TIME, MIN_TIME

_NOTHING = np.empty(0, np.int64)


class Sessions:
    """A table with a line for each session: its group, its first and last time, its partial values.

    Sessions that are over have no group, and are dropped once they are the majority. The size of the table is
    a power of two, as the kernels need. Which session of a group is open is derived from the table. Rows come
    in order, so a group has one session that may still grow.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        fixed: dict[str, Any] = dict.fromkeys(("group", "start", "last"), (np.int64, EMPTY))
        self.table = CodeTable(**fixed, **columns)
        self.table.grow(16)
        self._numbered = "serial" in columns
        self.next = 0
        self._over = 0
        self._serial = 0
        self._stamp = 0
        self._opened, self._marks = Buffer(np.int64), Buffer(np.int64)
        self._stale = False

    def take(self, times: Ints, groups: Ints, known: int, gap: int) -> tuple[Ints, Ints]:
        """The session of each row, and the sessions that got rows; `known` is the number of groups."""
        self._have(known)
        self._stamp += 1
        size = len(times)
        slots, touched = np.empty((2, size), np.int64)
        fresh = np.empty((size, 3), np.int64)
        opened, marks = np.asarray(self._opened.view, np.int64), np.asarray(self._marks.view, np.int64)
        arguments = (times, groups, gap, self.next, self._stamp)
        last = self.table["last"]
        added, seen = assign_sessions(*arguments, opened, last, marks, slots, fresh, touched)
        self._append(fresh[:added])
        self.table.touch(touched[:seen])
        return slots, touched[:seen]

    def merged(self) -> tuple[Ints, Ints]:
        """The sessions that the rows just taken merged into others, and these others."""
        return _NOTHING, _NOTHING

    def _have(self, groups: int) -> None:
        """Make room for every group; after a restore, find the open session of each."""
        if self._stale:
            self._open_again()
        if len(self._opened) < groups:
            self._opened.extend(groups - len(self._opened))[:] = EMPTY
        if len(self._marks) < len(self.table):
            self._marks.extend(len(self.table) - len(self._marks))[:] = 0

    def _open_again(self) -> None:
        """Find the open session of each group, after a restore."""
        self._stale = False
        self._marks = Buffer(np.int64)
        group = self.table["group"]
        live = np.flatnonzero(group != EMPTY)
        opened = np.full(int(group.max(initial=EMPTY)) + 1, EMPTY, np.int64)
        opened[group[live]] = live
        self._opened.replace(opened)

    def _append(self, fresh: Ints) -> None:
        """Add sessions, one line each of group, start and last time."""
        begin, self.next = self.next, self.next + len(fresh)
        if self.next > len(self.table):
            self.table.grow(1 << (self.next - 1).bit_length())
        for i, name in enumerate(("group", "start", "last")):
            self.table[name][begin : self.next] = fresh[:, i]
        self._number_from(begin)

    def _number_from(self, begin: int) -> None:
        """Give serial numbers to the sessions from `begin` on, if the table has them."""
        if self._numbered:
            count = self.next - begin
            self.table["serial"][begin : self.next] = np.arange(self._serial, self._serial + count)
            self._serial += count

    def close(self, sessions: Ints) -> None:
        """Mark sessions as over; their groups have no open session then."""
        self._have(0)
        group = self.table["group"]
        groups = group[sessions]
        latest = np.flatnonzero(self._opened.view[groups] == sessions)
        self._opened.view[groups[latest]] = EMPTY
        self._void(sessions)

    def _void(self, sessions: Ints) -> None:
        """Mark sessions as over; their lines are dropped later."""
        self.table["group"][sessions] = EMPTY
        self.table.touch(sessions)
        self._over += len(sessions)

    def is_due_to_forget(self) -> bool:
        """Whether most sessions are over."""
        return 2 * self._over > self.next + tuning.current.compact_after

    @property
    def none_open(self) -> bool:
        """Whether there are sessions, and all are over."""
        return 0 < self._over == self.next

    def forget(self, groups: GroupIndex, also_used: Ints = _NOTHING) -> tuple[Ints, Ints]:
        """Drop closed sessions and groups without a session; returns the new codes, EMPTY for dropped
        groups."""
        keep = np.asarray(self.table["group"] != EMPTY)
        moved = np.where(keep, np.cumsum(keep) - 1, EMPTY)
        used = np.zeros(len(groups), np.bool_)
        used[self.table["group"][keep]] = True
        used[also_used] = True
        self.table.keep(keep)
        self.next, self._over = int(np.count_nonzero(keep)), 0
        self.table.grow(1 << max(4, (self.next - 1).bit_length()))
        return moved, groups.compact(used)

    def regroup(self, new: Ints) -> None:
        """Groups have new codes."""
        group = self.table["group"]
        group[: self.next] = new[group[: self.next]]
        self._open_again()

    def bytes(self) -> int:
        return self.table.bytes() + self._opened.bytes() + self._marks.bytes()

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the arrays into mapped files of a spill store."""
        for part in (self.table, self._opened, self._marks):
            part.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return sum(part.mapped_bytes() for part in (self.table, self._opened, self._marks))

    def changes(self, full: bool) -> Mapping[str, Any]:
        more = {"serial": self._serial} if self._numbered else {}
        return {**self.table.changes(full), "next": self.next, "over": self._over, **more}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.table.apply(chunk)
        self.next, self._over = chunk["next"], chunk["over"]
        self._serial = chunk.get("serial", 0)
        self._stale = True


class OpenMergingSessions(Sessions):
    """Rows come in any order, so a group has several sessions, and a row may join two of them.

    The sessions of a group are a list in order of time; `_opened` is the one that got the last row, so rows
    that are near each other in time find theirs in a step or two.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        super().__init__(columns)
        self._links = Buffer(np.int64, 3)
        self._merged = _NOTHING, _NOTHING

    def take(self, times: Ints, groups: Ints, known: int, gap: int) -> tuple[Ints, Ints]:
        self._stamp += 1
        size, begin = len(times), self.next
        slots, touched = np.empty((2, size), np.int64)
        gone = np.empty(size, np.int64)
        done = voided = 0
        while done < size:
            self._have(known)
            room = (self._opened.view, self._links.view)
            lines = (self.table["group"], self.table["start"], self.table["last"])
            done, self.next, voided = gather_sessions(
                times, groups, gap, done, self.next, voided, *room, *lines, slots, gone
            )
            if done < size:
                self.table.grow(2 * len(self.table))
        seen = link_sessions(slots, self._links.view, self._marks.view, self._stamp, touched)
        self._number_from(begin)
        self._note(gone[:voided], begin)
        self.table.touch(touched[:seen])
        return slots, touched[:seen]

    def _note(self, gone: Ints, begin: int) -> None:
        """Void the lines of merged sessions; those that had values before this call are to be merged too."""
        into = gone.copy()
        link_sessions(into, self._links.view, self._marks.view, self._stamp, np.empty_like(gone))
        self._void(gone)
        held = gone < begin
        self._merged = gone[held], into[held]

    def merged(self) -> tuple[Ints, Ints]:
        return self._merged

    def late(self, times: Ints, groups: Ints, known: int, gap: int, frontier: int) -> Mask:
        """Which of these rows, taken together, would only make or extend sessions that end by `frontier`."""
        self._have(known)
        late = np.zeros(len(times), np.bool_)
        if frontier == MIN_TIME:
            return late
        order = np.argsort(times, kind="stable")[::-1]
        least = np.full(known, MAX_TIME, np.int64)
        lines = (self.table["start"], self.table["last"])
        frontier = min(frontier, FARTHEST)
        known_ones = (self._opened.view, self._links.view, *lines)
        judge_rows(times, groups, order, gap, frontier, *known_ones, least, late)
        return late

    def of_groups(self, groups: Ints) -> Ints:
        """The sessions of some groups."""
        self._have(int(groups.max(initial=-1)) + 1)
        found: list[int] = []
        for group in groups.tolist():
            found += self._around(int(self._opened.view[group]))
        return np.array(found, np.int64)

    def _around(self, session: int) -> list[int]:
        """A session and all others of its group; none if it is EMPTY."""
        links = self._links.view
        while session != EMPTY and links[session, OLDER] != EMPTY:
            session = int(links[session, OLDER])
        found: list[int] = []
        while session != EMPTY:
            found.append(session)
            session = int(links[session, NEWER])
        return found

    def close(self, sessions: Ints) -> None:
        self._have(0)
        unlink(sessions, self.table["group"], self._opened.view, self._links.view)
        self._void(sessions)

    def _have(self, groups: int) -> None:
        super()._have(groups)
        if len(self._links) < len(self.table):
            self._links.extend(len(self.table) - len(self._links))[:] = EMPTY

    def _open_again(self) -> None:
        """Rebuild the lists: sessions of a group do not overlap, so they are sorted by start."""
        super()._open_again()
        group, start = self.table["group"], self.table["start"]
        links = np.full((len(self.table), 3), EMPTY, np.int64)
        live = np.flatnonzero(group != EMPTY)
        live = live[np.lexsort((start[live], group[live]))]
        same = group[live[1:]] == group[live[:-1]]
        links[live[1:][same], 0] = live[:-1][same]
        links[live[:-1][same], 1] = live[1:][same]
        self._links.replace(links)
        self._opened.view[group[live]] = live

    def bytes(self) -> int:
        return super().bytes() + self._links.bytes()
