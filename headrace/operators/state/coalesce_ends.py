"""Equal rows that end together because of a granularity share one line of state (Cammert et al., §2.2).

Where only counts and sums are needed, rows need not be equal: `headrace.aggregates.instants.ends`.
"""

from __future__ import annotations

import numpy as np

from headrace import tuning
from headrace.aggregates.instants.protocol import Layout
from headrace.arrays import Ints
from headrace.plan.nodes.core import Granularity, Plan, Project, Select, Window
from headrace.plan.nodes.windows import Sliding
from headrace.state.timeline import Timeline


def is_rounded(plan: Plan) -> bool:
    """Whether many rows may start and end at the same instants: a granularity or slides round them."""
    while isinstance(plan, (Select, Project)):
        plan = plan.input
    slides = isinstance(plan, Window) and isinstance(plan.spec, Sliding)
    return slides or isinstance(plan, Granularity)


def coalesce_ends(events: Ints, starts: Ints) -> Ints:
    """Combine ends of rows that start together and differ only in sign: one end with the sum of the signs.

    So the size of the state depends on the instants and the distinct ends at each, not on the rows. Rows that
    start together come together, so how many lines there are does not depend on how rows are cut into
    batches.
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
    """The columns that distinguish two events of one instant, apart from their sign."""
    return [events[:, i] for i in range(events.shape[1]) if i not in (Layout.TIME, Layout.SIGN)]


def different(ends: Timeline) -> tuple[int, int]:
    """A sample of the earliest pending ends: its size, and how many are distinct apart from their times.

    The sample depends only on the times of the ends, not on how they came to be held.
    """
    times = ends.values(Layout.TIME)
    if len(times) == 0:
        return 0, 0
    sample = tuning.current.granularity_sample
    upto = times.max() if len(times) <= sample else np.partition(times, sample)[sample]
    chosen = times <= upto
    mixed = np.zeros(int(np.count_nonzero(chosen)), np.uint64)
    for i in range(ends.width):
        if i not in (Layout.TIME, Layout.SIGN):
            mixed = (mixed ^ ends.values(i)[chosen].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    return len(mixed), len(np.unique(mixed))
