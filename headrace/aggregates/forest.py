"""Ordered multisets by group, as state: changes are logged, so a snapshot costs what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Ints, Mask
from headrace.flow.batch import Batch
from headrace.kernels.aggregate_trees import (
    COUNT,
    FREE,
    GROUP,
    ITEM,
    KEY,
    USED,
    VALID,
    WIDTH,
    change_all,
    match_copies,
    run_trees,
)
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sort_keys import NUMBERS, Order
from headrace.plan.nodes.core import (
    Granularity,
    Join,
    Plan,
    Project,
    Select,
    SlidingAggregate,
    Table,
    Union,
    Window,
)
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.windows import Rows, Unbounded
from headrace.schema import Schema
from headrace.spill.mapped_arrays import empty, held, is_mapped, mapped_bytes, moved
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer
from headrace.state.key_index import GroupIndex
from headrace.state.part import Cell, Part

CHANGE = 5
"""A change is a line (key, item, valid, delta, group), the first columns of a node."""
_SPARE = 1024
_SMALL = 64


class Forest:
    """For each group a multiset of keys, each key with an item that may be null; `order` compares keys."""

    def __init__(self, order: Callable[[], Order] = lambda: NUMBERS) -> None:
        self._order = order
        self._spill_store: SpillStore | None = None
        self._clear()
        self._log: list[Ints] = []
        self._logged = 0
        self._reset = True

    def _clear(self) -> None:
        """Start with no groups and no nodes."""
        self._nodes = np.zeros((_SMALL, WIDTH), np.int64)
        self._meta = np.array([EMPTY, 0, 1], np.int64)
        self._roots, self._sizes = Buffer(np.int64), Buffer(np.int64)

    def __len__(self) -> int:
        return int(np.asarray(self._sizes.view, np.int64).sum())

    def reserve(self, groups: int, changes: int) -> None:
        """Make room for this many groups and changes."""
        if len(self._roots) < groups:
            self._sizes.extend(groups - len(self._roots))[:] = 0
            self._roots.extend(groups - len(self._roots))[:] = EMPTY
        needed = int(self._meta[USED]) + changes
        if needed > len(self._nodes):
            nodes = empty((max(_SMALL, 4 * needed // 3), WIDTH), np.int64, self._spill_store)
            nodes[: len(self._nodes)] = self._nodes
            nodes[len(self._nodes) :] = 0
            self._nodes = nodes

    @property
    def _trees(self) -> tuple[Ints, Ints, Ints, Ints, Order]:
        """The arguments that every tree kernel takes."""
        return self._nodes, self._roots.view, self._sizes.view, self._meta, self._order()

    def change(self, changes: Ints) -> None:
        """Apply changes in order."""
        change_all(*self._trees, changes)
        self._remember(changes)

    def run(self, groups: Ints, first: Ints, at: Ints, changes: Ints, positions: int) -> Ints:
        """Apply changes step by step; returns the sizes and ends at each position, see `run_trees`."""
        out = np.empty((positions, 7), np.int64)
        run_trees(*self._trees, groups, first, at, changes, out)
        self._remember(changes)
        return out

    def match(self, contents: Ints, signs: Ints, numbers: Ints) -> None:
        """Number the copies; each withdrawal gets the number of the oldest copy, see `match_copies`."""
        match_copies(*self._trees, contents, signs, numbers)
        changes = np.zeros((len(contents), CHANGE), np.int64)
        changes[:, KEY], changes[:, COUNT], changes[:, GROUP] = numbers, signs, contents
        self._remember(changes)

    def held(self) -> Mask:
        """Which groups have a key."""
        held: Mask = np.asarray(self._sizes.view != 0)
        return held

    def items(self, column: int) -> Ints:
        """The keys (KEY) or items (ITEM) of all nodes."""
        return self._used()[:, column]

    def of_groups(self, groups: Ints) -> tuple[Ints, Ints]:
        """The number of keys of each of these groups, and the lines of the keys, group by group."""
        place = np.full(len(self._roots), EMPTY, np.int64)
        place[groups] = np.arange(len(groups))
        used = self._used()[:, :CHANGE]
        at = place[used[:, GROUP]]
        order = np.argsort(at, kind="stable")[np.count_nonzero(at == EMPTY) :]
        return np.bincount(at[order], minlength=len(groups)), used[order]

    def _used(self) -> Ints:
        """The lines of the nodes in use."""
        nodes = self._nodes[: self._meta[USED]]
        used: Ints = nodes[nodes[:, COUNT] != 0]
        return used

    def remap(self, new: Ints, keep: Mask) -> None:
        """Give the groups new codes, and drop the keys of groups that are not kept. Rebuilds the trees."""
        used = self._used()[:, :CHANGE].copy()
        used[:, GROUP] = new[used[:, GROUP]]
        used = used[used[:, GROUP] != EMPTY]
        self._clear()
        self.reserve(int(np.count_nonzero(keep)), len(used))
        change_all(*self._trees, used)
        self._forget_changes(reset=True)

    def tidy(self) -> None:
        """Free memory if seven eighths of the nodes are unused."""
        if len(self._nodes) > tuning.current.shrink_above and 8 * len(self) < len(self._nodes):
            groups = len(self._roots)
            self.remap(np.arange(groups), np.ones(groups, np.bool_))

    # --------------------------------------------------------------------------------------------- state

    def _remember(self, changes: Ints) -> None:
        """Log changes for the next snapshot; if the log outgrows the state, the snapshot writes the state."""
        if self._reset:
            return
        self._log.append(changes[:, :CHANGE].copy())
        self._logged += len(changes)
        if self._logged > int(self._meta[USED]) + _SPARE:
            self._forget_changes(reset=True)

    def write_whole(self) -> None:
        """Make the next snapshot write the whole state."""
        self._forget_changes(reset=True)

    def _forget_changes(self, reset: bool) -> None:
        """Empty the log of changes; after a `reset`, the next snapshot writes everything."""
        self._log, self._logged, self._reset = [], 0, reset

    def bytes(self) -> int:
        return held(self._nodes) + self._roots.bytes() + self._sizes.bytes() + self.log_bytes()

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move nodes and roots into mapped files of a spill store."""
        self._spill_store = spill_store
        self._nodes = moved(self._nodes, spill_store)
        for buffer in (self._roots, self._sizes):
            buffer.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return mapped_bytes(self._nodes) + self._roots.mapped_bytes() + self._sizes.mapped_bytes()

    def log_bytes(self) -> int:
        """Bytes kept for the next snapshot."""
        return 8 * CHANGE * self._logged

    def spare_bytes(self) -> int:
        """Bytes of unused capacity."""
        return 0 if is_mapped(self._nodes) else int(self._nodes.nbytes) - len(self) * 8 * WIDTH

    def release(self) -> None:
        """Free unused capacity."""
        if len(self._nodes) > _SMALL + 3 * len(self) // 2:
            groups = len(self._roots)
            self.remap(np.arange(groups), np.ones(groups, np.bool_))

    def changes(self, full: bool) -> Mapping[str, Any]:
        whole = full or self._reset
        lines = [self._used()[:, :CHANGE]] if whole else self._log
        chunk = np.concatenate(lines) if lines else np.empty((0, CHANGE), np.int64)
        self._forget_changes(reset=False)
        return {"reset": whole, "groups": len(self._roots), "changes": chunk}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._clear()
        self.reserve(chunk["groups"], len(chunk["changes"]))
        change_all(*self._trees, chunk["changes"])
        self._forget_changes(reset=False)


__all__ = ["CHANGE", "COUNT", "FREE", "GROUP", "ITEM", "KEY", "VALID", "Forest"]


# Which copy of a row is withdrawn: the oldest with the same row and the same end.


_KEEPS_ENDS = (Select, Project, Union, Join, Granularity, Table)


def may_withdraw(plan: Plan) -> bool:
    """Whether elements of `plan` may be withdrawn before the end that they came with."""
    if isinstance(plan, Window):
        return isinstance(plan.spec, Rows)
    if isinstance(plan, (SlidingAggregate, SessionAggregate)):
        return False
    if isinstance(plan, Table):
        return plan.changes
    return not isinstance(plan, _KEEPS_ENDS) or any(may_withdraw(below) for below in plan.inputs)


def lasts_for_ever(plan: Plan) -> bool:
    """Whether a row of `plan`, once valid, stays valid forever."""
    if isinstance(plan, Window):
        return isinstance(plan.spec, Unbounded)
    if isinstance(plan, Table):
        return not plan.changes
    return isinstance(plan, (Select, Project, Union, Join)) and all(map(lasts_for_ever, plan.inputs))


class Numbering:
    """Numbers elements in the order of rows; a withdrawal gets the number of the row it withdraws.

    If nothing can be withdrawn, contents are not compared.
    """

    def __init__(self, schema: Schema, tracks: bool) -> None:
        self._tracks = tracks
        self._contents = GroupIndex(pa.schema([*schema, pa.field("end of validity", pa.int64())]))
        self._copies = Forest()
        self._next = Cell(number=0)

    def number(self, batch: Batch, lines: Ints, number: int, content: int) -> None:
        """Fill in the number and content of each element of a batch; the elements are in order."""
        size = len(batch)
        lines[:, number] = np.arange(self._next["number"], self._next["number"] + size)
        self._next["number"] += size
        if not self._tracks:
            return
        contents = self._contents.codes([*batch.data.columns, pa.array(batch.end)], size)
        self._copies.reserve(len(self._contents), size)
        signs = batch.signs().astype(np.int64)
        order = np.lexsort((-signs, batch.start))
        numbers = np.ascontiguousarray(lines[order, number])
        self._copies.match(contents[order], signs[order], numbers)
        lines[order, number] = numbers
        lines[:, content] = contents

    def expire(self, contents: Ints, numbers: Ints, signs: Ints) -> None:
        """Drop elements that have ended; the end of a withdrawal cancels that of the row it withdrew."""
        if not self._tracks or not len(contents):
            return
        changes = np.zeros((len(contents), CHANGE), np.int64)
        changes[:, KEY], changes[:, COUNT], changes[:, GROUP] = numbers, signs, contents
        self._copies.reserve(len(self._contents), len(changes))
        self._copies.change(changes)

    def forget(self, pending: Ints) -> Ints | None:
        """Forget contents without copies that are not `pending`, if most are; returns old → new codes."""
        if not self._tracks:
            return None
        self._copies.reserve(len(self._contents), 0)
        keep: Mask = self._copies.held()
        keep[pending] = True
        if 2 * int(np.count_nonzero(keep)) > len(keep) or not len(keep):
            self._copies.tidy()
            return None
        new = self._contents.compact(keep)
        self._copies.remap(new, keep)
        return new

    def state(self) -> dict[str, Part]:
        """The parts of a snapshot."""
        if not self._tracks:
            return {"next": self._next}
        return {"next": self._next, "contents": self._contents, "copies": self._copies}
