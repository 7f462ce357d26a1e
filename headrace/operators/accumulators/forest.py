"""Ordered multisets by group, as state: changes are logged, so a snapshot costs what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.flow.columns import Buffer
from headrace.flow.rooms import empty, held, in_room, moved, on_shelf
from headrace.flow.shelf import Shelf
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
from headrace.kernels.value_order import NUMBERS, Order

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
CHANGE = 5
"""A change is a line (key, item, valid, delta, group), the first columns of a node."""
_SPARE = 1024
_SMALL = 64
_LARGE = 4096


class Forest:
    """For each group a multiset of keys, each key with an item that may be null; `order` compares keys."""

    def __init__(self, order: Callable[[], Order] = lambda: NUMBERS) -> None:
        self._order = order
        self._shelf: Shelf | None = None
        self._clear()
        self._log: list[Ints] = []
        self._logged = 0
        self._reset = True

    def _clear(self) -> None:
        self._nodes = np.zeros((_SMALL, WIDTH), np.int64)
        self._meta = np.array([EMPTY, 0, 1], np.int64)
        self._roots, self._sizes = Buffer(np.int64), Buffer(np.int64)

    def __len__(self) -> int:
        return int(np.asarray(self._sizes.view, np.int64).sum())

    def reserve(self, groups: int, changes: int) -> None:
        """Have room for so many groups, and for changes to come."""
        if len(self._roots) < groups:
            self._sizes.extend(groups - len(self._roots))[:] = 0
            self._roots.extend(groups - len(self._roots))[:] = EMPTY
        needed = int(self._meta[USED]) + changes
        if needed > len(self._nodes):
            nodes = empty((max(_SMALL, 4 * needed // 3), WIDTH), np.int64, self._shelf)
            nodes[: len(self._nodes)] = self._nodes
            nodes[len(self._nodes) :] = 0
            self._nodes = nodes

    @property
    def _trees(self) -> tuple[Ints, Ints, Ints, Ints, Order]:
        return self._nodes, self._roots.view, self._sizes.view, self._meta, self._order()

    def change(self, changes: Ints) -> None:
        """Apply changes in order."""
        change_all(*self._trees, changes)
        self._remember(changes)

    def run(self, groups: Ints, first: Ints, at: Ints, changes: Ints, positions: int) -> Ints:
        """Apply changes step by step and give sizes and ends at each position, see `run_trees`."""
        out = np.empty((positions, 7), np.int64)
        run_trees(*self._trees, groups, first, at, changes, out)
        self._remember(changes)
        return out

    def match(self, contents: Ints, signs: Ints, numbers: Ints) -> None:
        """Number copies, and give each withdrawal the number of the oldest copy; see `match_copies`."""
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
        """How many keys each of some groups has, and the lines of these, group by group."""
        place = np.full(len(self._roots), EMPTY, np.int64)
        place[groups] = np.arange(len(groups))
        used = self._used()[:, :CHANGE]
        at = place[used[:, GROUP]]
        order = np.argsort(at, kind="stable")[np.count_nonzero(at == EMPTY) :]
        return np.bincount(at[order], minlength=len(groups)), used[order]

    def _used(self) -> Ints:
        nodes = self._nodes[: self._meta[USED]]
        used: Ints = nodes[nodes[:, COUNT] != 0]
        return used

    def remap(self, new: Ints, keep: Mask) -> None:
        """Give the groups new codes; the keys of those that are not kept go too. Builds the trees anew."""
        used = self._used()[:, :CHANGE].copy()
        used[:, GROUP] = new[used[:, GROUP]]
        used = used[used[:, GROUP] != EMPTY]
        self._clear()
        self.reserve(int(np.count_nonzero(keep)), len(used))
        change_all(*self._trees, used)
        self._forget_changes(reset=True)

    def tidy(self) -> None:
        """Give space back that is seven eighths dead."""
        if len(self._nodes) > _LARGE and 8 * len(self) < len(self._nodes):
            groups = len(self._roots)
            self.remap(np.arange(groups), np.ones(groups, np.bool_))

    # --------------------------------------------------------------------------------------------- state

    def _remember(self, changes: Ints) -> None:
        """Note what a snapshot must write; once that is more than what is held, it writes what is held."""
        if self._reset:
            return
        self._log.append(changes[:, :CHANGE].copy())
        self._logged += len(changes)
        if self._logged > int(self._meta[USED]) + _SPARE:
            self._forget_changes(reset=True)

    def write_whole(self) -> None:
        """Let the next snapshot write all that is held."""
        self._forget_changes(reset=True)

    def _forget_changes(self, reset: bool) -> None:
        self._log, self._logged, self._reset = [], 0, reset

    def bytes(self) -> int:
        return held(self._nodes) + self._roots.bytes() + self._sizes.bytes() + self.log_bytes()

    def move_out(self, shelf: Shelf) -> None:
        """Move nodes and roots into rooms of a shelf."""
        self._shelf = shelf
        self._nodes = moved(self._nodes, shelf)
        for buffer in (self._roots, self._sizes):
            buffer.move_out(shelf)

    def room_bytes(self) -> int:
        """Bytes on a shelf."""
        return on_shelf(self._nodes) + self._roots.room_bytes() + self._sizes.room_bytes()

    def log_bytes(self) -> int:
        """Bytes that are kept for the next snapshot."""
        return 8 * CHANGE * self._logged

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        return 0 if in_room(self._nodes) else int(self._nodes.nbytes) - len(self) * 8 * WIDTH

    def release(self) -> None:
        """Give spare room back."""
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
