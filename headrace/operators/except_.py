"""Difference of two relations, as sets or as bags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from headrace.arrays import Counts, Times
from headrace.operators.counted import Counted
from headrace.plan.nodes.core import Except
from headrace.time.punctuation import Punctuation


def set_difference(counts: Counts) -> Times:
    """One copy of each content that is in the left and not in the right."""
    once: Times = ((counts[:, 0] > 0) & (counts[:, 1] == 0)).astype(np.int64)
    return once


def bag_difference(counts: Counts) -> Times:
    """As many copies as the left has in excess of the right."""
    more: Times = np.maximum(counts[:, 0] - counts[:, 1], 0)
    return more


DIFFERENCES: Final[dict[bool, Callable[[Counts], Times]]] = {False: set_difference, True: bag_difference}


class ExceptOperator(Counted):
    """Both inputs share one index of contents, so a content is compared by its code.

    A punctuation of the left passes when the left holds no matching row: such a content can then neither come
    nor go. A punctuation of the right says nothing about the left, and is dropped.
    """

    arity = 2

    def __init__(self, plan: Except) -> None:
        super().__init__(plan.schema, relations=2)
        self._difference = DIFFERENCES[plan.all]

    def multiplicity(self, counts: Counts) -> Times:
        return self._difference(counts)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        if input == 1:
            return None
        live = np.flatnonzero(self.counts.live(len(self.changes.contents)))
        on_the_left = live[self.counts.of(live)[:, 0] > 0]
        return None if self.changes.matching(punctuation)[on_the_left].any() else punctuation
