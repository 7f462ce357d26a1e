"""Grouped aggregates: a new result at every instant at which it changes, also when rows expire."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.aggregates.codecs import codec_for
from headrace.aggregates.forest import Numbering, may_withdraw
from headrace.aggregates.instants.ends import ADDITIVE, PartialEnds
from headrace.aggregates.instants.protocol import Layout, Leaving, Steps
from headrace.aggregates.instants.sums import Tabled
from headrace.aggregates.instants.table import InstantValues
from headrace.aggregates.recipes import all_needs, recipe
from headrace.aggregates.specs import Rows, columns_of, is_numbered, is_placed
from headrace.arrays import Ints, Mask
from headrace.flow.batch import Batch, Signs
from headrace.kernels.aggregate_instants import list_changes, number_steps, order_by_group
from headrace.kernels.hashing import EMPTY
from headrace.kernels.merge import merge_order
from headrace.operators.content_order import by_content
from headrace.operators.contract import Waiting
from headrace.operators.memory import OperatorMemory
from headrace.operators.state.coalesce_ends import coalesce_ends, different, is_rounded
from headrace.operators.state.evicted_groups import EvictedGroups
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.core import Aggregate
from headrace.state.code_table import CodeTable
from headrace.state.columns import Buffer, valid_mask
from headrace.state.key_index import GroupIndex
from headrace.state.keys import equal_rows
from headrace.state.part import Cell, Part, tight_bytes
from headrace.state.timeline import Timeline
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


class AggregateOperator(Waiting):
    """At each instant at which a group's row changes, withdraws the old row and inserts the new one.

    An element is two events; the second waits in a timeline with all that is needed to undo the first. All
    events of a group at one instant are one step; a row that stays the same is not a change. The cost depends
    on the number of events (for extremes, times the logarithm of a group's values), not on the size of
    groups.
    """

    def __init__(self, plan: Aggregate) -> None:
        super().__init__()
        below = plan.input.schema
        self._plan, self._schema = plan, plan.schema
        self._recipes = [recipe(call, below) for call in plan.calls]
        specs = all_needs(self._recipes)
        columns = tuple(dict.fromkeys(name for spec in specs for name in columns_of(spec)))
        self._codecs = {column: codec_for(below.field(column).type) for column in columns}
        self._layout = Layout(columns)
        self._groups = GroupIndex(pa.schema([below.field(k) for k in plan.keys]))
        self._values = InstantValues(specs, self._codecs, plan)
        self._newest = CodeTable(arrival=(np.int64, MIN_TIME))
        self._numbers = any(map(is_numbered, specs))
        counts_only = all(isinstance(spec, Rows) for spec in specs)
        self._merges = not self._numbers and (counts_only or is_rounded(plan.input))
        adds = self._merges and not counts_only and all(isinstance(spec, ADDITIVE) for spec in specs)
        self._partials = PartialEnds(specs, self._layout, self._codecs) if adds else None
        self._ends = Timeline(self._layout.width) if self._partials is None else self._partials
        self._sorts = any(map(is_placed, specs)) and not keeps_arrival_order(plan.input)
        self._numbering = Numbering(below, self._numbers and may_withdraw(plan.input))
        self._starts: list[Ints] = []
        self._closed: list[Ints] = []
        self._local = Buffer(np.int64)
        self.memory = OperatorMemory(
            self.state,
            forget=lambda: self._forget(at_once=True),
            dead_bytes=self._dead_bytes,
            scratch=self._local,
            distinct_ends=self._distinct_ends if self._merges else None,
        )
        self._cold = EvictedGroups(
            self._groups, self._values, self._newest, self._idle_groups, self._put_away, self.memory.bytes
        )
        self._used = Buffer(np.int64)
        self._uses = 0
        self._measured = False
        self._work = Cell(events=0)

    # ----------------------------------------------------------------------------------------- events in

    def ingest(self, input: int, batch: Batch) -> None:
        if self._sorts:
            batch = by_content(batch)
        until = batch.end
        assert until is not None, "a relation's elements have ends"
        lines = self._lines(batch)
        self._starts.append(lines)
        if self._partials is not None:
            self._partials.add_rows(lines, until)
            return
        ends = lines.copy()
        ends[:, Layout.TIME] = until
        ends[:, Layout.SIGN] *= -1
        self._ends.add(coalesce_ends(ends, lines[:, Layout.TIME]) if self._merges else ends)

    def _lines(self, batch: Batch) -> Ints:
        """The start of each element as an event."""
        layout, data = self._layout, batch.data
        lines = np.zeros((len(batch), layout.width), np.int64)
        lines[:, Layout.TIME] = batch.start
        keys = [data.column(k) for k in self._plan.keys]
        if self._cold:
            self._cold.bring_back(keys, len(batch))
        lines[:, Layout.GROUP] = self._groups.codes(keys, len(batch))
        lines[:, Layout.SIGN] = batch.signs()
        for i, (column, codec) in enumerate(self._codecs.items()):
            values = data.column(column)
            lines[:, layout.word(column)] = codec.encode(values)
            if values.null_count:
                lines[:, Layout.NULLS] |= (~valid_mask(values)).astype(np.int64) << i
        if self._numbers:
            self._numbering.number(batch, lines, Layout.NUMBER, Layout.CONTENT)
        if batch.arrival is not None:
            self._note_arrival(lines[:, Layout.GROUP], batch.arrival)
        return lines

    def _note_arrival(self, codes: Ints, arrival: Ints) -> None:
        """Keep the newest arrival of each group."""
        self._measured = True
        self._newest.grow(len(self._groups))
        np.maximum.at(self._newest["arrival"], codes, arrival)
        self._newest.touch(codes)

    # --------------------------------------------------------------------------------------- changes out

    def due(self) -> int:
        return self._ends.next()

    def answer(self, frontier: int) -> Batch | None:
        began, self._starts = self._starts, []
        starts = np.concatenate(began) if began else np.empty((0, self._layout.width), np.int64)
        ends, leaving = self._ended(starts, frontier)
        if not len(starts) and not len(ends):
            return None
        steps = self._steps(starts, ends, leaving)
        out = self._changes(steps)
        self._note_use(steps.codes)
        self._work["events"] += len(steps.events)
        held = len(self._groups) + len(self._ends)
        if 4 * self._work["events"] > held + tuning.current.compact_after:
            self._forget()
        return out

    def _ended(self, starts: Ints, frontier: int) -> tuple[Ints, Leaving | None]:
        """The ends of elements that happen up to `frontier`, and the partial values that leave with them."""
        if self._partials is not None:
            return self._partials.taken(frontier)
        ends = self._ends.take(frontier)
        self._numbering.expire(ends[:, Layout.CONTENT], ends[:, Layout.NUMBER], ends[:, Layout.SIGN])
        return ends, None

    def _steps(self, starts: Ints, ends: Ints, leaving: Leaving | None) -> Steps:
        """All events in order of group and time."""
        events = np.concatenate((starts, ends)) if len(ends) else starts
        order, ranks, at = np.empty((3, len(events)), np.int64)
        groups = order_by_group(
            events[:, Layout.GROUP], _by_time(starts, ends), self._scratch(), order, ranks
        )
        events = np.take(events, order, axis=0)
        first = np.empty(groups, np.int64)
        lines = np.empty((len(events) + groups, 3), np.int64)
        times, codes = events[:, Layout.TIME], events[:, Layout.GROUP]
        positions = number_steps(times, codes, ranks, at, lines, first)
        if leaving is not None:
            places = np.flatnonzero(order >= len(starts))
            leaving = leaving.taken(places, order[places] - len(starts))
        return Steps(self._layout, self._codecs, events, at, first, lines[:positions], order, leaving)

    def _scratch(self) -> Ints:
        """A scratch array for `order_by_group`, EMPTY for every group."""
        if len(self._local) < len(self._groups):
            self._local.extend(len(self._groups) - len(self._local))[:] = EMPTY
        return np.asarray(self._local.view, np.int64)

    def _changes(self, steps: Steps) -> Batch | None:
        """Withdrawals of the old rows and insertions of the new ones, for the steps where they differ."""
        found = self._values.run(steps, len(self._groups))
        rows = [r.make(found) for r in self._recipes]
        at, shown = np.empty((2, 2 * steps.positions), np.int64)
        sign = np.empty(2 * steps.positions, np.int8)
        alive = found[Rows()] > 0
        count = list_changes(steps.lines[:, 2], alive, _same_as_before(rows, len(alive)), at, shown, sign)
        if not count:
            return None
        chosen = pa.array(shown[:count])
        lines = np.take(steps.lines, at[:count], axis=0)
        return self._emitted(
            lines[:, 0].copy(), sign[:count], lines[:, 1].copy(), [r.take(chosen) for r in rows]
        )

    def _emitted(self, times: Ints, sign: Signs, codes: Ints, rows: list[pa.Array]) -> Batch:
        """An output batch of insertions and withdrawals, with the keys of each group in front."""
        data = pa.RecordBatch.from_arrays(self._groups.keys.take(codes) + rows, schema=self._schema)
        self._newest.grow(len(self._groups) if self._measured else 0)
        arrival = self._newest["arrival"][codes] if self._measured else None
        return Batch(data, times, np.full(len(times), MAX_TIME), None if sign.min() > 0 else sign, arrival)

    # -------------------------------------------------------------------------------------- punctuations

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """Forget the closed groups that cannot change any more; their last rows stay valid forever.

        The punctuation passes if this holds for every matching group; otherwise a change may still come.
        """
        if punctuation.until != MAX_TIME or not set(punctuation.columns) <= set(self._plan.keys):
            return None
        if self._cold:
            self._cold.close(punctuation)
        closed = self._groups.matching(punctuation)
        changing = bool(np.isin(closed, self._ends.values(Layout.GROUP)).any())
        self._closed.append(closed)
        if 2 * sum(len(codes) for codes in self._closed) > len(self._groups):
            self._forget()
        return None if changing else punctuation

    # ----------------------------------------------------------------------------------------- spilling

    def _note_use(self, codes: Ints) -> None:
        """Remember which groups changed last, if groups can be spilled."""
        if self._cold.spill_store.in_memory:
            return
        missing = len(self._groups) - len(self._used)
        if missing > 0:
            self._used.extend(missing)[:] = self._uses
        self._uses += 1
        self._used.view[codes] = self._uses

    def _idle_groups(self) -> Ints:
        """The groups that only a new row can change, the longest unchanged first."""
        if self._starts:
            return np.empty(0, np.int64)
        idle: Mask = self._values.rows.counts(len(self._groups)) != 0
        idle[np.concatenate([*self._closed, self._ends.values(Layout.GROUP)])] = False
        codes = np.flatnonzero(idle)
        used = np.zeros(len(self._groups), np.int64)
        known = self._used.view[: len(used)]  # it is no part of the state, which may have been caught up
        used[: len(known)] = known
        return codes[np.argsort(used[codes], kind="stable")]

    def _put_away(self, codes: Ints) -> None:
        """Drop groups from memory that are on disk now."""
        keep = np.ones(len(self._groups), np.bool_)
        keep[codes] = False
        self._forget_groups(keep)
        for column, codec in self._codecs.items():
            codec.forget_except(self._words(column))

    # -------------------------------------------------------------------------------------------- state

    def _forget(self, *, at_once: bool = False) -> None:
        """Forget groups that have neither rows nor events, or are closed, and values nothing refers to.

        Groups are dropped once half of them are dead, or an eighth with `at_once`.
        """
        self._work["events"] = 0
        keep = self._live()
        most = len(keep) * 7 // 8 if at_once else len(keep) // 2
        if int(np.count_nonzero(keep)) <= most:
            self._forget_groups(keep)
        for value in self._values.all.values():
            value.tidy()
        if self._numbers:
            contents = self._numbering.forget(self._ends.values(Layout.CONTENT))
            if contents is not None:
                self._ends.remap(Layout.CONTENT, contents)
        for column, codec in self._codecs.items():
            if codec.crowded(self._references()):
                codec.forget_except(self._words(column))

    def _forget_groups(self, keep: Mask) -> None:
        """Keep some groups, under new codes, everywhere that codes are held."""
        new = self._groups.compact(keep)
        self._closed = [moved[moved != EMPTY] for moved in (new[codes] for codes in self._closed)]
        self._ends.remap(Layout.GROUP, new)
        for value in self._values.all.values():
            value.remap(new, keep)
        self._newest.grow(len(keep))
        self._newest.keep(keep)
        self._local.replace(np.full(len(self._groups), EMPTY, np.int64))
        used = self._used.view[: len(keep)]
        self._used.replace(used[keep[: len(used)]].copy())

    def _references(self) -> int:
        """How many rows that will leave refer to values."""
        return len(self._ends)

    def _words(self, column: str) -> Ints:
        """The words of a column that are still referred to: by pending ends or by partial values."""
        held, at = [value.words(column) for value in self._values.all.values()], self._layout.word(column)
        if self._partials is None:
            return np.concatenate([self._ends.values(at), *held])
        return np.concatenate([np.empty(0, np.int64), *held, *(lines[:, at] for lines in self._starts)])

    def _distinct_ends(self) -> tuple[int, int]:
        """How many pending ends were looked at, and how many of them differ in more than their time."""
        return different(self._ends) if self._partials is None else self._partials.seen()

    def _dead_bytes(self) -> int:
        """About how many bytes belong to groups that could be forgotten now."""
        if not len(self._groups):
            return 0
        live = self._live()
        tables = [value.table for value in self._values.all.values() if isinstance(value, Tabled)]
        by_group: list[Part] = [self._groups, self._newest, *tables]
        dead = len(live) - int(np.count_nonzero(live))
        return sum(map(tight_bytes, by_group)) * dead // len(live)

    def _live(self) -> Mask:
        """The groups that have rows or pending events and are not closed."""
        live: Mask = self._values.rows.counts(len(self._groups)) != 0
        live[np.concatenate([*self._closed, np.empty(0, np.int64)])] = False
        live[self._ends.values(Layout.GROUP)] = True
        return live

    def state(self) -> dict[str, Part]:
        ends = "ends" if self._partials is None else "partial ends"
        parts: dict[str, Part] = {"groups": self._groups, ends: self._ends, "newest": self._newest}
        parts |= {"cold": self._cold, "work": self._work}
        for column, codec in self._codecs.items():
            parts |= {f"{column}/{name}": part for name, part in codec.state().items()}
        for name, value in self._values.all.items():
            parts |= {f"{name}/{part}": state for part, state in value.state().items()}
        return parts | {f"order/{name}": part for name, part in self._numbering.state().items()}


def _by_time(starts: Ints, ends: Ints) -> Ints:
    """The order of the events by time: starts and ends are each in order."""
    order = np.arange(len(starts) + len(ends))
    if len(starts) and len(ends):
        left, right = (np.ascontiguousarray(lines[:, Layout.TIME]) for lines in (starts, ends))
        merge_order(left, right, order)
    return order


def _same_as_before(rows: list[pa.Array], positions: int) -> Mask:
    """Whether the row at each position equals the one before it."""
    same = np.zeros(positions, np.bool_)
    size = positions - 1
    same[1:] = equal_rows([r.slice(1) for r in rows], [r.slice(0, size) for r in rows], size)
    return same
