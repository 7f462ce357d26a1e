"""Words for values of any size: each different value once, under a number that it keeps while it is held.

A value costs a hash probe, known or not; two words are compared by the values' bytes, where an order is asked
for (`headrace.kernels.value_order`), so that no order has to be kept up to date. Numbers of values that were
forgotten are given to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.flow.columns import Buffer, BytesColumn, is_bytes, valid_mask
from headrace.flow.groups import GroupIndex
from headrace.flow.shelf import Shelf
from headrace.flow.state import Part
from headrace.flow.tables import CodeTable
from headrace.kernels.hashing import EMPTY
from headrace.kernels.value_order import UNUSED, Order, first_bytes
from headrace.operators.accumulators.codecs import Codec, Ints
from headrace.schema import DataType

_SPARE = 1024


class InternedCodec(Codec):
    """`_index` knows the values by code, `_words` the word of each code, `_codes` the code of each word."""

    def __init__(self, type: DataType) -> None:
        super().__init__(type)
        self._index = GroupIndex(pa.schema([("value", type)]))
        self._words = CodeTable(word=(np.int64, EMPTY))
        self._codes, self._first = Buffer(np.int64), Buffer(np.int64)
        self._free: Ints | None = None
        self._unordered: list[Ints] | None = None
        self._bytes = BytesColumn(pa.binary())
        self._listeners: list[Callable[[], None]] = []
        self._roomy = self._peak = 0

    def on_forget(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def encode(self, values: pa.Array) -> Ints:
        there = np.flatnonzero(valid_mask(values))
        known = values if len(there) == len(values) else values.take(pa.array(there))
        codes = self._index.codes([known], len(known))
        self._name_new()
        words = np.zeros(len(values), np.int64)
        words[there] = self._words["word"][codes]
        return words

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        if not len(self._index):
            return pa.nulls(len(words), self.type)
        named = self._codes.view
        codes = np.maximum(named[np.clip(words, 0, len(named) - 1)], 0)
        values = self._index.keys.take(codes)[0]
        if bitmap is None:
            return values
        valid = pa.Array.from_buffers(pa.bool_(), len(words), [None, bitmap])
        if pt.is_nested(self.type):
            return _mask(values, valid)
        return pa.compute.if_else(valid, values, pa.scalar(None, self.type))

    # ------------------------------------------------------------------------------------ words and order

    def _name_new(self) -> None:
        """Give a word to each value that has none: those that are free first."""
        old, size = len(self._words), len(self._index)
        if old == size:
            return
        if self._free is None:
            self._free = np.flatnonzero(self._codes.view == EMPTY)
        reused, self._free = np.split(self._free, [size - old])
        begin = len(self._codes)
        self._words.grow(size)
        codes = np.arange(old, size)
        self._words["word"][codes] = np.append(reused, np.arange(begin, begin + len(codes) - len(reused)))
        self._words.touch(codes)
        self._take_in(codes)

    def _take_in(self, codes: Ints) -> None:
        """Know the values of the words of some codes."""
        words = np.asarray(self._words["word"][codes], np.int64)
        more = int(words.max(initial=EMPTY)) + 1 - len(self._codes)
        if more > 0:
            self._codes.extend(more)[:] = EMPTY
        self._codes.view[words] = codes
        if self._unordered is not None:
            self._unordered.append(words)

    def order(self) -> Order:
        begins, lengths, heap = self._heap()
        codes = np.asarray(self._codes.view, np.int64)
        self._first.extend(len(codes) - len(self._first))[:] = UNUSED
        if self._unordered is None:
            self._unordered = [np.asarray(self._words["word"], np.int64)]
        for words in self._unordered:
            first = np.empty(len(words), np.int64)
            first_bytes(codes[words], begins, lengths, heap, first)
            self._first.view[words] = first
        self._unordered = []
        return np.asarray(self._first.view, np.int64), codes, begins, lengths, heap

    def _heap(self) -> tuple[Ints, Ints, npt.NDArray[np.uint8]]:
        """The bytes that values are compared by, under their codes."""
        if is_bytes(self.type):
            own = self._index.keys.columns[0]
            assert isinstance(own, BytesColumn)
            return own.heap()
        done = len(self._bytes)
        if done < len(self._index):
            values = self._index.keys.take(np.arange(done, len(self._index)))[0]
            self._bytes.append(_comparable(values))
        return self._bytes.heap()

    # -------------------------------------------------------------------------------------------- state

    def crowded(self, references: int) -> bool:
        self._peak = max(self._peak, references)
        if len(self._index) <= self._roomy + max(_SPARE, references // 16) and 2 * references >= self._peak:
            return False
        self._peak = references
        return len(self._index) > 0

    def forget_except(self, words: Ints) -> None:
        own = np.asarray(self._words["word"], np.int64)
        used = np.zeros(len(self._codes), np.bool_)
        used[words[(words >= 0) & (words < len(used))]] = True
        keep = used[own]
        self._index.compact(keep)
        self._words.keep(keep)
        self._roomy = 2 * len(self._index)
        self.refresh()
        for listener in self._listeners:
            listener()

    def refresh(self) -> None:
        """Find the value of each word again, after a restore or when some were forgotten."""
        self._codes, self._first, self._bytes = Buffer(np.int64), Buffer(np.int64), BytesColumn(pa.binary())
        self._free = self._unordered = None
        self._take_in(np.arange(len(self._words)))

    def restored(self, begin: int) -> None:
        """Know the values with codes from `begin` on, which came back."""
        self._free = None
        self._take_in(np.arange(begin, len(self._words)))

    def bytes(self) -> int:
        """Bytes of what follows from the state."""
        return self._codes.bytes() + self._first.bytes() + self._bytes.bytes()

    def state(self) -> dict[str, Part]:
        return {"values": self._index, "words": _Words(self, self._words)}


class _Words:
    """The words as a part: a restored codec finds the value of each again."""

    def __init__(self, codec: InternedCodec, table: CodeTable) -> None:
        self._codec, self._table = codec, table

    def bytes(self) -> int:
        return self._table.bytes() + self._codec.bytes()

    def move_out(self, shelf: Shelf) -> None:
        self._table.move_out(shelf)

    def room_bytes(self) -> int:
        return self._table.room_bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self._table.changes(full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        begin = len(self._table)
        self._table.apply(chunk)
        if chunk["reset"]:
            self._codec.refresh()
        else:
            self._codec.restored(begin)


def _mask(values: pa.Array, valid: pa.Array) -> pa.Array:
    pairs = zip(values.to_pylist(), valid.to_pylist(), strict=True)
    return pa.array([value if there else None for value, there in pairs], values.type)


def _comparable(values: pa.Array) -> pa.Array:
    """Values as byte strings in the same order."""
    return next(encode for holds, encode in COMPARABLE if holds(values.type))(values)


def _decimal_bytes(values: pa.Array) -> pa.Array:
    """The unscaled number with the most significant byte first and its sign turned."""
    wide = values.cast(pa.decimal256(76, values.type.scale))
    size = wide.type.bit_width // 8
    raw = np.frombuffer(wide.buffers()[1], np.uint8)[wide.offset * size :][: len(wide) * size]
    turned = np.ascontiguousarray(raw.reshape(-1, size)[:, ::-1])
    turned[:, 0] ^= 0x80
    return pa.Array.from_buffers(pa.binary(size), len(wide), [None, pa.py_buffer(turned)]).cast(pa.binary())


COMPARABLE: Final[list[tuple[Callable[[DataType], bool], Callable[[pa.Array], pa.Array]]]] = [
    (pt.is_decimal, _decimal_bytes),
    (pt.is_dictionary, lambda values: values.dictionary_decode().cast(pa.binary())),
    (lambda _: True, lambda values: values.cast(pa.binary())),
]
"""How values of a type that are no byte strings themselves are compared."""
