"""Rows of each group in the order of a sort key, and which of them are the first n: treaps with counts.

A node is a row content with the number of its copies; it is in its group's tree while it has any. Each node
knows how many rows are below it, so the place of a content and the row at a place cost the logarithm of the
group's contents. Contents are compared by their lines (`headrace.kernels.sort_lines`).
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sort_lines import compare

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LEFT, RIGHT, TOTAL, PRIORITY = 0, 1, 2, 3
WIDTH = 4
DEPTH = 4096
"""No tree is so deep: priorities are as good as random."""

_NODES = nb.int64[:, ::1]
_I64 = nb.int64[::1]
_BYTES = nb.uint8[::1]
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)


@nb.njit(inline="always")
def _total(nodes: Ints, node: int) -> int:
    return nodes[node, TOTAL] if node != EMPTY else 0


@nb.njit(inline="always")
def _hang(nodes: Ints, roots: Ints, group: int, parent: int, side: int, node: int) -> None:
    """Make `node` the child of `parent`, or the root."""
    if parent == EMPTY:
        roots[group] = node
    else:
        nodes[parent, side] = node


@kernel(nb.int64(_NODES, _I64, _I64, nb.int64[:, ::1], _I64, _BYTES, _I64, nb.int64, nb.int64))
def _insert(
    nodes: Ints,
    roots: Ints,
    counts: Ints,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    path: Ints,
    group: int,
    new: int,
) -> int:
    """Put a content with its count into its tree; returns how many rows are before it."""
    count, before, depth = counts[new], 0, 0
    parent, side, node = EMPTY, LEFT, roots[group]
    while node != EMPTY and nodes[node, PRIORITY] >= nodes[new, PRIORITY]:
        nodes[node, TOTAL] += count
        parent, side = node, LEFT
        if compare(lines, kinds, heap, node, new) < 0:
            before += _total(nodes, nodes[node, LEFT]) + counts[node]
            side = RIGHT
        node = nodes[node, side]
    _hang(nodes, roots, group, parent, side, new)
    low, low_side, high, high_side = new, LEFT, new, RIGHT
    while node != EMPTY:
        path[depth] = node
        depth += 1
        if compare(lines, kinds, heap, node, new) < 0:
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
        node = path[i]
        below = _total(nodes, nodes[node, LEFT]) + _total(nodes, nodes[node, RIGHT])
        nodes[node, TOTAL] = counts[node] + below
    before += _total(nodes, nodes[new, LEFT])
    nodes[new, TOTAL] = count + _total(nodes, nodes[new, LEFT]) + _total(nodes, nodes[new, RIGHT])
    return int(before)


@kernel(nb.void(_NODES, _I64, nb.int64, nb.int64, nb.int64, nb.int64))
def _remove(nodes: Ints, roots: Ints, group: int, parent: int, side: int, node: int) -> None:
    """Take a node without copies out; its children are merged in its place."""
    left, right = nodes[node, LEFT], nodes[node, RIGHT]
    while left != EMPTY and right != EMPTY:
        if nodes[left, PRIORITY] > nodes[right, PRIORITY]:
            _hang(nodes, roots, group, parent, side, left)
            nodes[left, TOTAL] += nodes[right, TOTAL]
            parent, side = left, RIGHT
            left = nodes[left, RIGHT]
        else:
            _hang(nodes, roots, group, parent, side, right)
            nodes[right, TOTAL] += nodes[left, TOTAL]
            parent, side = right, LEFT
            right = nodes[right, LEFT]
    _hang(nodes, roots, group, parent, side, right if left == EMPTY else left)


@kernel(
    nb.int64(_NODES, _I64, _I64, nb.int64[:, ::1], _I64, _BYTES, _I64, nb.int64, nb.int64, nb.int64),
)
def _change(
    nodes: Ints,
    roots: Ints,
    counts: Ints,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    path: Ints,
    group: int,
    code: int,
    delta: int,
) -> int:
    """Add `delta` to the copies of a content; returns how many rows are before it."""
    there = counts[code] != 0
    counts[code] += delta
    if not there:
        return int(_insert(nodes, roots, counts, lines, kinds, heap, path, group, code))
    before = 0
    parent, side, node = EMPTY, LEFT, roots[group]
    while node != code:
        nodes[node, TOTAL] += delta
        parent, side = node, LEFT
        if compare(lines, kinds, heap, node, code) < 0:
            before += _total(nodes, nodes[node, LEFT]) + counts[node]
            side = RIGHT
        node = nodes[node, side]
    nodes[code, TOTAL] += delta
    before += _total(nodes, nodes[code, LEFT])
    if counts[code] == 0:
        _remove(nodes, roots, group, parent, side, code)
    return int(before)


@kernel(nb.int64(_NODES, _I64, nb.int64[:, ::1], _I64, _BYTES, nb.int64, nb.int64))
def _place(nodes: Ints, counts: Ints, lines: Ints, kinds: Ints, heap: Bytes, root: int, code: int) -> int:
    """How many rows are before a content, which may be in the tree or not."""
    before, node = 0, root
    while node != EMPTY and node != code:
        if compare(lines, kinds, heap, node, code) < 0:
            before += _total(nodes, nodes[node, LEFT]) + counts[node]
            node = nodes[node, RIGHT]
        else:
            node = nodes[node, LEFT]
    return int(before + _total(nodes, nodes[node, LEFT])) if node != EMPTY else int(before)


@kernel(nb.types.UniTuple(nb.int64, 2)(_NODES, _I64, nb.int64, nb.int64))
def _select(nodes: Ints, counts: Ints, root: int, place: int) -> tuple[int, int]:
    """The content of the row at a place, and how many of its copies come before that row."""
    node = root
    while True:
        left = _total(nodes, nodes[node, LEFT])
        if place < left:
            node = nodes[node, LEFT]
        elif place < left + counts[node]:
            return node, place - left
        else:
            place -= left + counts[node]
            node = nodes[node, RIGHT]


@kernel(nb.void(_NODES, _I64, _I64, nb.int64[:, ::1], _I64, _BYTES, _I64, nb.int64, nb.int64))
def _trim(
    nodes: Ints,
    roots: Ints,
    counts: Ints,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    path: Ints,
    group: int,
    limit: int,
) -> None:
    """Forget the rows after the first `limit`."""
    while _total(nodes, roots[group]) > limit:
        total = nodes[roots[group], TOTAL]
        last, _ = _select(nodes, counts, roots[group], total - 1)
        spare = min(counts[last], total - limit)
        _change(nodes, roots, counts, lines, kinds, heap, path, group, last, -spare)


@kernel(nb.void(_NODES, _I64, _I64, nb.int64[:, ::1], _I64, _BYTES, _I64, _READ_I64, _READ_I64))
def plant(
    nodes: Ints,
    roots: Ints,
    counts: Ints,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    path: Ints,
    codes: Ints,
    groups: Ints,
) -> None:
    """Put contents that have copies into their trees."""
    for i in range(codes.size):
        _insert(nodes, roots, counts, lines, kinds, heap, path, groups[codes[i]], codes[i])


@kernel(nb.boolean(_NODES, _I64, nb.int64[:, ::1], _I64, _BYTES, nb.int64, nb.int64, nb.int64))
def _is_beyond(
    nodes: Ints, counts: Ints, lines: Ints, kinds: Ints, heap: Bytes, root: int, code: int, limit: int
) -> bool:
    """Whether a new content comes after `limit` rows or more, all that its tree has."""
    if counts[code] != 0 or _total(nodes, root) < limit:
        return False
    node = root
    while nodes[node, RIGHT] != EMPTY:
        node = nodes[node, RIGHT]
    return bool(compare(lines, kinds, heap, node, code) < 0)


@kernel(
    nb.int64(
        _NODES,
        _I64,
        _I64,
        nb.int64[:, ::1],
        _I64,
        _BYTES,
        _I64,
        _READ_I64,
        _READ_I64,
        _READ_I64,
        _READ_I64,
        nb.int64,
        nb.boolean,
        nb.int64[:, ::1],
    ),
)
def step_tops(
    nodes: Ints,
    roots: Ints,
    counts: Ints,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    path: Ints,
    groups: Ints,
    times: Ints,
    codes: Ints,
    deltas: Ints,
    limit: int,
    forgets: bool,
    out: Ints,
) -> int:
    """Apply changes; `out` gets (time, content, delta) of what enters and leaves the first `limit` rows.

    Where a change is among the first, the rows after it move: those that cross the limit go or come. With
    `forgets` what is beyond the limit never comes back. `out` has room for 1 + |delta| lines a change.
    """
    found = 0
    for i in range(codes.size):
        code, delta = codes[i], deltas[i]
        group, old = groups[code], counts[code]
        if forgets and _is_beyond(nodes, counts, lines, kinds, heap, roots[group], code, limit):
            continue
        before = _change(nodes, roots, counts, lines, kinds, heap, path, group, code, delta)
        if before < limit:
            room = limit - before
            shown, shows = min(old, room), min(old + delta, room)
            if shows != shown:
                out[found, 0], out[found, 1], out[found, 2] = times[i], code, shows - shown
                found += 1
            after = _total(nodes, roots[group]) - before - old - delta
            stayed, stays = min(room - shown, after), min(room - shows, after)
            place = before + old + delta + min(stayed, stays)
            moved, sign = abs(stays - stayed), 1 if stays > stayed else -1
            while moved > 0:
                other, copy = _select(nodes, counts, roots[group], place)
                copies = min(counts[other] - copy, moved)
                out[found, 0], out[found, 1], out[found, 2] = times[i], other, sign * copies
                found += 1
                place += copies
                moved -= copies
        if forgets:
            _trim(nodes, roots, counts, lines, kinds, heap, path, group, limit)
    return found


@kernel(nb.int64(_NODES, _I64, nb.int64, nb.int64, nb.int64, _I64))
def _list_rows(nodes: Ints, counts: Ints, root: int, place: int, limit: int, out: Ints) -> int:
    """The contents of the rows from `place` to before `limit`, a copy each."""
    stop, found = min(limit, _total(nodes, root)), 0
    while place < stop:
        code, copy = _select(nodes, counts, root, place)
        for _ in range(min(counts[code] - copy, stop - place)):
            out[found] = code
            found += 1
            place += 1
    return found


@kernel(
    nb.types.UniTuple(nb.int64, 2)(
        _NODES,
        _I64,
        _I64,
        nb.int64[:, ::1],
        _I64,
        _BYTES,
        _I64,
        _READ_I64,
        _READ_I64,
        _READ_I64,
        _READ_I64,
        nb.int64,
        nb.boolean,
        nb.int64,
        nb.int64[:, ::1],
    ),
)
def step_ranks(
    nodes: Ints,
    roots: Ints,
    counts: Ints,
    lines: Ints,
    kinds: Ints,
    heap: Bytes,
    path: Ints,
    groups: Ints,
    times: Ints,
    codes: Ints,
    deltas: Ints,
    limit: int,
    forgets: bool,
    begin: int,
    out: Ints,
) -> tuple[int, int]:
    """Apply changes from `begin` on, in order of time and group; `out` gets (time, content, sign, rank).

    All changes of a group at one instant are one step: from the first row that they touch, every place whose
    row is another one is withdrawn and put in anew. Returns how far it came and how many lines there are: it
    stops before a step for which `out` may have no room, which it has if the step is the first and there are
    as many lines as the rows it may list before and after.
    """
    found, i = 0, begin
    while i < codes.size:
        group, low, j, more = groups[codes[i]], limit, i, 0
        while j < codes.size and times[j] == times[i] and groups[codes[j]] == group:
            low = min(low, _place(nodes, counts, lines, kinds, heap, roots[group], codes[j]))
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
        old = _list_rows(nodes, counts, roots[group], low, limit, was)
        for e in range(i, j):
            _change(nodes, roots, counts, lines, kinds, heap, path, group, codes[e], deltas[e])
        new = _list_rows(nodes, counts, roots[group], low, limit, now)
        for place in range(max(old, new)):
            if place < old and place < new and was[place] == now[place]:
                continue
            if place < old:
                out[found, 0], out[found, 1], out[found, 2] = times[i], was[place], -1
                out[found, 3] = low + place + 1
                found += 1
            if place < new:
                out[found, 0], out[found, 1], out[found, 2] = times[i], now[place], 1
                out[found, 3] = low + place + 1
                found += 1
        if forgets:
            _trim(nodes, roots, counts, lines, kinds, heap, path, group, limit)
        i = j
    return i, found
