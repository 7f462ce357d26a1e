"""The state of a heartbeat generator: per source, when its greatest time so far rose, and to which value.

A step is forgotten once every delay of the bounds has passed it, so a row never has more steps than there are
distinct (coarse) instants within the horizon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.bounds import Bounds
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus

_LAST, _NEWEST = 0, 1

ROOM = 64
"""The initial number of steps per row; it doubles as needed."""
MOST = 4096
"""The most steps per row for streams that are not being read; beyond that, every other one is dropped."""


def _lowest(n: int) -> Ints:
    return np.full(n, MIN_TIME, dtype=np.int64)


class Staircases:
    """Rings of steps, cursors into them, and the promises made so far."""

    def __init__(self, schedule: Schedule, streams: int) -> None:
        self.promise = _lowest(streams)
        self.spoken = _lowest(streams)
        self.reads = _lowest(streams)
        self.state = _lowest(2)
        self._lay(schedule)

    def _lay(self, schedule: Schedule) -> None:
        """Allocate empty rings for a schedule."""
        rows = schedule.rows
        self.schedule = schedule
        self.clock = np.zeros((rows, ROOM), dtype=np.int64)
        self.value = np.zeros((rows, ROOM), dtype=np.int64)
        self.head = np.zeros(rows, dtype=np.int64)
        self.tail = np.zeros(rows, dtype=np.int64)
        self.top = _lowest(rows)
        self.cursor = np.zeros(len(schedule.slots[1]), dtype=np.int64)

    @property
    def last(self) -> int:
        """The clock of the latest arrival."""
        return int(self.state[_LAST])

    @property
    def newest(self) -> int:
        """The greatest time seen on any stream."""
        return int(self.state[_NEWEST])

    @property
    def rings(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """The arrays that the kernels change in place."""
        return self.clock, self.value, self.head, self.tail, self.top, self.cursor

    def arrive(self, streams: Ints, times: Ints, clocks: Ints, tick: int, timeout: int) -> None:
        """Process a checked batch; the kernel stops when a row needs more room."""
        from headrace.kernels import heartbeat as kernel

        if self.schedule.waits:
            timeout = MAX_TIME  # a long time without reading does not mean that no rows came
        batch = (streams, times, clocks, tick, timeout, self.state, self.spoken, self.promise, self.reads)
        done = 0
        while True:
            done = kernel.arrive(done, *batch, self.rings, self.schedule.slots, self.schedule.counted)
            if done == len(streams):
                return
            if self.schedule.waits and self.clock.shape[1] >= MOST:
                self._thin()
            else:
                self._resize(2 * self.clock.shape[1])

    def mature(self, now: int, timeout: int) -> bool:
        """Raise the promises to the values due at `now`; whether any rose."""
        from headrace.kernels import heartbeat as kernel

        before = self.promise.copy()
        kernel.mature(now, self.reads, self.promise, self.rings, self.schedule.slots)
        silent = min(now, int(self.reads.min(initial=now))) if self.schedule.waits else now
        if self.newest != MIN_TIME and silent >= plus(self.last, timeout) and timeout != MAX_TIME:
            np.maximum(self.promise, self.newest, out=self.promise)
        return not np.array_equal(before, self.promise)

    def next_change(self, timeout: int) -> int | None:
        """The next clock at which a promise rises without new arrivals, or None."""
        from headrace.kernels import heartbeat as kernel

        at = int(kernel.next_change(self.promise, self.rings, self.schedule.slots))
        if timeout != MAX_TIME and self.newest != MIN_TIME and (self.promise < self.newest).any():
            at = min(at, plus(self.last, timeout))
        return None if at == MAX_TIME else at

    def _resize(self, room: int) -> None:
        """Move all steps into rings with `room` places."""
        steps = self._steps()
        self.clock = np.zeros((len(self.tail), room), dtype=np.int64)
        self.value = np.zeros((len(self.tail), room), dtype=np.int64)
        self._put(*steps)

    def _thin(self) -> None:
        """Drop every other step of full rows: what it would prove comes with the next one."""
        row, position, clock, value = self._steps()
        length = self.tail - self.head
        crowded = 2 * length[row] > self.clock.shape[1]
        kept = ~crowded | ((self.tail[row] - position) % 2 == 1)
        before = np.cumsum(kept) - kept
        first = np.cumsum(length) - length
        self.cursor[:] = self._moved(np.r_[before, kept.sum()], first)
        self.tail[:] = self.head + np.bincount(row[kept], minlength=len(length))
        row, clock, value = row[kept], clock[kept], value[kept]
        length = self.tail - self.head
        position = np.arange(len(row)) + np.repeat(self.head - (np.cumsum(length) - length), length)
        self._put(row, position, clock, value)

    def _moved(self, before: Ints, first: Ints) -> Ints:
        """The cursors after some steps were dropped; `before` counts the kept ones before each step."""
        row = np.repeat(np.arange(len(self.head)), np.diff(self.schedule.slots[0]))
        passed: Ints = before[first[row] + self.cursor - self.head[row]] - before[first[row]]
        return self.head[row] + passed

    def _steps(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Every kept step as (row, position, clock, value)."""
        length = self.tail - self.head
        row = np.repeat(np.arange(len(length)), length)
        position = np.arange(len(row)) + np.repeat(self.head - (np.cumsum(length) - length), length)
        at = position & (self.clock.shape[1] - 1)
        return row, position, self.clock[row, at], self.value[row, at]

    def _put(self, row: Ints, position: Ints, clock: Ints, value: Ints) -> None:
        """Write steps into the rings, at their positions modulo the size."""
        at = position & (self.clock.shape[1] - 1)
        self.clock[row, at], self.value[row, at] = clock, value

    def relay(self, schedule: Schedule) -> None:
        """Use the same sources' steps with another schedule; the counts of tuple-based pairs are lost."""
        streams = len(self.promise)
        row, position, clock, value = self._steps()
        own = row < streams
        head, tail, top, room = self.head, self.tail, self.top, self.clock.shape[1]
        self._lay(schedule)
        self.clock = np.zeros((schedule.rows, room), dtype=np.int64)
        self.value = np.zeros((schedule.rows, room), dtype=np.int64)
        self.head[:streams], self.tail[:streams], self.top[:streams] = (
            head[:streams],
            tail[:streams],
            top[:streams],
        )
        self._put(row[own], position[own], clock[own], value[own])
        self.cursor[:] = np.repeat(self.head, np.diff(schedule.slots[0]))

    def snapshot(self) -> dict[str, Any]:
        row, _, clock, value = self._steps()
        seen, memory = self.schedule.counted[-2:]
        arrays = {"promise": self.promise, "spoken": self.spoken, "state": self.state, "top": self.top}
        if self.schedule.waits:
            arrays["reads"] = self.reads
        arrays |= {
            "head": self.head,
            "tail": self.tail,
            "cursor": self.cursor,
            "seen": seen,
            "memory": memory,
        }
        return {name: array.copy() for name, array in arrays.items()} | {
            "row": row,
            "clock": clock,
            "value": value,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot made with the same schedule."""
        names = ("promise", "spoken", "state", "top", "head", "tail", "cursor")
        self.reads[:] = snapshot.get("reads", MIN_TIME)
        targets = [getattr(self, name) for name in names] + list(self.schedule.counted[-2:])
        for name, target in zip((*names, "seen", "memory"), targets, strict=True):
            if np.shape(snapshot[name]) != target.shape:
                raise TimeError(
                    "HR-T024", f"a snapshot of other bounds ({name})", hint="restore with the same bounds"
                )
            target[:] = snapshot[name]
        length = self.tail - self.head
        room = max(ROOM, 1 << int(max(1, length.max(initial=1)) - 1).bit_length())
        self.clock = np.zeros((len(length), room), dtype=np.int64)
        self.value = np.zeros((len(length), room), dtype=np.int64)
        row = np.asarray(snapshot["row"], dtype=np.int64)
        position = np.arange(len(row)) + np.repeat(self.head - (np.cumsum(length) - length), length)
        self._put(row, position, np.asarray(snapshot["clock"]), np.asarray(snapshot["value"]))


# Bounds as arrays for the kernels: which delays of which source's staircase feed which stream's heartbeat.


Slots = tuple[Ints, Ints, Ints, Ints, Ints, Ints]
Counted = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]


@dataclass(frozen=True, eq=False)
class Schedule:
    """`slots`: (first slot of each row, delay and first entry of each slot, target and δ of each entry, for
    each slot the stream that must be read first, or −1 if the slot follows the clock).

    Rows 0 … n − 1 are the sources. With tuple-based pairs, rows n … 2n − 1 have the values that these made
    due on each stream, to be delivered L_j later. `counted` lists the tuple-based pairs by counted stream;
    their memories are the only mutable part. `waits`: some slots wait until a stream is read.
    """

    rows: int
    slots: Slots
    counted: Counted
    waits: bool = False


def lay_out(bounds: Bounds, ordered: bool, alone: npt.NDArray[np.bool_], waits: bool = False) -> Schedule:
    """The schedule of a matrix: a time-based pair (t, δ) of i on j is an entry at delay t + L_j of row i
    (less on a stream in order of sending, `Bounds.waits`).

    A tuple-based pair looks at arrivals of earlier clocks, unless j has no delay and the order within a clock
    is known: if arrivals are `ordered`, or all from one stream, `alone` in its row.

    If rows wait at their sources (`waits`), the unread rows of j reached it after j was last read, so entries
    on j are due by that clock. Only what a stream's own rows prove immediately needs no clock: its rows are
    read in order of their arrival at the source, those of one clock together.
    """
    skew, n = bounds.skew, bounds.skew.size
    latency = np.array(bounds.latency, dtype=np.int64)
    wait = bounds.waits()
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
    # A tuple reached j after the previous read of j, which is as good as a tick.
    surely = wait if waits else _plus(wait, np.ones_like(wait))
    looked = (skew.source[watched], surely[watched], watching)
    made = _assemble(bounds, (row, delay, whose, target, delta), counting, watched, looked)
    return replace(made, waits=waits)


def _assemble(
    bounds: Bounds, entries: tuple[Ints, ...], counting: Ints, watched: Ints, looked: tuple[Ints, ...]
) -> Schedule:
    """Number the slots (row, delay, stream to read), including those only for tuple-based pairs."""
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
    """The tuple-based pairs as arrays for the kernel, in order of target."""
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
    """The sum, or MAX_TIME if it overflows."""
    sums = a + b
    return np.where(sums < 0, np.int64(MAX_TIME), sums)
