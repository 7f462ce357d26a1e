"""The matches that wait for one step of a sequence, and which of them its rows go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.flow.columns import Buffer
from headrace.flow.groups import GroupIndex
from headrace.flow.rows import RowStore
from headrace.flow.shelf import Shelf
from headrace.flow.sorting import order_of
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
from headrace.plan.sequence import Mode
from headrace.schema import Schema
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Lines = npt.NDArray[np.int64]
_PATIENCE = 512
_ROOM = 1024
_NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Entries:
    """Matches that come to wait: their rows, in order of time, and the time of the first row of each."""

    rows: Batch
    first: Ids


@dataclass(frozen=True, slots=True)
class Probes:
    """Rows of a step by partition: the key columns and the times."""

    keys: Sequence[pa.Array]
    times: Ids


@dataclass(frozen=True, slots=True)
class Pairs:
    """A row (its position among the probes) and the match that it goes on (its id)."""

    probe: Ids
    row: Ids


Ending = tuple[Probes, Callable[[Ids, Ids], Mask] | None]
"""Rows of a missing step, and which pairs of a match and such a row it is true of; None: of all."""


class Stage:
    """Matches under ids in order of time, in a queue for each partition.

    Entering, choosing and forgetting cost the same however many wait. Lines that wait no more are given back
    once they are half of what is held. Partitions and queues follow from the rows, so a snapshot holds rows,
    their times, and which of them wait no more.
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
        self._index = GroupIndex(pa.schema([self.rows.schema.field(k) for k in self._keys]))
        self._heads, self._tails = Buffer(np.int64), Buffer(np.int64)
        self._linked = False

    # ------------------------------------------------------------------------------------------- choosing

    def step(self, entries: Entries | None, ends: Sequence[Ending], probes: Probes | None) -> Pairs:
        """Take what comes, in order of time; returns which matches the probes go on, in order of probes."""
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
        """The rows of all missing steps that end whatever waits, in order of time."""
        if not ends:
            return _NO_IDS, _NO_IDS
        codes, times = (
            np.concatenate(each) for each in zip(*((self._codes(p), p.times) for p in ends), strict=True)
        )
        order = order_of(times)
        return codes[order], times[order]

    def _end_some(self, probes: Probes, holds: Callable[[Ids, Ids], Mask]) -> None:
        """Note from when on some matches are ended by a missing step with a condition."""
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
        out = np.empty((2, _ROOM + len(codes)), np.int64)
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
        """Room for partners and for what waits no more, and the counters of a kernel."""
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
        self._gone += len(ids)
        self._touch(ids)

    def close(self, punctuation: Punctuation) -> None:
        """Forget the partitions of which a punctuation on keys speaks: nothing will go on their matches."""
        self._link()
        self._ready(0)
        gone = np.empty(len(self.rows), np.int64)
        codes = self._index.matching(punctuation)
        self._lose(gone[: close(self.lines, self._heads.view, codes, gone)])
        self._tidy()

    def expire(self, frontier: int) -> None:
        """Give back the lines that wait no more, and those too old for any row after `frontier`."""
        old = 0
        if self._within < MAX_TIME and len(self.rows):
            bound = max(frontier - self._within + 1, MIN_TIME)
            old = int(np.searchsorted(self.lines[:, TIME], bound, side="right"))
        self._tidy(old, frontier)

    def _tidy(self, old: int = 0, frontier: int = MIN_TIME) -> None:
        held = len(self.rows)
        if 2 * (self._gone + self._ended + old) > held + _PATIENCE:
            keep = (self.lines[:, NEXT] != GONE) & (self.lines[:, ENDS] > frontier)
            keep[:old] = False
            self._compact(keep)
        elif self._linked and len(self._index) > 2 * held + _PATIENCE:
            self._unlink()

    def _compact(self, keep: Mask) -> None:
        self._lines.replace(self.lines[keep].copy())
        self.rows.compact(keep)
        self._gone = self._ended = 0
        self._whole, self._touched, self._touches = True, [], 0
        if len(self._index) > 2 * len(self.rows) + _PATIENCE:
            self._unlink()
        elif self._linked:
            self._heads.view[:] = NONE
            relink(self.lines, *self._queues(), 0)
            self._new = len(self.rows)

    def _link(self) -> None:
        """Have the queues of what is held, which follow from the rows."""
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
        """Remember what a snapshot must write; once that is more than all, it writes all."""
        if self._whole or not len(ids):
            return
        self._touched.append(ids.copy())
        self._touches += len(ids)
        if self._touches > 2 * len(self.rows) + _PATIENCE:
            self._whole, self._touched, self._touches = True, [], 0

    def bytes(self) -> int:
        queues = self._heads.bytes() + self._tails.bytes() + self._index.bytes()
        return self.rows.bytes() + self._lines.bytes() + queues

    def move_out(self, shelf: Shelf) -> None:
        """Move the arrays into rooms of a shelf."""
        for part in (self.rows, self._lines, self._heads, self._tails, self._index):
            part.move_out(shelf)

    def room_bytes(self) -> int:
        """Bytes on a shelf."""
        return sum(
            part.room_bytes() for part in (self.rows, self._lines, self._heads, self._tails, self._index)
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
    """Lines without links, which follow from the rest."""
    out = lines.copy()
    out[:, NEXT] = np.where(out[:, NEXT] >= 0, NONE, out[:, NEXT])
    return out


@dataclass(frozen=True, slots=True)
class Choice:
    """How a mode chooses among the matches that wait."""

    choose: Callable[[Stage, Ids, Ids, Ids, Ids], Pairs]


def _one(kernel: Callable[..., None], how: int) -> Choice:
    return Choice(lambda stage, ec, et, codes, times: stage.one_each(kernel, how, (ec, et), codes, times))


def _all(how: int, uses: int = 0) -> Choice:
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
"""For a step that stands for a run of rows: what waits is its rows, and all of them are taken."""
