"""Random text without a loop: each string is a piece of one long random text.

A piece is described in the layout of Arrow's string views (length, first four bytes, buffer, offset), and
Arrow copies all pieces into a string array at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.nexmark.draws import Bits, Numbers, below, draw, high, key, low

LONGEST: Final = 1024
SIZE: Final = 2**20
INLINE: Final = 12
"""Views of at most so many bytes hold the bytes themselves."""
SPACED: Final = 13
"""One in so many characters of a name is a space."""


@dataclass(frozen=True)
class Pool:
    """A long random text and, for each place in it, the four bytes that begin there."""

    text: pa.Buffer
    prefixes: npt.NDArray[np.int32]

    def pieces(self, bits32: Bits, lengths: Numbers) -> pa.Array:
        """Strings of the given lengths from places that the bits choose."""
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
    """The text of a seed: letters a to z, one in 13 of them `special` if one is given."""
    bits = draw(key(seed, f"text {special}"), np.arange(SIZE, dtype=np.int64))
    letters = below(low(bits), 26).astype(np.uint8) + np.uint8(ord("a"))
    if special:
        letters[below(high(bits), SPACED) == 0] = ord(special)
    words = np.lib.stride_tricks.sliding_window_view(np.append(letters, letters[:3]), 4)
    return Pool(pa.py_buffer(letters), np.ascontiguousarray(words).view(np.int32).ravel())


def extra(pool: Pool, bits: Bits, used: int | Numbers, wanted: int) -> pa.Array:
    """Filling of a random length, so that a row of `used` bytes has about `wanted`, give or take a fifth."""
    missing = np.broadcast_to(np.maximum(wanted - np.asarray(used), 0), bits.shape)
    spread = (missing + 2) // 5
    length = missing - spread + below(low(bits), 2 * spread)
    return pool.pieces(high(bits), length)


def name(pool: Pool, bits: Bits, longest: int) -> pa.Array:
    """3 to `longest` − 1 characters, spaces at the ends trimmed."""
    return pc.utf8_trim_whitespace(pool.pieces(high(bits), 3 + below(low(bits), longest - 3)))
