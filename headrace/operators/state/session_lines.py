"""The table of the partial values of sessions: a line for each session, or for each group of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Ints
from headrace.flow.batch import Batch
from headrace.kernels.hashing import EMPTY
from headrace.operators.state.open_sessions import Sessions
from headrace.schema import Schema
from headrace.state.code_table import CodeTable
from headrace.state.key_index import GroupIndex
from headrace.state.part import Part


class Lines(ABC):
    """Lines of `table`, each of one session; `next` is the line that is made next."""

    table: CodeTable

    @property
    @abstractmethod
    def next(self) -> int:
        """How many lines there are, including those of sessions that are over."""

    @abstractmethod
    def of_rows(self, sessions: Ints, batch: Batch) -> Ints:
        """The line of each row, whose session is given."""

    @abstractmethod
    def of_sessions(self, sessions: Ints) -> tuple[Ints, Ints]:
        """The lines of some sessions, and for each the place of its session among them."""

    @abstractmethod
    def merge(self, gone: Ints, into: Ints) -> tuple[Ints, Ints]:
        """Sessions were merged; returns the lines that are void now, and those that get their values."""

    @abstractmethod
    def keys(self, lines: Ints) -> list[pa.Array]:
        """The group of each line."""

    @abstractmethod
    def close(self, lines: Ints) -> None:
        """Mark lines as unused: their sessions are over."""

    @abstractmethod
    def forget(self, moved: Ints) -> Ints:
        """Sessions have new codes, EMPTY if they are forgotten; returns the same for the lines."""

    def state(self) -> dict[str, Part]:
        """State beyond that of the sessions."""
        return {}


class OwnLines(Lines):
    """Each session has one group: its line is the line of the session itself."""

    def __init__(self, sessions: Sessions, groups: GroupIndex) -> None:
        self._sessions, self._groups = sessions, groups
        self.table = sessions.table

    @property
    def next(self) -> int:
        return self._sessions.next

    def of_rows(self, sessions: Ints, batch: Batch) -> Ints:
        return sessions

    def of_sessions(self, sessions: Ints) -> tuple[Ints, Ints]:
        return sessions, np.arange(len(sessions))

    def merge(self, gone: Ints, into: Ints) -> tuple[Ints, Ints]:
        return gone, into

    def keys(self, lines: Ints) -> list[pa.Array]:
        return self._groups.keys.take(self.table["group"][lines])

    def close(self, lines: Ints) -> None:
        return

    def forget(self, moved: Ints) -> Ints:
        return moved


class GroupLines(Lines):
    """Each session may have several groups: one line for each group that has rows in it.

    The lines of a session are found by its serial number, which does not change when lines move.
    """

    def __init__(self, sessions: Sessions, keys: Schema, columns: Mapping[str, Any]) -> None:
        self._sessions = sessions
        self._names = keys.names
        self._index = GroupIndex(pa.schema([pa.field("serial number", pa.int64()), *keys]))
        self.table = CodeTable(session=(np.int64, EMPTY), **columns)
        self.table.grow(16)

    @property
    def next(self) -> int:
        return len(self._index)

    def of_rows(self, sessions: Ints, batch: Batch) -> Ints:
        return self._of(sessions, [batch.data.column(name) for name in self._names])

    def _of(self, sessions: Ints, keys: Sequence[pa.Array]) -> Ints:
        """The line of each pair of session and group; adds lines for new pairs."""
        begin = len(self._index)
        serials = self._sessions.table["serial"][sessions]
        lines = self._index.codes([pa.array(serials), *keys], len(sessions))
        if len(self._index) > begin:
            self.table.grow(1 << max(4, (len(self._index) - 1).bit_length()))
            fresh = lines >= begin
            self.table["session"][lines[fresh]] = sessions[fresh]
        self.table.touch(lines)
        return lines

    def of_sessions(self, sessions: Ints) -> tuple[Ints, Ints]:
        place = np.full(max(self._sessions.next, 1), EMPTY, np.int64)
        place[sessions] = np.arange(len(sessions))
        own = self.table["session"][: self.next]
        places = np.where(own == EMPTY, EMPTY, place[own])
        lines = np.flatnonzero(places != EMPTY)
        lines = lines[np.argsort(places[lines], kind="stable")]
        return lines, places[lines]

    def merge(self, gone: Ints, into: Ints) -> tuple[Ints, Ints]:
        lines, places = self.of_sessions(gone)
        keys = self._index.keys.take(lines)[1:]
        self.close(lines)
        return lines, self._of(into[places], keys)

    def keys(self, lines: Ints) -> list[pa.Array]:
        return self._index.keys.take(lines)[1:]

    def close(self, lines: Ints) -> None:
        self.table["session"][lines] = EMPTY
        self.table.touch(lines)

    def forget(self, moved: Ints) -> Ints:
        own = self.table["session"]
        keep = np.asarray(own != EMPTY)
        lines = self._index.compact(keep[: self.next])
        own[keep] = moved[own[keep]]
        self.table.keep(keep)
        self.table.grow(1 << max(4, (self.next - 1).bit_length()))
        return np.append(lines, np.full(len(keep) - len(lines), EMPTY, np.int64))

    def state(self) -> dict[str, Part]:
        return {"lines/groups": self._index, "lines": self.table}
