"""The state behind top-n: the valid contents of each key in order, with their copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.columns import Buffer
from headrace.flow.groups import GroupIndex
from headrace.flow.shelf import Shelf
from headrace.flow.tables import CodeTable
from headrace.kernels.changes import net_changes
from headrace.kernels.hashing import EMPTY
from headrace.kernels.tops import DEPTH, LEFT, PRIORITY, RIGHT, TOTAL, WIDTH, plant, step_ranks, step_tops
from headrace.operators.changes import Change
from headrace.operators.sort_lines import SortLines
from headrace.plan.cancelling import only_grows
from headrace.plan.top import SortKey, TopN

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_ROOM = 1 << 14


def full_order(plan: TopN) -> list[SortKey]:
    """The order of a top-n with what breaks its ties: the other columns, one after the other."""
    used = {*plan.keys, *(key.column for key in plan.order)}
    return [*plan.order, *(SortKey(name) for name in plan.input.schema.names if name not in used)]


class RankedRows:
    """For each key a tree of the contents that have copies, in order; codes are those of `Changes`.

    A change costs the logarithm of its key's contents, and what crosses the limit as much again. Copies are
    the state; trees, keys and lines follow from them and the contents. Where no row ever leaves the input,
    copies beyond the limit are not kept.
    """

    def __init__(self, plan: TopN) -> None:
        self._plan = plan
        self._forgets = only_grows(plan.input)
        self._schema = plan.input.schema
        self._order = full_order(plan)
        self.copies = CodeTable(count=(np.int64, 0))
        self._path = np.empty(DEPTH, np.int64)
        self._stale = False
        self._clear()

    def _clear(self) -> None:
        self._keys = GroupIndex(pa.schema([self._schema.field(k) for k in self._plan.keys]))
        self._lines = SortLines(self._schema, self._order)
        self._groups, self._roots = Buffer(np.int64), Buffer(np.int64)
        self._nodes = Buffer(np.int64, WIDTH)
        self._places = Buffer(np.int64)
        self._seed = np.uint64(1)

    def begin_with(self, codes: Ints, contents: GroupIndex) -> None:
        """Copies that are there from the beginning."""
        self.copies.grow(len(contents))
        np.add.at(self.copies["count"], codes, 1)
        self.copies.touch(codes)
        self._stale = True

    # ----------------------------------------------------------------------------------------- contents

    def know(self, contents: GroupIndex) -> None:
        """Have a key, a line and a node for every content."""
        if self._stale:
            self._stale = False
            self._clear()
            self._learn(contents)
            self._plant()
        elif len(self._lines) < len(contents):
            self._learn(contents)

    def _learn(self, contents: GroupIndex) -> None:
        fresh = np.arange(len(self._lines), len(contents))
        rows = contents.keys.rows(fresh)
        self._lines.append(rows)
        self._groups.append(self._keys.codes([rows.column(k) for k in self._plan.keys], len(fresh)))
        self._roots.extend(len(self._keys) - len(self._roots))[:] = EMPTY
        self._places.extend(len(fresh))[:] = EMPTY
        nodes = self._nodes.extend(len(fresh))
        nodes[:, [LEFT, RIGHT]] = EMPTY
        nodes[:, TOTAL] = 0
        nodes[:, PRIORITY] = self._priorities(len(fresh))
        self.copies.grow(len(contents))

    def _priorities(self, count: int) -> Ints:
        """As good as random, and the same on each run: multiples of the golden ratio, mixed."""
        steps = self._seed + np.arange(count, dtype=np.uint64)
        self._seed += np.uint64(count)
        mixed = steps * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray((mixed ^ (mixed >> np.uint64(27))) >> np.uint64(1), np.int64)

    def _plant(self) -> None:
        plant(*self._trees, np.flatnonzero(self.copies["count"]), self._group_of)

    @property
    def _trees(self) -> tuple[Ints, Ints, Ints, Ints, Ints, npt.NDArray[np.uint8], Ints]:
        lines, nodes, roots, counts = self._lines, self._nodes.view, self._roots.view, self.copies["count"]
        return nodes, roots, counts, lines.lines, lines.kinds, lines.heap, self._path

    @property
    def _group_of(self) -> Ints:
        return np.asarray(self._groups.view, np.int64)

    def live(self, contents: GroupIndex) -> Mask:
        """Which contents have copies."""
        self.know(contents)
        return np.asarray(self.copies["count"] != 0)

    def keep(self, keep: Mask) -> None:
        """Forget contents; those that are kept have new codes, and trees of their own."""
        self._uproot(keep)
        new = np.append(np.cumsum(keep) - 1, EMPTY)
        self.copies.keep(keep)
        self._lines.keep(keep)
        nodes = self._nodes.view[keep]
        nodes[:, LEFT], nodes[:, RIGHT] = new[nodes[:, LEFT]], new[nodes[:, RIGHT]]
        self._nodes.replace(nodes)
        self._places.replace(np.full(len(nodes), EMPTY, np.int64))
        self._keep_groups(keep, new)

    def _uproot(self, keep: Mask) -> None:
        """Empty the trees that hold a content which goes: a key goes with all its contents or with none."""
        gone = ~keep & (self.copies["count"] != 0)
        self._roots.view[self._groups.view[gone]] = EMPTY

    def _keep_groups(self, keep: Mask, new: Ints) -> None:
        groups = self._groups.view[keep]
        used = np.zeros(len(self._keys), np.bool_)
        used[groups] = True
        moved = self._keys.compact(used)
        self._groups.replace(moved[groups])
        self._roots.replace(new[self._roots.view[used]])

    # ------------------------------------------------------------------------------------------ changes

    def tops(self, change: Change) -> Ints:
        """Apply changes; lines (time, content, delta) of the first rows, in order of time, net."""
        times, codes, deltas = _columns(change)
        room = len(codes) + int(np.abs(deltas).sum())
        out, net = np.empty((2, room, 3), np.int64)
        step = step_tops(
            *self._trees,
            self._group_of,
            times,
            codes,
            deltas,
            self._plan.count,
            self._forgets,
            out,
        )
        self._touch(codes, out[:step, 1])
        places = np.asarray(self._places.view, np.int64)
        return net[: net_changes(out[:step], np.arange(step), places, net)]

    def ranks(self, change: Change) -> Ints:
        """Apply changes; lines (time, content, sign, rank) of the first rows, in order of time."""
        times, codes, deltas = _columns(change)
        order = np.lexsort((self._group_of[codes], times))
        times, codes, deltas = times[order], codes[order], deltas[order]
        done, found = 0, []
        room = max(_ROOM, 4 * len(codes))
        while done < len(codes):
            out = np.empty((room, 4), np.int64)
            arguments = (self._group_of, times, codes, deltas, self._plan.count, self._forgets)
            stopped, count = step_ranks(*self._trees, *arguments, done, out)
            found.append(out[:count])
            room = room if stopped > done else 2 * room
            done = stopped
        lines = np.concatenate(found)
        self._touch(codes, lines[:, 1])
        return lines

    def _touch(self, codes: Ints, moved: Ints) -> None:
        self.copies.touch(codes)
        if self._forgets:
            self.copies.touch(moved.copy())

    # --------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        return sum(part.bytes() for part in self._parts())

    def _parts(self) -> tuple[GroupIndex | SortLines | CodeTable | Buffer, ...]:
        tree = (self._groups, self._roots, self._nodes, self._places)
        return (self.copies, self._keys, self._lines, *tree)

    def move_out(self, shelf: Shelf) -> None:
        """Move the arrays into rooms of a shelf."""
        for part in self._parts():
            part.move_out(shelf)

    def room_bytes(self) -> int:
        """Bytes on a shelf."""
        return sum(part.room_bytes() for part in self._parts())

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self.copies.changes(full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.copies.apply(chunk)
        self._stale = True


def _columns(change: Change) -> tuple[Ints, Ints, Ints]:
    columns = (change.times, change.codes, change.deltas[:, 0])
    times, codes, deltas = (np.ascontiguousarray(column) for column in columns)
    return times, codes, deltas
