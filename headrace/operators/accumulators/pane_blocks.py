"""What is kept by pane and cannot be taken away: extremes, by parts of blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.kernels.aggregate_extremes import join_least, lower, prefix_least, suffix_least
from headrace.operators.accumulators.codecs import Codec
from headrace.operators.accumulators.numbers import Ints
from headrace.operators.accumulators.pane_values import PaneValue, Rowset
from headrace.operators.accumulators.panes import Closing, PaneLog, Scan
from headrace.operators.accumulators.specs import OfColumn

_GREATEST = np.iinfo(np.int64).max


class Extremes(PaneValue):
    """The least word of each entry; `_flip` turns words so that the greatest becomes the least."""

    def __init__(self, spec: OfColumn, log: PaneLog, codec: Codec, flip: int) -> None:
        super().__init__(spec, log)
        self._column, self._codec, self._flip = spec.column, codec, np.int64(flip)
        self._value, self._prefix, self._suffix = (self.name(k) for k in ("value", "prefix", "suffix"))
        for name in (self._value, self._prefix, self._suffix):
            kept = name == self._value
            self.entries.add_column(name, np.int64, _GREATEST if kept else None, kept)

    def add(self, rows: Rowset) -> None:
        values, slots = rows.known(self._column)
        words = self._codec.encode(values) ^ self._flip
        lower(slots, words, self._codec.order(), self.entries[self._value])

    def scan(self, scan: Scan) -> None:
        value, prefix, suffix = (self.entries[n] for n in (self._value, self._prefix, self._suffix))
        order = self._codec.order()
        prefix_least(self.entries["back"], scan.open, scan.begin, order, value, prefix)
        suffix_least(self.entries["ahead"], scan.done, order, value, suffix)

    def close(self, closing: Closing) -> pa.Array:
        out = np.empty(len(closing.heads), np.int64)
        ends = (closing.rows, closing.cuts, closing.heads, closing.tails)
        order = self._codec.order()
        join_least(*ends, order, self.entries[self._suffix], self.entries[self._prefix], out)
        return self._codec.decode(out ^ self._flip)

    def words(self) -> Ints:
        """The words in use."""
        return np.asarray(self.entries.read(self._value, self.entries.base) ^ self._flip, np.int64)
