"""Random numbers by position: the k-th draw of event n is a hash of (seed, k, n), with no other state.

The hash is that of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014):
plain 64-bit arithmetic, so that a seed gives the same events on every machine and every version of NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

WORD: Final = 2**64
GOLDEN: Final = 0x9E3779B97F4A7C15
MIX: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST: Final = 31
HALF: Final = np.uint64(32)
LOW: Final = np.uint64(2**32 - 1)


def key(seed: int, salt: str) -> int:
    """The key of an independent stream of draws for this seed and salt."""
    state = seed % WORD
    for letter in salt.encode():
        state = _mixed((state + GOLDEN * (letter + 1)) % WORD)
    return state


def _mixed(state: int) -> int:
    """The output function of SplitMix64, for one number."""
    for shift, factor in MIX:
        state = (state ^ (state >> shift)) * factor % WORD
    return state ^ (state >> LAST)


def draw(key: int, numbers: Numbers) -> Bits:
    """64 random bits for each event number."""
    state = numbers.astype(np.uint64)
    state *= np.uint64(GOLDEN)
    state += np.uint64(key)
    for shift, factor in MIX:
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(LAST)
    return state


def high(bits: Bits) -> Bits:
    """The upper 32 of 64 bits."""
    return bits >> HALF


def low(bits: Bits) -> Bits:
    """The lower 32 of 64 bits."""
    return bits & LOW


def below(bits32: Bits, bound: int | Numbers) -> Numbers:
    """A number in [0, bound) from 32 bits; `bound` is below 2^32."""
    limit = np.uint64(bound) if isinstance(bound, int) else bound.astype(np.uint64)
    return ((bits32 * limit) >> HALF).view(np.int64)


# Random text without a loop: each string is a piece of one long random text.
#
# A piece is described in the layout of Arrow's string views (length, first four bytes, buffer, offset), and
# Arrow copies all pieces into a string array at once.


LONGEST: Final = 1024
SIZE: Final = 2**20
INLINE: Final = 12
"""Views of at most this many bytes hold the bytes themselves."""
SPACED: Final = 13
"""One in this many characters of a name is a space."""


@dataclass(frozen=True)
class Pool:
    """A long random text and, for each position in it, the four bytes that begin there."""

    text: pa.Buffer
    prefixes: npt.NDArray[np.int32]

    def pieces(self, bits32: Bits, lengths: Numbers) -> pa.Array:
        """Strings of the given lengths, at positions chosen by the bits."""
        starts = below(bits32, SIZE - LONGEST)
        if len(lengths) and int(lengths.min()) <= INLINE:
            return self._copied(starts, lengths)
        views = np.empty((len(lengths), 4), np.int32)
        views[:, 0] = lengths
        views[:, 1] = self.prefixes[starts]
        views[:, 2] = 0
        views[:, 3] = starts
        found = pa.Array.from_buffers(pa.string_view(), len(lengths), [None, pa.py_buffer(views), self.text])
        return found.cast(pa.string())

    def _copied(self, starts: Numbers, lengths: Numbers) -> pa.Array:
        """Short strings, byte by byte."""
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        data = np.frombuffer(self.text, np.uint8)[np.repeat(starts, lengths) + within]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
        return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


@lru_cache(maxsize=8)
def pool(seed: int, special: str = "") -> Pool:
    """The text for a seed: letters a to z, one in 13 replaced by `special` if it is given."""
    bits = draw(key(seed, f"text {special}"), np.arange(SIZE, dtype=np.int64))
    letters = below(low(bits), 26).astype(np.uint8) + np.uint8(ord("a"))
    if special:
        letters[below(high(bits), SPACED) == 0] = ord(special)
    words = np.lib.stride_tricks.sliding_window_view(np.append(letters, letters[:3]), 4)
    return Pool(pa.py_buffer(letters), np.ascontiguousarray(words).view(np.int32).ravel())


def extra(pool: Pool, bits: Bits, used: int | Numbers, wanted: int) -> pa.Array:
    """Padding of random length, so that a row of `used` bytes has about `wanted` bytes, ±20 %."""
    missing = np.broadcast_to(np.maximum(wanted - np.asarray(used), 0), bits.shape)
    spread = (missing + 2) // 5
    length = missing - spread + below(low(bits), 2 * spread)
    return pool.pieces(high(bits), length)


def name(pool: Pool, bits: Bits, longest: int) -> pa.Array:
    """3 to `longest` − 1 characters, spaces at the ends trimmed."""
    return pc.utf8_trim_whitespace(pool.pieces(high(bits), 3 + below(low(bits), longest - 3)))
