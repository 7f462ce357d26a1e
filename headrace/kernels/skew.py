"""The matrix product of Srivastava & Widom §3.2, row by row, with redundant pairs refused on entry.

NumPy needs every composed pair at once before it can sort the redundant ones away: for 51 streams with nine
pairs per entry that was measured at 12 s, against 0.1 s here.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from headrace.kernels.compiling import kernel

MAX = np.iinfo(np.int64).max


# Loops where NumPy would have slices: a slice of an array takes numba seconds to compile.
_PAIRS = nb.int64[:, ::1]
_SETS = nb.int64[:, :, ::1]
_I64 = nb.int64[::1]
_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)
_READ_2D = nb.types.Array(nb.int64, 2, "A", readonly=True)


@nb.njit(inline="always")
def plus(a, b):  # type: ignore[no-untyped-def]
    """Sum of two non-negative numbers, saturated."""
    return MAX if a > MAX - b else a + b


@nb.njit(inline="always")
def within(sets, j, k, t, n, delta):  # type: ignore[no-untyped-def]
    """Whether pair `k` of set `j` makes (t, n, δ) redundant."""
    return sets[j, k, 0] <= t and sets[j, k, 1] <= n and sets[j, k, 2] <= delta


@kernel(nb.void(_SETS, _I64, nb.int64, nb.int64, nb.int64, nb.int64))
def insert(sets, count, j, t, n, delta):  # type: ignore[no-untyped-def]
    """Put (t, n, δ) into set `j` unless redundant, and take out what it makes redundant.

    The pair that proves a candidate redundant moves one place forward, so the next proof is found sooner.
    """
    for k in range(count[j]):
        if within(sets, j, k, t, n, delta):
            if k > 0:
                for x in range(3):
                    sets[j, k, x], sets[j, k - 1, x] = sets[j, k - 1, x], sets[j, k, x]
            return
    left = 0
    for k in range(count[j]):
        if not (t <= sets[j, k, 0] and n <= sets[j, k, 1] and delta <= sets[j, k, 2]):
            for x in range(3):
                sets[j, left, x] = sets[j, k, x]
            left += 1
    sets[j, left, 0], sets[j, left, 1], sets[j, left, 2] = t, n, delta
    count[j] = left + 1


@kernel(_SETS(_SETS))
def grown(sets):  # type: ignore[no-untyped-def]
    """Twice the room in every set."""
    bigger = np.empty((sets.shape[0], 2 * sets.shape[1], 3), np.int64)
    for j in range(sets.shape[0]):
        for k in range(sets.shape[1]):
            for x in range(3):
                bigger[j, k, x] = sets[j, k, x]
    return bigger


@kernel(_SETS(_SETS, _I64, nb.int64, nb.int64, _READ, _READ_2D, nb.int64, nb.int64))
def put_row(sets, count, begin, end, target, pairs, t, delta):  # type: ignore[no-untyped-def]
    """Insert pairs `begin:end`, each preceded by the step (t, δ), into the sets of their targets."""
    for e in range(begin, end):
        j = target[e]
        later, n, wider = plus(t, pairs[e, 0]), pairs[e, 1], plus(delta, pairs[e, 2])
        if count[j] and within(sets, j, 0, later, n, wider):
            continue
        if count[j] == sets.shape[1]:
            sets = grown(sets)
        insert(sets, count, j, later, n, wider)
    return sets


@kernel(nb.types.Tuple((_I64, _PAIRS))(nb.int64, nb.int64, _READ, _READ, _READ_2D, _READ, _READ, _READ_2D))
def product_row(i, size, a_begin, a_target, a_pairs, b_begin, b_target, b_pairs):  # type: ignore[no-untyped-def]
    """Row `i` of `A * B` as (targets, pairs)."""
    sets = np.empty((size, 4, 3), np.int64)
    count = np.zeros(size, np.int64)
    sets = put_row(sets, count, a_begin[i], a_begin[i + 1], a_target, a_pairs, 0, 0)
    sets = put_row(sets, count, b_begin[i], b_begin[i + 1], b_target, b_pairs, 0, 0)
    for e in range(a_begin[i], a_begin[i + 1]):
        if a_pairs[e, 1] == 0:
            k = a_target[e]
            sets = put_row(
                sets, count, b_begin[k], b_begin[k + 1], b_target, b_pairs, a_pairs[e, 0], a_pairs[e, 2]
            )
    rows = 0
    for j in range(size):
        rows += count[j]
    target, pairs = np.empty(rows, np.int64), np.empty((rows, 3), np.int64)
    at = 0
    for j in range(size):
        for k in range(count[j]):
            target[at] = j
            for x in range(3):
                pairs[at, x] = sets[j, k, x]
            at += 1
    return target, pairs
