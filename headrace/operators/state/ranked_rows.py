"""The state of top-n where rows may be withdrawn: all valid rows of each key, in sort order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Ints, Mask
from headrace.kernels.changes import CODE, DELTA, net_changes
from headrace.kernels.hashing import EMPTY
from headrace.kernels.top_n import (
    LEFT,
    MAX_DEPTH,
    NODE_WIDTH,
    PRIORITY,
    RANK,
    RIGHT,
    TOTAL,
    Trees,
    build_trees,
    step_ranks,
    step_tops,
)
from headrace.operators.state.net_changes import Change
from headrace.operators.state.sort_keys import SortKeys
from headrace.plan.analysis.istream_state import only_grows
from headrace.plan.nodes.top_n import SortKey, TopN
from headrace.spill.store import SpillStore
from headrace.state.code_table import CodeTable
from headrace.state.columns import Buffer
from headrace.state.key_index import GroupIndex

_ROOM = 1 << 14


def full_order(plan: TopN) -> list[SortKey]:
    """The order of a top-n, followed by all other columns in turn: they break ties."""
    used = {*plan.keys, *(key.column for key in plan.order)}
    return [*plan.order, *(SortKey(name) for name in plan.input.schema.names if name not in used)]


class RankedRows:
    """For each key, a tree of the row contents that have copies, in sort order (`headrace.kernels.top_n`).

    A code is the number of a content in `Changes`. A change takes time logarithmic in the contents of its
    key, and the same again for each row that crosses the limit. The checkpoint has the copies only; trees,
    keys and sort keys are rebuilt from them and the contents. If no row ever leaves the input, copies beyond
    the limit are not kept.
    """

    def __init__(self, plan: TopN) -> None:
        self._plan = plan
        self._forgets = only_grows(plan.input)
        self._schema = plan.input.schema
        self._order = full_order(plan)
        self.copies = CodeTable(count=(np.int64, 0))
        self._path = np.empty(MAX_DEPTH, np.int64)
        self._stale = False
        self._clear()

    def _clear(self) -> None:
        """Start with no contents."""
        self._keys = GroupIndex(pa.schema([self._schema.field(k) for k in self._plan.keys]))
        self._sort_keys = SortKeys(self._schema, self._order)
        self._groups, self._roots = Buffer(np.int64), Buffer(np.int64)
        self._nodes = Buffer(np.int64, NODE_WIDTH)
        self._places = Buffer(np.int64)
        self._seed = np.uint64(1)

    def begin_with(self, codes: Ints, contents: GroupIndex) -> None:
        """Start with one copy for each of `codes`."""
        self.copies.grow(len(contents))
        np.add.at(self.copies["count"], codes, 1)
        self.copies.touch(codes)
        self._stale = True

    # ----------------------------------------------------------------------------------------- contents

    def rebuild_if_stale(self, contents: GroupIndex) -> None:
        """Add a key, a sort key and a tree node for new contents; after a restore, rebuild the trees."""
        if self._stale:
            self._stale = False
            self._clear()
            self._add(contents)
            build_trees(self._trees, np.flatnonzero(self.copies["count"]), self._group_of)
        elif len(self._sort_keys) < len(contents):
            self._add(contents)

    def _add(self, contents: GroupIndex) -> None:
        """Add the contents that are new."""
        fresh = np.arange(len(self._sort_keys), len(contents))
        rows = contents.keys.rows(fresh)
        self._sort_keys.append(rows)
        self._groups.append(self._keys.codes([rows.column(k) for k in self._plan.keys], len(fresh)))
        self._roots.extend(len(self._keys) - len(self._roots))[:] = EMPTY
        self._places.extend(len(fresh))[:] = EMPTY
        nodes = self._nodes.extend(len(fresh))
        nodes[:, [LEFT, RIGHT]] = EMPTY
        nodes[:, TOTAL] = 0
        nodes[:, PRIORITY] = self._priorities(len(fresh))
        self.copies.grow(len(contents))

    def _priorities(self, count: int) -> Ints:
        """Pseudo-random, and the same in each run: multiples of the golden ratio, mixed."""
        steps = self._seed + np.arange(count, dtype=np.uint64)
        self._seed += np.uint64(count)
        mixed = steps * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray((mixed ^ (mixed >> np.uint64(27))) >> np.uint64(1), np.int64)

    @property
    def _trees(self) -> Trees:
        """What the kernels work on; valid until contents are added or removed."""
        return Trees(
            self._nodes.view, self._roots.view, self.copies["count"], self._sort_keys.table, self._path
        )

    @property
    def _group_of(self) -> Ints:
        """The group of each content."""
        return np.asarray(self._groups.view, np.int64)

    def live(self, contents: GroupIndex) -> Mask:
        """Which contents have copies."""
        self.rebuild_if_stale(contents)
        return np.asarray(self.copies["count"] != 0)

    def keep(self, keep: Mask) -> None:
        """Drop contents; the others get new codes, in their order. The contents of a key that have copies are
        kept or dropped together."""
        self._empty_trees(keep)
        new = np.append(np.cumsum(keep) - 1, EMPTY)
        self.copies.keep(keep)
        self._sort_keys.keep(keep)
        nodes = self._nodes.view[keep]
        nodes[:, LEFT], nodes[:, RIGHT] = new[nodes[:, LEFT]], new[nodes[:, RIGHT]]
        self._nodes.replace(nodes)
        self._places.replace(np.full(len(nodes), EMPTY, np.int64))
        self._keep_groups(keep, new)

    def _empty_trees(self, keep: Mask) -> None:
        """Empty the trees of the keys that are dropped."""
        gone = ~keep & (self.copies["count"] != 0)
        self._roots.view[self._groups.view[gone]] = EMPTY

    def _keep_groups(self, keep: Mask, new: Ints) -> None:
        """Drop the keys without contents; `new` maps old codes to new ones."""
        groups = self._groups.view[keep]
        used = np.zeros(len(self._keys), np.bool_)
        used[groups] = True
        moved = self._keys.compact(used)
        self._groups.replace(moved[groups])
        self._roots.replace(new[self._roots.view[used]])

    # ------------------------------------------------------------------------------------------ changes

    def tops(self, change: Change) -> Ints:
        """Apply changes; the net changes of the first rows, in order of time: columns TIME, CODE, DELTA."""
        times, codes, deltas = _columns(change)
        room = len(codes) + int(np.abs(deltas).sum())
        out, net = np.empty((2, room, DELTA + 1), np.int64)
        found = step_tops(
            self._trees,
            self._group_of,
            times,
            codes,
            deltas,
            self._plan.count,
            self._forgets,
            out,
        )
        self._touch(codes, out[:found, CODE])
        places = np.asarray(self._places.view, np.int64)
        return net[: net_changes(out[:found], np.arange(found), places, net)]

    def ranks(self, change: Change) -> Ints:
        """Apply changes; the ranks that change, in order of time: columns TIME, CODE, DELTA, RANK."""
        times, codes, deltas = _columns(change)
        order = np.lexsort((self._group_of[codes], times))
        times, codes, deltas = times[order], codes[order], deltas[order]
        done, found = 0, []
        room = max(_ROOM, 4 * len(codes))
        while done < len(codes):
            out = np.empty((room, RANK + 1), np.int64)
            arguments = (self._group_of, times, codes, deltas, self._plan.count, self._forgets)
            stopped, count = step_ranks(self._trees, *arguments, done, out)
            found.append(out[:count])
            room = room if stopped > done else 2 * room
            done = stopped
        changes = np.concatenate(found)
        self._touch(codes, changes[:, CODE])
        return changes

    def _touch(self, codes: Ints, moved: Ints) -> None:
        """Note which copies the next checkpoint must write."""
        self.copies.touch(codes)
        if self._forgets:
            self.copies.touch(moved.copy())

    # --------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        return sum(part.bytes() for part in self._parts())

    def _parts(self) -> tuple[GroupIndex | SortKeys | CodeTable | Buffer, ...]:
        tree = (self._groups, self._roots, self._nodes, self._places)
        return (self.copies, self._keys, self._sort_keys, *tree)

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the arrays into mapped files of a spill store."""
        for part in self._parts():
            part.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return sum(part.mapped_bytes() for part in self._parts())

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self.copies.changes(full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.copies.apply(chunk)
        self._stale = True


def _columns(change: Change) -> tuple[Ints, Ints, Ints]:
    """The times, codes and deltas of a change to one relation, contiguous for the kernels."""
    columns = (change.times, change.codes, change.deltas[:, 0])
    times, codes, deltas = (np.ascontiguousarray(column) for column in columns)
    return times, codes, deltas
