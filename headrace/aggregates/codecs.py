"""Values of a column as int64 words: equal values have equal words, and words sort like the values.

So one kernel serves every type. NaN is the greatest value, and −0.0 equals 0.0. Values of at most 64 bits are
their own words; of other types, each distinct value is stored once, and its word is a number (interning).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace import tuning
from headrace.arrays import Ints, Mask
from headrace.kernels.hashing import EMPTY
from headrace.kernels.sort_keys import NUMBERS, UNUSED, Order, first_bytes
from headrace.schema import DataType
from headrace.spill.store import SpillStore
from headrace.state.code_table import CodeTable
from headrace.state.columns import Buffer, BytesColumn, is_bytes, is_fixed, raw_values, valid_mask
from headrace.state.key_index import GroupIndex
from headrace.state.keys import key64
from headrace.state.part import Part

_MAGNITUDE = np.int64(2**63 - 1)
_SIGN = np.int64(-(2**63))


class Codec(ABC):
    """Words for the values of one type. `decode` undoes `encode`; the word of a null is undefined."""

    def __init__(self, type: DataType) -> None:
        self.type = type

    @abstractmethod
    def encode(self, values: pa.Array) -> Ints:
        """The word of each value."""

    def decode(self, words: Ints, valid: Mask | None = None) -> pa.Array:
        """The value of each word; null where not `valid`."""
        bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return self._decode(words, bitmap)

    @abstractmethod
    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array: ...

    def order(self) -> Order:
        """How words are compared; valid until the next `encode`. Most words are numbers in their order."""
        return NUMBERS

    def on_forget(self, listener: Callable[[], None]) -> None:
        """Call `listener` after values were forgotten: their words may be reused for other values."""
        return

    def crowded(self, references: int) -> bool:
        """Whether enough values were added to make a search for unused ones worthwhile."""
        return False

    def forget_except(self, words: Ints) -> None:
        """Forget the values whose words are not among these; most codecs store no values."""
        return

    def state(self) -> dict[str, Part]:
        """The parts that a snapshot needs to restore the words."""
        return {}


class WordCodec(Codec):
    """Booleans, integers and times: the value is its word."""

    def encode(self, values: pa.Array) -> Ints:
        return key64(values)

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        narrow = words.astype(np.dtype(f"i{self.type.bit_width // 8}"))
        return pa.Array.from_buffers(self.type, len(words), [bitmap, pa.py_buffer(narrow)])


class BooleanCodec(WordCodec):
    """False is 0, true is 1."""

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        bits = pa.py_buffer(np.packbits(words == 1, bitorder="little"))
        return pa.Array.from_buffers(self.type, len(words), [bitmap, bits])


class UnsignedCodec(WordCodec):
    """64-bit unsigned integers, minus 2^63 so that they sort as signed ones."""

    def encode(self, values: pa.Array) -> Ints:
        return key64(values) ^ _SIGN

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        return super()._decode(words ^ _SIGN, bitmap)


class FloatCodec(Codec):
    """The bits of a float64, inverted for negative numbers so that they sort correctly."""

    def encode(self, values: pa.Array) -> Ints:
        return turn_negatives(key64(values))

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        narrow = turn_negatives(words).view(np.float64).astype(np.dtype(f"f{self.type.bit_width // 8}"))
        return pa.Array.from_buffers(self.type, len(words), [bitmap, pa.py_buffer(narrow)])


class DecimalCodec(Codec):
    """Decimals of at most 18 digits: the word is the unscaled number."""

    def encode(self, values: pa.Array) -> Ints:
        return raw_values(values).view(np.int64)[::2].copy()

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        halves = np.stack([words, words >> 63], axis=1)
        return pa.Array.from_buffers(self.type, len(words), [bitmap, pa.py_buffer(halves)])


def turn_negatives(bits: Ints) -> Ints:
    """Float bits to ordered words and back: the map is its own inverse."""
    return np.where(bits < 0, bits ^ _MAGNITUDE, bits)


def codec_for(type: DataType) -> Codec:
    """The codec of a type."""

    fits = next((codec for holds, codec in _CODECS if holds(type)), InternedCodec)
    return fits(type)


def _is_small_decimal(type: DataType) -> bool:
    """Whether the unscaled numbers of a decimal type fit in 64 bits."""
    return bool(pt.is_decimal128(type)) and type.precision <= 18


def _is_word(type: DataType) -> bool:
    """Whether a value of this type fits in one word; decimals have their own codec."""
    return is_fixed(type) and type.bit_width <= 64 and not pt.is_decimal(type)


_CODECS: list[tuple[Callable[[DataType], bool], type[Codec]]] = [
    (pt.is_boolean, BooleanCodec),
    (pt.is_uint64, UnsignedCodec),
    (pt.is_floating, FloatCodec),
    (_is_small_decimal, DecimalCodec),
    (_is_word, WordCodec),
]


# Words for values of any size: each different value is stored once, under a number that is its word.
#
# Storing a value takes one hash probe. If an order is needed, two words are compared by the bytes of their
# values (`headrace.kernels.sort_keys`), so no order has to be maintained. The numbers of dropped values are
# used again.


class InternedCodec(Codec):
    """`_index` has the values by code, `_words` the word of each code, `_codes` the code of each word."""

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
        """Give a word to each value that has none; free words are used first."""
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
        """Map the words of some codes back to these codes."""
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
        """The bytes by which values are compared, by code."""
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
        most = self._roomy + max(tuning.current.idle_keys, references // 16)
        if len(self._index) <= most and 2 * references >= self._peak:
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
        """Rebuild the map from words to values, after a restore or when some were forgotten."""
        self._codes, self._first, self._bytes = Buffer(np.int64), Buffer(np.int64), BytesColumn(pa.binary())
        self._free = self._unordered = None
        self._take_in(np.arange(len(self._words)))

    def restored(self, begin: int) -> None:
        """Take in the values with codes from `begin` on, which were restored."""
        self._free = None
        self._take_in(np.arange(begin, len(self._words)))

    def bytes(self) -> int:
        """Bytes of data derived from the state."""
        return self._codes.bytes() + self._first.bytes() + self._bytes.bytes()

    def state(self) -> dict[str, Part]:
        return {"values": self._index, "words": _Words(self, self._words)}


class _Words:
    """The words as a part of the state; after a restore the codec rebuilds its maps."""

    def __init__(self, codec: InternedCodec, table: CodeTable) -> None:
        self._codec, self._table = codec, table

    def bytes(self) -> int:
        return self._table.bytes() + self._codec.bytes()

    def move_to_disk(self, spill_store: SpillStore) -> None:
        self._table.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        return self._table.mapped_bytes()

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
    """The values, with null where not `valid`: one value at a time, for nested types."""
    pairs = zip(values.to_pylist(), valid.to_pylist(), strict=True)
    return pa.array([value if there else None for value, there in pairs], values.type)


def _comparable(values: pa.Array) -> pa.Array:
    """Values as byte strings in the same order."""
    return next(encode for holds, encode in COMPARABLE if holds(values.type))(values)


def _decimal_bytes(values: pa.Array) -> pa.Array:
    """The unscaled number, most significant byte first, with the sign bit inverted."""
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
"""How to compare values of types that are not byte strings."""
