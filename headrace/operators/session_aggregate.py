"""Grouped aggregates over sessions: one row for each session, once a heartbeat proves that it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.aggregates.panes.values import Rowset
from headrace.aggregates.recipes import all_needs, recipe
from headrace.aggregates.session_values import session_values
from headrace.aggregates.specs import OfColumn, is_placed
from headrace.arrays import Ints, Mask
from headrace.flow.batch import Batch, concat
from headrace.kernels.hashing import EMPTY
from headrace.operators.content_order import by_content
from headrace.operators.held_promises import HoldsPromises
from headrace.operators.order import InputManager
from headrace.operators.state.open_sessions import OpenMergingSessions, Sessions
from headrace.operators.state.session_lines import GroupLines, Lines, OwnLines
from headrace.operators.ticks import add
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.session import SessionAggregate
from headrace.state.key_index import GroupIndex
from headrace.state.part import Part
from headrace.state.timeline import Timeline
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_LATEST = MAX_TIME - 1


class SessionAggregateOperator(HoldsPromises):
    """A row extends the open session of its group or begins another; the state is the open sessions.

    A row that comes exactly `gap` after the last still extends it, so a session that ends at e (its last row
    plus the gap) is over when the heartbeat is e, and its answer belongs to the tick e − 1. A row costs one
    pass and one addition per partial value, a session one line while it is open.
    """

    keeping = Sessions

    def __init__(self, plan: SessionAggregate) -> None:
        super().__init__()
        below = plan.input.schema
        self._plan, self._schema = plan, plan.schema
        self._groups = GroupIndex(pa.schema([below.field(k) for k in plan.partition_keys]))
        self._recipes = [recipe(call, below) for call in plan.calls]
        specs = all_needs(self._recipes)
        self._values, self._codecs = session_values(specs, below)
        self._sessions, self._lines = self._kept()
        self._ends = Timeline(2)
        self._sorts = any(map(is_placed, specs)) and not keeps_arrival_order(plan.input)
        self._pending: list[Batch] = []
        self._gone = 0

    def _kept(self) -> tuple[Sessions, Lines]:
        """The sessions and the lines of their partial values: one table if both have the same keys."""
        columns: dict[str, Any] = {k: v for each in self._values for k, v in each.columns().items()}
        plan = self._plan
        if plan.partition_keys == plan.keys:
            sessions = self.keeping(columns)
            return sessions, OwnLines(sessions, self._groups)
        sessions = self.keeping({"serial": (np.int64, EMPTY)})
        keys = pa.schema([plan.input.schema.field(k) for k in plan.keys])
        return sessions, GroupLines(sessions, keys, columns)

    # ------------------------------------------------------------------------------------------ rows in

    def ingest(self, input: int, batch: Batch) -> None:
        if self._sorts:
            self._pending.append(batch)
        else:
            self._take_in(batch)

    def _take_in(self, batch: Batch) -> None:
        self._gather(batch, self._codes(batch))

    def _codes(self, batch: Batch) -> Ints:
        """The code of each row's partition."""
        keys = [batch.data.column(k) for k in self._plan.partition_keys]
        return self._groups.codes(keys, len(batch))

    def _gather(self, batch: Batch, codes: Ints) -> None:
        """Add rows to their sessions, and schedule the end of each session that they extend."""
        fresh = self._lines.next
        sessions, touched = self._sessions.take(batch.start, codes, len(self._groups), self._plan.gap)
        self._merge(*self._sessions.merged())
        rows = Rowset(batch.start, codes, self._lines.of_rows(sessions, batch), fresh, batch.data)
        for value in self._values:
            value.add(rows, self._lines.table)
        self._ends.add(np.stack([self._end_of(touched), touched], axis=1))

    def _merge(self, gone: Ints, into: Ints) -> None:
        """Merge the partial values of sessions that were joined by a row."""
        if len(gone):
            gone, into = self._lines.merge(gone, into)
            for value in self._values:
                value.merge(gone, into, self._lines.table)

    def _end_of(self, sessions: Ints) -> Ints:
        """The instant at which each session ends: its last row plus the gap."""
        return np.minimum(add(self._sessions.table["last"][sessions], self._plan.gap), _LATEST)

    # ------------------------------------------------------------------------------------- sessions out

    def due(self) -> int:
        return self._ends.next()

    def map_heartbeat(self, heartbeat: int) -> int:
        """A session that ends one tick later would be answered at the heartbeat itself."""
        return heartbeat if heartbeat in (MIN_TIME, MAX_TIME) else heartbeat - 1

    def _leaving(self, frontier: int) -> int:
        """No answer comes before the first end held, nor before a future row plus the gap."""
        if frontier in (MIN_TIME, MAX_TIME):
            return frontier
        earliest = min(self._ends.next(), frontier + 1 + min(self._plan.gap, MAX_TIME - 2 - frontier))
        return max(self.map_heartbeat(frontier), min(earliest - 2, MAX_TIME - 1))

    def answer(self, frontier: int) -> Batch | None:
        if self._pending:
            self._take_in(by_content(concat(self._pending)))
            self._pending = []
        over = self._over(self._ends.take(min(frontier, _LATEST)))
        return self._closed(over) if len(over) else None

    def _closed(self, over: Ints) -> Batch:
        """The answers of sessions that are over, which are then forgotten."""
        lines, places = self._lines.of_sessions(over)
        out = self._finish(lines, over[places])
        self._lines.close(lines)
        self._sessions.close(over)
        if self._sessions.is_due_to_forget():
            self._forget()
        return out

    def _over(self, events: Ints) -> Ints:
        """The sessions that end at one of these events, each once; skips ends that a later row postponed."""
        events = events[events[:, 1] >= 0]
        events = events[self._sessions.table["group"][events[:, 1]] != EMPTY]
        over = events[events[:, 0] == self._end_of(events[:, 1]), 1]
        _, first = np.unique(over, return_index=True)
        return np.asarray(over[np.sort(first)], np.int64)

    def _finish(self, lines: Ints, sessions: Ints) -> Batch:
        """The answer of each line; `sessions` is the session of each."""
        found = {value.spec: value.of(lines, self._lines.table) for value in self._values}
        columns = self._lines.keys(lines) + [r.make(found) for r in self._recipes]
        starts, ends = self._bounds(sessions)
        if self._plan.bounds:
            columns += [pa.array(starts), pa.array(ends)]
        return self._results(pa.RecordBatch.from_arrays(columns, schema=self._schema), ends)

    def _bounds(self, sessions: Ints) -> tuple[Ints, Ints]:
        """The start and the end of each session, as they are reported."""
        return np.asarray(self._sessions.table["start"][sessions], np.int64), self._end_of(sessions)

    def _results(self, data: pa.RecordBatch, ends: Ints) -> Batch:
        """The rows of sessions that end at `ends`: each is reported once, at the last tick before."""
        return Batch(data, ends - 1, ends)

    # ------------------------------------------------------------------------------------- punctuations

    def _last(self, punctuation: Punctuation) -> int | None:
        keys = set(self._plan.partition_keys) & set(self._plan.keys)
        if punctuation.until != MAX_TIME or not set(punctuation.columns) <= keys:
            return None
        groups = self._sessions.table["group"][: self._sessions.next]
        sessions = np.flatnonzero(np.isin(groups, self._groups.matching(punctuation)))
        return int(self._end_of(sessions).max(initial=MIN_TIME))

    def _forget_closed(self, promises: int) -> None:
        """Forget closed groups once they may be half of all."""
        self._gone += promises
        if 2 * self._gone > len(self._groups):
            self._forget()

    # -------------------------------------------------------------------------------------------- state

    def _forget(self) -> None:
        """Forget the sessions that are over, then groups and values that only they used."""
        self._gone = 0
        moved, groups = self._sessions.forget(self._groups, self._awaited())
        self._ends.remap(1, np.append(moved, EMPTY))
        lines = self._lines.forget(moved)
        for value in self._values:
            value.keep(lines, self._lines.table)
        self._regroup(groups)
        for column, codec in self._codecs.items():
            if codec.crowded(self._lines.next):
                codec.forget_except(self._words(column))

    def _awaited(self) -> Ints:
        """Groups that must be kept although they have no session."""
        return np.empty(0, np.int64)

    def _regroup(self, new: Ints) -> None:
        """Groups have new codes."""
        self._sessions.regroup(new)

    def _words(self, column: str) -> Ints:
        """The words of a column that are still referred to."""
        of_column = [v for v in self._values if isinstance(v.spec, OfColumn) and v.spec.column == column]
        return np.concatenate([value.words(self._lines.table) for value in of_column])

    def state(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"groups": self._groups, "ends": self._ends}
        for column, codec in self._codecs.items():
            parts |= {f"{column}/{name}": part for name, part in codec.state().items()}
        parts |= {"sessions": self._sessions, "promises": self._promises}
        parts |= self._lines.state()
        for value in self._values:
            parts |= {value.name(name): part for name, part in value.state().items()}
        return parts


# Sessions of rows in any order: a late row joins the sessions that are still open, as in Flink.


class MergingSessionsOperator(InputManager, SessionAggregateOperator):
    """A row extends a session, joins two, or begins one; it is late if the resulting session would be over.

    Late rows are found (`late`) when they arrive, before anything else happens. The operator then takes every
    row that comes, except late rows that go in only for another query (`refuse`).
    """

    keeping = OpenMergingSessions

    def __init__(self, plan: SessionAggregate) -> None:
        super().__init__(plan)
        self._refused = Refused()
        self._coming: list[Batch] = []

    def announce(self, batch: Batch | None) -> None:
        """Add rows of this instant, before any is judged; None if all have been judged."""
        self._coming = [] if batch is None else [*self._coming, batch]

    def late(self, batch: Batch, frontier: int) -> tuple[Mask, Ints]:
        """Which rows of a batch are too late, and the code of each row's group.

        The rows are judged together with all others that were announced.
        """
        others = [each for each in self._coming if each is not batch]
        all_rows = concat([batch, *others]) if others else batch
        codes = self._codes(all_rows)
        assert isinstance(self._sessions, OpenMergingSessions)
        late = self._sessions.late(all_rows.start, codes, len(self._groups), self._plan.gap, frontier)
        return late[: len(batch)], codes[: len(batch)]

    def refuse(self, times: Ints, codes: Ints) -> None:
        """Skip rows with these times and groups when they come: they are too late here."""
        self._refused.add(times, codes)

    def _take_in(self, batch: Batch) -> None:
        codes = self._codes(batch)
        if len(self._refused):
            kept = self._refused.without(batch.start, codes)
            batch, codes = batch.filter(kept), codes[kept]
        if len(batch):
            self._gather(batch, codes)

    def _leaving(self, frontier: int) -> int:
        """A late row may begin a session that ends right after the frontier."""
        return self.map_heartbeat(frontier)

    def _awaited(self) -> Ints:
        return self._refused.codes()

    def _regroup(self, new: Ints) -> None:
        super()._regroup(new)
        self._refused.regroup(new)

    def state(self) -> dict[str, Part]:
        return {**super().state(), "refused": self._refused}


class Refused:
    """Rows to skip when they come: how many for each time and group."""

    def __init__(self) -> None:
        self._count: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._count)

    def add(self, times: Ints, codes: Ints) -> None:
        """One more row of each."""
        for each in zip(times.tolist(), codes.tolist(), strict=True):
            self._count[each] = self._count.get(each, 0) + 1

    def without(self, times: Ints, codes: Ints) -> Mask:
        """Which rows to take; those to skip are counted off."""
        kept = np.ones(len(times), np.bool_)
        awaited = np.array(sorted({time for time, _ in self._count}), np.int64)
        for row in np.flatnonzero(np.isin(times, awaited)).tolist():
            each = (int(times[row]), int(codes[row]))
            left = self._count.get(each, 0)
            if left:
                kept[row] = False
                self._put(each, left - 1)
        return kept

    def _put(self, each: tuple[int, int], count: int) -> None:
        """Set a count; a count of 0 is not stored."""
        if count:
            self._count[each] = count
        else:
            del self._count[each]

    def codes(self) -> Ints:
        """The groups of the rows."""
        return np.array([code for _, code in self._count], np.int64)

    def regroup(self, new: Ints) -> None:
        """Groups have new codes."""
        self._count = {(time, int(new[code])): count for (time, code), count in self._count.items()}

    def bytes(self) -> int:
        return 200 * len(self._count)

    def changes(self, full: bool) -> Mapping[str, Any]:
        rows = [(*each, count) for each, count in self._count.items()]
        return {"rows": np.array(rows, np.int64).reshape(-1, 3)}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._count = {(time, code): count for time, code, count in chunk["rows"].tolist()}
