"""Grouped aggregates over sessions: a row for each, when a heartbeat proves that it is over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch, concat
from headrace.flow.columns import Buffer
from headrace.flow.groups import GroupIndex
from headrace.flow.state import Part
from headrace.flow.tables import CodeTable
from headrace.flow.timeline import Timeline
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sessions import assign_sessions
from headrace.operators.accumulators.codecs import Relabelling
from headrace.operators.accumulators.pane_values import Rowset
from headrace.operators.accumulators.recipes import all_needs, recipe
from headrace.operators.accumulators.session_values import session_values
from headrace.operators.accumulators.specs import OfColumn, is_placed
from headrace.operators.content_order import by_content
from headrace.operators.contract import Waiting
from headrace.operators.ticks import add
from headrace.plan.order import keeps_arrival_order
from headrace.plan.session import SessionAggregate
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Ints = npt.NDArray[np.int64]
_PATIENCE = 256
_LATEST = MAX_TIME - 1


class SessionAggregateOperator(Waiting):
    """A row extends the open session of its group or begins another; open sessions are all that is held.

    A row that comes exactly `gap` after the last still extends it, so a session that ends at e (its last row
    plus the gap) is over when the heartbeat is e, and its answer belongs to the tick e − 1. Rows cost one
    pass and one addition a partial value, sessions a line each while they are open.
    """

    def __init__(self, plan: SessionAggregate) -> None:
        super().__init__()
        below = plan.input.schema
        self._plan, self._schema = plan, plan.schema
        self._groups = GroupIndex(pa.schema([below.field(k) for k in plan.keys]))
        self._recipes = [recipe(call, below) for call in plan.calls]
        specs = all_needs(self._recipes)
        self._values, self._codecs = session_values(specs, below)
        self._sessions = Sessions({k: v for each in self._values for k, v in each.columns().items()})
        self._ends = Timeline(2)
        self._sorts = any(map(is_placed, specs)) and not keeps_arrival_order(plan.input)
        self._pending: list[Batch] = []
        for column, codec in self._codecs.items():
            codec.on_relabel(partial(self._relabel, column))

    # ------------------------------------------------------------------------------------------ rows in

    def ingest(self, input: int, batch: Batch) -> None:
        if self._sorts:
            self._pending.append(batch)
        else:
            self._take_in(batch)

    def _take_in(self, batch: Batch) -> None:
        codes = self._groups.codes([batch.data.column(k) for k in self._plan.keys], len(batch))
        fresh = self._sessions.next
        slots, touched = self._sessions.take(batch.start, codes, len(self._groups), self._plan.gap)
        rows = Rowset(batch.start, codes, slots, fresh, batch.data)
        for value in self._values:
            value.add(rows, self._sessions.table)
        self._ends.add(np.stack([self._end_of(touched), touched], axis=1))

    def _end_of(self, sessions: Ints) -> Ints:
        return np.minimum(add(self._sessions.table["last"][sessions], self._plan.gap), _LATEST)

    def _relabel(self, column: str, new: Relabelling) -> None:
        table = self._sessions.table
        for value in self._values:
            if isinstance(value.spec, OfColumn) and value.spec.column == column:
                value.relabel(new, table)
        table.touch(np.arange(len(table)))

    # ------------------------------------------------------------------------------------- sessions out

    def due(self) -> int:
        return self._ends.next()

    def map_heartbeat(self, heartbeat: int) -> int:
        """A session that ends one tick later would be answered at the heartbeat itself."""
        return heartbeat if heartbeat in (MIN_TIME, MAX_TIME) else heartbeat - 1

    def _leaving(self, frontier: int) -> int:
        """No answer comes before the first end held, nor sooner than a gap after a row still to come."""
        if frontier in (MIN_TIME, MAX_TIME):
            return frontier
        earliest = min(self._ends.next(), frontier + 1 + min(self._plan.gap, MAX_TIME - 2 - frontier))
        return max(self.map_heartbeat(frontier), min(earliest - 2, MAX_TIME - 1))

    def answer(self, frontier: int) -> Batch | None:
        if self._pending:
            self._take_in(by_content(concat(self._pending)))
            self._pending = []
        over = self._over(self._ends.take(min(frontier, _LATEST)))
        if not len(over):
            return None
        out = self._finish(over)
        self._sessions.close(over)
        if self._sessions.is_due_to_forget():
            self._forget()
        return out

    def _over(self, events: Ints) -> Ints:
        """The sessions that end at one of these events, each once; a later row made other events void."""
        events = events[events[:, 1] >= 0]
        events = events[self._sessions.table["group"][events[:, 1]] != EMPTY]
        over = events[events[:, 0] == self._end_of(events[:, 1]), 1]
        _, first = np.unique(over, return_index=True)
        return np.asarray(over[np.sort(first)], np.int64)

    def _finish(self, over: Ints) -> Batch:
        table = self._sessions.table
        found = {value.spec: value.of(over, table) for value in self._values}
        columns = self._groups.keys.take(table["group"][over]) + [r.make(found) for r in self._recipes]
        ends = self._end_of(over)
        if self._plan.bounds:
            columns += [pa.array(table["start"][over]), pa.array(ends)]
        data = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Batch(data, ends - 1, ends)

    # -------------------------------------------------------------------------------------------- state

    def _forget(self) -> None:
        """Forget the sessions that are over, then groups and values that only they had."""
        moved, groups = self._sessions.forget(self._groups)
        self._ends.remap(1, np.append(moved, EMPTY))
        for value in self._values:
            value.keep(moved)
        self._sessions.regroup(groups)
        for column, codec in self._codecs.items():
            if codec.crowded(self._sessions.next):
                codec.forget_except(self._words(column))

    def _words(self, column: str) -> Ints:
        of_column = [v for v in self._values if isinstance(v.spec, OfColumn) and v.spec.column == column]
        return np.concatenate([value.words(self._sessions.table) for value in of_column])

    def state(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"groups": self._groups, "ends": self._ends}
        for column, codec in self._codecs.items():
            parts |= {f"{column}/{name}": part for name, part in codec.state().items()}
        parts["sessions"] = self._sessions
        for value in self._values:
            parts |= {value.name(name): part for name, part in value.state().items()}
        return parts


class Sessions:
    """A table with a line for each session: its group, its first and last time, its partial values.

    Sessions that are over have no group, and go once they are the greater part. The size of the table is a
    power of two, which the kernels want. Which session of a group is open follows from the table.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        fixed: dict[str, Any] = dict.fromkeys(("group", "start", "last"), (np.int64, EMPTY))
        self.table = CodeTable(**fixed, **columns)
        self.table.grow(16)
        self.next = 0
        self._over = 0
        self._stamp = 0
        self._opened, self._marks = Buffer(np.int64), Buffer(np.int64)
        self._stale = False

    def take(self, times: Ints, groups: Ints, known: int, gap: int) -> tuple[Ints, Ints]:
        """The session of each row, and the sessions that have rows here; `known` groups there are."""
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

    def _have(self, groups: int) -> None:
        """Have a place for every group; after a restore, find the open session of each."""
        if self._stale:
            self._open_again()
        if len(self._opened) < groups:
            self._opened.extend(groups - len(self._opened))[:] = EMPTY
        if len(self._marks) < len(self.table):
            self._marks.extend(len(self.table) - len(self._marks))[:] = 0

    def _open_again(self) -> None:
        self._stale = False
        self._marks = Buffer(np.int64)
        group = self.table["group"]
        live = np.flatnonzero(group != EMPTY)
        opened = np.full(int(group.max(initial=EMPTY)) + 1, EMPTY, np.int64)
        opened[group[live]] = live
        self._opened.replace(opened)

    def _append(self, fresh: Ints) -> None:
        begin, self.next = self.next, self.next + len(fresh)
        if self.next > len(self.table):
            self.table.grow(1 << (self.next - 1).bit_length())
        for i, name in enumerate(("group", "start", "last")):
            self.table[name][begin : self.next] = fresh[:, i]

    def close(self, sessions: Ints) -> None:
        """These sessions are over."""
        self._have(0)
        group = self.table["group"]
        groups = group[sessions]
        latest = np.flatnonzero(self._opened.view[groups] == sessions)
        self._opened.view[groups[latest]] = EMPTY
        group[sessions] = EMPTY
        self.table.touch(sessions)
        self._over += len(sessions)

    def is_due_to_forget(self) -> bool:
        """Whether the greater part is over."""
        return 2 * self._over > self.next + _PATIENCE

    def forget(self, groups: GroupIndex) -> tuple[Ints, Ints]:
        """Forget what is over, and the groups without a session; their new codes, EMPTY where forgotten."""
        keep = np.asarray(self.table["group"] != EMPTY)
        moved = np.where(keep, np.cumsum(keep) - 1, EMPTY)
        used = np.zeros(len(groups), np.bool_)
        used[self.table["group"][keep]] = True
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

    def changes(self, full: bool) -> Mapping[str, Any]:
        return {**self.table.changes(full), "next": self.next, "over": self._over}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.table.apply(chunk)
        self.next, self._over = chunk["next"], chunk["over"]
        self._stale = True
