"""Grouped aggregates over windows, of rows in any order: partial values are held, not the rows to be sorted.

A row goes into its pane wherever that lies in time, and a heartbeat decides when a pane is complete (Tucker &
Maier, §4). Sums are exact, so the order of rows changes no answer.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.aggregates.panes.values import Rowset
from headrace.aggregates.recipes import all_needs, recipe
from headrace.aggregates.session_values import session_values
from headrace.aggregates.specs import OfColumn
from headrace.arrays import Ints, Mask, Times
from headrace.flow.batch import Batch
from headrace.kernels.aggregate_panes import keep_least
from headrace.operators.contract import Operator
from headrace.operators.held_promises import HoldsPromises
from headrace.operators.order import InputManager
from headrace.operators.sliding_aggregate import SlidingAggregateOperator
from headrace.operators.state.open_panes import OpenPanes
from headrace.operators.ticks import tick_after
from headrace.plan.nodes.core import SlidingAggregate
from headrace.state.key_index import GroupIndex
from headrace.state.part import Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


class UnsortedWindowsOperator(InputManager, HoldsPromises):
    """Windows that do not overlap: each is one pane, so a group's line in its pane is its answer.

    A row costs one probe and one addition per partial value, a group one line for each open window. Rows of
    windows that are over are dropped; their source has already reported them.
    """

    def __init__(self, plan: SlidingAggregate) -> None:
        super().__init__()
        below = plan.input.schema
        self._plan, self._schema = plan, plan.schema
        self._groups = GroupIndex(pa.schema([below.field(k) for k in plan.keys]))
        self._recipes = [recipe(call, below) for call in plan.calls]
        self._values, self._codecs = session_values(all_needs(self._recipes), below)
        columns = {k: v for value in self._values for k, v in value.columns().items()}
        self._open = OpenPanes(plan.window, {"arrival": (np.int64, MAX_TIME), **columns})
        self._measured = False

    # ------------------------------------------------------------------------------------------ rows in

    def ingest(self, input: int, batch: Batch) -> None:
        batch = self._in_open_windows(batch)
        if not len(batch):
            return
        codes = self._groups.codes([batch.data.column(k) for k in self._plan.keys], len(batch))
        fresh = self._open.next
        cells = self._open.take(batch.start, codes)
        rows = Rowset(batch.start, codes, cells, fresh, batch.data)
        for value in self._values:
            value.add(rows, self._open.table)
        if batch.arrival is not None:
            self._measured = True
            keep_least(cells, ~batch.arrival, self._open.table["arrival"])

    def _in_open_windows(self, batch: Batch) -> Batch:
        """Drop the rows that fall between two windows, and those of windows that have been answered."""
        window = self._plan.window
        late = len(batch) > 0 and int(batch.start.min()) <= self.frontier
        if not late and window.size == window.slide:
            return batch
        offsets = (batch.start - window.offset) % window.slide
        kept = offsets < window.size
        if late:
            kept &= batch.start - offsets > self.frontier - window.size + 1
        return batch if kept.all() else batch.filter(kept)

    # -------------------------------------------------------------------------------------- windows out

    def due(self) -> int:
        least = self._open.least
        return MAX_TIME if least is None else self._end_of(least) - 1

    def _end_of(self, pane: int) -> int:
        """The end of the window that a pane is."""
        window = self._plan.window
        return (pane // 2 + 1) * window.slide + window.shift

    def map_heartbeat(self, heartbeat: int) -> int:
        """Nothing comes out between two ticks: the output's heartbeat is just before the next one."""
        if heartbeat in (MIN_TIME, MAX_TIME):
            return heartbeat
        return tick_after(heartbeat, self._plan.window.ticks) - 1

    def answer(self, frontier: int) -> Batch | None:
        over = self._open.over(frontier)
        return self._closed(over) if len(over) else None

    def _closed(self, over: Ints) -> Batch:
        """The answers of cells, in order of window; the cells are then forgotten."""
        table, window = self._open.table, self._plan.window
        ends = (table["pane"][over] // 2 + 1) * window.slide + window.shift
        found = {value.spec: value.of(over, table) for value in self._values}
        columns = self._groups.keys.take(table["code"][over]) + [r.make(found) for r in self._recipes]
        if self._plan.bounds:
            columns += [pa.array(ends - window.size), pa.array(ends)]
        data = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        lasts = window.slide - 1
        until = np.minimum(ends, MAX_TIME - lasts) + lasts
        arrival = ~table["arrival"][over] if self._measured else None
        self._open.close(over)
        if self._open.is_due_to_forget():
            self._forget()
        return Batch(data, ends - 1, until, None, arrival)

    # ------------------------------------------------------------------------------------- punctuations

    def _last(self, punctuation: Punctuation) -> int | None:
        if punctuation.until != MAX_TIME or not set(punctuation.columns) <= set(self._plan.keys):
            return None
        cells = self._open.of_groups(self._groups.matching(punctuation))
        return self._end_of(int(self._open.table["pane"][cells[-1]])) - 1 if len(cells) else MIN_TIME

    def _forget_closed(self, promises: int) -> None:
        """Forget closed groups where they may be most of all."""
        if len(self._groups) > 2 * len(self._open):
            self._forget()

    # -------------------------------------------------------------------------------------------- state

    def _forget(self) -> None:
        """Forget the cells that are over, then groups and values that only they used."""
        moved = self._open.forget()
        for value in self._values:
            value.keep(moved, self._open.table)
        used = np.zeros(len(self._groups), np.bool_)
        used[self._open.codes()] = True
        if not used.all():
            self._open.regroup(self._groups.compact(used))
        for column, codec in self._codecs.items():
            if codec.crowded(len(self._open)):
                codec.forget_except(self._words(column))

    def _words(self, column: str) -> Ints:
        """The words of a column that are still referred to."""
        of_column = [v for v in self._values if isinstance(v.spec, OfColumn) and v.spec.column == column]
        return np.concatenate([value.words(self._open.table) for value in of_column])

    def state(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"groups": self._groups}
        for column, codec in self._codecs.items():
            parts |= {f"{column}/{name}": part for name, part in codec.state().items()}
        parts |= {"open": self._open, "promises": self._promises}
        for value in self._values:
            parts |= {value.name(name): part for name, part in value.state().items()}
        return parts


class UnsortedPanesOperator(InputManager, SlidingAggregateOperator):
    """Windows that overlap: a pane in which rows may still come is open; once complete, it joins the others.

    So an answer costs what it costs over rows in order, however many panes a window has.
    """

    def __init__(self, plan: SlidingAggregate) -> None:
        super().__init__(plan)
        below = plan.input.schema
        specs = [value.spec for value in self._values]
        self._open_values, _ = session_values(specs, below, self._codecs)
        columns = {k: v for value in self._open_values for k, v in value.columns().items()}
        self._open = OpenPanes(plan.window, {"arrival": (np.int64, MAX_TIME), **columns})

    # ------------------------------------------------------------------------------------------ rows in

    def _take_in(self, batch: Batch) -> None:
        if len(batch) and batch.start.min() <= self.frontier:
            batch = batch.filter(batch.start > self.frontier)
        batch = self._in_windows(batch)
        if not len(batch):
            return
        codes = self._groups.codes([batch.data.column(k) for k in self._plan.keys], len(batch))
        fresh = self._open.next
        cells = self._open.take(batch.start, codes)
        rows = Rowset(batch.start, codes, cells, fresh, batch.data)
        for value in self._open_values:
            value.add(rows, self._open.table)
        if batch.arrival is not None:
            keep_least(cells, ~batch.arrival, self._open.table["arrival"])
            self._measure()

    # -------------------------------------------------------------------------------------- windows out

    def due(self) -> int:
        least = self._open.least
        return self._log.due() if least is None else min(self._log.due(), self._log.first_answer(least))

    def answer(self, frontier: int) -> Batch | None:
        cells = self._open.over(frontier)
        if len(cells):
            self._complete(cells)
        return super().answer(frontier)

    def _complete(self, cells: Ints) -> None:
        """Move cells to the panes in order, as if each were a row."""
        table = self._open.table
        codes = table["code"][cells]
        slots = self._log.take(self._open.starts(cells), codes, len(self._groups))
        for value, of in zip(self._values, self._open_values, strict=True):
            value.receive(slots, of, cells, table)
        if self._measured:
            self._note_arrival(slots, ~table["arrival"][cells])
        self._open.close(cells)
        if self._open.is_due_to_forget():
            moved = self._open.forget()
            for of in self._open_values:
                of.keep(moved, table)

    # ------------------------------------------------------------------------------------- punctuations

    def _last(self, punctuation: Punctuation) -> int | None:
        known = super()._last(punctuation)
        if known is None:
            return None
        cells = self._open.of_groups(self._groups.matching(punctuation))
        if not len(cells):
            return known
        return max(known, self._log.last_answer_of(int(self._open.table["pane"][cells[-1]])))

    # -------------------------------------------------------------------------------------------- state

    def _held(self) -> Mask:
        held = super()._held()
        held[self._open.codes()] = True
        return held

    def _references(self) -> int:
        return super()._references() + len(self._open)

    def _regroup(self, new: Ints) -> None:
        self._open.regroup(new)

    def _words(self, column: str) -> Times:
        of_column = [v for v in self._open_values if isinstance(v.spec, OfColumn) and v.spec.column == column]
        return np.concatenate([super()._words(column), *(v.words(self._open.table) for v in of_column)])

    def state(self) -> dict[str, Part]:
        parts = {**super().state(), "open": self._open}
        for value in self._open_values:
            parts |= {f"open/{value.name(name)}": part for name, part in value.state().items()}
        return parts


def unsorted_windows(plan: SlidingAggregate) -> Operator:
    """The operator for windows over rows in any order: where each pane is a window, it needs no other one."""
    tumbling = plan.window.size <= plan.window.slide
    return UnsortedWindowsOperator(plan) if tumbling else UnsortedPanesOperator(plan)
