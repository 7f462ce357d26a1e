"""The sort keys of rows, as lines of words that one kernel compares whatever the types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.flow.columns import Buffer, byte_values, is_bytes, is_fixed, raw_values, valid_mask
from headrace.flow.keys import words
from headrace.flow.shelf import Shelf
from headrace.kernels.sort_lines import PREFIX, TEXT, TEXT_DOWN, WORD, move_tails, write_texts
from headrace.operators.accumulators.codecs import turn_negatives
from headrace.plan.top import SortKey
from headrace.schema import DataType, Schema

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_SIGN = np.int64(-(2**63))


@dataclass(frozen=True)
class _Place:
    """Where in a line a key begins: the word that says whether it is null, then those of its value."""

    key: SortKey
    begin: int
    kinds: tuple[int, ...]

    @property
    def is_text(self) -> bool:
        return self.kinds[0] != WORD


class SortLines:
    """One line a row: null or not and the value, key after key; a line's size is the same for all rows.

    Numbers, times and truth values are a word, wide decimals two, texts three and a heap for what is beyond
    eight bytes. Types that have no order go by the text of their values.
    """

    def __init__(self, schema: Schema, order: Sequence[SortKey]) -> None:
        self._places: list[_Place] = []
        kinds: list[int] = []
        for key in order:
            of = _kinds(schema.field(key.column).type, key.descends)
            self._places.append(_Place(key, len(kinds), of))
            kinds += [WORD, *of]
        self.kinds = np.array(kinds, np.int64)
        self._lines = Buffer(np.int64, max(1, len(kinds)))
        self._heap = Buffer(np.uint8)

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def lines(self) -> Ints:
        """The lines in order; valid until more are added."""
        return self._lines.view

    @property
    def heap(self) -> npt.NDArray[np.uint8]:
        """What the lines refer to."""
        return self._heap.view

    def append(self, data: pa.RecordBatch) -> None:
        """Add the lines of some rows."""
        lines = self._lines.extend(data.num_rows)
        for place in self._places:
            self._write(data.column(place.key.column), place, lines)

    def _write(self, column: pa.Array, place: _Place, lines: Ints) -> None:
        there, key = valid_mask(column), place.key
        lines[:, place.begin] = there == key.nulls_first
        values = lines[:, place.begin + 1 : place.begin + 1 + len(place.kinds)]
        if place.is_text:
            self._write_texts(_as_text(column), key.descends, values)
            return
        for i, word in enumerate(_words(column)):
            values[:, i] = np.where(there, ~word if key.descends else word, 0)

    def _write_texts(self, column: pa.Array, down: bool, values: Ints) -> None:
        offsets, data = byte_values(column)
        begin = len(self._heap)
        tails = self._heap.extend(int(np.maximum(np.diff(offsets) - PREFIX, 0).sum()))
        write_texts(offsets, data, down, begin, values, tails)

    def keep(self, keep: Mask) -> None:
        """Keep only some lines, in their order."""
        self._lines.replace(self._lines.view[keep])
        old, self._heap = self._heap, Buffer(np.uint8)
        for place in self._places:
            if place.is_text:
                lines, word = self._lines.view, place.begin + 1
                begin = len(self._heap)
                tails = self._heap.extend(int(np.maximum(lines[:, word + 2] - PREFIX, 0).sum()))
                move_tails(lines, word, old.view, begin, tails)

    def bytes(self) -> int:
        """Bytes held."""
        return self._lines.bytes() + self._heap.bytes()

    def move_out(self, shelf: Shelf) -> None:
        """Move the arrays into rooms of a shelf."""
        for part in (self._lines, self._heap):
            part.move_out(shelf)

    def room_bytes(self) -> int:
        """Bytes on a shelf."""
        return sum(part.room_bytes() for part in (self._lines, self._heap))


def _kinds(of: DataType, down: bool) -> tuple[int, ...]:
    """The kinds of the words of a type's values."""
    if pt.is_boolean(of) or _is_word(of):
        return (WORD,)
    if pt.is_decimal128(of):
        return (WORD, WORD)
    return (TEXT_DOWN if down else TEXT, TEXT, TEXT)


def _is_word(of: DataType) -> bool:
    return is_fixed(of) and of.bit_width <= 64


def _words(column: pa.Array) -> list[Ints]:
    """The values of a column as words in their order; nulls undefined."""
    if pt.is_decimal128(column.type):
        halves = raw_values(column).view(np.int64).reshape(-1, 2)
        return [halves[:, 1], halves[:, 0] ^ _SIGN]
    found = words(column)
    if pt.is_floating(column.type):
        found = turn_negatives(found)
    return [found ^ _SIGN if pt.is_uint64(column.type) else found]


def _as_text(column: pa.Array) -> pa.Array:
    if not is_bytes(column.type):
        return pa.array(["" if v is None else repr(v) for v in column.to_pylist()], pa.string())
    return pc.fill_null(column, pa.scalar("", pa.string()).cast(column.type)) if column.null_count else column
