"""Ordered multisets, one per group, in one table of nodes: treaps (Seidel & Aragon, 1996).

A node is a key with a count; a change adds to the count, and a node whose count is zero is removed. Counts
may be negative between two changes of one instant. A change, or finding an end, takes expected time
logarithmic in the group's distinct keys. Removed nodes are reused. Keys are words in the order given.
"""

from __future__ import annotations

import numba as nb

from headrace.arrays import Ints
from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sort_keys import ORDER, Order, less

KEY, ITEM, VALID, COUNT, GROUP, LEFT, RIGHT, PRIORITY = 0, 1, 2, 3, 4, 5, 6, 7
WIDTH = 8
FREE, USED, SEED = 0, 1, 2
_NODES = nb.int64[:, ::1]
_I64 = nb.int64[::1]
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_READ_2D = nb.types.Array(nb.int64, 2, "A", readonly=True)


@kernel(nb.int64(_NODES, _I64))
def _new_node(nodes: Ints, meta: Ints) -> int:
    """A free node with a random priority (a linear congruential generator is good enough)."""
    node = meta[FREE]
    if node == EMPTY:
        node = meta[USED]
        meta[USED] += 1
    else:
        meta[FREE] = nodes[node, LEFT]
    meta[SEED] = meta[SEED] * 6364136223846793005 + 1442695040888963407
    nodes[node, PRIORITY] = (meta[SEED] >> 20) & 0xFFFFFFFFF
    return int(node)


@kernel(nb.void(_NODES, _I64, nb.int64, nb.int64, nb.int64, nb.int64))
def _hang(nodes: Ints, roots: Ints, group: int, parent: int, side: int, node: int) -> None:
    """Make `node` the child of `parent`, or the root."""
    if parent == EMPTY:
        roots[group] = node
    else:
        nodes[parent, side] = node


@kernel(nb.void(_NODES, _I64, ORDER, nb.int64, nb.int64))
def _insert(nodes: Ints, roots: Ints, order: Order, group: int, new: int) -> None:
    """Insert a node above all nodes of lower priority; these are split by its key."""
    key = nodes[new, KEY]
    parent, side, node = EMPTY, LEFT, roots[group]
    while node != EMPTY and nodes[node, PRIORITY] >= nodes[new, PRIORITY]:
        parent, side = node, LEFT if less(key, nodes[node, KEY], order) else RIGHT
        node = nodes[node, side]
    _hang(nodes, roots, group, parent, side, new)
    low, low_side, high, high_side = new, LEFT, new, RIGHT
    while node != EMPTY:
        if less(nodes[node, KEY], key, order):
            nodes[low, low_side] = node
            low, low_side = node, RIGHT
            node = nodes[node, RIGHT]
        else:
            nodes[high, high_side] = node
            high, high_side = node, LEFT
            node = nodes[node, LEFT]
    nodes[low, low_side] = EMPTY
    nodes[high, high_side] = EMPTY


@kernel(nb.void(_NODES, _I64, _I64, nb.int64, nb.int64, nb.int64, nb.int64))
def _remove(nodes: Ints, roots: Ints, meta: Ints, group: int, parent: int, side: int, node: int) -> None:
    """Remove a node; its children are merged in its place."""
    left, right = nodes[node, LEFT], nodes[node, RIGHT]
    nodes[node, LEFT] = meta[FREE]
    nodes[node, COUNT] = 0
    meta[FREE] = node
    while left != EMPTY and right != EMPTY:
        if nodes[left, PRIORITY] > nodes[right, PRIORITY]:
            _hang(nodes, roots, group, parent, side, left)
            parent, side = left, RIGHT
            left = nodes[left, RIGHT]
        else:
            _hang(nodes, roots, group, parent, side, right)
            parent, side = right, LEFT
            right = nodes[right, LEFT]
    _hang(nodes, roots, group, parent, side, right if left == EMPTY else left)


@kernel(nb.void(_NODES, _I64, _I64, _I64, ORDER, nb.int64, nb.int64, nb.int64, nb.int64, nb.int64))
def _change(
    nodes: Ints,
    roots: Ints,
    sizes: Ints,
    meta: Ints,
    order: Order,
    group: int,
    key: int,
    item: int,
    valid: int,
    delta: int,
) -> None:
    """Add `delta` to the count of a key."""
    parent, side, node = EMPTY, LEFT, roots[group]
    while node != EMPTY and nodes[node, KEY] != key:
        parent, side = node, LEFT if less(key, nodes[node, KEY], order) else RIGHT
        node = nodes[node, side]
    if node == EMPTY:
        node = _new_node(nodes, meta)
        nodes[node, KEY], nodes[node, ITEM], nodes[node, VALID] = key, item, valid
        nodes[node, COUNT], nodes[node, GROUP] = delta, group
        _insert(nodes, roots, order, group, node)
        sizes[group] += 1
        return
    nodes[node, COUNT] += delta
    if nodes[node, COUNT] == 0:
        _remove(nodes, roots, meta, group, parent, side, node)
        sizes[group] -= 1


@kernel(nb.int64(_NODES, _I64, nb.int64, nb.int64))
def _end(nodes: Ints, roots: Ints, group: int, side: int) -> int:
    """The node of a group's least (LEFT) or greatest (RIGHT) key."""
    node = roots[group]
    while node != EMPTY and nodes[node, side] != EMPTY:
        node = nodes[node, side]
    return int(node)


@kernel(nb.void(_NODES, _I64, _I64, _I64, ORDER, _READ_2D))
def change_all(nodes: Ints, roots: Ints, sizes: Ints, meta: Ints, order: Order, changes: Ints) -> None:
    """Apply changes (key, item, valid, delta, group), one after the other."""
    for i in range(changes.shape[0]):
        key, item, valid = changes[i, KEY], changes[i, ITEM], changes[i, VALID]
        _change(nodes, roots, sizes, meta, order, changes[i, GROUP], key, item, valid, changes[i, COUNT])


@kernel(nb.void(_NODES, _I64, _I64, _I64, ORDER, _READ_I64, _READ_I64, _READ_I64, _READ_2D, nb.int64[:, ::1]))
def run_trees(
    nodes: Ints,
    roots: Ints,
    sizes: Ints,
    meta: Ints,
    order: Order,
    groups: Ints,
    first: Ints,
    at: Ints,
    changes: Ints,
    out: Ints,
) -> None:
    """Apply changes step by step; at each position: how many keys, and the nodes' lines of the two ends.

    `out` has (size, least key, its item, its validity, greatest key, its item, its validity); positions as in
    `headrace.kernels.aggregate_instants`.
    """
    e = 0
    for g in range(first.size):
        stop = first[g + 1] if g + 1 < first.size else out.shape[0]
        group = groups[g]
        for p in range(first[g], stop):
            while e < at.size and at[e] == p:
                key, item, valid = changes[e, KEY], changes[e, ITEM], changes[e, VALID]
                _change(nodes, roots, sizes, meta, order, group, key, item, valid, changes[e, COUNT])
                e += 1
            out[p, 0] = sizes[group]
            for end in range(2):
                node = _end(nodes, roots, group, LEFT if end == 0 else RIGHT)
                for x in range(3):
                    out[p, 1 + 3 * end + x] = nodes[node, x] if node != EMPTY else 0


@kernel(nb.void(_NODES, _I64, _I64, _I64, ORDER, _READ_I64, _READ_I64, _I64))
def match_copies(
    nodes: Ints,
    roots: Ints,
    sizes: Ints,
    meta: Ints,
    order: Order,
    contents: Ints,
    signs: Ints,
    numbers: Ints,
) -> None:
    """Elements in order: a new copy of a content goes in under its number, a withdrawal takes the oldest out.

    `numbers` of withdrawals become those of the copies that they withdraw.
    """
    for i in range(contents.size):
        if signs[i] < 0:
            node = _end(nodes, roots, contents[i], LEFT)
            if node == EMPTY:
                continue
            numbers[i] = nodes[node, KEY]
        _change(nodes, roots, sizes, meta, order, contents[i], numbers[i], 0, 0, 1 if signs[i] > 0 else -1)
