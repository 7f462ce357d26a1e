"""The state behind top-n where it is known when each row leaves: the rows that may yet be among the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.flow.columns import Buffer
from headrace.flow.groups import GroupIndex
from headrace.flow.rooms import held, moved, on_shelf
from headrace.flow.rows import RowStore
from headrace.flow.shelf import Shelf
from headrace.flow.tables import CodeTable
from headrace.flow.timeline import Timeline
from headrace.kernels import contenders as kernel
from headrace.kernels.hashing import EMPTY
from headrace.operators.ranked_rows import full_order
from headrace.operators.sort_lines import SortLines
from headrace.plan.top import TopN
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME

Ints = npt.NDArray[np.int64]
_PATIENCE = 256
_MOST = 256
_ROOM = 64
_NONE = np.empty(0, np.int64)


class Contenders:
    """The contenders of each key, in order. Rows are looked at one by one, each in the block of its key.

    A row costs the contenders before it, which are few unless rows that come later are mostly worse: then the
    step says so (`TOO_MANY`), and trees are the better way. Slots and their ends are the state, the rest
    follows from them.
    """

    def __init__(self, plan: TopN) -> None:
        self._plan = plan
        self._schema = plan.input.schema
        self._rows = RowStore(self._schema)
        self._ends = CodeTable(end=(np.int64, kernel.NOWHERE))
        self._live = 0
        self._stale = False
        self._clear()

    def _clear(self) -> None:
        plan = self._plan
        self._keys = GroupIndex(pa.schema([self._schema.field(k) for k in plan.keys]))
        order = full_order(plan)
        self._there = int(order[0].nulls_first) if order else 0
        self._lines = SortLines(self._schema, order)
        self._blocks = Buffer(np.int64, kernel.GROUP)
        self._pool = np.empty((0, kernel.ENTRY), np.int64)
        self._at = np.zeros(kernel.PROGRESS, np.int64)
        self._timeline = Timeline(2)
        self._starts: list[tuple[Batch, Ints]] = []

    # ------------------------------------------------------------------------------------------ rows in

    def ingest(self, batch: Batch) -> None:
        """Take elements that come, each later than what was stepped over."""
        assert batch.end is not None, "a relation's elements have ends"
        assert batch.sign is None, "these rows leave when they said"
        self._know()
        codes = self._codes(batch.data)
        self._starts.append((batch, codes))
        closed = np.flatnonzero(batch.end < MAX_TIME)
        self._timeline.add(np.stack([batch.end[closed], codes[closed]], axis=1))

    def _codes(self, data: pa.RecordBatch) -> Ints:
        codes = self._keys.codes([data.column(k) for k in self._plan.keys], data.num_rows)
        fresh = self._blocks.extend(len(self._keys) - len(self._blocks))
        fresh[:] = 0
        fresh[:, kernel.SOONEST] = MAX_TIME
        return codes

    def next(self) -> int:
        """The earliest instant at which something leaves, or MAX_TIME."""
        self._know()
        return self._timeline.next()

    # ------------------------------------------------------------------------------------------- a step

    def step(self, frontier: int) -> tuple[Ints, list[Batch] | None]:
        """Lines (time, slot, sign, place) of all instants up to `frontier`.

        If some key has more contenders than should be, those up to that instant, and the rows after it.
        """
        self._know()
        waiting, self._starts = self._starts, []
        leaving = self._timeline.take(frontier)
        found = list[Ints]()
        for i, (batch, codes) in enumerate(waiting):
            until = batch.last if i + 1 < len(waiting) else frontier
            sooner = int(np.searchsorted(leaving[:, 0], until, side="right"))
            lines, done = self._apply(batch, codes, leaving[:sooner])
            leaving = leaving[sooner:]
            found.append(lines)
            if done is not None:
                rest = [batch.slice(done, len(batch))] if done < len(batch) else []
                return np.concatenate(found), [*rest, *(b for b, _ in waiting[i + 1 :])]
        if not waiting:
            lines, done = self._run(_NONE, _NONE, _NONE, _NONE, leaving)
            return lines, None if done is None else []
        return np.concatenate(found), None

    def _apply(self, batch: Batch, codes: Ints, leaving: Ints) -> tuple[Ints, int | None]:
        assert batch.end is not None
        begin = self._rows.append(batch.data)
        self._lines.append(batch.data)
        self._ends.grow(self._rows.next)
        slots = np.arange(begin, self._rows.next)
        self._ends.touch(slots)
        return self._run(batch.start, batch.end, codes, slots, leaving)

    def _run(
        self, starts: Ints, ends: Ints, codes: Ints, slots: Ints, leaving: Ints, most: int | None = None
    ) -> tuple[Ints, int | None]:
        """The lines of some events, and how many rows were taken if it stopped after some instant."""
        events, limit, ranked = len(starts) + len(leaving), self._plan.count, self._plan.rank is not None
        out = np.empty(((2 * limit if ranked else 2) * events, 4), np.int64)
        touched, dropped = np.empty(events, np.int64), np.empty(self._live + events, np.int64)
        gone = np.empty((self._live + events, 3), np.int64)
        self._at[[kernel.ARRIVED, kernel.EXPIRED, kernel.FOUND, kernel.DROPPED, kernel.INSIDE]] = 0
        came = kernel.NO_ROOM
        while True:
            state = (self._at, self._blocks.view, self._pool)
            lines = (self._lines.lines, self._lines.kinds, self._lines.heap)
            came = kernel.step_contenders(
                starts,
                ends,
                codes,
                slots,
                leaving[:, 0],
                leaving[:, 1],
                limit,
                ranked,
                self._there,
                _MOST if most is None else most,
                *state,
                *lines,
                self._ends["end"],
                touched,
                gone,
                dropped,
                out,
            )
            if came != kernel.NO_ROOM:
                break
            self._repack()
        self._ends.touch(dropped[: self._at[kernel.DROPPED]])
        self._live = int(self._blocks.view[:, kernel.SIZE].sum())
        stopped = int(self._at[kernel.ARRIVED]) if came == kernel.TOO_MANY else None
        return out[: self._at[kernel.FOUND]], stopped

    def _repack(self) -> None:
        """Blocks of their size in a new pool, with as much room again."""
        blocks = self._blocks.view
        sizes = blocks[:, kernel.SIZE]
        rooms = np.where(sizes, 1 << np.ceil(np.log2(sizes + 1)).astype(np.int64), 0)
        bases = np.cumsum(rooms) - rooms
        entries, target = _within(blocks[:, kernel.BASE], sizes), _within(bases, sizes)
        used = int(rooms.sum())
        pool = np.empty((max(_ROOM, 2 * used + 4), kernel.ENTRY), np.int64)
        pool[target] = self._pool[entries]
        blocks[:, kernel.BASE], blocks[:, kernel.ROOM] = bases, rooms
        self._pool = pool
        self._at[kernel.USED] = used

    def columns(self, slots: Ints) -> list[pa.Array]:
        """The rows of some slots."""
        return self._rows.take(slots)

    # ---------------------------------------------------------------------------------------- forgetting

    def forget(self) -> None:
        """Forget what contends no more, if it is the greater part."""
        slots = self._rows.next
        if 2 * (slots - self._live) <= slots + _PATIENCE:
            return
        keep = np.asarray(self._ends["end"] != kernel.NOWHERE)
        new = np.append(np.cumsum(keep) - 1, EMPTY)
        self._rows.compact(keep)
        self._lines.keep(keep)
        self._ends.keep(keep)
        held = _within(self._blocks.view[:, kernel.BASE], self._blocks.view[:, kernel.SIZE])
        self._pool[held, kernel.SLOT] = new[self._pool[held, kernel.SLOT]]
        self._forget_keys()
        if len(self._pool) > max(_ROOM, 16 * self._live):
            self._repack()

    def _forget_keys(self) -> None:
        """Forget the keys without contenders, if they are the greater part."""
        used = np.asarray(self._blocks.view[:, kernel.SIZE] > 0)
        if 2 * int(np.count_nonzero(used)) > len(used):
            return
        codes = self._keys.compact(used)
        self._timeline.remap(1, np.append(codes, EMPTY))
        self._blocks.replace(self._blocks.view[used].copy())

    def close(self, punctuation: Punctuation) -> bool:
        """Forget the keys that a punctuation closes, if nothing of them is to leave; else do nothing."""
        self._know()
        blocks = self._blocks.view
        codes = self._keys.matching(punctuation)
        entries = _within(blocks[codes, kernel.BASE], blocks[codes, kernel.SIZE])
        if (self._pool[entries, kernel.END] != MAX_TIME).any():
            return False
        slots = self._pool[entries, kernel.SLOT]
        self._ends["end"][slots] = kernel.NOWHERE
        self._ends.touch(slots)
        self._live -= len(slots)
        blocks[codes, kernel.SIZE] = 0
        blocks[codes, kernel.VISIBLE] = 0
        self.forget()
        return True

    # --------------------------------------------------------------------------------------------- state

    def held(self) -> tuple[pa.RecordBatch, Ints]:
        """All contenders and their ends."""
        slots = np.flatnonzero(self._ends["end"] != kernel.NOWHERE)
        return self._rows.rows(slots), self._ends["end"][slots]

    def reset(self) -> None:
        """Hold nothing."""
        self._rows.compact(np.zeros(len(self._rows), np.bool_))
        self._ends.keep(np.zeros(len(self._ends), np.bool_))
        self._live = 0
        self._clear()

    def _know(self) -> None:
        """After a restore, make what follows from the slots and their ends."""
        if not self._stale:
            return
        self._stale = False
        self._clear()
        self._lines.append(self._rows.rows(np.arange(self._rows.next)))
        slots = np.flatnonzero(self._ends["end"] != kernel.NOWHERE)
        ends = self._ends["end"][slots]
        codes = self._codes(self._rows.rows(slots))
        self._live = len(slots)
        self._run(np.zeros(len(slots), np.int64), ends, codes, slots, np.empty((0, 2), np.int64), len(slots))
        closed = np.flatnonzero(ends < MAX_TIME)
        self._timeline.add(np.stack([ends[closed], codes[closed]], axis=1))

    def bytes(self) -> int:
        return sum(part.bytes() for part in (*self._parts(), self._timeline)) + held(self._pool)

    def _parts(self) -> tuple[RowStore, CodeTable, GroupIndex, SortLines, Buffer]:
        return self._rows, self._ends, self._keys, self._lines, self._blocks

    def move_out(self, shelf: Shelf) -> None:
        """Move the arrays into rooms of a shelf."""
        for part in self._parts():
            part.move_out(shelf)
        self._pool = moved(self._pool, shelf)
        self._timeline.shelf = shelf
        self._timeline.spill(self._timeline.bytes())

    def room_bytes(self) -> int:
        """Bytes on a shelf."""
        arrays = sum(part.room_bytes() for part in self._parts()) + on_shelf(self._pool)
        return arrays + self._timeline.spilled_bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        rows, ends = self._rows.changes(full), self._ends.changes(full)
        return {**{f"rows/{k}": v for k, v in rows.items()}, **{f"ends/{k}": v for k, v in ends.items()}}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._rows.apply({k[5:]: v for k, v in chunk.items() if k.startswith("rows/")})
        self._ends.apply({k[5:]: v for k, v in chunk.items() if k.startswith("ends/")})
        self._stale = True


def _within(bases: Ints, sizes: Ints) -> Ints:
    """The entries of blocks, one after the other."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(bases - (ends - sizes), sizes), np.int64)
