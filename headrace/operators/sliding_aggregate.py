"""Grouped aggregates over sliding windows, from panes: a row is not kept once its pane has counted it.

Panes are those of paired windows (Krishnamurthy, Wu & Franklin, 2006): at most two per slide.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.aggregates.panes.log import Closing, PaneLog
from headrace.aggregates.panes.table import pane_values
from headrace.aggregates.panes.values import Rowset
from headrace.aggregates.recipes import all_needs, recipe
from headrace.aggregates.specs import OfColumn, is_placed
from headrace.arrays import Ints, Mask, Times
from headrace.flow.batch import Batch, concat
from headrace.kernels.aggregate_panes import keep_least
from headrace.operators.content_order import by_content
from headrace.operators.held_promises import HoldsPromises
from headrace.operators.ticks import tick_after
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.core import SlidingAggregate
from headrace.state.key_index import GroupIndex
from headrace.state.part import Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


class SlidingAggregateOperator(HoldsPromises):
    """Answers each window once, at its last tick; groups without rows in it are absent.

    A row costs one probe and one addition per partial value; an answer costs its rows; an entry of a pane is
    touched a constant number of times, however many windows it is in. State: one entry per group and pane.
    """

    def __init__(self, plan: SlidingAggregate) -> None:
        super().__init__()
        below = plan.input.schema
        self._plan, self._schema = plan, plan.schema
        self._groups = GroupIndex(pa.schema([below.field(k) for k in plan.keys]))
        self._log = PaneLog(plan.window)
        self._recipes = [recipe(call, below) for call in plan.calls]
        specs = all_needs(self._recipes)
        self._values, self._codecs = pane_values(specs, self._log, below)
        self._sorts = any(map(is_placed, specs)) and not keeps_arrival_order(plan.input)
        self._pending: list[Batch] = []
        self._measured = False
        self._roomy = self._peak = self._closed = 0

    # ------------------------------------------------------------------------------------------ rows in

    def ingest(self, input: int, batch: Batch) -> None:
        if self._sorts:
            self._pending.append(batch)
        else:
            self._take_in(batch)

    def _take_in(self, batch: Batch) -> None:
        """Pre-aggregate rows into their panes; simultaneous rows are already in order."""
        batch = self._in_windows(batch)
        if not len(batch):
            return
        keys = [batch.data.column(k) for k in self._plan.keys]
        codes = self._groups.codes(keys, len(batch))
        fresh = self._log.entries.next
        slots = self._log.take(batch.start, codes, len(self._groups))
        rows = Rowset(batch.start, codes, slots, fresh, batch.data)
        for value in self._values:
            value.add(rows)
        if batch.arrival is not None:
            self._note_arrival(slots, batch.arrival)

    def _note_arrival(self, slots: Times, arrival: Times) -> None:
        """Keep the newest arrival of each entry; not part of the state, because it is of this run's clock."""
        self._measure()
        keep_least(slots, ~arrival, self._log.entries["arrival"])

    def _measure(self) -> None:
        """From now on, keep arrivals."""
        if not self._measured:
            self._measured = True
            self._log.entries.add_column("arrival", np.int64, MAX_TIME, kept=False)

    def _in_windows(self, batch: Batch) -> Batch:
        """Drop the rows that fall between two windows, if the range is less than the slide."""
        window = self._plan.window
        if window.size >= window.slide:
            return batch
        return batch.filter((batch.start - window.offset) % window.slide < window.size)

    # -------------------------------------------------------------------------------------- windows out

    def due(self) -> int:
        return self._log.due()

    def map_heartbeat(self, heartbeat: int) -> int:
        """Nothing comes out between two ticks: the output's heartbeat is just before the next one."""
        if heartbeat in (MIN_TIME, MAX_TIME):
            return heartbeat
        return tick_after(heartbeat, self._plan.window.ticks) - 1

    def answer(self, frontier: int) -> Batch | None:
        if self._pending:
            self._take_in(by_content(concat(self._pending)))
            self._pending = []
        closed = False
        while (step := self._log.close(frontier)) is not None:
            scan, closing = step
            for value in self._values:
                value.scan(scan)
            self.emit(self._finish(closing))
            closed = True
        if closed:
            self._forget()
        return None

    def _finish(self, closing: Closing) -> Batch:
        """The output rows of windows that close."""
        window = self._plan.window
        found = {value.spec: value.close(closing) for value in self._values}
        ends = np.repeat(closing.windows * window.slide + window.shift, np.diff(closing.rows))
        columns = self._groups.keys.take(closing.codes) + [r.make(found) for r in self._recipes]
        if self._plan.bounds:
            columns += [pa.array(ends - window.size), pa.array(ends)]
        data = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Batch(data, ends - 1, self._until(ends), None, self._arrivals(closing))

    def _until(self, ends: Times) -> Times:
        """The end of each answer's validity, clamped to the time domain."""
        lasts = self._plan.window.slide - 1
        return (
            ends + lasts if int(ends[-1]) <= MAX_TIME - lasts else np.minimum(ends, MAX_TIME - lasts) + lasts
        )

    def _arrivals(self, closing: Closing) -> Times | None:
        """The newest arrival behind the newest pane of each output row."""
        if not self._measured:
            return None
        ring = self._log.entries["arrival"]
        return np.asarray(~ring[closing.tails & (len(ring) - 1)], np.int64)

    # ------------------------------------------------------------------------------------- punctuations

    def _last(self, punctuation: Punctuation) -> int | None:
        if punctuation.until != MAX_TIME or not set(punctuation.columns) <= set(self._plan.keys):
            return None
        return self._log.last_answer(self._groups.matching(punctuation))

    def _forget_closed(self, promises: int) -> None:
        """Forget closed groups once they may be half of all."""
        self._closed += promises
        if 2 * self._closed > len(self._groups):
            self._log.drop()
            self._forget_groups()

    # -------------------------------------------------------------------------------------------- state

    def _forget(self) -> None:
        """Forget panes that are over, and from time to time the groups and values that only they used."""
        self._log.drop()
        for value in self._values:
            value.drop()
        entries = len(self._log.entries)
        self._peak = max(self._peak, entries)
        fewer = 2 * entries < self._peak
        if len(self._groups) > self._roomy + max(tuning.current.idle_keys, entries // 16) or fewer:
            self._forget_groups()
            self._peak = entries
        for column, codec in self._codecs.items():
            if codec.crowded(self._references()):
                codec.forget_except(self._words(column))

    def _forget_groups(self) -> None:
        """Forget the groups that have no entry, and set the size at which to look again."""
        keep = self._held()
        if not keep.all():
            new = self._groups.compact(keep)
            self._log.remap(new, keep)
            for value in self._values:
                value.remap(new, keep)
            self._regroup(new)
        self._roomy = 2 * int(np.count_nonzero(keep))
        self._closed = 0

    def _held(self) -> Mask:
        """Which groups have an entry."""
        return self._log.held(len(self._groups))

    def _references(self) -> int:
        """How many partial values may refer to a word."""
        return len(self._log.entries)

    def _regroup(self, new: Ints) -> None:
        """Groups have new codes."""
        return

    def _words(self, column: str) -> Times:
        """The words of a column that are still referred to."""
        of_column = [v for v in self._values if isinstance(v.spec, OfColumn) and v.spec.column == column]
        return np.concatenate([value.words() for value in of_column])

    def state(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"groups": self._groups}
        for column, codec in self._codecs.items():
            parts |= {f"{column}/{name}": part for name, part in codec.state().items()}
        parts |= {"panes": self._log, "promises": self._promises}
        for value in self._values:
            parts |= {value.name(name): part for name, part in value.state().items()}
        return parts
