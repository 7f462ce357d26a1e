"""The state of a heartbeat generator: per source, when its greatest time so far rose, and to what.

A step is forgotten as soon as every delay of the bounds has passed it, so a row never holds more steps than
there are distinct (coarse) instants within the horizon.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.errors import TimeError
from headrace.time.schedule import Schedule
from headrace.time.skew import Ints
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus

_LAST, _NEWEST = 0, 1

ROOM = 64
"""Steps that a row has room for at first; it doubles as needed."""
MOST = 4096
"""Steps that a row keeps for streams that are not read on; beyond that every other one is dropped."""


def _lowest(n: int) -> Ints:
    return np.full(n, MIN_TIME, dtype=np.int64)


class Staircases:
    """Rings of steps, cursors into them, and the promises they have made so far."""

    def __init__(self, schedule: Schedule, streams: int) -> None:
        self.promise = _lowest(streams)
        self.spoken = _lowest(streams)
        self.reads = _lowest(streams)
        self.state = _lowest(2)
        self._lay(schedule)

    def _lay(self, schedule: Schedule) -> None:
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
        return self.clock, self.value, self.head, self.tail, self.top, self.cursor

    def arrive(self, streams: Ints, times: Ints, clocks: Ints, tick: int, timeout: int) -> None:
        """Take a checked batch; the kernel stops where a row needs more room."""
        from headrace.kernels import heartbeat as kernel

        if self.schedule.waits:
            timeout = MAX_TIME  # that nothing was read for so long does not say that nothing came
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
        """Raise the promises to what is due at `now`; whether any rose."""
        from headrace.kernels import heartbeat as kernel

        before = self.promise.copy()
        kernel.mature(now, self.reads, self.promise, self.rings, self.schedule.slots)
        silent = min(now, int(self.reads.min(initial=now))) if self.schedule.waits else now
        if self.newest != MIN_TIME and silent >= plus(self.last, timeout) and timeout != MAX_TIME:
            np.maximum(self.promise, self.newest, out=self.promise)
        return not np.array_equal(before, self.promise)

    def next_change(self, timeout: int) -> int | None:
        from headrace.kernels import heartbeat as kernel

        at = int(kernel.next_change(self.promise, self.rings, self.schedule.slots))
        if timeout != MAX_TIME and self.newest != MIN_TIME and (self.promise < self.newest).any():
            at = min(at, plus(self.last, timeout))
        return None if at == MAX_TIME else at

    def _resize(self, room: int) -> None:
        steps = self._steps()
        self.clock = np.zeros((len(self.tail), room), dtype=np.int64)
        self.value = np.zeros((len(self.tail), room), dtype=np.int64)
        self._put(*steps)

    def _thin(self) -> None:
        """Drop every other step of the rows that are full: what it would prove comes with the next one."""
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
        """Where the cursors are when only `before` each step so many are kept."""
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
        at = position & (self.clock.shape[1] - 1)
        self.clock[row, at], self.value[row, at] = clock, value

    def relay(self, schedule: Schedule) -> None:
        """Read the same sources' steps under another schedule; what tuple-based pairs had counted is lost."""
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
        """Take over a snapshot made under the same schedule."""
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
