"""The rows of each group in sort order, and which of them are the first n: treaps that count rows.

The rows of one group form a binary search tree (in sort order from left to right). Rows with the same content
share one node, which counts them. Every node also knows how many rows its subtree has, so finding the rank of
a row and finding the row at a rank take time logarithmic in the number of contents of the group.

    The group "x" with the prices 9, 7, 7, 5 and 3, first 3 by price descending:

    roots["x"] ──────► node of 7               node    LEFT  RIGHT  TOTAL  PRIORITY    counts
                       7 × 2, TOTAL 5          9      EMPTY  EMPTY      1        40         1
                       ╱            ╲          7          9      5      5        90         2
              9 × 1, TOTAL 1    5 × 1, TOTAL 2 5      EMPTY      3      2        60         1
                                         ╲     3      EMPTY  EMPTY      1        20         1
                                   3 × 1, TOTAL 1

    ranks:    9 → 1,  7 → 2 and 3,  5 → 4,  3 → 5          the first 3 rows are 9, 7, 7

A priority is pseudo-random, and a parent's priority is at least that of its children: this keeps the tree
balanced on average. A node is identified by the code of its content, and contents are compared by their sort
keys (`headrace.kernels.sort_keys.KeyTable`).
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from headrace.arrays import Ints
from headrace.kernels.changes import CODE, DELTA, TIME
from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sort_keys import KEY_TABLE, KeyTable, compare

LEFT, RIGHT, TOTAL, PRIORITY = range(4)
"""The columns of a node: its two children (EMPTY if there is none), the rows in its subtree, its priority."""
NODE_WIDTH = 4

RANK = DELTA + 1
"""The last column of a change of ranked rows; the first three are those of an event."""

MAX_DEPTH = 4096
"""Deeper than any tree gets in practice, because priorities are pseudo-random."""


class Trees(NamedTuple):
    """The trees of all groups."""

    nodes: Ints
    """One line for each content, see above."""
    roots: Ints
    """The root of each group, EMPTY if it has no rows."""
    counts: Ints
    """How many rows have each content; a content is in its tree while it has any."""
    keys: KeyTable
    """The sort key of each content."""
    path: Ints
    """Scratch space for the nodes on a path, MAX_DEPTH long."""


_I64 = nb.int64[::1]
_TREES = nb.types.NamedTuple((nb.int64[:, ::1], _I64, _I64, KEY_TABLE, _I64), Trees)
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_TABLE = nb.int64[:, ::1]


@nb.njit(inline="always")
def _total(nodes: Ints, node: int) -> int:
    """The rows in the subtree of a node, 0 if there is none."""
    return nodes[node, TOTAL] if node != EMPTY else 0


@nb.njit(inline="always")
def _attach(trees: Trees, group: int, parent: int, side: int, node: int) -> None:
    """Make `node` the child of `parent` on `side`, or the root if there is no parent."""
    if parent == EMPTY:
        trees.roots[group] = node
    else:
        trees.nodes[parent, side] = node


@nb.njit(inline="always")
def _insert(trees: Trees, group: int, new: int) -> int:
    """Put a content, whose count is set, into the tree of its group; returns how many rows come before it."""
    nodes, counts, keys = trees.nodes, trees.counts, trees.keys
    count, before, depth = counts[new], 0, 0
    # Go down to the first node with a lower priority; the new node takes its place.
    parent, side, node = EMPTY, LEFT, trees.roots[group]
    while node != EMPTY and nodes[node, PRIORITY] >= nodes[new, PRIORITY]:
        nodes[node, TOTAL] += count
        parent, side = node, LEFT
        if compare(keys, node, new) < 0:
            before += _total(nodes, nodes[node, LEFT]) + counts[node]
            side = RIGHT
        node = nodes[node, side]
    _attach(trees, group, parent, side, new)
    # Split the subtree that was there: what sorts before the new node goes left, the rest right.
    low, low_side, high, high_side = new, LEFT, new, RIGHT
    while node != EMPTY:
        trees.path[depth] = node
        depth += 1
        if compare(keys, node, new) < 0:
            nodes[low, low_side] = node
            low, low_side = node, RIGHT
            node = nodes[node, RIGHT]
        else:
            nodes[high, high_side] = node
            high, high_side = node, LEFT
            node = nodes[node, LEFT]
    nodes[low, low_side] = EMPTY
    nodes[high, high_side] = EMPTY
    for i in range(depth - 1, -1, -1):
        node = trees.path[i]
        below = _total(nodes, nodes[node, LEFT]) + _total(nodes, nodes[node, RIGHT])
        nodes[node, TOTAL] = counts[node] + below
    before += _total(nodes, nodes[new, LEFT])
    nodes[new, TOTAL] = count + _total(nodes, nodes[new, LEFT]) + _total(nodes, nodes[new, RIGHT])
    return int(before)


@nb.njit(inline="always")
def _remove(trees: Trees, group: int, parent: int, side: int, node: int) -> None:
    """Take out a node that has no rows left; its two subtrees are merged in its place."""
    nodes = trees.nodes
    left, right = nodes[node, LEFT], nodes[node, RIGHT]
    while left != EMPTY and right != EMPTY:
        if nodes[left, PRIORITY] > nodes[right, PRIORITY]:
            _attach(trees, group, parent, side, left)
            nodes[left, TOTAL] += nodes[right, TOTAL]
            parent, side = left, RIGHT
            left = nodes[left, RIGHT]
        else:
            _attach(trees, group, parent, side, right)
            nodes[right, TOTAL] += nodes[left, TOTAL]
            parent, side = right, LEFT
            right = nodes[right, LEFT]
    _attach(trees, group, parent, side, right if left == EMPTY else left)


@nb.njit(inline="always")
def _change(trees: Trees, group: int, code: int, delta: int) -> int:
    """Add `delta` to the count of a content; returns how many rows come before it."""
    nodes, counts, keys = trees.nodes, trees.counts, trees.keys
    is_in_tree = counts[code] != 0
    counts[code] += delta
    if not is_in_tree:
        return int(_insert(trees, group, code))
    before = 0
    parent, side, node = EMPTY, LEFT, trees.roots[group]
    while node != code:
        nodes[node, TOTAL] += delta
        parent, side = node, LEFT
        if compare(keys, node, code) < 0:
            before += _total(nodes, nodes[node, LEFT]) + counts[node]
            side = RIGHT
        node = nodes[node, side]
    nodes[code, TOTAL] += delta
    before += _total(nodes, nodes[code, LEFT])
    if counts[code] == 0:
        _remove(trees, group, parent, side, code)
    return int(before)


@nb.njit(inline="always")
def _rows_before(trees: Trees, group: int, code: int) -> int:
    """How many rows of a group come before a content, which need not be in the tree."""
    nodes, counts, keys = trees.nodes, trees.counts, trees.keys
    before, node = 0, trees.roots[group]
    while node != EMPTY and node != code:
        if compare(keys, node, code) < 0:
            before += _total(nodes, nodes[node, LEFT]) + counts[node]
            node = nodes[node, RIGHT]
        else:
            node = nodes[node, LEFT]
    return int(before + _total(nodes, nodes[node, LEFT])) if node != EMPTY else int(before)


@nb.njit(inline="always")
def _row_at(trees: Trees, group: int, place: int) -> tuple[int, int]:
    """The content of the row at a place (0 is the first), and how many of its copies come before that row."""
    nodes, counts = trees.nodes, trees.counts
    node = trees.roots[group]
    while True:
        left = _total(nodes, nodes[node, LEFT])
        if place < left:
            node = nodes[node, LEFT]
        elif place < left + counts[node]:
            return node, place - left
        else:
            place -= left + counts[node]
            node = nodes[node, RIGHT]


@kernel(nb.void(_TREES, nb.int64, nb.int64))
def _trim(trees: Trees, group: int, limit: int) -> None:
    """Drop the rows of a group after the first `limit`."""
    nodes, roots = trees.nodes, trees.roots
    while _total(nodes, roots[group]) > limit:
        total = nodes[roots[group], TOTAL]
        last, _ = _row_at(trees, group, total - 1)
        surplus = min(trees.counts[last], total - limit)
        _change(trees, group, last, -surplus)


@kernel(nb.void(_TREES, _READ_I64, _READ_I64))
def build_trees(trees: Trees, codes: Ints, groups: Ints) -> None:
    """Put contents, whose counts are set, into empty trees; `groups` is the group of each content."""
    for i in range(codes.size):
        _insert(trees, groups[codes[i]], codes[i])


@nb.njit(inline="always")
def _is_beyond(trees: Trees, group: int, code: int, limit: int) -> bool:
    """Whether a new content comes after all rows of its group, which has at least `limit` rows."""
    nodes, root = trees.nodes, trees.roots[group]
    if trees.counts[code] != 0 or _total(nodes, root) < limit:
        return False
    node = root
    while nodes[node, RIGHT] != EMPTY:
        node = nodes[node, RIGHT]
    return bool(compare(trees.keys, node, code) < 0)


@kernel(
    nb.int64(_TREES, _READ_I64, _READ_I64, _READ_I64, _READ_I64, nb.int64, nb.boolean, _TABLE),
)
def step_tops(
    trees: Trees,
    groups: Ints,
    times: Ints,
    codes: Ints,
    deltas: Ints,
    limit: int,
    forgets: bool,
    out: Ints,
) -> int:
    """Apply changes; write to `out` which rows enter and leave the first `limit` of their group.

    A change among the first `limit` rows moves the rows after it, and those that cross the limit enter or
    leave too. Lines of `out` have the columns TIME, CODE, DELTA; it needs 1 + |delta| lines for each change.
    With `forgets`, rows beyond the limit are dropped, because none before them will ever leave. `groups` is
    the group of each content. Returns how many lines it wrote.
    """
    nodes, roots, counts = trees.nodes, trees.roots, trees.counts
    found = 0
    for i in range(codes.size):
        code, delta = codes[i], deltas[i]
        group, old = groups[code], counts[code]
        if forgets and _is_beyond(trees, group, code, limit):
            continue
        before = _change(trees, group, code, delta)
        if before < limit:
            room = limit - before
            shown, shows = min(old, room), min(old + delta, room)
            if shows != shown:
                out[found, TIME], out[found, CODE], out[found, DELTA] = times[i], code, shows - shown
                found += 1
            after = _total(nodes, roots[group]) - before - old - delta
            stayed, stays = min(room - shown, after), min(room - shows, after)
            place = before + old + delta + min(stayed, stays)
            moved, sign = abs(stays - stayed), 1 if stays > stayed else -1
            while moved > 0:
                other, copy = _row_at(trees, group, place)
                copies = min(counts[other] - copy, moved)
                out[found, TIME], out[found, CODE], out[found, DELTA] = times[i], other, sign * copies
                found += 1
                place += copies
                moved -= copies
        if forgets:
            _trim(trees, group, limit)
    return found


@kernel(nb.int64(_TREES, nb.int64, nb.int64, nb.int64, _I64))
def _list_rows(trees: Trees, group: int, place: int, limit: int, out: Ints) -> int:
    """Write the contents of the rows of a group from `place` to before `limit`, once for each copy."""
    stop, found = min(limit, _total(trees.nodes, trees.roots[group])), 0
    while place < stop:
        code, copy = _row_at(trees, group, place)
        for _ in range(min(trees.counts[code] - copy, stop - place)):
            out[found] = code
            found += 1
            place += 1
    return found


@kernel(
    nb.types.UniTuple(nb.int64, 2)(
        _TREES, _READ_I64, _READ_I64, _READ_I64, _READ_I64, nb.int64, nb.boolean, nb.int64, _TABLE
    ),
)
def step_ranks(
    trees: Trees,
    groups: Ints,
    times: Ints,
    codes: Ints,
    deltas: Ints,
    limit: int,
    forgets: bool,
    begin: int,
    out: Ints,
) -> tuple[int, int]:
    """Apply changes from `begin` on, in order of time and group; write to `out` which ranks get another row.

    All changes of a group at one instant are one step: from the first row that they touch, each rank whose
    row differs gives a line with DELTA −1 for the old row and one with +1 for the new row. Lines have the
    columns TIME, CODE, DELTA, RANK; ranks count from 1.

    Returns the index of the first change that was not applied, and how many lines it wrote. It stops before
    a step that may need more lines than `out` has left; then call it again with an empty `out`, and with a
    larger one if no change was applied.
    """
    nodes, roots = trees.nodes, trees.roots
    found, i = 0, begin
    while i < codes.size:
        group, low, j, more = groups[codes[i]], limit, i, 0
        while j < codes.size and times[j] == times[i] and groups[codes[j]] == group:
            low = min(low, _rows_before(trees, group, codes[j]))
            more += max(deltas[j], 0)
            j += 1
        if forgets and low == limit:
            i = j
            continue
        total = _total(nodes, roots[group])
        room = min(limit, total) + min(limit, total + more)
        if found + room > out.shape[0]:
            return i, found
        was, now = np.empty(min(limit, total), np.int64), np.empty(min(limit, total + more), np.int64)
        old = _list_rows(trees, group, low, limit, was)
        for e in range(i, j):
            _change(trees, group, codes[e], deltas[e])
        new = _list_rows(trees, group, low, limit, now)
        for place in range(max(old, new)):
            if place < old and place < new and was[place] == now[place]:
                continue
            rank = low + place + 1
            if place < old:
                out[found, TIME], out[found, CODE], out[found, DELTA] = times[i], was[place], -1
                out[found, RANK] = rank
                found += 1
            if place < new:
                out[found, TIME], out[found, CODE], out[found, DELTA] = times[i], now[place], 1
                out[found, RANK] = rank
                found += 1
        if forgets:
            _trim(trees, group, limit)
        i = j
    return i, found
