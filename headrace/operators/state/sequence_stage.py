"""The partial matches that wait for one step of a sequence, and which of them a row extends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Ids, Lines, Mask
from headrace.flow.batch import Batch, order_of
from headrace.kernels.sequence import (
    CODE,
    ENDS,
    FIRST,
    GONE,
    NEXT,
    NONE,
    QUEUE,
    RECENT,
    RUN,
    TIME,
    chronicle,
    close,
    end_rows,
    every,
    recent,
    relink,
)
from headrace.plan.nodes.sequence import Mode
from headrace.schema import Schema
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer
from headrace.state.key_index import GroupIndex
from headrace.state.rows import RowStore
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Entries:
    """New partial matches: their rows, in order of time, and the time of the first row of each."""

    rows: Batch
    first: Ids


@dataclass(frozen=True, slots=True)
class Probes:
    """Rows of a step by partition: the key columns and the times."""

    keys: Sequence[pa.Array]
    times: Ids


@dataclass(frozen=True, slots=True)
class Pairs:
    """A row (its position among the probes) and the match that it extends (its id)."""

    probe: Ids
    row: Ids


Ending = tuple[Probes, Callable[[Ids, Ids], Mask] | None]
"""Rows of a missing step, and a test for which matches each of them ends; None: all matches."""


class Stage:
    """Matches under ids in order of time, in a queue for each partition.

    Adding, choosing and forgetting a match take constant time. Lines that no longer wait are freed once they
    are half of all. Partitions and queues are derived from the rows, so a snapshot holds rows, their times,
    and which of them no longer wait.
    """

    def __init__(self, schema: Schema, keys: Sequence[str], choice: Choice, within: int | None, strict: bool):
        self.rows = RowStore(schema)
        self._keys = [schema.get_field_index(k) for k in keys]
        self._choice = choice
        self._within = MAX_TIME if within is None else within
        self._strict = int(strict)
        self._lines = Buffer(np.int64, 5)
        self._gone = 0
        self._ended = 0
        self._new = 0
        self._touched: list[Ids] = []
        self._touches = 0
        self._whole = True
        self._unlink()

    def _unlink(self) -> None:
        """Start with empty queues; `_link` fills them from the rows."""
        self._index = GroupIndex(pa.schema([self.rows.schema.field(k) for k in self._keys]))
        self._heads, self._tails = Buffer(np.int64), Buffer(np.int64)
        self._linked = False

    # ------------------------------------------------------------------------------------------- choosing

    def step(self, entries: Entries | None, ends: Sequence[Ending], probes: Probes | None) -> Pairs:
        """Take entries, ends and probes in order of time; returns which matches the probes extend."""
        self._link()
        if entries is not None:
            self._append(entries)
        for probe, holds in ends:
            if holds is not None:
                self._end_some(probe, holds)
        end_codes, end_times = self._all_ends([probe for probe, holds in ends if holds is None])
        codes = _NO_IDS if probes is None else self._codes(probes)
        times = _NO_IDS if probes is None else probes.times
        return self._choice.choose(self, end_codes, end_times, codes, times)

    def _append(self, entries: Entries) -> None:
        """Add matches; the kernel puts them into their queues when their time comes."""
        batch = entries.rows
        self.rows.append(batch.data)
        columns = [batch.data.column(k) for k in self._keys]
        codes = self._index.codes(columns, len(batch))
        lines = self._lines.extend(len(batch))
        lines[:, NEXT], lines[:, CODE], lines[:, TIME] = NONE, codes, batch.start
        lines[:, FIRST], lines[:, ENDS] = entries.first, MAX_TIME
        self._new = len(self.rows) - len(batch)

    def _codes(self, probes: Probes) -> Ids:
        return self._index.codes(probes.keys, len(probes.times))

    def _all_ends(self, ends: list[Probes]) -> tuple[Ids, Ids]:
        """The rows of all missing steps that end the waiting matches, in order of time."""
        if not ends:
            return _NO_IDS, _NO_IDS
        codes, times = (
            np.concatenate(each) for each in zip(*((self._codes(p), p.times) for p in ends), strict=True)
        )
        order = order_of(times)
        return codes[order], times[order]

    def _end_some(self, probes: Probes, holds: Callable[[Ids, Ids], Mask]) -> None:
        """Note when matches are ended by a missing step with a condition."""
        codes = self._codes(probes)
        pairs = self._pairs_before(codes, probes.times)
        if not len(pairs.row):
            return
        true = holds(pairs.row, pairs.probe)
        end_rows(self.lines, pairs.row, probes.times[pairs.probe], true.astype(np.int64))
        ended = np.unique(pairs.row[true])
        self._ended += len(ended)
        self._touch(ended)

    def _pairs_before(self, codes: Ids, times: Ids) -> Pairs:
        """Every match that waits with every row of its partition that comes after it."""
        lines, span = self.lines, np.int64(len(self.rows) + 1)
        ids = np.flatnonzero((lines[:, NEXT] != GONE) & np.isin(lines[:, CODE], codes))
        ids = ids[np.argsort(lines[ids, CODE], kind="stable")]
        places = lines[ids, CODE] * span + ids
        earlier = np.searchsorted(lines[:, TIME], times, side="left" if self._strict else "right")
        low, high = np.searchsorted(places, codes * span), np.searchsorted(places, codes * span + earlier)
        counts = high - low
        probe = np.repeat(np.arange(len(codes)), counts)
        within = np.arange(len(probe)) - np.repeat(np.cumsum(counts) - counts, counts)
        return Pairs(probe, ids[np.repeat(low, counts) + within])

    @property
    def lines(self) -> Lines:
        """The line of each row held."""
        return self._lines.view

    def first(self, ids: Ids) -> Ids:
        """The times of the first rows of some matches."""
        first: Ids = self.lines[ids, FIRST]
        return first

    def one_each(
        self, kernel: Callable[..., None], how: int, ends: tuple[Ids, Ids], codes: Ids, times: Ids
    ) -> Pairs:
        """At most one match for each probe."""
        partner, gone, at = self._ready(len(codes))
        kernel(
            *(self.lines, *self._queues(), *ends, codes, times),
            *(how, self._within, self._strict, gone, at, partner),
        )
        self._lose(gone[: at[2]])
        if len(partner) and partner.min() != NONE:
            return Pairs(np.arange(len(codes)), partner)
        probe = np.flatnonzero(partner != NONE)
        return Pairs(probe, partner[probe])

    def all_each(self, how: int, uses: int, ends: tuple[Ids, Ids], codes: Ids, times: Ids) -> Pairs:
        """Every match for each probe."""
        _, gone, at = self._ready(0)
        out = np.empty((2, tuning.current.match_room + len(codes)), np.int64)
        done = filled = 0
        while True:
            done, filled = every(
                *(self.lines, *self._queues(), *ends, codes, times, how, uses, self._within),
                *(self._strict, gone, at, out[0], out[1], done, filled),
            )
            if done == len(codes):
                break
            out = np.concatenate([out, np.empty_like(out)], axis=1)
        self._lose(gone[: at[2]])
        pairs = Pairs(out[0, :filled], out[1, :filled])
        if how == RUN:
            self._touch(np.unique(pairs.row))
        return pairs

    def _ready(self, probes: int) -> tuple[Ids, Ids, Ids]:
        """Room for partners and for lines that no longer wait, and the counters of a kernel."""
        at = np.array([self._new, 0, 0], np.int64)
        self._new = len(self.rows)
        fresh = len(self._index) - len(self._heads)
        if fresh > 0:
            self._heads.extend(fresh)[:] = NONE
            self._tails.extend(fresh)[:] = NONE
        return np.empty(probes, np.int64), np.empty(len(self.rows), np.int64), at

    def _queues(self) -> tuple[Ids, Ids]:
        return self._heads.view, self._tails.view

    # ----------------------------------------------------------------------------------------- forgetting

    def _lose(self, ids: Ids) -> None:
        """Count matches that no longer wait."""
        self._gone += len(ids)
        self._touch(ids)

    def close(self, punctuation: Punctuation) -> None:
        """Forget the partitions that match a punctuation on keys: no row will extend their matches."""
        self._link()
        self._ready(0)
        gone = np.empty(len(self.rows), np.int64)
        codes = self._index.matching(punctuation)
        self._lose(gone[: close(self.lines, self._heads.view, codes, gone)])
        self._tidy()

    def expire(self, frontier: int) -> None:
        """Free the lines that no longer wait, and those too old for any row after `frontier`."""
        old = 0
        if self._within < MAX_TIME and len(self.rows):
            bound = max(frontier - self._within + 1, MIN_TIME)
            old = int(np.searchsorted(self.lines[:, TIME], bound, side="right"))
        self._tidy(old, frontier)

    def _tidy(self, old: int = 0, frontier: int = MIN_TIME) -> None:
        """Compact once half of the lines are dead; drop the partitions if there are far more than lines."""
        held, slack = len(self.rows), tuning.current.compact_after
        if 2 * (self._gone + self._ended + old) > held + slack:
            keep = (self.lines[:, NEXT] != GONE) & (self.lines[:, ENDS] > frontier)
            keep[:old] = False
            self._compact(keep)
        elif self._linked and len(self._index) > 2 * held + slack:
            self._unlink()

    def _compact(self, keep: Mask) -> None:
        """Keep some lines under new ids; the next snapshot writes everything."""
        self._lines.replace(self.lines[keep].copy())
        self.rows.compact(keep)
        self._gone = self._ended = 0
        self._whole, self._touched, self._touches = True, [], 0
        if len(self._index) > 2 * len(self.rows) + tuning.current.compact_after:
            self._unlink()
        elif self._linked:
            self._heads.view[:] = NONE
            relink(self.lines, *self._queues(), 0)
            self._new = len(self.rows)

    def _link(self) -> None:
        """Rebuild the queues from the rows, if necessary."""
        if self._linked:
            return
        self._unlink()
        self._linked = True
        ids = np.arange(len(self.rows))
        self.lines[:, CODE] = self._index.codes([self.rows.take(ids)[k] for k in self._keys], len(ids))
        self._new = len(self.rows)
        self._ready(0)
        relink(self.lines, *self._queues(), 0)

    # ---------------------------------------------------------------------------------------------- state

    def _touch(self, ids: Ids) -> None:
        """Log changed lines for the next snapshot; if the log gets too long, it writes everything."""
        if self._whole or not len(ids):
            return
        self._touched.append(ids.copy())
        self._touches += len(ids)
        if self._touches > 2 * len(self.rows) + tuning.current.compact_after:
            self._whole, self._touched, self._touches = True, [], 0

    def bytes(self) -> int:
        queues = self._heads.bytes() + self._tails.bytes() + self._index.bytes()
        return self.rows.bytes() + self._lines.bytes() + queues

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the arrays into mapped files of a spill store."""
        for part in (self.rows, self._lines, self._heads, self._tails, self._index):
            part.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return sum(
            part.mapped_bytes() for part in (self.rows, self._lines, self._heads, self._tails, self._index)
        )

    def changes(self, full: bool) -> Mapping[str, Any]:
        chunk = dict(self.rows.changes(full or self._whole))
        begin = int(chunk["begin"])
        old = np.unique(np.concatenate(self._touched)) if self._touched else _NO_IDS
        old = old[old < begin]
        chunk |= {"lines": _portable(self.lines[begin:]), "old": old, "changed": _portable(self.lines[old])}
        self._whole, self._touched, self._touches = False, [], 0
        return chunk

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._lines = Buffer(np.int64, 5)
        self.rows.apply(chunk)
        self._lines.extend(len(chunk["lines"]))[:] = chunk["lines"]
        self.lines[chunk["old"]] = chunk["changed"]
        self._gone = int(np.count_nonzero(self.lines[:, NEXT] == GONE))
        self._ended = int(np.count_nonzero(self.lines[:, ENDS] < MAX_TIME))
        self._linked = False
        self._whole, self._touched, self._touches = False, [], 0


def _portable(lines: Lines) -> Lines:
    """Lines without links, which are derived from the rest."""
    out = lines.copy()
    out[:, NEXT] = np.where(out[:, NEXT] >= 0, NONE, out[:, NEXT])
    return out


@dataclass(frozen=True, slots=True)
class Choice:
    """How a mode chooses among the waiting matches."""

    choose: Callable[[Stage, Ids, Ids, Ids, Ids], Pairs]


def _one(kernel: Callable[..., None], how: int) -> Choice:
    """A choice of at most one match for each probe."""
    return Choice(lambda stage, ec, et, codes, times: stage.one_each(kernel, how, (ec, et), codes, times))


def _all(how: int, uses: int = 0) -> Choice:
    """A choice of every match for each probe."""
    return Choice(lambda stage, ec, et, codes, times: stage.all_each(how, uses, (ec, et), codes, times))


SINGLE: dict[Mode, Choice] = {
    Mode.RECENT: _one(recent, RECENT),
    Mode.CHRONICLE: _one(chronicle, QUEUE),
    Mode.UNRESTRICTED: _all(QUEUE),
}
REPEATED: dict[Mode, Choice] = {
    Mode.RECENT: _all(RUN),
    Mode.CHRONICLE: _all(QUEUE, uses=1),
    Mode.UNRESTRICTED: _all(QUEUE),
}
"""For a repeated step: its rows wait, and all of them are taken."""
