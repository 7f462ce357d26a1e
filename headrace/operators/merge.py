"""Merge that leaves disorder and lets punctuations bound it (Tucker & Maier, §4)."""

from __future__ import annotations

from headrace.flow.batch import Batch
from headrace.operators.loose import Loose
from headrace.operators.union import Uniting, conform


class MergeOperator(Loose, Uniting):
    """Rows pass as they come; the heartbeat is the least of the inputs'."""

    def ingest(self, input: int, batch: Batch) -> None:
        self.emit(self.apply(batch))

    def apply(self, batch: Batch) -> Batch:
        """The output rows of some input rows."""
        return conform(batch, self._schema)

    def answer(self, frontier: int) -> Batch | None:
        return None
