"""RStream: the whole relation at every tick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.flow.batch import Batch, Times
from headrace.flow.sorting import order_of
from headrace.flow.state import Cell, Part
from headrace.operators.changes import Changes, Codes
from headrace.operators.contract import Waiting
from headrace.operators.counted import History, Multiplicities
from headrace.operators.ticks import tick_after, ticks_until
from headrace.plan.nodes import RStream
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True, slots=True)
class Spans:
    """Contents with the number of copies that they have in [begin, end)."""

    codes: Codes
    begin: Times
    end: Times
    copies: Times


class RStreamOperator(Waiting):
    """R(τ) at its ticks, computed span by span: between two changes of a content its ticks are counted.

    Costs follow the output and the changes. Rows that are still open when the stream has ended
    (frontier MAX_TIME) are reported up to the last instant at which anything changed: there is no last tick.

    A punctuation passes when no content that it speaks of is valid.
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
        """The contents valid before this answer, to be reported until they change; None where none is."""
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
    """From each change of a content to its next, in order of content."""
    order = np.argsort(history.codes, kind="stable")
    codes, times = history.codes[order], history.times[order]
    last = np.append(codes[1:] != codes[:-1], True)
    end = np.where(last, MAX_TIME, np.append(times[1:], MAX_TIME))
    return Spans(codes, times, end, history.after[order, 0])


def _cut(held: Spans, changing: Spans) -> Spans:
    """Held contents end where they first change."""
    changed, first = np.unique(changing.codes, return_index=True)
    where = np.searchsorted(held.codes, changed)
    there = where < len(held.codes)
    there[there] = held.codes[where[there]] == changed[there]
    held.end[where[there]] = changing.begin[first[there]]
    return held
