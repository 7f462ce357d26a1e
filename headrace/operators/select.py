"""Selection: the rows for which a predicate is true."""

from __future__ import annotations

from headrace.expressions.sieve import Sieve
from headrace.flow.batch import Batch
from headrace.operators.contract import Stateless
from headrace.plan.nodes import Select
from headrace.time.punctuation import Punctuation


class SelectOperator(Stateless):
    """Passes rows on or not; a punctuation holds of what passes as it holds of what comes."""

    def __init__(self, plan: Select) -> None:
        super().__init__()
        self.sieve = self._holds = Sieve(plan.predicate, plan.input.schema)

    def apply(self, batch: Batch) -> Batch:
        return batch.filter(self._holds(batch.data))

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return punctuation
