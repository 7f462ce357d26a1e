"""Bounds laid out for the kernels: which delays of which source's staircase feed which stream's heartbeat."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headrace.time.bounds import Bounds
from headrace.time.skew import Ints
from headrace.time.timestamp import MAX_TIME

Slots = tuple[Ints, Ints, Ints, Ints, Ints, Ints]
Counted = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]


@dataclass(frozen=True, eq=False)
class Schedule:
    """`slots`: (first slot of each row, delay and first entry of each slot, target and δ of each entry, and
    of each slot the stream whose reading it waits for, or −1 where now is its clock).

    Rows 0 … n − 1 are the sources. With tuple-based pairs, rows n … 2n − 1 hold what those have made due on
    each stream, to be delivered L_j later. `counted` lists the tuple-based pairs by stream counted; their
    memories are the only mutable part. `waits`: some slots wait for a stream to be read.
    """

    rows: int
    slots: Slots
    counted: Counted
    waits: bool = False


def lay_out(bounds: Bounds, ordered: bool, alone: npt.NDArray[np.bool_], waits: bool = False) -> Schedule:
    """The schedule of a matrix: a time-based pair (t, δ) of i on j is an entry at delay t + L_j of row i.

    A tuple-based pair watches what came at earlier clocks, unless nothing delays j and it is known what came
    before a tuple at its own clock: where arrivals are `ordered`, or of one stream, `alone` in its row.

    Where rows wait at their sources (`waits`), what is still to be read of j reached it after j was read
    last, so entries on j are due by that clock. Only what a stream's own rows prove at once needs no clock:
    its rows are read in the order in which they reached it, those of one clock together.
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
    known = (skew.source == skew.target) & alone[skew.source] | (ordered and not waits)
    watched = counting[(wait[counting] > 0) | ~known[counting]]
    at_once = (row % max(n, 1) == target) & alone[target] & (delay == 0)
    whose = np.where(at_once, -1, target) if waits else np.full_like(target, -1)
    watching = skew.target[watched] if waits else np.full_like(watched, -1)
    # A tuple reached j later than j was read before it, which is as good as a tick.
    surely = wait if waits else _plus(wait, np.ones_like(wait))
    looked = (skew.source[watched], surely[watched], watching)
    made = _assemble(bounds, (row, delay, whose, target, delta), counting, watched, looked)
    return replace(made, waits=waits)


def _assemble(
    bounds: Bounds, entries: tuple[Ints, ...], counting: Ints, watched: Ints, looked: tuple[Ints, ...]
) -> Schedule:
    """Number the slots (row, delay, whose), those that only tuple-based pairs look at included."""
    skew, n = bounds.skew, bounds.skew.size
    row, _, _, target, delta = entries
    rows = 2 * n if len(counting) else n
    keys = np.stack([np.r_[a, b] for a, b in zip(entries[:3], looked, strict=True)], axis=1)
    unique, slot = np.unique(keys.reshape(-1, 3), axis=0, return_inverse=True)
    slot = slot.reshape(-1)
    order = np.argsort(slot[: len(row)], kind="stable")
    slots = (
        np.searchsorted(unique[:, 0], np.arange(rows + 1)).astype(np.int64),
        np.ascontiguousarray(unique[:, 1]),
        np.searchsorted(slot[: len(row)][order], np.arange(len(unique) + 1)).astype(np.int64),
        target[order],
        delta[order],
        np.ascontiguousarray(unique[:, 2]),
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
