"""The rows of a mask: each word read once, and words that several columns share moved once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.words import Words, empty, from_words, is_constant, is_plain, place_of, words_of
from headrace.kernels.compress import compress

Mask = npt.NDArray[np.bool_]


class Compression:
    """One selection of rows, column by column."""

    def __init__(self, mask: Mask, kept: int) -> None:
        self._mask, self._kept = np.ascontiguousarray(mask), kept
        self._moved: dict[object, Words] = {}
        self._arrow: pa.Array | None = None

    def rows(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch."""
        if not data.num_columns:
            return data.filter(self._as_arrow())
        return pa.RecordBatch.from_arrays([self._column(each) for each in data.columns], schema=data.schema)

    def _column(self, column: pa.Array) -> pa.Array:
        if not is_plain(column):
            return column.filter(self._as_arrow())
        return from_words(column.type, self.words(words_of(column)))

    def words(self, words: Words) -> Words:
        """The words of the rows."""
        if is_constant(words):
            return words[: self._kept]
        place = place_of(words)
        if place not in self._moved:
            out = empty(self._kept + 1)
            compress(np.ascontiguousarray(words), self._mask.view(np.uint8), out)
            self._moved[place] = out[: self._kept]
        return self._moved[place]

    def optional(self, words: Words | None) -> Words | None:
        """The same where there may be none."""
        return None if words is None else self.words(words)

    def _as_arrow(self) -> pa.Array:
        if self._arrow is None:
            self._arrow = pa.array(self._mask)
        return self._arrow

    def signs(self, signs: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        """Signs of the rows, where there are any."""
        return None if signs is None else signs[self._mask]
