"""The sort keys of rows, in the form that the kernels of top-n compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.aggregates.codecs import turn_negatives
from headrace.arrays import Ints, Mask
from headrace.kernels.sort_keys import (
    PREFIX,
    TEXT,
    TEXT_DOWN,
    TEXT_SIZE,
    WORD,
    KeyTable,
    move_tails,
    write_texts,
)
from headrace.plan.nodes.top_n import SortKey
from headrace.schema import DataType, Schema
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer, byte_values, is_bytes, is_fixed, raw_values, valid_mask
from headrace.state.keys import key64

_SIGN = np.int64(-(2**63))


@dataclass(frozen=True)
class _Column:
    """One column of the ORDER BY: `begin` is its first word in a line (the null? word), `kinds` are the kinds
    of the words of its value, which follow."""

    key: SortKey
    begin: int
    kinds: tuple[int, ...]

    @property
    def is_text(self) -> bool:
        return self.kinds[0] != WORD


class SortKeys:
    """The sort keys of rows: each row appends a line to a `KeyTable`, which shows what a line looks like.

    A value takes one word if it is a number, a time or a boolean, two if it is a decimal, and three if it is
    a text. Types that have no order of their own are sorted by the text of their values.
    """

    def __init__(self, schema: Schema, order: Sequence[SortKey]) -> None:
        self._columns: list[_Column] = []
        kinds: list[int] = []
        for key in order:
            value = _kinds(schema.field(key.column).type, key.descends)
            self._columns.append(_Column(key, len(kinds), value))
            kinds += [WORD, *value]
        self._kinds = np.array(kinds, np.int64)
        self._words = Buffer(np.int64, max(1, len(kinds)))
        self._heap = Buffer(np.uint8)

    def __len__(self) -> int:
        return len(self._words)

    @property
    def table(self) -> KeyTable:
        """The sort keys of all rows; valid until rows are added or removed."""
        return KeyTable(self._words.view, self._kinds, self._heap.view)

    def append(self, data: pa.RecordBatch) -> None:
        """Add the sort keys of some rows."""
        words = self._words.extend(data.num_rows)
        for column in self._columns:
            self._write(data.column(column.key.column), column, words)

    def _write(self, values: pa.Array, column: _Column, words: Ints) -> None:
        """Write the words of one column into the lines of some rows."""
        there, key, begin = valid_mask(values), column.key, column.begin + 1
        words[:, column.begin] = there == key.nulls_first
        into = words[:, begin : begin + len(column.kinds)]
        if column.is_text:
            self._write_texts(_as_text(values), key.descends, into)
            return
        for i, word in enumerate(_words(values)):
            into[:, i] = np.where(there, ~word if key.descends else word, 0)

    def _write_texts(self, column: pa.Array, down: bool, words: Ints) -> None:
        """Write the words of a text column, and append to the heap what does not fit in the prefix."""
        offsets, data = byte_values(column)
        begin = len(self._heap)
        tails = self._heap.extend(int(np.maximum(np.diff(offsets) - PREFIX, 0).sum()))
        write_texts(offsets, data, down, begin, words, tails)

    def keep(self, keep: Mask) -> None:
        """Keep the sort keys of some rows, in their order, and drop the others."""
        self._words.replace(self._words.view[keep])
        old, self._heap = self._heap, Buffer(np.uint8)
        for column in self._columns:
            if column.is_text:
                words, text = self._words.view, column.begin + 1
                begin = len(self._heap)
                tails = self._heap.extend(int(np.maximum(words[:, text + TEXT_SIZE] - PREFIX, 0).sum()))
                move_tails(words, text, old.view, begin, tails)

    def bytes(self) -> int:
        """Bytes held."""
        return self._words.bytes() + self._heap.bytes()

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the arrays into mapped files of a spill store."""
        for part in (self._words, self._heap):
            part.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return sum(part.mapped_bytes() for part in (self._words, self._heap))


def _kinds(of: DataType, down: bool) -> tuple[int, ...]:
    """The kinds of the words that a value of this type takes."""
    if pt.is_boolean(of) or _is_word(of):
        return (WORD,)
    if pt.is_decimal128(of):
        return (WORD, WORD)
    return (TEXT_DOWN if down else TEXT, TEXT, TEXT)


def _is_word(of: DataType) -> bool:
    """Whether a value of this type fits into one word."""
    return is_fixed(of) and of.bit_width <= 64


def _words(column: pa.Array) -> list[Ints]:
    """The values of a column as words that sort as they do, one array for each word; undefined for nulls."""
    if pt.is_decimal128(column.type):
        halves = raw_values(column).view(np.int64).reshape(-1, 2)
        return [halves[:, 1], halves[:, 0] ^ _SIGN]
    found = key64(column)
    if pt.is_floating(column.type):
        found = turn_negatives(found)
    return [found ^ _SIGN if pt.is_uint64(column.type) else found]


def _as_text(column: pa.Array) -> pa.Array:
    """A column as strings or bytes without nulls."""
    if not is_bytes(column.type):
        return pa.array(["" if v is None else repr(v) for v in column.to_pylist()], pa.string())
    return pc.fill_null(column, pa.scalar("", pa.string()).cast(column.type)) if column.null_count else column
