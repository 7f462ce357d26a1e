"""Selection: the rows for which a predicate is true."""

from __future__ import annotations

from headrace.expressions.adaptive_filter import AdaptiveFilter
from headrace.flow.batch import Batch
from headrace.operators.contract import Stateless
from headrace.plan.nodes.core import Select
from headrace.time.punctuation import Punctuation


class SelectOperator(Stateless):
    """Passes on the rows that match; a punctuation on the input holds for the output too."""

    def __init__(self, plan: Select) -> None:
        super().__init__()
        self.adaptive_filter = self._holds = AdaptiveFilter(plan.predicate, plan.input.schema)

    def apply(self, batch: Batch) -> Batch:
        return batch.filter(self._holds(batch.data))

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return punctuation
