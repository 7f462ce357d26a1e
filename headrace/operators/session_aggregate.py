"""Grouped aggregates over sessions: a row for each, when a heartbeat proves that it is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch, concat
from headrace.flow.groups import GroupIndex
from headrace.flow.state import Part
from headrace.flow.timeline import Timeline
from headrace.kernels.hashing import EMPTY
from headrace.operators.accumulators.pane_values import Rowset
from headrace.operators.accumulators.recipes import all_needs, recipe
from headrace.operators.accumulators.session_values import session_values
from headrace.operators.accumulators.specs import OfColumn, is_placed
from headrace.operators.content_order import by_content
from headrace.operators.contract import Waiting
from headrace.operators.session_lines import GroupLines, Lines, OwnLines
from headrace.operators.sessions import Sessions
from headrace.operators.ticks import add
from headrace.plan.order import keeps_arrival_order
from headrace.plan.session import SessionAggregate
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Ints = npt.NDArray[np.int64]
_LATEST = MAX_TIME - 1


class SessionAggregateOperator(Waiting):
    """A row extends the open session of its group or begins another; open sessions are all that is held.

    A row that comes exactly `gap` after the last still extends it, so a session that ends at e (its last row
    plus the gap) is over when the heartbeat is e, and its answer belongs to the tick e − 1. Rows cost one
    pass and one addition a partial value, sessions a line each while they are open.
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

    def _kept(self) -> tuple[Sessions, Lines]:
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
        keys = [batch.data.column(k) for k in self._plan.partition_keys]
        return self._groups.codes(keys, len(batch))

    def _gather(self, batch: Batch, codes: Ints) -> None:
        fresh = self._lines.next
        sessions, touched = self._sessions.take(batch.start, codes, len(self._groups), self._plan.gap)
        self._merge(*self._sessions.merged())
        rows = Rowset(batch.start, codes, self._lines.of_rows(sessions, batch), fresh, batch.data)
        for value in self._values:
            value.add(rows, self._lines.table)
        self._ends.add(np.stack([self._end_of(touched), touched], axis=1))

    def _merge(self, gone: Ints, into: Ints) -> None:
        if len(gone):
            gone, into = self._lines.merge(gone, into)
            for value in self._values:
                value.merge(gone, into, self._lines.table)

    def _end_of(self, sessions: Ints) -> Ints:
        return np.minimum(add(self._sessions.table["last"][sessions], self._plan.gap), _LATEST)

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
        lines, places = self._lines.of_sessions(over)
        out = self._finish(lines, over[places])
        self._lines.close(lines)
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

    def _finish(self, lines: Ints, sessions: Ints) -> Batch:
        """The answer of each line, which is of one of the sessions."""
        found = {value.spec: value.of(lines, self._lines.table) for value in self._values}
        columns = self._lines.keys(lines) + [r.make(found) for r in self._recipes]
        ends = self._end_of(sessions)
        if self._plan.bounds:
            columns += [pa.array(self._sessions.table["start"][sessions]), pa.array(ends)]
        data = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Batch(data, ends - 1, ends)

    # -------------------------------------------------------------------------------------------- state

    def _forget(self) -> None:
        """Forget the sessions that are over, then groups and values that only they had."""
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
        """Groups without a session that are spoken of all the same."""
        return np.empty(0, np.int64)

    def _regroup(self, new: Ints) -> None:
        self._sessions.regroup(new)

    def _words(self, column: str) -> Ints:
        of_column = [v for v in self._values if isinstance(v.spec, OfColumn) and v.spec.column == column]
        return np.concatenate([value.words(self._lines.table) for value in of_column])

    def state(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"groups": self._groups, "ends": self._ends}
        for column, codec in self._codecs.items():
            parts |= {f"{column}/{name}": part for name, part in codec.state().items()}
        parts["sessions"] = self._sessions
        parts |= self._lines.state()
        for value in self._values:
            parts |= {value.name(name): part for name, part in value.state().items()}
        return parts
