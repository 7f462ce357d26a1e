"""Redundant pairs: S⁻ of §3.2, and the join ⊔ of §5.2, over columns of (t, n, δ).

A pair is redundant in a set that already holds one no later in `t` and `n` and no larger in δ.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def minimal(key: Ints, t: Ints, n: Ints, delta: Ints) -> Ints:
    """Positions of the non-redundant pairs of each key, sorted by (key, t, n, δ); one of equals is kept.

    One sweep per distinct `n`: among pairs that count at most `n` tuples, sorted by t, only those whose δ
    is below every earlier one survive.
    """
    if not len(key):
        return np.zeros(0, dtype=np.int64)
    if len(np.unique(key)) == len(key):
        return np.argsort(key)
    kept = [_level(key, t, n, delta, int(count)) for count in np.unique(n)]
    chosen = np.concatenate(kept)
    order = np.lexsort((delta[chosen], n[chosen], t[chosen], key[chosen]))
    return chosen[order]


def _level(key: Ints, t: Ints, n: Ints, delta: Ints, count: int) -> Ints:
    """The pairs of exactly `count` tuples that no pair of at most `count` makes redundant."""
    able = np.flatnonzero(n <= count)
    order = able[np.lexsort((n[able], delta[able], t[able], key[able]))]
    rank = np.unique(delta[order], return_inverse=True)[1].astype(np.int64)
    _, entry = np.unique(key[order], return_inverse=True)
    falling = rank - entry.astype(np.int64) * (len(order) + 1)
    below = np.ones(len(order), dtype=np.bool_)
    below[1:] = falling[1:] < np.minimum.accumulate(falling)[:-1]
    survivors: Ints = order[below]
    exact: Ints = survivors[n[survivors] == count]
    return exact


def join(t: Ints, delta: Ints, begin: Ints) -> tuple[Ints, Ints]:
    """⊔ of time-based sets: at each instant the weakest of their guarantees (§5.2).

    `begin` marks where each set starts in the columns. Instants at which some set says nothing yet are left
    out; the result is free of redundant pairs.
    """
    nothing = np.iinfo(np.int64).max
    instants = np.unique(t)
    weakest = np.array(
        [np.minimum.reduceat(np.where(t <= x, delta, nothing), begin).max() for x in instants], dtype=np.int64
    )
    said = weakest < nothing
    keep = minimal(
        np.zeros(said.sum(), dtype=np.int64), instants[said], np.zeros_like(instants[said]), weakest[said]
    )
    return instants[said][keep], weakest[said][keep]
