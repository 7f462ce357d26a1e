"""Relation to stream: rows that enter (IStream), rows that leave (DStream), all rows (RStream)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Codes, Times
from headrace.flow.batch import Batch, order_of
from headrace.operators.contract import Operator, Stateless, Waiting
from headrace.operators.counted import History, Multiplicities
from headrace.operators.memory import OperatorMemory
from headrace.operators.state.net_changes import Change, Changes
from headrace.operators.ticks import tick_after, ticks_until
from headrace.plan.nodes.core import IStream, RStream, ToStream
from headrace.state.part import Cell, Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

__all__ = ["ComingsOperator", "DStreamOperator", "IStreamOperator", "RStreamOperator", "istream", "rstream"]


class NetStream(Waiting):
    """One part of the net change at each instant, each row as often as copies came or went.

    A copy that goes and one that comes at the same instant cancel. Only contents with a pending end are held:
    an open row is identified by its withdrawal.
    """

    def __init__(self, plan: ToStream) -> None:
        super().__init__()
        self.changes = Changes(plan.input.schema, carries=True)
        assert self.changes.far is not None
        self.memory = OperatorMemory(
            self.state,
            forget=lambda: self.changes.forget(at_once=True),
            dead_bytes=self.changes.dead_bytes,
            pieces=[self.changes.far],
        )

    @abstractmethod
    def copies(self, deltas: Times) -> Times:
        """How often to emit a content whose count changes by `deltas`."""

    def ingest(self, input: int, batch: Batch) -> None:
        self.changes.ingest(batch)

    def answer(self, frontier: int) -> Batch | None:
        change = self.changes.take(frontier)
        out = self.report(change) if len(change) else None
        if self.changes.is_due_to_forget():
            self.changes.forget()
        return out

    def report(self, change: Change) -> Batch | None:
        """The rows to emit for a net change."""
        chosen = np.repeat(np.arange(len(change)), self.copies(change.deltas[:, 0]))
        return Batch(self.changes.rows(change.codes[chosen]), change.times[chosen]) if len(chosen) else None

    def state(self) -> dict[str, Part]:
        return self.changes.parts()


class IStreamOperator(NetStream):
    """The rows that came. Ends alone never emit anything, so it waits only for rows.

    A punctuation passes, because a row is emitted only when an element that matches it comes. If it holds
    forever, the contents that match it are forgotten: their ends can no longer cancel anything.
    """

    def copies(self, deltas: Times) -> Times:
        return np.maximum(deltas, 0)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        if punctuation.until == MAX_TIME:
            self.changes.drop(~self.changes.matching(punctuation))
        return punctuation


class ComingsOperator(Stateless):
    """The rows that came, if nothing can cancel: it holds no state.

    ISTREAM if no row comes when an equal one goes, and RSTREAM if each row is valid at one tick only
    (`headrace.plan.analysis.istream_state`).
    """

    def apply(self, batch: Batch) -> Batch:
        assert batch.sign is None or bool((batch.sign > 0).all()), "what is withdrawn might cancel another"
        return Batch(batch.data, batch.start, arrival=batch.arrival)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return punctuation


def istream(plan: IStream) -> Operator:
    """The operator of an ISTREAM: it remembers rows only if they may cancel."""
    return IStreamOperator(plan) if plan.nets else ComingsOperator()


def rstream(plan: RStream) -> Operator:
    """The operator of an RSTREAM: it remembers rows only if they may be reported again."""
    return ComingsOperator() if plan.once else RStreamOperator(plan)


class DStreamOperator(NetStream):
    """The rows that went.

    A punctuation passes when no matching row has a pending end.
    """

    def copies(self, deltas: Times) -> Times:
        return np.maximum(-deltas, 0)

    def due(self) -> int:
        return self.changes.next()

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        speaks_of = self.changes.matching(punctuation) & self.changes.pending()
        far = self.changes.far
        return None if speaks_of.any() or (far and far.speaks_of(punctuation)) else punctuation


# RStream: the whole relation at every tick.


@dataclass(frozen=True, slots=True)
class Spans:
    """Contents with their number of copies in [begin, end)."""

    codes: Codes
    begin: Times
    end: Times
    copies: Times


class RStreamOperator(Waiting):
    """R(τ) at its ticks, computed span by span: between two changes of a content its ticks are counted.

    The cost depends on the output and the changes. Rows that are still open when the stream has ended
    (frontier MAX_TIME) are reported up to the last instant at which anything changed: there is no last tick.

    A punctuation passes when no matching row is valid.
    """

    def __init__(self, plan: RStream) -> None:
        super().__init__()
        self._ticks = plan.ticks
        self._changes = Changes(plan.schema)
        self._counts = Multiplicities(1)
        self._cell = Cell(reported=MIN_TIME, changed=MIN_TIME, live=0)

    def ingest(self, input: int, batch: Batch) -> None:
        self._changes.ingest(batch)

    def map_heartbeat(self, heartbeat: int) -> int:
        """Just before the next tick: nothing happens between two."""
        return heartbeat if heartbeat in (MIN_TIME, MAX_TIME) else tick_after(heartbeat, self._ticks) - 1

    def due(self) -> int:
        """The next tick, if any row is valid now."""
        return tick_after(self._cell["reported"], self._ticks) if self._cell["live"] else MAX_TIME

    def answer(self, frontier: int) -> Batch | None:
        if frontier <= self._cell["reported"]:
            return None
        change = self._changes.take(frontier)
        if len(change):
            self._cell["changed"] = int(change.times[-1])
        until = self._cell["changed"] if frontier == MAX_TIME else frontier
        held = self._held()
        history = self._counts.advance(change) if len(change) else None
        out = self._report(until, held, history)
        self._cell["reported"] = frontier
        self._settle(history)
        self._counts.forget(self._changes)
        return out

    def _held(self) -> Spans | None:
        """The contents valid before this answer, to be reported until they change; None if there are none."""
        if not self._cell["live"]:
            return None
        codes = np.flatnonzero(self._counts.live(len(self._counts.table)))
        begin = np.full(len(codes), self._cell["reported"] + 1)
        return Spans(codes, begin, np.full(len(codes), MAX_TIME), self._counts.of(codes)[:, 0])

    def _report(self, until: int, held: Spans | None, history: History | None) -> Batch | None:
        """Every content at its ticks after the last answer, up to `until`."""
        if ticks_until(until, self._ticks) <= ticks_until(self._cell["reported"], self._ticks):
            return None
        spans = [] if history is None else [_changing(history)]
        if held is not None:
            spans.append(_cut(held, spans[0]) if spans else held)
        return self._at_ticks(spans, until + 1) if spans else None

    def _at_ticks(self, spans: list[Spans], stop: int) -> Batch | None:
        """Every copy of each span at each tick that it covers, up to `stop`, in order of time."""
        codes, begin, end, copies = (
            np.concatenate([getattr(s, name) for s in spans]) for name in ("codes", "begin", "end", "copies")
        )
        slide, phase = self._ticks.slide, self._ticks.phase
        first = (begin - phase) // slide
        ticks = np.maximum((np.minimum(end, stop) - phase) // slide - first, 0) * (copies > 0)
        span = np.repeat(np.arange(len(codes)), ticks)
        nth = np.arange(len(span)) - np.repeat(np.cumsum(ticks) - ticks, ticks)
        times = (first[span] + 1 + nth) * slide + phase - 1
        order = order_of(times)
        order = np.repeat(order, copies[span[order]])
        return Batch(self._changes.rows(codes[span[order]]), times[order]) if len(order) else None

    def _settle(self, history: History | None) -> None:
        """Update the number of valid contents."""
        if history is None:
            return
        gone, come = history.before[:, 0] > 0, history.after[:, 0] > 0
        self._cell["live"] += int(np.count_nonzero(come & ~gone)) - int(np.count_nonzero(gone & ~come))

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        speaks_of = self._changes.matching(punctuation) & self._counts.live(len(self._changes.contents))
        return None if speaks_of.any() else punctuation

    def state(self) -> dict[str, Part]:
        return {**self._changes.parts(), "counts": self._counts.table, "cell": self._cell}


def _changing(history: History) -> Spans:
    """The span from each change of a content to its next one, in order of content."""
    order = np.argsort(history.codes, kind="stable")
    codes, times = history.codes[order], history.times[order]
    last = np.append(codes[1:] != codes[:-1], True)
    end = np.where(last, MAX_TIME, np.append(times[1:], MAX_TIME))
    return Spans(codes, times, end, history.after[order, 0])


def _cut(held: Spans, changing: Spans) -> Spans:
    """Cut the spans of held contents where the contents first change."""
    changed, first = np.unique(changing.codes, return_index=True)
    where = np.searchsorted(held.codes, changed)
    there = where < len(held.codes)
    there[there] = held.codes[where[there]] == changed[there]
    held.end[where[there]] = changing.begin[first[there]]
    return held
