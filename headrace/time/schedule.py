"""Bounds laid out for the kernels: which delays of which source's staircase feed which stream's heartbeat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.time.bounds import Bounds
from headrace.time.skew import Ints
from headrace.time.timestamp import MAX_TIME

Slots = tuple[Ints, Ints, Ints, Ints, Ints]
Counted = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]


@dataclass(frozen=True, eq=False)
class Schedule:
    """`slots`: (first slot of each row, delay and first entry of each slot, target and δ of each entry).

    Rows 0 … n − 1 are the sources. With tuple-based pairs, rows n … 2n − 1 hold what those have made due on
    each stream, to be delivered L_j later. `counted` lists the tuple-based pairs by stream counted; their
    memories are the only mutable part.
    """

    rows: int
    slots: Slots
    counted: Counted


def lay_out(bounds: Bounds, ordered: bool, alone: npt.NDArray[np.bool_]) -> Schedule:
    """The schedule of a matrix: a time-based pair (t, δ) of i on j is an entry at delay t + L_j of row i.

    A tuple-based pair watches what came at earlier clocks, unless nothing delays j and it is known what came
    before a tuple at its own clock: where arrivals are `ordered`, or of one stream, `alone` in its row.
    """
    skew, n = bounds.skew, bounds.skew.size
    latency = np.array(bounds.latency, dtype=np.int64)
    wait = _plus(skew.t, latency[skew.target])
    timed, counting = np.flatnonzero(skew.n == 0), np.flatnonzero(skew.n > 0)
    row, delay, target, delta = skew.source[timed], wait[timed], skew.target[timed], skew.delta[timed]
    if len(counting):
        due = np.unique(skew.target[counting])
        row, delay = np.r_[row, n + due], np.r_[delay, latency[due]]
        target, delta = np.r_[target, due], np.r_[delta, np.zeros_like(due)]
    known = (skew.source == skew.target) & alone[skew.source] | ordered
    watched = counting[(wait[counting] > 0) | ~known[counting]]
    return _assemble(bounds, (row, delay, target, delta), counting, watched, _plus(wait, np.ones_like(wait)))


def _assemble(
    bounds: Bounds, entries: tuple[Ints, ...], counting: Ints, watched: Ints, after: Ints
) -> Schedule:
    """Number the slots, those that only tuple-based pairs look at (`watched`, at delay `after`) included."""
    skew, n = bounds.skew, bounds.skew.size
    row, delay, target, delta = entries
    rows = 2 * n if len(counting) else n
    pairs = np.stack([np.r_[row, skew.source[watched]], np.r_[delay, after[watched]]], axis=1)
    unique, slot = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    slot = slot.reshape(-1)
    order = np.argsort(slot[: len(row)], kind="stable")
    slots = (
        np.searchsorted(unique[:, 0], np.arange(rows + 1)).astype(np.int64),
        np.ascontiguousarray(unique[:, 1]),
        np.searchsorted(slot[: len(row)][order], np.arange(len(unique) + 1)).astype(np.int64),
        target[order],
        delta[order],
    )
    watching = np.full(len(skew.t), -1, dtype=np.int64)
    watching[watched] = slot[len(row) :]
    return Schedule(rows, slots, _counted(bounds, counting, watching))


def _counted(bounds: Bounds, counting: Ints, watching: Ints) -> Counted:
    skew = bounds.skew
    chosen = counting[np.argsort(skew.target[counting], kind="stable")]
    n = skew.n[chosen]
    return (
        np.searchsorted(skew.target[chosen], np.arange(skew.size + 1)).astype(np.int64),
        skew.source[chosen],
        watching[chosen],
        n,
        skew.delta[chosen],
        np.cumsum(n) - n,
        np.zeros(len(chosen), dtype=np.int64),
        np.full(int(n.sum()), -(2**63), dtype=np.int64),
    )


def _plus(a: Ints, b: Ints) -> Ints:
    sums = a + b
    return np.where(sums < 0, np.int64(MAX_TIME), sums)
