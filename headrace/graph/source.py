"""A source node: where rows enter, are stamped and checked, and where ETS are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from headrace.arrays import Ints, Times
from headrace.errors import InputError
from headrace.flow.arc import Arc
from headrace.flow.batch import Batch, Extent, concat, sort_by_start
from headrace.flow.fixed64 import constant
from headrace.graph.admission import Admission, Rules
from headrace.operators.contract import ignore_heartbeat
from headrace.plan.nodes.core import Source, TimeKind
from headrace.schema import show_columns
from headrace.state.source_cells import cells_of
from headrace.time.ets import ON_DEMAND, ClockPromise, DataPromise, LatentPromise, Policy, Promise
from headrace.time.lags import Lags
from headrace.time.punctuation import Punctuation
from headrace.time.sources import Cells, SourcesPromise
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus

if TYPE_CHECKING:
    from headrace.graph.node import Node


PROMISES: dict[TimeKind, type[Promise]] = {
    TimeKind.EXTERNAL: DataPromise,
    TimeKind.INTERNAL: ClockPromise,
    TimeKind.LATENT: LatentPromise,
}


class SourceNode:
    """The buffer that wrappers fill, and the promises made on it.

    Laws: no row that breaks a promise already made enters the arc, unless it is admitted; every row that is
    pushed is processed, late or rejected.
    """

    def __init__(self, plan: Source) -> None:
        self.name = plan.name
        self.kind = plan.time
        self.schema = plan.schema
        self.stamp = plan.stamp
        self.arc = Arc()
        self.successors: list[Node] = []
        self.tsm_successors: list[Node] = []
        self.policy: Policy = ON_DEMAND
        self.promise: Promise = PROMISES[plan.time]()
        self.admission = Admission(plan.name)
        self.lags = Lags()
        self.ets_made = 0
        self.ended = False
        self._next_period = MIN_TIME
        self.read_until: int | None = None
        self.held_to = MIN_TIME
        self.spoken: list[tuple[int, Punctuation]] = []
        """Promises that were read, each with the clock at which: they hold once all earlier rows are in."""
        self.waiting: list[Batch] = []
        """Rows that wait to be judged together with all others of their instant (`enter`)."""
        self._waiting_under = MIN_TIME
        self.by_source: list[Node] = []
        """The operators that answer a group when its own sources are complete."""
        self.each_made = 0
        self.answered = MIN_TIME
        """The greatest promise about one of its sources that such an operator was given."""
        self.spread: Callable[[int], None] = ignore_heartbeat
        self.catch_up: Callable[[], None] = nothing_to_catch_up

    def agrees(self, plan: Source) -> bool:
        """Whether a plan agrees with this stream; plans that name a time column must name the same one."""
        same = self.schema == plan.schema and self.kind is plan.time
        return same and (None in (self.stamp, plan.stamp) or self.stamp == plan.stamp)

    @property
    def promised(self) -> int:
        """The heartbeat promised so far."""
        return self.admission.punctuate.promised

    @property
    def rules(self) -> Rules:
        """What the stream's rows may do, and what happens to rows that break a promise."""
        return self.admission.rules

    def push(
        self,
        data: pa.RecordBatch,
        times: ArrayLike | pa.Array | None,
        now: int,
        *,
        learn: bool = True,
        cells: Cells | None = None,
    ) -> Batch:
        """Stamp, check and enter rows; returns those that went in. A push that is refused leaves no trace.

        Without `learn`, the promise learns of the arrivals only through `observe`. If the rows of an instant
        are judged together, all that pass the other checks are returned, and wait for `enter`. `cells` are
        those of the rows, if the stream has sources by a column that the rows do not bring.
        """
        self.check(data)
        with self.admission.accounting(data.num_rows):
            batch = self._stamp(data, times, now, cells)
            if self.kind is TimeKind.EXTERNAL:
                batch = self._admit(batch, now, learn)
        if self.admission.together:
            self.waiting.append(batch)
        else:
            self.arc.append(batch)
        return batch

    def check(self, data: pa.RecordBatch) -> None:
        """Raise an error if the stream has ended or the rows have another schema."""
        if self.ended:
            raise InputError("HR-I002", "the stream has ended", place=self.name, hint="push before end()")
        if not isinstance(data, pa.RecordBatch):
            raise InputError(
                "HR-I009",
                f"rows come as an Arrow RecordBatch, not as {type(data).__name__}",
                place=self.name,
                hint="of a table: table.combine_chunks().to_batches()",
            )
        if not data.schema.equals(self.schema):
            raise InputError(
                "HR-I003",
                f"rows have ({show_columns(data.schema)}), the stream has ({show_columns(self.schema)})",
                place=self.name,
                hint="names, types and order must be those declared",
            )

    def _stamp(
        self, data: pa.RecordBatch, times: ArrayLike | pa.Array | None, now: int, cells: Cells | None
    ) -> Batch:
        """The rows with their times: their own if the stream is external, else given here."""
        if self.kind is TimeKind.EXTERNAL:
            data, brought, cells = self.admission.timed(data, times, cells)
            return Batch(data, brought, self._cells(data, cells), arrival=constant(now, data.num_rows))
        if times is not None:
            raise InputError(
                "HR-I011",
                f"rows of an {self.kind.value} stream bring no times",
                place=self.name,
                hint="leave times= out, or declare the stream external",
            )
        stamp = now
        if self.kind is TimeKind.INTERNAL:
            stamp = max(now, plus(self.arc.heartbeat, 1), plus(self.promised, 1))
        start = np.full(data.num_rows, stamp, np.int64)
        return Batch(data, start, arrival=constant(now, data.num_rows))

    def _cells(self, data: pa.RecordBatch, cells: Cells | None) -> Times | None:
        """The cells of rows that are judged by their sources.

        They are carried as the `end` of each row, which no row of a stream has, so that rows that are set
        apart take their cells along.
        """
        if not isinstance(self.promise, SourcesPromise):
            return None
        if cells is not None:
            return cells.astype(np.int64)
        by = self.promise.by
        if by.column not in data.schema.names:
            return None
        return cells_of(data.column(by.column), by.cells, by.numbered)

    def observe(self, times: Times, now: int, cells: Cells | None = None) -> None:
        """Learn from rows with these times that came in at `now`, here or in another part of the stream."""
        if not len(times):
            return
        if isinstance(self.promise, SourcesPromise):
            self.promise.observe(times, now, self.read_until, cells)
        else:
            self.promise.observe(times, now, self.read_until)

    def feed(self, batch: Batch) -> None:
        """Enter the output of another graph unchecked: its rows are in order and were checked there."""
        self.admission.rows_in += len(batch)
        self.arc.append(batch)

    def _admit(self, batch: Batch, now: int, learn: bool) -> Batch:
        """The rows that obey the rules, in order of time; learns from all rows that have a valid time."""
        reach = Extent.of(batch.start) if len(batch) else Extent(MAX_TIME, MIN_TIME, True)
        batch = self.admission.guarded(batch, now, reach)
        if self.stamp is not None:
            batch = self.admission.stamped(batch, self.stamp)
        times, cells = batch.start, batch.end
        batch = batch if cells is None else replace(batch, end=None)
        if learn and self.rules.disordered:
            self.lags.observe(times, now, reach.low)
        in_force = self._known_before(now)
        if self.admission.together:
            self._waiting_under, kept = in_force, batch
        elif self.rules.enforce == "strict" and cells is not None:
            kept = self.admission.enforced(batch, now, self._promised_each(cells, now), reach)
        else:
            if self.rules.enforce == "admit" and reach.low <= in_force and bool((times <= in_force).any()):
                self.catch_up()
            kept = self.admission.enforced(batch, now, in_force, reach)
        if learn:
            self.observe(times, now, cells)
        kept = kept if reach.ordered else sort_by_start(kept)
        if len(kept) and self.arc.ordered and self.arc.rows_in and kept.first <= self.arc.heartbeat:
            raise InputError(
                "HR-I005",
                f"a row has time {kept.first} after one with {self.arc.heartbeat + 1}",
                place=self.name,
                hint="declare bounds for the stream: its rows are then put in order",
            )
        return kept

    @property
    def must_catch_up(self) -> bool:
        """Whether a waiting row is at or before the heartbeat in force for it."""
        return any(bool((batch.start <= self._waiting_under).any()) for batch in self.waiting)

    def announce(self) -> None:
        """Combine the waiting rows, and announce them to the gates before any is judged."""
        batch = concat(self.waiting)
        self.waiting = [sort_by_start(batch)]
        self.admission.announce(self.waiting[0])

    def enter(self, now: int) -> None:
        """Enter the rows that waited, except those that are too late."""
        batch, self.waiting = self.waiting[0], []
        reach = Extent.of(batch.start) if len(batch) else Extent(MAX_TIME, MIN_TIME, True)
        self.arc.append(self.admission.enforced(batch, now, self._waiting_under, reach))

    def heartbeat(self, time: int) -> bool:
        """Promise that future rows are later than `time`, and spread it; True if that is new."""
        if self.kind is TimeKind.LATENT or not self.admission.punctuate.promise(time):
            return False
        self.spread(time)
        return True

    def demand(self, now: int) -> bool:
        """Make an ETS if the policy makes them on demand and it would be new."""
        return self.policy.demand and self._make(now)

    def tick(self, now: int) -> bool:
        """Make the periodic ETS that is due at `now`, if any."""
        if self.policy.interval == MAX_TIME or now < self._next_period:
            return False
        self._next_period = now + self.policy.interval
        return self._make(now)

    def _make(self, now: int) -> bool:
        """Promise what is known from the bounds and from the rows themselves; True if that is new."""
        proven = max(self.promise.at(now, self.read_until), self.arc.heartbeat)
        made = not self.ended and self.heartbeat(proven)
        self.ets_made += made
        return self._make_each(now) or made

    def _make_each(self, now: int) -> bool:
        """The same for each of its sources, if an operator answers by source; True if that is new."""
        if not self.by_source or self.ended or not isinstance(self.promise, SourcesPromise):
            return False
        found = self.promise.promise_each(now, self.read_until)
        if found is None:
            return False
        self.each_made += 1
        self.answered = max(self.answered, int(found.max()))
        for node in self.by_source:
            node.fresh = True
        return True

    @property
    def each(self) -> Times:
        """By cell of its sources, what was promised to operators that answer by source."""
        assert isinstance(self.promise, SourcesPromise)
        return self.promise.promised_each

    def cells(self, column: pa.Array) -> Ints:
        """The cell of each value of the column that names the source of a row."""
        assert isinstance(self.promise, SourcesPromise)
        return cells_of(column, self.promise.by.cells, self.promise.by.numbered)

    def keep_answered(self, sources: str) -> None:
        """Its sources are told apart in another way than by `sources`: what was answered for some of them
        stays answered for all."""
        same = isinstance(self.promise, SourcesPromise) and self.promise.settings == sources
        if not same and self.answered > MIN_TIME:
            self.heartbeat(self.answered)

    def in_force(self, now: int) -> int:
        """The heartbeat by which rows arriving at `now` are judged."""
        return max(self.promised, self._known_before(now))

    def _known_before(self, now: int) -> int:
        """The heartbeat that was known before the rows that arrive at `now`."""
        return self.promise.before(now) if self.read_until is None else self.held_to

    def _promised_each(self, cells: Times, now: int) -> Times:
        """For each row, the promise of its group of sources that was known before the rows at `now`.

        Rows that are admitted late are judged by the stream alone: its heartbeat decides what was answered.
        """
        assert isinstance(self.promise, SourcesPromise)
        by_cell = self.promise.before_each(now) if self.read_until is None else self.promise.held_each()
        return by_cell[cells]

    def read_up_to(self, instant: int) -> None:
        """Note that all rows that reached the source by `instant` have been pushed.

        From the first call on, the clock promises nothing beyond that, and rows are judged by the heartbeat
        that was known when the rows before them had been taken in (`settle`): a row that reached its source
        in time is not late because it was read late.
        """
        self.read_until = instant if self.read_until is None else max(self.read_until, instant)

    def settle(self, now: int) -> None:
        """All rows read so far are in; rows read later are judged by the heartbeat known now."""
        if self.read_until is not None:
            self.held_to = self.known(now)
            if isinstance(self.promise, SourcesPromise):
                self.promise.hold(now, self.read_until)

    def known(self, now: int) -> int:
        """The largest heartbeat known at `now`, even if no ETS was made for it."""
        if self.ended or self.kind is TimeKind.LATENT:
            return self.promised
        return max(self.promised, self.promise.at(now, self.read_until))

    def reached(self) -> list[Node]:
        """The nodes that an ETS of this source may have reached first."""
        return [*self.tsm_successors, *self.successors]

    def close(self, punctuation: Punctuation) -> None:
        """Promise that no future row matches a punctuation on attributes; it travels in-band."""
        self.check_patterns(punctuation)
        if self.admission.punctuate.close(punctuation):
            self.arc.punctuate(punctuation)

    def pass_on(self, punctuation: Punctuation) -> None:
        """Pass on a punctuation of another graph, which keeps it: no row that is fed breaks it."""
        self.arc.punctuate(punctuation)

    def apply_promises(self) -> bool:
        """Make the promises that were read and whose time has come (`Streams.promise`); True if any was."""
        ready = [p for read_at, p in self.spoken if self._has_read_beyond(read_at)]
        if not ready:
            return False
        self.spoken = [each for each in self.spoken if not self._has_read_beyond(each[0])]
        for punctuation in ready:
            if punctuation.patterns:
                self.close(punctuation)
            else:
                self.heartbeat(punctuation.until)
        return True

    def _has_read_beyond(self, clock: int) -> bool:
        """Whether every row that reached the source by `clock`, or at that instant, has been pushed."""
        return clock == MIN_TIME or self.read_until is None or self.read_until > clock

    def check_patterns(self, punctuation: Punctuation) -> None:
        """Raise an error if a pattern names an unknown column or cannot match its type."""
        for name, pattern in punctuation.patterns:
            try:
                pattern.matches(pa.array([], self.schema.field(name).type))
            except (KeyError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    "HR-I010",
                    f"no value of {name!r} can match {pattern}: {error}",
                    place=self.name,
                    hint=f"columns: {show_columns(self.schema)}",
                ) from None

    def end(self) -> None:
        """End the stream: a heartbeat of +∞ under any policy."""
        self.heartbeat(MAX_TIME)
        self.ended = True


def nothing_to_catch_up() -> None:
    """The `catch_up` of a source that is not in an engine yet: does nothing."""
