"""An arc that keeps what it was given: every reader, whenever it comes, begins at the beginning."""

from __future__ import annotations

from headrace.flow.arc import Arc, Reader
from headrace.flow.batch import Batch
from headrace.time.punctuation import Punctuation


class KeptArc(Arc):
    """One buffer for all readers that are still to come; nothing ever leaves it."""

    __slots__ = ()

    def reader(self) -> Reader:
        """A new cursor, at the head."""
        reader = super().reader()
        reader.position = self.base
        reader.rows = sum(len(item) for item in self._items if isinstance(item, Batch))
        reader.punctuations = sum(not isinstance(item, Batch) for item in self._items)
        return reader

    def append(self, batch: Batch) -> None:
        super().append(batch)
        if not self._readers and len(batch):
            self._items.append(batch)

    def punctuate(self, punctuation: Punctuation) -> None:
        super().punctuate(punctuation)
        if not self._readers:
            self._items.append(punctuation)

    def trim(self) -> None:
        """Nothing leaves."""
