"""Ends that are one: rows that a granularity lets end together are held as one line (002, §2.2)."""

from __future__ import annotations

import numpy as np

from headrace.flow.timeline import Timeline
from headrace.operators.accumulators.instants import Ints, Layout
from headrace.plan.nodes import Granularity, Plan, Project, Select

_LOOKED_AT = 1 << 15
"""Ends that are looked at to know how many different ones there are."""


def is_rounded(plan: Plan) -> bool:
    """Whether many rows may start and end at the same instants, because a granularity rounds them."""
    while isinstance(plan, (Select, Project)):
        plan = plan.input
    return isinstance(plan, Granularity)


def together(events: Ints, starts: Ints) -> Ints:
    """Ends that are equal but for their sign, of rows that start together, as one with the sum of the signs.

    So state follows the instants, and what is different at each of them, not the rows. Rows that start
    together come together, so how many lines there are does not depend on how rows are cut into batches.
    """
    order = np.lexsort((starts, *reversed(_content(events)), events[:, Layout.TIME]))
    events, starts = events[order], starts[order]
    first = np.zeros(len(events), np.bool_)
    first[:1] = True
    for column in (events[:, Layout.TIME], starts, *_content(events)):
        first[1:] |= column[1:] != column[:-1]
    if first.all():
        return events
    at = np.flatnonzero(first)
    merged = events[at]
    merged[:, Layout.SIGN] = np.add.reduceat(events[:, Layout.SIGN], at)
    kept: Ints = merged[merged[:, Layout.SIGN] != 0]
    return kept


def _content(events: Ints) -> list[Ints]:
    """What makes a difference between two events of one instant."""
    return [events[:, i] for i in range(events.shape[1]) if i not in (Layout.TIME, Layout.SIGN)]


def different(ends: Timeline) -> tuple[int, int]:
    """Of the earliest ends that are pending: how many there are, and how many are different but for time.

    What is looked at is a matter of times alone, not of how the ends came to be held.
    """
    times = ends.values(Layout.TIME)
    if len(times) == 0:
        return 0, 0
    upto = times.max() if len(times) <= _LOOKED_AT else np.partition(times, _LOOKED_AT)[_LOOKED_AT]
    chosen = times <= upto
    mixed = np.zeros(int(np.count_nonzero(chosen)), np.uint64)
    for i in range(ends.width):
        if i not in (Layout.TIME, Layout.SIGN):
            mixed = (mixed ^ ends.values(i)[chosen].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    return len(mixed), len(np.unique(mixed))
