"""The net change of a relation: at each instant, for each row content, how many copies come or go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Codes, Counts, Events, Mask, Times
from headrace.flow.batch import Batch, Signs, order_of
from headrace.kernels.changes import net_changes
from headrace.kernels.hashing import EMPTY
from headrace.operators.state.far_timers import FarTimers
from headrace.schema import Schema
from headrace.state.columns import Buffer
from headrace.state.key_index import GroupIndex
from headrace.state.part import Cell, Part, tight_bytes
from headrace.state.timeline import Timeline
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True, slots=True)
class Change:
    """Rows (time, code, delta of each relation) in order of time, one per time and code, none all zero."""

    times: Times
    codes: Codes
    deltas: Counts

    def __len__(self) -> int:
        return len(self.times)


class Changes:
    """Signed intervals in, net changes out, for one relation or several that share their contents.

    A content's code is its place in `contents`. An interval's start is taken at once, its end waits in a
    timeline; the cost of both does not depend on the size of the state. Contents that are neither pending nor
    reported as live are forgotten once they are the majority, so the state stays proportional to live
    contents.

    If nothing else refers to codes (`carries`), ends can be spilled together with their contents.
    """

    def __init__(self, schema: Schema, relations: int = 1, carries: bool = False) -> None:
        self.contents = GroupIndex(schema)
        self.ends = Timeline(2 + relations)
        self._relations = relations
        self._starts: list[Events] = []
        self._fresh: list[Events] = []
        self._work = Cell(events=0)
        self._places = Buffer(np.int64)
        self.far = FarTimers(self) if carries else None

    def ingest(self, batch: Batch, relation: int = 0) -> None:
        """Add elements of one relation, each later than the last `take`."""
        assert batch.end is not None, "a relation's elements have ends"
        codes = self.contents.codes(batch.data.columns, len(batch))
        signs = batch.signs()
        self._starts.append(self._events(batch.start, codes, signs, relation))
        closed = np.flatnonzero(batch.end < MAX_TIME)
        if len(closed):
            self._fresh.append(self._events(batch.end[closed], codes[closed], -signs[closed], relation))

    def begin_with(self, data: pa.RecordBatch, ends: Times) -> Codes:
        """Start with elements of the only relation whose starts have been taken; their ends are pending."""
        codes = self.contents.codes(data.columns, data.num_rows)
        closed = np.flatnonzero(ends < MAX_TIME)
        self.ends.add(self._events(ends[closed], codes[closed], np.full(len(closed), -1, np.int8), 0))
        return codes

    def _events(self, times: Times, codes: Codes, signs: Signs, relation: int) -> Events:
        """Events of one relation: time, code, and a delta in the relation's column."""
        events = np.zeros((len(times), 2 + self._relations), np.int64)
        events[:, 0] = times
        events[:, 1] = codes
        events[:, 2 + relation] = signs
        return events

    def take(self, frontier: int) -> Change:
        """Take out the changes up to `frontier`, in order of time; all elements that start by then are in."""
        (starts, later), (fresh, ends) = (_split(each, frontier) for each in (self._starts, self._fresh))
        self._starts, self._fresh = later, []
        events = [*starts, *fresh, self.ends.take(frontier)]
        if self.far and self.far.next() <= frontier:
            events.append(self.far.take(frontier))
        for each in ends:
            self.ends.add(each)
        found = np.concatenate(events)
        self._work["events"] += len(found)
        return self._net(found)

    def _net(self, events: Events) -> Change:
        """The sum for each (time, code), without zeros."""
        missing = len(self.contents) - len(self._places)
        if missing > 0:
            self._places.extend(missing)
        order = order_of(events[:, 0])
        net = np.empty_like(events)
        net = net[: net_changes(events, order, np.asarray(self._places.view, np.int64), net)]
        return Change(net[:, 0], net[:, 1], net[:, 2:])

    def next(self) -> int:
        """The earliest instant at which something ends, or MAX_TIME."""
        return min(self.ends.next(), self.far.next()) if self.far else self.ends.next()

    def rows(self, codes: Codes) -> pa.RecordBatch:
        """The contents behind codes."""
        return self.contents.keys.rows(codes)

    def pending(self) -> Mask:
        """Which contents have a pending start or end."""
        mask = np.zeros(len(self.contents) + 1, np.bool_)
        mask[self.ends.values(1)] = True
        for events in (*self._starts, *self._fresh):
            mask[events[:, 1]] = True
        return mask[:-1]

    def matching(self, punctuation: Punctuation) -> Mask:
        """Which contents match a punctuation, at any time."""
        everything = np.arange(len(self.contents))
        return punctuation.matches(np.full(len(everything), MIN_TIME), self.rows(everything))

    def is_due_to_forget(self) -> bool:
        """Whether there were enough changes since the last search to pay for a search for dead contents.

        A quarter of all contents is enough: less than half was dead then, so at most three quarters ever are.
        """
        held = len(self.contents) + len(self.ends)
        return bool(4 * self._work["events"] > held + tuning.current.compact_after)

    def forget(self, live: Mask | None = None, *, at_once: bool = False) -> Mask | None:
        """If most contents are neither pending nor live, drop those; returns which were kept, or None.

        With `at_once`, an eighth is enough.
        """
        self._work["events"] = 0
        keep = self.pending() if live is None else self.pending() | live
        most = len(keep) * 7 // 8 if at_once else len(keep) // 2
        if int(np.count_nonzero(keep)) > most or len(keep) == 0:
            return None
        self.drop(keep)
        return keep

    def dead_bytes(self, live: Mask | None = None, extra: Sequence[Part] = ()) -> int:
        """Bytes of expired contents that are not dropped yet, and of the `extra` state kept for each."""
        if not len(self.contents):
            return 0
        keep = self.pending() if live is None else self.pending() | live
        held = sum(map(tight_bytes, (self.contents, *extra)))
        return held * (len(keep) - int(np.count_nonzero(keep))) // len(keep)

    def drop_idle(self) -> None:
        """Forget contents that have no end in memory."""
        self.drop(self.pending())

    def drop(self, keep: Mask) -> None:
        """Keep some contents, under new codes; the ends of the others no longer count."""
        self._places = Buffer(np.int64)
        remap = self.contents.compact(keep)
        self.ends.remap(1, np.append(remap, EMPTY))

    def parts(self) -> dict[str, Part]:
        """The parts of a snapshot; they include when to forget next, so that a restored run forgets alike."""
        parts: dict[str, Part] = {"contents": self.contents, "ends": self.ends, "work": self._work}
        return parts if self.far is None else parts | {"far": self.far}


def _split(events: list[Events], frontier: int) -> tuple[list[Events], list[Events]]:
    """The events up to an instant, and those after it."""
    early, late = list[Events](), list[Events]()
    for each in events:
        if not len(each) or each[:, 0].max() <= frontier:
            early.append(each)
            continue
        due = each[:, 0] <= frontier
        early.append(each[due])
        late.append(each[~due])
    return early, late
