"""One stream with very many sources, such as devices: bounds per group of sources (Srivastava & Widom §5.2).

A column of the rows names the source. Sources are hashed into *cells*, and cells form groups. A group keeps
the bounds of the stream by itself: a row is late if it breaks the promise of its group, however far other
groups are ahead. The heartbeat of the stream is the least of its groups. State depends on the number of
cells, never on the number of sources.

Cells are assigned to groups by number until enough is known. Then groups are chosen by how far cells were
behind the newest row of the stream beyond the bound: cells that are alike share a group, so that a slow
source is judged with slow ones (`headrace.time.choosing`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints, Mask, Times
from headrace.errors import TimeError
from headrace.time.bounds import NEVER
from headrace.time.choosing import Profile, choose_groups
from headrace.time.learned import LearnedHeartbeats
from headrace.time.quantile import Confidence, QuantileEstimator
from headrace.time.timestamp import FARTHEST, MIN_TIME, plus

GROUPS: Final = 100
"""The number of groups if none is given."""

CELLS: Final = 8
"""Cells per group: how finely sources can be moved between groups."""

MOST_GROUPS: Final = 65_536 // CELLS
"""The number of a cell fits into 16 bits."""

INSTANTS: Final = 64
"""Instants with rows after which groups are chosen, if not said otherwise."""

FADING: Final = 8
"""The measured lag of a cell falls by at most one part in so many per instant with rows."""

Cells = npt.NDArray[Any]
"""The cell of each row."""


@dataclass(frozen=True)
class SourceGroups:
    """Which column names the source of a row, and the number of groups.

    `idle`: a group without rows for so long, in ticks of the clock, does not hold the stream back until it
    has rows again. `choose_after`: instants with rows after which groups are chosen for the first time, and
    then whenever that number has doubled. None: groups by hash only. `numbered`: the column has small
    numbers, such as partitions, and each number below `groups` is a group by itself.
    """

    column: str
    groups: int = GROUPS
    idle: int | None = None
    choose_after: int | None = INSTANTS
    numbered: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.groups, int) or not 1 <= self.groups <= MOST_GROUPS:
            raise TimeError(
                "HR-T053", f"sources in {self.groups!r} groups", hint=f"from 1 to {MOST_GROUPS} groups"
            )
        if self.idle is not None and (not isinstance(self.idle, int) or self.idle < 1):
            raise TimeError("HR-T053", f"idle after {self.idle!r} ticks", hint="whole ticks, 1 or more")
        if self.choose_after is not None and self.choose_after < 1:
            raise TimeError("HR-T053", f"groups chosen after {self.choose_after} instants", hint="1 or more")

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.groups * CELLS


@dataclass(frozen=True)
class SlowestGroup:
    """The group of sources that holds its stream back: the one with the least heartbeat.

    `heartbeat` is what its rows prove, `last` the instant of its last rows, and `others` the instant at which
    another group last had rows. `groups` is the number of groups that have had rows.
    """

    column: str
    group: int
    groups: int
    numbered: bool
    heartbeat: int
    last: int
    others: int


class SourcesPromise:
    """The promise of a stream whose bounds hold for each group of its sources.

    `disorder`: a row is less than that behind the newest row of its group. `confidence`: this is estimated,
    for each group, against the newest row of the stream. `latency`: at most so far behind the clock.

    Laws: `at` never decreases, nor does the promise of a cell; both and the lateness of rows depend on the
    arrivals only, not on when they are asked for; how the rows of an instant are divided into batches does
    not matter.
    """

    def __init__(
        self,
        by: SourceGroups,
        disorder: int | None = None,
        latency: int | None = None,
        confidence: Confidence | None = None,
    ) -> None:
        if (disorder is None) == (confidence is None):
            raise TimeError(
                "HR-T052",
                "sources by a column need either a bound on disorder or an estimate",
                place=by.column,
                hint="give disorder; latency alone is the same for all sources and needs no groups",
            )
        for ticks in (disorder, latency):
            if ticks is not None and (not isinstance(ticks, int) or ticks < 0):
                raise TimeError("HR-T007", f"a bound of {ticks!r}", hint="whole ticks, 0 or more")
        self.by = by
        self.disorder, self.latency, self.confidence = disorder, latency, confidence
        self._tolerated = disorder or 0 if confidence is None else confidence.floor
        self._newest: Times = np.full(by.cells, MIN_TIME, np.int64)
        self._last: Times = np.full(by.cells, MIN_TIME, np.int64)
        self._lag: Times = np.zeros(by.cells, np.int64)
        self._group: Ints = np.arange(by.cells, dtype=np.int64) % by.groups
        self._before: Times = np.full(by.cells, MIN_TIME, np.int64)
        self._held: Times = np.full(by.cells, MIN_TIME, np.int64)
        self._instants, self._choose_at = 0, by.choose_after or 0
        self._best, self._seen, self._asked = MIN_TIME, MIN_TIME, MIN_TIME
        self._learned = None if confidence is None else self._estimator(confidence)
        self._divide()

    def _estimator(self, confidence: Confidence) -> LearnedHeartbeats:
        """Learns a bound for each group."""
        names = [str(group) for group in range(self.by.groups)]
        return LearnedHeartbeats(QuantileEstimator(names, confidence), NEVER)

    @property
    def by_clock(self) -> bool:
        """Whether it may grow without new rows."""
        return self.latency is not None or self.by.idle is not None

    @property
    def counts_rows(self) -> bool:
        """Whether every row matters, or only the greatest time of each cell at an instant."""
        return self._learned is not None

    @property
    def group_of_cells(self) -> Ints:
        """The group of each cell."""
        return self._group.copy()

    @property
    def promised_each(self) -> Times:
        """By cell, what was promised for good: by `promise_each`, or before the rows of the last instant."""
        return self._before

    # ------------------------------------------------------------------------------------------ arrivals

    def observe(self, times: Times, now: int, read: int | None = None, cells: Cells | None = None) -> None:
        """Rows with these times and cells came in at `now`."""
        if cells is None:
            raise TimeError(
                "HR-T054",
                f"the sources of the rows are missing: the stream has sources by {self.by.column!r}",
                hint="observe(stream, times, cells), with cells_of(column, cells)",
            )
        if now > self._seen:
            self._turn(now, read)
        if self._learned is not None:
            self._learned.arrive(self._group[cells], times, now)
            self._asked = max(self._asked, now)
        np.maximum.at(self._newest, cells, times)
        self._last[cells] = now
        self._divide()

    def _turn(self, now: int, read: int | None) -> None:
        """Before the first rows of an instant: fix what they are judged by, then measure and regroup."""
        clock = now - 1 if read is None else read
        bars = self._bars(clock)
        self._best = max(self._best, self._least(bars, clock))
        self._before = np.maximum(self._before, bars[self._group])
        self._measure()
        self._seen = now

    def _measure(self) -> None:
        """Measure how far the cells with rows at the last instant were behind, and choose groups if due."""
        spoke = (self._last == self._seen) & (self._newest > MIN_TIME)
        if not spoke.any():
            return
        lag = self._newest.max() - self._newest[spoke]
        faded = self._lag[spoke] - -(-self._lag[spoke] // FADING)
        self._lag[spoke] = np.maximum(lag, faded)
        self._instants += 1
        if self.by.choose_after is not None and self._instants >= self._choose_at:
            self._choose_at = 2 * self._instants
            self._choose()

    def _choose(self) -> None:
        """Group the cells that have had rows by lag, if that halves the cost of the groups in force."""
        known = np.flatnonzero(self._newest > MIN_TIME)
        profile = Profile.of(np.maximum(self._lag[known] - self._tolerated, 0))
        current = profile.extra(np.unique(self._group[known], return_inverse=True)[1])
        if current <= 0.0:
            return
        choice = choose_groups(profile, self.by.groups)
        if 2 * choice.extra > current:
            return
        self._group[known] = choice.group
        if self.confidence is not None:
            self._learned = self._estimator(self.confidence)
        self._divide()

    def _divide(self) -> None:
        """The newest time of each group, and when it last had rows."""
        self._fronts: Times = np.full(self.by.groups, MIN_TIME, np.int64)
        self._lasts: Times = np.full(self.by.groups, MIN_TIME, np.int64)
        np.maximum.at(self._fronts, self._group, self._newest)
        np.maximum.at(self._lasts, self._group, self._last)

    # ---------------------------------------------------------------------------------------- heartbeats

    def at(self, now: int, read: int | None = None) -> int:
        """The heartbeat of the stream: the least of its groups."""
        clock = now if read is None else read
        return max(self._best, self._least(self._bars(clock), clock))

    def before(self, now: int) -> int:
        """The heartbeat of the stream that was known before the rows of `now`."""
        return self._best if now <= self._seen else self.at(now - 1)

    def before_each(self, now: int) -> Times:
        """By cell, the promise that rows of `now` must keep: that of their group, and of the stream."""
        return np.maximum(self._before, self._best) if now <= self._seen else self._each(now - 1)

    def promise_each(self, now: int, read: int | None = None) -> Times | None:
        """By cell, the promise that holds from now on, also for rows of this instant; None if none is new."""
        found = self._each(now if read is None else read)
        if np.array_equal(found, self._before):
            return None
        self._before = found
        return found

    def hold(self, now: int, read: int | None) -> None:
        """Fix the promises by which rows are judged from now on (`held_each`)."""
        self._held = self._each(now if read is None else read)

    def held_each(self) -> Times:
        """By cell, the promise at the last call of `hold`, and those made since."""
        return np.maximum(self._held, self._before)

    def _each(self, clock: int) -> Times:
        """By cell, the promise of its group and of the stream, or what held before it changed groups."""
        bars = self._bars(clock)
        every = max(self._best, self._least(bars, clock))
        found: Times = np.maximum(np.maximum(self._before, bars[self._group]), every)
        return found

    def _bars(self, clock: int) -> Times:
        """By group, the heartbeat that its rows and the clock prove; MIN_TIME for none."""
        if self._learned is not None:
            self._asked = max(self._asked, clock)
            bars = self._learned.heartbeats(self._asked)
        else:
            bars = self._fronts - min(self._tolerated, FARTHEST - 1)
        bars = np.where(self._fronts > MIN_TIME, bars, MIN_TIME)
        return bars if self.latency is None else np.maximum(bars, plus(clock, -self.latency))

    def _least(self, bars: Times, clock: int) -> int:
        """The heartbeat of the stream: the least over groups that have had rows and are not idle.

        If all of them are idle, none holds the others back: the largest counts.
        """
        least = MIN_TIME if self.latency is None else plus(clock, -self.latency)
        spoken = self._fronts > MIN_TIME
        if not spoken.any():
            return least
        active = spoken & self._is_active(clock)
        return max(least, int(bars[active].min() if active.any() else bars[spoken].max()))

    def slowest(self, now: int, read: int | None = None) -> SlowestGroup | None:
        """The group that the others wait for; None if fewer than two groups count."""
        clock = now if read is None else read
        active = np.flatnonzero((self._fronts > MIN_TIME) & self._is_active(clock))
        if len(active) < 2:
            return None
        bars = self._bars(clock)
        order = np.lexsort((self._lasts[active], bars[active]))
        group, rest = int(active[order[0]]), active[order[1:]]
        return SlowestGroup(
            self.by.column,
            group,
            len(active),
            self.by.numbered,
            int(bars[group]),
            int(self._lasts[group]),
            int(self._lasts[rest].max()),
        )

    def _is_active(self, clock: int) -> Mask:
        """The groups that had rows within the last `idle` ticks."""
        if self.by.idle is None:
            return np.ones(self.by.groups, np.bool_)
        return self._lasts > plus(clock, -self.by.idle)

    # --------------------------------------------------------------------------------------------- state

    @property
    def settings(self) -> str:
        """What the state depends on besides the arrivals."""
        return json.dumps([self.by.column, self.by.groups, *(["numbered"] if self.by.numbered else [])])

    def follow(self, before: SourcesPromise) -> None:
        """Continue after another promise of the stream: what it learned stays where it still applies."""
        self.restore(before.snapshot())

    def snapshot(self) -> Mapping[str, Any]:
        own = {"settings": self.settings, "best": self._best, "seen": self._seen, "asked": self._asked}
        own |= {"instants": self._instants, "choose_at": self._choose_at}
        arrays = {"newest": self._newest, "last": self._last, "lag": self._lag}
        arrays |= {"before": self._before, "held": self._held}
        found = own | {k: v.copy() for k, v in arrays.items()} | {"group": self._group.astype(np.uint16)}
        if self._learned is None:
            return found
        learned = {f"learned.{name}": value for name, value in self._learned.snapshot().items()}
        return found | learned | {"learns": self._learned.settings}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; of one with another column or number of groups, promises stay."""
        self._best = max(self._best, int(state["best"]))
        self._seen, self._asked = int(state["seen"]), int(state["asked"])
        if state["settings"] != self.settings:
            self._before[:] = self._held[:] = self._best
            return
        self._instants = int(state["instants"])
        self._choose_at = max(int(state["choose_at"]), self.by.choose_after or 0)
        self._newest, self._last = np.array(state["newest"]), np.array(state["last"])
        self._lag, self._group = np.array(state["lag"]), np.array(state["group"]).astype(np.int64)
        self._before, self._held = np.array(state["before"]), np.array(state["held"])
        if self._learned is not None and state.get("learns") == self._learned.settings:
            prefix = "learned."
            theirs = {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
            self._learned.restore(theirs)
        self._divide()
