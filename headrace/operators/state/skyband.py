"""The state of top-n if the end of each row is known: the rows that may still be among the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Ints
from headrace.flow.batch import Batch
from headrace.kernels import skyband as kernel
from headrace.kernels.hashing import EMPTY
from headrace.kernels.top_n import RANK
from headrace.operators.state.ranked_rows import full_order
from headrace.operators.state.sort_keys import SortKeys
from headrace.plan.nodes.top_n import TopN
from headrace.spill.mapped_arrays import held, mapped_bytes, moved
from headrace.spill.store import SpillStore
from headrace.state.code_table import CodeTable
from headrace.state.columns import Buffer
from headrace.state.key_index import GroupIndex
from headrace.state.rows import RowStore
from headrace.state.timeline import Timeline
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME

_NONE = np.empty(0, np.int64)
_PER_STEP = [
    kernel.NEXT_ARRIVAL,
    kernel.NEXT_EXPIRY,
    kernel.OUT_COUNT,
    kernel.DROPPED_COUNT,
    kernel.INSIDE,
]
"""The counters that start at 0 in each step."""


class Skyband:
    """The skyband of each key (`headrace.kernels.skyband` has a picture).

    A row costs time linear in the skyband of its key, which is small unless later rows are mostly worse. Then
    a step returns TOO_MANY, and trees are faster (`RankedRows`). The checkpoint has the rows and their ends;
    everything else is rebuilt from them.
    """

    def __init__(self, plan: TopN) -> None:
        self._plan = plan
        self._schema = plan.input.schema
        self._rows = RowStore(self._schema)
        self._ends = CodeTable(end=(np.int64, kernel.DROPPED_SLOT))
        self._live = 0
        self._stale = False
        self._clear()

    def _clear(self) -> None:
        """Start with no rows."""
        plan = self._plan
        self._keys = GroupIndex(pa.schema([self._schema.field(k) for k in plan.keys]))
        order = full_order(plan)
        self._there = int(order[0].nulls_first) if order else 0
        self._sort_keys = SortKeys(self._schema, order)
        self._groups = Buffer(np.int64, kernel.GROUP_WIDTH)
        self._pool = np.empty((0, kernel.ENTRY_WIDTH), np.int64)
        self._progress = np.zeros(kernel.PROGRESS_WIDTH, np.int64)
        self._timeline = Timeline(2)
        self._starts: list[tuple[Batch, Ints]] = []

    # ------------------------------------------------------------------------------------------ rows in

    def ingest(self, batch: Batch) -> None:
        """Take rows; each starts later than the last step."""
        assert batch.end is not None, "a relation's elements have ends"
        assert batch.sign is None, "no row is withdrawn before its end"
        self._rebuild_if_stale()
        codes = self._codes(batch.data)
        self._starts.append((batch, codes))
        closed = np.flatnonzero(batch.end < MAX_TIME)
        self._timeline.add(np.stack([batch.end[closed], codes[closed]], axis=1))

    def _codes(self, data: pa.RecordBatch) -> Ints:
        """The code of each row's key; new keys get an empty group."""
        codes = self._keys.codes([data.column(k) for k in self._plan.keys], data.num_rows)
        fresh = self._groups.extend(len(self._keys) - len(self._groups))
        fresh[:] = 0
        fresh[:, kernel.SOONEST_END] = MAX_TIME
        return codes

    def next(self) -> int:
        """The earliest instant at which a row leaves, or MAX_TIME."""
        self._rebuild_if_stale()
        return self._timeline.next()

    # ------------------------------------------------------------------------------------------- a step

    def step(self, frontier: int) -> tuple[Ints, list[Batch] | None]:
        """The changes of the first rows up to `frontier`: columns TIME, CODE (the slot), DELTA, RANK.

        If the skyband of some key becomes too large, the changes up to that instant and the rows after it.
        """
        self._rebuild_if_stale()
        waiting, self._starts = self._starts, []
        leaving = self._timeline.take(frontier)
        found = list[Ints]()
        for i, (batch, codes) in enumerate(waiting):
            until = batch.last if i + 1 < len(waiting) else frontier
            sooner = int(np.searchsorted(leaving[:, 0], until, side="right"))
            changes, done = self._apply(batch, codes, leaving[:sooner])
            leaving = leaving[sooner:]
            found.append(changes)
            if done is not None:
                rest = [batch.slice(done, len(batch))] if done < len(batch) else []
                return np.concatenate(found), [*rest, *(b for b, _ in waiting[i + 1 :])]
        if not waiting:
            changes, done = self._run(_NONE, _NONE, _NONE, _NONE, leaving)
            return changes, None if done is None else []
        return np.concatenate(found), None

    def _apply(self, batch: Batch, codes: Ints, leaving: Ints) -> tuple[Ints, int | None]:
        """Store the rows of a batch and run the kernel over them; returns what `_run` does."""
        assert batch.end is not None
        begin = self._rows.append(batch.data)
        self._sort_keys.append(batch.data)
        self._ends.grow(self._rows.next)
        slots = np.arange(begin, self._rows.next)
        self._ends.touch(slots)
        return self._run(batch.start, batch.end, codes, slots, leaving)

    def _run(
        self, starts: Ints, ends: Ints, codes: Ints, slots: Ints, leaving: Ints, most: int | None = None
    ) -> tuple[Ints, int | None]:
        """The changes that rows and expiries make; and how many rows were taken, if a skyband is too
        large."""
        limit, ranked = self._plan.count, self._plan.rank is not None
        most = tuning.current.skyband_entries if most is None else most
        events = len(starts) + len(leaving)
        touched, dropped = np.empty(events, np.int64), np.empty(self._live + events, np.int64)
        gone = np.empty((self._live + events, kernel.GONE_WIDTH), np.int64)
        out = np.empty(((2 * limit if ranked else 2) * events, RANK + 1), np.int64)
        progress = self._progress
        progress[_PER_STEP] = 0
        while True:
            band = kernel.Band(
                progress,
                self._groups.view,
                self._pool,
                self._sort_keys.table,
                self._ends["end"],
                touched,
                gone,
                dropped,
                out,
            )
            rows, expiries = (starts, ends, codes, slots), (leaving[:, 0], leaving[:, 1])
            came = kernel.step_skyband(band, *rows, *expiries, limit, ranked, self._there, most)
            if came != kernel.POOL_FULL:
                break
            self._repack()
        self._ends.touch(dropped[: progress[kernel.DROPPED_COUNT]])
        self._live = int(self._groups.view[:, kernel.SIZE].sum())
        stopped = int(progress[kernel.NEXT_ARRIVAL]) if came == kernel.TOO_MANY else None
        return out[: progress[kernel.OUT_COUNT]], stopped

    def _repack(self) -> None:
        """Move all blocks to a new pool: each gets room for up to twice its entries, and half of the pool
        stays free."""
        groups = self._groups.view
        sizes = groups[:, kernel.SIZE]
        capacities = np.where(sizes, 1 << np.ceil(np.log2(sizes + 1)).astype(np.int64), 0)
        starts = np.cumsum(capacities) - capacities
        entries, target = _within(groups[:, kernel.START], sizes), _within(starts, sizes)
        used = int(capacities.sum())
        pool = np.empty((max(tuning.current.skyband_room, 2 * used + 4), kernel.ENTRY_WIDTH), np.int64)
        pool[target] = self._pool[entries]
        groups[:, kernel.START], groups[:, kernel.CAPACITY] = starts, capacities
        self._pool = pool
        self._progress[kernel.POOL_USED] = used

    def columns(self, slots: Ints) -> list[pa.Array]:
        """The rows of some slots."""
        return self._rows.take(slots)

    # ---------------------------------------------------------------------------------------- forgetting

    def forget(self) -> None:
        """Drop the stored rows that left the skyband, if they are the greater part."""
        slots = self._rows.next
        if 2 * (slots - self._live) <= slots + tuning.current.compact_after:
            return
        keep = np.asarray(self._ends["end"] != kernel.DROPPED_SLOT)
        new = np.append(np.cumsum(keep) - 1, EMPTY)
        self._rows.compact(keep)
        self._sort_keys.keep(keep)
        self._ends.keep(keep)
        held = _within(self._groups.view[:, kernel.START], self._groups.view[:, kernel.SIZE])
        self._pool[held, kernel.SLOT] = new[self._pool[held, kernel.SLOT]]
        self._forget_keys()
        if len(self._pool) > max(tuning.current.skyband_room, 16 * self._live):
            self._repack()

    def _forget_keys(self) -> None:
        """Drop the keys without rows, if they are the greater part."""
        used = np.asarray(self._groups.view[:, kernel.SIZE] > 0)
        if 2 * int(np.count_nonzero(used)) > len(used):
            return
        codes = self._keys.compact(used)
        self._timeline.remap(1, np.append(codes, EMPTY))
        self._groups.replace(self._groups.view[used].copy())

    def close(self, punctuation: Punctuation) -> bool:
        """Drop the keys that a punctuation closes; returns False, with nothing changed, if a row of theirs
        has yet to leave."""
        self._rebuild_if_stale()
        groups = self._groups.view
        codes = self._keys.matching(punctuation)
        entries = _within(groups[codes, kernel.START], groups[codes, kernel.SIZE])
        if (self._pool[entries, kernel.END] != MAX_TIME).any():
            return False
        slots = self._pool[entries, kernel.SLOT]
        self._ends["end"][slots] = kernel.DROPPED_SLOT
        self._ends.touch(slots)
        self._live -= len(slots)
        groups[codes, kernel.SIZE] = 0
        groups[codes, kernel.SHOWN_COUNT] = 0
        self.forget()
        return True

    # --------------------------------------------------------------------------------------------- state

    def held(self) -> tuple[pa.RecordBatch, Ints]:
        """All rows of the skybands, and their ends."""
        slots = np.flatnonzero(self._ends["end"] != kernel.DROPPED_SLOT)
        return self._rows.rows(slots), self._ends["end"][slots]

    def reset(self) -> None:
        """Drop everything."""
        self._rows.compact(np.zeros(len(self._rows), np.bool_))
        self._ends.keep(np.zeros(len(self._ends), np.bool_))
        self._live = 0
        self._clear()

    def _rebuild_if_stale(self) -> None:
        """After a restore, rebuild everything from the rows and their ends."""
        if not self._stale:
            return
        self._stale = False
        self._clear()
        self._sort_keys.append(self._rows.rows(np.arange(self._rows.next)))
        slots = np.flatnonzero(self._ends["end"] != kernel.DROPPED_SLOT)
        ends = self._ends["end"][slots]
        codes = self._codes(self._rows.rows(slots))
        self._live = len(slots)
        self._run(np.zeros(len(slots), np.int64), ends, codes, slots, np.empty((0, 2), np.int64), len(slots))
        closed = np.flatnonzero(ends < MAX_TIME)
        self._timeline.add(np.stack([ends[closed], codes[closed]], axis=1))

    def bytes(self) -> int:
        return sum(part.bytes() for part in (*self._parts(), self._timeline)) + held(self._pool)

    def _parts(self) -> tuple[RowStore, CodeTable, GroupIndex, SortKeys, Buffer]:
        return self._rows, self._ends, self._keys, self._sort_keys, self._groups

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the arrays into mapped files of a spill store."""
        for part in self._parts():
            part.move_to_disk(spill_store)
        self._pool = moved(self._pool, spill_store)
        self._timeline.spill_store = spill_store
        self._timeline.spill(self._timeline.bytes())

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        arrays = sum(part.mapped_bytes() for part in self._parts()) + mapped_bytes(self._pool)
        return arrays + self._timeline.spilled_bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        rows, ends = self._rows.changes(full), self._ends.changes(full)
        return {**{f"rows/{k}": v for k, v in rows.items()}, **{f"ends/{k}": v for k, v in ends.items()}}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._rows.apply({k[5:]: v for k, v in chunk.items() if k.startswith("rows/")})
        self._ends.apply({k[5:]: v for k, v in chunk.items() if k.startswith("ends/")})
        self._stale = True


def _within(starts: Ints, sizes: Ints) -> Ints:
    """The entries of some blocks of the pool, block after block."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(starts - (ends - sizes), sizes), np.int64)
