"""Distinct: each content once while at least one copy is valid."""

from __future__ import annotations

import numpy as np

from headrace.arrays import Counts, Times
from headrace.operators.counted import Counted
from headrace.plan.nodes.core import Distinct
from headrace.time.punctuation import Punctuation


class DistinctOperator(Counted):
    """Emits a content when its first copy comes and withdraws it when its last one goes.

    A punctuation passes when no matching content is valid: such a content will not come, and
    cannot go. While one is valid, its withdrawal may still come, so the punctuation is dropped.
    """

    def __init__(self, plan: Distinct) -> None:
        super().__init__(plan.schema)

    def multiplicity(self, counts: Counts) -> Times:
        return np.minimum(counts[:, 0], 1)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        speaks_of = self.changes.matching(punctuation) & self.counts.live(len(self.changes.contents))
        return None if speaks_of.any() else punctuation
