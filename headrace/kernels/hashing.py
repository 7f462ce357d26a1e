"""64-bit hashes of column values, and open-addressing tables from 64-bit keys.

Numba, because Arrow exposes no row hash and NumPy has no hash table: a probe here is one cache miss.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

EMPTY = -1
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
# Arrow's buffers are read-only; numba accepts a writable array as read-only, but not the reverse.
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)
_READ_U64 = nb.types.Array(nb.uint64, 1, "A", readonly=True)
_READ_U8 = nb.types.Array(nb.uint8, 1, "A", readonly=True)


@nb.njit(inline="always")
def _mix(x: np.uint64) -> np.uint64:
    """Mix the bits of a word (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_A
    x = (x ^ (x >> np.uint64(27))) * _MIX_B
    return x ^ (x >> np.uint64(31))


@kernel(nb.void(_READ_U64, nb.uint64[:]))
def fold_words(words: npt.NDArray[np.uint64], hashes: npt.NDArray[np.uint64]) -> None:
    """Fold one 64-bit word per row into the row hashes."""
    for i in range(words.size):
        hashes[i] = _mix(hashes[i] * _MULTIPLIER + words[i])


@kernel(nb.void(_READ_I64, _READ_U8, nb.uint64[:]))
def fold_bytes(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], hashes: npt.NDArray[np.uint64]
) -> None:
    """Fold one byte string per row, `data[offsets[i]:offsets[i + 1]]`, into the row hashes."""
    for i in range(offsets.size - 1):
        begin, stop = offsets[i], offsets[i + 1]
        h = hashes[i] * _MULTIPLIER + np.uint64(stop - begin)
        word = np.uint64(0)
        filled = 0
        for j in range(begin, stop):
            word = (word << np.uint64(8)) | np.uint64(data[j])
            filled += 1
            if filled == 8:
                h = _mix(h ^ word) * _MULTIPLIER
                word = np.uint64(0)
                filled = 0
        hashes[i] = _mix(h ^ word)


@nb.njit(inline="always")
def slot_of(key: np.int64, mask: np.int64) -> np.int64:
    """The home slot of a key in a table of `mask + 1` slots."""
    h = np.uint64(key) * _MULTIPLIER
    return np.int64((h ^ (h >> np.uint64(32))) & np.uint64(mask))


@kernel(
    nb.types.UniTuple(nb.int64, 2)(nb.int64[:, ::1], _READ_I64, nb.int64[:], nb.int64, nb.int64, nb.int64),
)
def find_or_add(
    table: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    begin: int,
    next_code: int,
    room: int,
) -> tuple[int, int]:
    """The code of each key; new keys get codes from `next_code` on. Returns how far it got, how many are new.

    `table` rows are (key, code), code EMPTY where free. Stops early when `room` new keys are in, so that
    the caller can grow the table and go on.
    """
    mask = table.shape[0] - 1
    added = 0
    for i in range(begin, keys.size):
        key = keys[i]
        slot = slot_of(key, mask)
        while True:
            code = table[slot, 1]
            if code == EMPTY:
                if added == room:
                    return i, added
                table[slot, 0] = key
                table[slot, 1] = next_code + added
                codes[i] = next_code + added
                added += 1
                break
            if table[slot, 0] == key:
                codes[i] = code
                break
            slot = (slot + 1) & mask
    return keys.size, added


@kernel(nb.void(nb.int64[:, ::1], _READ_I64, _READ_I64, nb.boolean[:]))
def insert_codes(
    table: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    clashed: npt.NDArray[np.bool_],
) -> None:
    """Put keys with given codes into a table that has room; mark keys that are already there."""
    mask = table.shape[0] - 1
    for i in range(keys.size):
        slot = slot_of(keys[i], mask)
        while table[slot, 1] != EMPTY and table[slot, 0] != keys[i]:
            slot = (slot + 1) & mask
        clashed[i] = table[slot, 1] != EMPTY
        if not clashed[i]:
            table[slot, 0] = keys[i]
            table[slot, 1] = codes[i]


@kernel(nb.void(nb.int64[:, ::1], _READ_I64, nb.int64[::1]))
def find(table: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]) -> None:
    """The code of each key, or EMPTY."""
    mask = table.shape[0] - 1
    for i in range(keys.size):
        slot = slot_of(keys[i], mask)
        while table[slot, 1] != EMPTY and table[slot, 0] != keys[i]:
            slot = (slot + 1) & mask
        codes[i] = table[slot, 1]


# Bloom filters over 64-bit words: at least twelve bits for each word, of which four are set.


_BITS = 12
_HASHES = 4
_BLOOM_A = np.uint64(0x9E3779B97F4A7C15)
_BLOOM_B = np.uint64(0xD6E8FEB86659FD93)


def new_filter(words: int) -> npt.NDArray[np.uint64]:
    """An empty set with room for this many words; about three in a thousand other words pass the test."""
    bits = max(64, 1 << (max(1, words) * _BITS - 1).bit_length())
    return np.zeros(bits // 64, np.uint64)


@nb.njit(inline="always")
def _scatter(word: np.int64) -> tuple[np.uint64, np.uint64]:
    """A position and an odd step: the bits of a word are at position, position + step, and so on."""
    low = np.uint64(word) * _BLOOM_A
    low ^= low >> np.uint64(32)
    high = (low * _BLOOM_B) ^ (low >> np.uint64(29))
    return low, high | np.uint64(1)


@kernel(nb.void(nb.uint64[::1], _READ_I64))
def add_words(bits: npt.NDArray[np.uint64], words: npt.NDArray[np.int64]) -> None:
    """Put words into the set."""
    mask = np.uint64(bits.size * 64 - 1)
    for i in range(words.size):
        at, step = _scatter(words[i])
        for _ in range(_HASHES):
            bit = at & mask
            bits[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
            at += step


@kernel(nb.void(nb.uint64[::1], _READ_I64, nb.boolean[::1]))
def may_have(
    bits: npt.NDArray[np.uint64], words: npt.NDArray[np.int64], found: npt.NDArray[np.bool_]
) -> None:
    """Which words may be in the set; the others are not."""
    mask = np.uint64(bits.size * 64 - 1)
    for i in range(words.size):
        at, step = _scatter(words[i])
        found[i] = True
        for _ in range(_HASHES):
            bit = at & mask
            if not (bits[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
                found[i] = False
                break
            at += step
