"""A part of a budget that several engines hold together: the shards of a Spark job.

Each engine measures what it holds and will need. The sizes of windows are chosen for all of them together,
from the sum of these measures (`merged`), so that a window has the same size everywhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from headrace import tuning
from headrace.graph.graph import Graph
from headrace.memory.budget import too_small
from headrace.memory.choice import MANY, Demand, GrainDemand, Needs
from headrace.memory.flows import grains_of, windows_of
from headrace.memory.manager import Shortage, Spill
from headrace.memory.meter import Meter

Adjustable = TypeVar("Adjustable", Demand, GrainDemand)


class Share(Meter):
    """Measures a graph, and keeps what it holds near `share` bytes without changing a window.

    Beyond its share it frees unused capacity and, with the policy `spill`, spills. With `fail` it raises an
    error only if it holds more than the `budget` of all: the others may hold less than their shares.
    """

    def __init__(self, graph: Graph, share: int, budget: int, policy: Shortage, spill: Spill) -> None:
        super().__init__(graph)
        self.share, self.budget, self.policy = share, budget, policy
        self._spill = spill
        self._unsettled = False

    def look(self) -> None:
        """Before rows run: note how many there are."""
        if self._fresh:
            self._looked = self._mark()
            self._unsettled |= self._fresh > self._patience

    def settle(self) -> None:
        """After all rows have run: measure, and keep to the share, if enough rows have come."""
        if self._unsettled:
            self._settle()

    def needs(self) -> tuple[Needs, int]:
        """What the windows and granularities hold and will need, and the bytes held now."""
        return self._settle()

    def names(self) -> list[str]:
        """The nodes of the windows and granularities, in the order of `needs`."""
        return [node.name for node in (*windows_of(self._graph), *grains_of(self._graph))]

    def _settle(self) -> tuple[Needs, int]:
        self._fresh, self._unsettled = 0, False
        self._count()
        self._release_and_measure()
        held = self._held_within(self.share)
        if held > self.share and self.policy == "spill":
            held -= self._spill(int(held - tuning.current.budget_target * self.share))
        elif held > tuning.current.budget_failure * self.budget:
            raise too_small(held, self.budget, held, self.names())
        needs = self._needs()
        self._patience = self._rows_until_look(needs, self.share)
        return needs, held


Key = Hashable
"""Identifies a window or granularity in several engines."""


def merged(parts: Sequence[tuple[Sequence[Key], Needs]]) -> tuple[list[Key], list[Key], Needs]:
    """The needs of several engines as those of one; returns the keys of its windows and granularities too.

    Each part comes with the keys of its windows, then of its granularities. What has the same key is the same
    window over other rows.
    """
    windows: dict[Key, list[Demand]] = {}
    for keys, needs in parts:
        for key, demand in zip(keys, needs.windows, strict=False):
            windows.setdefault(key, []).append(demand)
    place = {key: i for i, key in enumerate(windows)}
    grains: dict[Key, list[GrainDemand]] = {}
    for keys, needs in parts:
        for key, grain in zip(keys[len(needs.windows) :], needs.grains, strict=True):
            here = tuple(place[keys[i]] for i in grain.windows)
            grains.setdefault(key, []).append(replace(grain, windows=here))
    together = Needs(
        sum(needs.fixed for _, needs in parts),
        sum(needs.held for _, needs in parts),
        tuple(map(_together, windows.values())),
        tuple(map(_grain_together, grains.values())),
    )
    return list(windows), list(grains), together


def _together(parts: Sequence[Adjustable]) -> Adjustable:
    """A window in all engines: rates and rows are added, and the cost of a row is averaged over the rows."""
    rows = [sum(c.rows for c in each.cohorts) + each.rate for each in parts]
    spent = sum(each.bytes * count for each, count in zip(parts, rows, strict=True))
    return replace(
        parts[0],
        now=max(each.now for each in parts),
        rate=sum(each.rate for each in parts),
        bytes=spent / sum(rows) if any(rows) else max(each.bytes for each in parts),
        delay=max(each.delay for each in parts),
        cohorts=tuple(cohort for each in parts for cohort in each.cohorts),
        unchanged=max(each.unchanged for each in parts),
    )


def _grain_together(parts: Sequence[GrainDemand]) -> GrainDemand:
    """A granularity in all engines: equal lines of two engines are not combined."""
    return replace(
        _together(parts),
        kinds=min(MANY, sum(each.kinds for each in parts)),
        waiting=max(each.waiting for each in parts),
        windows=tuple(sorted({i for each in parts for i in each.windows})),
    )
