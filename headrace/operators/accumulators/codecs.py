"""Values of a column as int64 words: equal values, equal words, with an order that is that of the values.

So one kernel serves every type. NaN is the greatest, −0.0 is 0.0. Types of at most 64 bits are their own
words; of others each different value is kept once, under a number (`interning`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.flow.columns import is_fixed, raw_values
from headrace.flow.keys import words
from headrace.flow.state import Part
from headrace.kernels.value_order import NUMBERS, Order
from headrace.schema import DataType

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_MAGNITUDE = np.int64(2**63 - 1)
_SIGN = np.int64(-(2**63))


class Codec(ABC):
    """Words for the values of one type; `decode(encode(values))` gives them back. Nulls have any word."""

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
        """Call `listener` when values were forgotten, whose words may then stand for others."""
        return

    def crowded(self, references: int) -> bool:
        """Whether enough values were added to look for those that are no longer referred to."""
        return False

    def forget_except(self, words: Ints) -> None:
        """Forget the values whose words are not among these; most codecs hold none."""
        return

    def state(self) -> dict[str, Part]:
        """What a snapshot must hold to know the words again."""
        return {}


class WordCodec(Codec):
    """Booleans, integers and times: the value is its word."""

    def encode(self, values: pa.Array) -> Ints:
        return words(values)

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        narrow = words.astype(np.dtype(f"i{self.type.bit_width // 8}"))
        return pa.Array.from_buffers(self.type, len(words), [bitmap, pa.py_buffer(narrow)])


class BooleanCodec(WordCodec):
    """False is 0, true is 1."""

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        bits = pa.py_buffer(np.packbits(words == 1, bitorder="little"))
        return pa.Array.from_buffers(self.type, len(words), [bitmap, bits])


class UnsignedCodec(WordCodec):
    """64-bit unsigned integers, moved down by 2^63 to be in order."""

    def encode(self, values: pa.Array) -> Ints:
        return words(values) ^ _SIGN

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        return super()._decode(words ^ _SIGN, bitmap)


class FloatCodec(Codec):
    """The bits of a float64; those of negative numbers turned, to be in order."""

    def encode(self, values: pa.Array) -> Ints:
        return turn_negatives(words(values))

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        narrow = turn_negatives(words).view(np.float64).astype(np.dtype(f"f{self.type.bit_width // 8}"))
        return pa.Array.from_buffers(self.type, len(words), [bitmap, pa.py_buffer(narrow)])


class DecimalCodec(Codec):
    """Decimals of at most 18 digits: the unscaled number."""

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
    from headrace.operators.accumulators.interning import InternedCodec

    fits = next((codec for holds, codec in _CODECS if holds(type)), InternedCodec)
    return fits(type)


def _is_small_decimal(type: DataType) -> bool:
    return bool(pt.is_decimal128(type)) and type.precision <= 18


def _is_word(type: DataType) -> bool:
    return is_fixed(type) and type.bit_width <= 64 and not pt.is_decimal(type)


_CODECS: list[tuple[Callable[[DataType], bool], type[Codec]]] = [
    (pt.is_boolean, BooleanCodec),
    (pt.is_uint64, UnsignedCodec),
    (pt.is_floating, FloatCodec),
    (_is_small_decimal, DecimalCodec),
    (_is_word, WordCodec),
]
