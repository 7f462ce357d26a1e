"""The first and the last value of a window: that of its first and of its last entry."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.flow.columns import valid_mask
from headrace.kernels.aggregate_panes import keep_first, keep_last
from headrace.operators.accumulators.codecs import Codec
from headrace.operators.accumulators.numbers import Ints
from headrace.operators.accumulators.pane_values import PaneValue, Rowset
from headrace.operators.accumulators.panes import Closing, PaneLog
from headrace.operators.accumulators.specs import OfColumn


class Ends(PaneValue):
    """One row's value per entry, as a word and whether it is null."""

    def __init__(self, spec: OfColumn, log: PaneLog, codec: Codec) -> None:
        super().__init__(spec, log)
        self._column, self._codec = spec.column, codec
        self._word, self._valid = self.name("word"), self.name("valid")
        self.entries.add_column(self._word, np.int64)
        self.entries.add_column(self._valid, np.int64, 1)

    def add(self, rows: Rowset) -> None:
        values = rows.data.column(self._column)
        words = self._codec.encode(values)
        self._keep(rows, words, self.entries[self._word])
        self._keep(rows, valid_mask(values).astype(np.int64), self.entries[self._valid])

    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None:
        raise AssertionError(type(self))

    def _at(self, entries: Ints) -> pa.Array:
        positions = entries & (len(self.entries[self._word]) - 1)
        valid = self.entries[self._valid][positions] == 1
        return self._codec.decode(self.entries[self._word][positions], None if valid.all() else valid)

    def words(self) -> Ints:
        """The words in use."""
        return np.asarray(self.entries.read(self._word, self.entries.base), np.int64)


class Firsts(Ends):
    """The value of the earliest row."""

    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None:
        keep_first(rows.slots, values, rows.fresh, out)

    def close(self, closing: Closing) -> pa.Array:
        return self._at(closing.heads)


class Lasts(Ends):
    """The value of the latest row."""

    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None:
        keep_last(rows.slots, values, out)

    def close(self, closing: Closing) -> pa.Array:
        return self._at(closing.tails)
