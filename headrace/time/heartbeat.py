"""Heartbeats deduced from bounds (Srivastava & Widom, Figure 2, with sets of pairs and B*).

A heartbeat τ of a stream at `now` promises that every tuple arriving on it after `now` has a time > τ.
Laws: it never decreases; it is never violated while the bounds hold; it is the largest that they imply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.arrivals import batch, went_back
from headrace.time.bounds import NEVER, Bounds, ensure_progress
from headrace.time.grouping import Grouped
from headrace.time.holding import Holding, explain
from headrace.time.staircases import Schedule, Staircases, lay_out
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Snapshot = dict[str, Any]


class HeartbeatGenerator:
    """Per-stream and overall heartbeats from arrivals, in memory bounded by streams × (horizon ÷ tick).

    `arrive` takes batches. Ask for heartbeats at `now` only after all arrivals of `now` were given, because a
    heartbeat is about rows after its instant. `tick` coarsens the wall clock: less memory, and heartbeats are
    less than `tick` later (§5.1). With `close`, B* is used in place of B.

    With groups (§5.2) the streams are the members: they have arrivals, and each has the heartbeat of its
    group.

    `ordered`: the arrivals of one clock value are in order of arrival. A micro-batch of several streams does
    not know that order: then a row counts as later only than rows of other streams with earlier clocks.

    Rows may wait at their sources: clocks are then those at which rows are read, and `read_up_to` sets how
    far each stream has been read. Rows of one stream prove something about another once that one has been
    read up to the same clock: its rows after that also came later.
    """

    def __init__(
        self, bounds: Bounds | Grouped, *, tick: int = 1, close: bool = True, ordered: bool = True
    ) -> None:
        declared = bounds.bounds if isinstance(bounds, Grouped) else bounds
        self.bounds = declared.closed() if close else declared
        ensure_progress(self.bounds)
        if tick < 1:
            raise TimeError("HR-T005", f"a wall-clock tick of {tick}", hint="use 1 for the clock's own tick")
        self._grouped = bounds if isinstance(bounds, Grouped) else None
        self._group = _index(np.zeros(0, dtype=np.int64) if self._grouped is None else self._grouped.group)
        self._tick = tick
        self._ordered = ordered
        self._waits = False
        self._steps = Staircases(self._laid_out(), len(self.bounds.streams))
        self._sent: Ints | None = None
        self._settings: tuple[Bounds, str] | None = None
        self._now = MIN_TIME

    def _laid_out(self) -> Schedule:
        """The schedule of the current bounds."""
        alone = np.ones(len(self.groups), np.bool_)
        if self._grouped is not None:
            alone = np.bincount(self._group, minlength=len(self.groups)) < 2
        return lay_out(self.bounds, self._ordered, alone, self._waits)

    def unordered(self) -> HeartbeatGenerator:
        """A new generator with the same bounds, for arrivals without a known order within a clock value."""
        bounds = self.bounds if self._grouped is None else replace(self._grouped, bounds=self.bounds)
        return HeartbeatGenerator(bounds, tick=self._tick, close=False, ordered=False)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams with a heartbeat, in order; with groups, their members."""
        return self.groups if self._grouped is None else self._grouped.members

    @property
    def tick(self) -> int:
        """The tick of the wall clock."""
        return self._tick

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in order; without groups, the streams."""
        return self.bounds.streams

    def heard_by(self, streams: Collection[str]) -> frozenset[str]:
        """The streams whose arrivals can move a heartbeat of one of `streams`; with a timeout, all."""
        if self._timeout != NEVER:
            return frozenset(self.streams)
        numbers = {name: i for i, name in enumerate(self.streams)}
        wanted = self._in_groups(np.array([numbers[name] for name in streams if name in numbers], np.int64))
        skew = self.bounds.skew
        sources = np.union1d(skew.source[np.isin(skew.target, wanted)], wanted)
        heard = np.isin(self._in_groups(np.arange(len(numbers))), sources)
        return frozenset(name for name, i in numbers.items() if heard[i])

    def counts_rows(self, stream: str) -> bool:
        """Whether every row of a stream matters, or only the greatest time of an instant."""
        return bool(self.bounds.skew.n.any())

    @property
    def last_arrival(self) -> Ints:
        """The clock of the latest arrival on each stream, or in its group; `MIN_TIME` if there was none."""
        return self._of_members(self._steps.spoken)

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None:
        """Arrivals in order: stream (or source) number, time, and clock (one for all, or one each)."""
        sources = len(self.groups) if self._grouped is None else len(self._group)
        s, x, c = batch(streams, times, clocks, sources, max(self._now, self._steps.last))
        if len(self._group):
            from headrace.kernels.heartbeat import grouped

            s = grouped(s, self._group)
        self._steps.arrive(s, x, c, self._tick, self._timeout)

    def read_up_to(self, clocks: npt.ArrayLike) -> None:
        """By stream, everything that reached its source by this clock has been given; clocks never go back.

        `MAX_TIME`: rows of the stream do not wait. `MIN_TIME`: nothing is known yet.
        """
        if not self._waits:
            self._waits = True
            self._steps.relay(self._laid_out())
        reads = np.asarray(clocks, np.int64)
        if self._grouped is not None:
            least = np.full(len(self.groups), MAX_TIME, np.int64)
            np.minimum.at(least, self._grouped.group, reads)
            reads = least
        self._steps.reads[:] = reads

    def promise(self, stream: int, time: int) -> None:
        """A heartbeat that the source itself sent: every future tuple on `stream` is later than `time`.

        The heartbeat of a group rises to the least that all its members have sent.
        """
        group = stream
        if self._grouped is not None:
            sent = np.full(len(self._group), MIN_TIME, np.int64) if self._sent is None else self._sent
            sent[stream] = max(int(sent[stream]), time)
            group = int(self._group[stream])
            time = int(sent[self._group == group].min())
            self._sent = sent
        self._steps.promise[group] = max(int(self._steps.promise[group]), time)

    def advance(self, now: int) -> bool:
        """Advance to `now`, never back; whether any heartbeat rose."""
        if now < max(self._now, self._steps.last):
            raise went_back(now)
        self._now = now
        return self._steps.mature(now, self._timeout)

    def heartbeats(self, now: int) -> Ints:
        """The heartbeat of each stream at `now`; `MIN_TIME` promises nothing."""
        self.advance(now)
        found = self._of_members(self._steps.promise)
        return found if self._sent is None else np.maximum(found, self._sent)

    def group_heartbeats(self, now: int) -> Ints:
        """The heartbeat of each group at `now`; the cost does not depend on the number of members."""
        self.advance(now)
        return self._steps.promise.copy()

    def _of_members(self, values: Ints) -> Ints:
        """From values by group to values by stream."""
        return values.copy() if self._grouped is None else values[self._group]

    def _in_groups(self, streams: Ints) -> Ints:
        """From stream numbers to group numbers."""
        return streams if self._grouped is None else self._grouped.group[streams]

    def heartbeat(self, now: int) -> int:
        """The overall heartbeat: the least over the streams, `MAX_TIME` if there are none."""
        self.advance(now)
        return int(self._steps.promise.min(initial=MAX_TIME))

    def next_change(self, now: int) -> int | None:
        """The next instant after `now` at which a heartbeat rises without arrivals, or None."""
        self.advance(now)
        return self._steps.next_change(self._timeout)

    def explain(self, stream: int, now: int) -> Holding:
        """What holds back the heartbeat of `stream`, and when it will next rise without arrivals."""
        self.advance(now)
        group = int(self._in_groups(np.array([stream]))[0])
        return replace(explain(self.bounds, self._steps, group, now), stream=self.streams[stream])

    def why(self, now: int) -> Holding:
        """`explain` of the stream that holds the overall heartbeat back."""
        self.advance(now)
        return explain(self.bounds, self._steps, int(np.argmin(self._steps.promise)), now)

    def follow(self, new: HeartbeatGenerator) -> None:
        """Continue as `new` would, for the same groups and tick, with the arrivals known here."""
        self._ordered = new._ordered
        self.rebind(new.bounds)

    def rebind(self, bounds: Bounds, *, close: bool = False) -> None:
        """Continue with other bounds for the same streams, such as newly estimated ones.

        Earlier heartbeats remain valid, so heartbeats still never decrease. Without a new timeout the old one
        stays.
        """
        if bounds.streams != self.groups:
            raise TimeError(
                "HR-T002", "bounds over other streams", hint="rebind names the same streams in order"
            )
        timeout = self.bounds.timeout if bounds.timeout is None else bounds.timeout
        skew = bounds.skew.closure() if close else bounds.skew
        renewed = replace(bounds, skew=skew, timeout=timeout)
        ensure_progress(renewed)
        self.bounds = renewed
        self._steps.relay(self._laid_out())

    @property
    def settings(self) -> str:
        """The bounds, groups and tick: a snapshot continues exactly only under equal ones."""
        if self._settings is None or self._settings[0] is not self.bounds:
            skew = self.bounds.skew
            own = [
                self.streams,
                self.groups,
                self.bounds.latency,
                self.bounds.timeout,
                self._tick,
                self._ordered,
                *([sorted(self.bounds.fifo)] if self.bounds.fifo else []),
            ]
            digest = hashlib.sha256(json.dumps(own).encode())
            for each in (skew.source, skew.target, skew.t, skew.n, skew.delta, self._group):
                digest.update(np.ascontiguousarray(each, np.int64).tobytes() + b"/")
            self._settings = (self.bounds, digest.hexdigest()[:16])
        return self._settings[1]

    def sent(self) -> Ints:
        """The heartbeats given so far."""
        found = self._of_members(self._steps.promise)
        return found if self._sent is None else np.maximum(found, self._sent)

    def begin_at(self, heartbeats: Ints) -> None:
        """Continue with heartbeats that were given before, under other bounds; they are never taken back."""
        for stream in np.flatnonzero(heartbeats > MIN_TIME).tolist():
            self.promise(stream, int(heartbeats[stream]))

    def resume(self, settings: str, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot that was made under `settings`, if they are the same."""
        if settings == self.settings:
            self.restore(snapshot)

    def snapshot(self) -> Snapshot:
        """All state as a plain dict of arrays and ints; without the bounds, which the caller keeps."""
        sent = {} if self._sent is None else {"sent": self._sent.copy()}
        return {"now": self._now, **sent, **self._steps.snapshot()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot of a generator with the same bounds, groups and tick."""
        wanted, self._waits = self._waits, "reads" in snapshot
        self._steps = Staircases(self._laid_out(), len(self.groups))
        self._steps.restore(snapshot)
        self._sent = np.array(snapshot["sent"], np.int64) if "sent" in snapshot else None
        self._now = int(snapshot["now"])
        if wanted and not self._waits:
            self._waits = True
            self._steps.relay(self._laid_out())

    @property
    def _timeout(self) -> int:
        return NEVER if self.bounds.timeout is None else self.bounds.timeout


def _index(group: Ints) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.uint32]:
    """The group of each source in the smallest integer type that fits: a small table is a fast table."""
    greatest = int(group.max(initial=0))
    if greatest < 1 << 8:
        return group.astype(np.uint8)
    return group.astype(np.uint16) if greatest < 1 << 16 else group.astype(np.uint32)
