"""Grouped aggregates over time: the answer at every instant at which it changes, expiry included."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from headrace.flow.batch import Batch, Mask, Signs
from headrace.flow.columns import Buffer, valid_mask
from headrace.flow.groups import GroupIndex
from headrace.flow.keys import equal_rows
from headrace.flow.state import Part
from headrace.flow.tables import CodeTable
from headrace.flow.timeline import Timeline
from headrace.kernels.aggregate_instants import order_by_group
from headrace.kernels.hashing import EMPTY
from headrace.kernels.merge import merge_order
from headrace.operators.accumulators.codecs import Relabelling, codec_for
from headrace.operators.accumulators.copies import Numbering, may_withdraw
from headrace.operators.accumulators.instant_table import InstantValues
from headrace.operators.accumulators.instant_trees import Ordered
from headrace.operators.accumulators.instants import Ints, Layout, Steps
from headrace.operators.accumulators.recipes import all_needs, recipe
from headrace.operators.accumulators.specs import First, Last, OfColumn, Rows
from headrace.operators.content_order import by_content
from headrace.operators.contract import Waiting
from headrace.plan.nodes import Aggregate
from headrace.plan.order import keeps_arrival_order
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_PATIENCE = 256


class AggregateOperator(Waiting):
    """At each instant at which a group's row changes, withdraws the old one and puts the new one in.

    An element is two events, the second of which waits in a timeline with all that is needed to undo the
    first. All that happens to a group at one instant is one step; equal rows before and after are no change.
    Costs follow the events, by the logarithm of a group's values for extremes; never what a group holds.
    """

    def __init__(self, plan: Aggregate) -> None:
        super().__init__()
        below = plan.input.schema
        self._plan, self._schema = plan, plan.schema
        self._recipes = [recipe(call, below) for call in plan.calls]
        specs = all_needs(self._recipes)
        columns = tuple(dict.fromkeys(s.column for s in specs if isinstance(s, OfColumn)))
        self._codecs = {column: codec_for(below.field(column).type) for column in columns}
        self._layout = Layout(columns)
        self._groups = GroupIndex(pa.schema([below.field(k) for k in plan.keys]))
        self._values = InstantValues(specs, self._codecs)
        self._ends = Timeline(self._layout.width)
        self._newest = CodeTable(arrival=(np.int64, MIN_TIME))
        self._positional = any(isinstance(s, (First, Last)) for s in specs)
        self._sorts = self._positional and not keeps_arrival_order(plan.input)
        self._numbering = Numbering(below, self._positional and may_withdraw(plan.input))
        self._starts: list[Ints] = []
        self._local = Buffer(np.int64)
        self._measured = False
        self._work = 0
        for column, codec in self._codecs.items():
            codec.on_relabel(partial(self._relabel, self._layout.word(column)))

    # ----------------------------------------------------------------------------------------- events in

    def ingest(self, input: int, batch: Batch) -> None:
        assert batch.end is not None, "a relation's elements have ends"
        if self._sorts:
            batch = by_content(batch)
        lines = self._lines(batch)
        self._starts.append(lines)
        ends = lines.copy()
        ends[:, Layout.TIME] = batch.end
        ends[:, Layout.SIGN] *= -1
        self._ends.add(ends)

    def _lines(self, batch: Batch) -> Ints:
        """The start of each element as an event."""
        layout, data = self._layout, batch.data
        lines = np.zeros((len(batch), layout.width), np.int64)
        lines[:, Layout.TIME] = batch.start
        lines[:, Layout.GROUP] = self._groups.codes([data.column(k) for k in self._plan.keys], len(batch))
        lines[:, Layout.SIGN] = batch.signs()
        for i, (column, codec) in enumerate(self._codecs.items()):
            values = data.column(column)
            lines[:, layout.word(column)] = codec.encode(values)
            if values.null_count:
                lines[:, Layout.NULLS] |= (~valid_mask(values)).astype(np.int64) << i
        if self._positional:
            self._numbering.number(batch, lines, Layout.NUMBER, Layout.CONTENT)
        if batch.arrival is not None:
            self._note_arrival(lines[:, Layout.GROUP], batch.arrival)
        return lines

    def _note_arrival(self, codes: Ints, arrival: Ints) -> None:
        self._measured = True
        self._newest.grow(len(self._groups))
        np.maximum.at(self._newest["arrival"], codes, arrival)
        self._newest.touch(codes)

    def _relabel(self, column: int, new: Relabelling) -> None:
        self._ends.convert(column, new)
        for lines in self._starts:
            lines[:, column] = new(lines[:, column])

    # --------------------------------------------------------------------------------------- changes out

    def due(self) -> int:
        return self._ends.next()

    def answer(self, frontier: int) -> Batch | None:
        ends = self._ends.take(frontier)
        starts, self._starts = self._starts, []
        if not starts and not len(ends):
            return None
        self._numbering.expire(ends[:, Layout.CONTENT], ends[:, Layout.NUMBER], ends[:, Layout.SIGN])
        steps = self._steps(np.concatenate(starts) if starts else ends[:0], ends)
        out = self._changes(steps)
        self._work += len(steps.events)
        if self._work > len(self._groups) + len(self._ends) + _PATIENCE:
            self._forget()
        return out

    def _steps(self, starts: Ints, ends: Ints) -> Steps:
        """All events in order of group and time."""
        events = self._ordered(starts, ends)
        times, codes = events[:, Layout.TIME], events[:, Layout.GROUP]
        new_group = np.append(True, codes[1:] != codes[:-1])
        new_step = new_group.copy()
        new_step[1:] |= times[1:] != times[:-1]
        at = np.cumsum(new_step) + np.cumsum(new_group) - 1
        heads = np.flatnonzero(new_group)
        positions = int(at[-1]) + 1
        return Steps(self._layout, self._codecs, events, at, codes[heads].copy(), at[heads] - 1, positions)

    def _ordered(self, starts: Ints, ends: Ints) -> Ints:
        events = np.concatenate((starts, ends)) if len(ends) else starts
        by_time = np.arange(len(events))
        if len(ends) and len(starts):
            left, right = (np.ascontiguousarray(lines[:, Layout.TIME]) for lines in (starts, ends))
            merge_order(left, right, by_time)
        if len(self._local) < len(self._groups):
            self._local.extend(len(self._groups) - len(self._local))[:] = EMPTY
        order = np.empty(len(events), np.int64)
        local = np.asarray(self._local.view, np.int64)
        order_by_group(events[:, Layout.GROUP], by_time, local, order)
        return events[order]

    def _changes(self, steps: Steps) -> Batch | None:
        """The old row of each step withdrawn and the new one put in, where they differ."""
        found = self._values.run(steps, len(self._groups))
        rows = [r.make(found) for r in self._recipes]
        goes, comes = self._differing(steps, rows, found[Rows()] > 0)
        if not len(goes) + len(comes):
            return None
        chosen = np.concatenate((goes, comes))
        times = self._by_position(steps, Layout.TIME)[chosen]
        order = np.argsort(times, kind="stable")
        codes = self._by_position(steps, Layout.GROUP)[chosen[order]]
        sign = np.repeat(np.array([-1, 1], np.int8), (len(goes), len(comes)))[order]
        shown = np.concatenate((goes - 1, comes))[order]
        return self._emitted(times[order], sign, codes, [r.take(pa.array(shown)) for r in rows])

    def _differing(self, steps: Steps, rows: list[pa.Array], alive: Mask) -> tuple[Ints, Ints]:
        """The positions at which the row before goes, and those at which a new one comes."""
        size = steps.positions - 1
        same = equal_rows([r.slice(1) for r in rows], [r.slice(0, size) for r in rows], size)
        is_step = np.ones(size, np.bool_)
        is_step[steps.first[1:] - 1] = False
        before, after = alive[:-1], alive[1:]
        changed = is_step & ~(before & after & same)
        return np.flatnonzero(changed & before) + 1, np.flatnonzero(changed & after) + 1

    def _by_position(self, steps: Steps, column: int) -> Ints:
        values = np.zeros(steps.positions, np.int64)
        values[steps.at] = steps.events[:, column]
        return values

    def _emitted(self, times: Ints, sign: Signs, codes: Ints, rows: list[pa.Array]) -> Batch:
        data = pa.RecordBatch.from_arrays(self._groups.keys.take(codes) + rows, schema=self._schema)
        arrival = self._newest["arrival"][codes] if self._measured else None
        return Batch(data, times, np.full(len(times), MAX_TIME), None if sign.min() > 0 else sign, arrival)

    # -------------------------------------------------------------------------------------------- state

    def _forget(self) -> None:
        """Forget groups that have neither rows nor events, and values that nothing refers to."""
        self._work = 0
        keep: Mask = self._values.rows.counts(len(self._groups)) != 0
        keep[self._ends.values(Layout.GROUP)] = True
        if 2 * int(np.count_nonzero(keep)) <= len(keep):
            self._forget_groups(keep)
        contents = self._numbering.forget(self._ends.values(Layout.CONTENT))
        if contents is not None:
            self._ends.remap(Layout.CONTENT, contents)
        for column, codec in self._codecs.items():
            if codec.crowded(len(self._ends)):
                codec.forget_except(self._words(column))

    def _forget_groups(self, keep: Mask) -> None:
        new = self._groups.compact(keep)
        self._ends.remap(Layout.GROUP, new)
        for value in self._values.all.values():
            value.remap(new, keep)
        self._newest.grow(len(keep))
        self._newest.keep(keep)
        self._local.replace(np.full(len(self._groups), EMPTY, np.int64))

    def _words(self, column: str) -> Ints:
        forests = [v for v in self._values.all.values() if isinstance(v, Ordered) and v.column == column]
        return np.concatenate([self._ends.values(self._layout.word(column)), *(f.words() for f in forests)])

    def state(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"groups": self._groups, "ends": self._ends, "newest": self._newest}
        for column, codec in self._codecs.items():
            parts |= {f"{column}/{name}": part for name, part in codec.state().items()}
        for name, value in self._values.all.items():
            parts |= {f"{name}/{part}": state for part, state in value.state().items()}
        return parts | {f"order/{name}": part for name, part in self._numbering.state().items()}
