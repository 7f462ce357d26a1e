"""DISTINCT ON: the first row of each key, within a time."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.core import Unary


@dataclass(frozen=True)
class DistinctOn(Unary):
    """The rows of a stream, without those that repeat a key.

    A row at t repeats its key if a row of that key was kept in (t − within, t]; None: at any time before.
    Rows are ordered by time; simultaneous rows as in `headrace.plan.analysis.ordering`. Keys compare as in
    GROUP BY.
    """

    keys: tuple[str, ...]
    within: int | None = None
