"""A sink: where a query's answers wait to be taken."""

from __future__ import annotations

from headrace.flow.arc import Arc, Reader
from headrace.flow.batch import Batch


class Sink:
    """A reader of the query's last arc. Punctuations end here: they are the engine's own affair."""

    def __init__(self, query: str, arc: Arc) -> None:
        self.query = query
        self.arc = arc
        self.reader: Reader = arc.reader()

    def drain(self) -> list[Batch]:
        """All answers not yet taken, in order."""
        batches: list[Batch] = []
        while not self.reader.empty:
            item = self.reader.take(max(1, self.reader.rows))
            if isinstance(item, Batch):
                batches.append(item)
        return batches

    def close(self) -> None:
        """Stop reading."""
        self.arc.close(self.reader)
