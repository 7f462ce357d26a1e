"""Shards: which shard a row belongs to, and keys for the shards that Spark distributes evenly."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.state.keys import hash_rows

_MASK = 0xFFFFFFFF
_EVENLY = 5040
"""Numbers of partitions that divide this get the same number of shards each: 1 to 10, 12, 14, 15, 16, ..."""


def shard_keys_for(shards: int, partitions: int | None = None, taken: Collection[int] = ()) -> list[int]:
    """One key per shard, chosen so that Spark's hash partitioning puts each into another of its partitions.

    Otherwise two shards might share a partition while a core is idle. Keys in `taken` belong to other hosts,
    and a host with few shards begins after theirs.
    """
    slots = shards if partitions is None else max(shards, partitions)
    keys: list[int] = []
    candidates: dict[int, int] = {}
    first = len(taken)
    candidate = 0
    while len(keys) < shards:
        wanted = (first + len(keys)) % slots
        while wanted not in candidates:
            if candidate not in taken:
                candidates.setdefault(_signed(_murmur3(candidate, 42)) % slots, candidate)
            candidate += 1
        keys.append(candidates[wanted])
    return keys


def shard_keys_for_any(shards: int, taken: Collection[int] = ()) -> list[int]:
    """One key per shard, which Spark distributes evenly among any common number of partitions.

    Its hash partitioning puts the key of shard i into partition i mod n, if n divides `_EVENLY`. Keys in
    `taken` belong to other hosts, and a host with few shards begins after theirs.
    """
    keys = list(islice(_keys_by_place(len(taken), {*taken}), shards))
    assert len(keys) == shards
    return keys


def _keys_by_place(first: int, taken: Collection[int]) -> Iterator[int]:
    """For each place from `first` on, the smallest free key that has it."""
    used, size = set(taken), 1 << 16
    while True:
        places = _murmur3_of(np.arange(size, dtype=np.uint32)) % _EVENLY
        at = (first + len(used) - len(taken)) % _EVENLY
        free = (int(key) for key in np.flatnonzero(places == at))
        found = next((key for key in free if key not in used), None)
        if found is None:
            size *= 2
            continue
        used.add(found)
        yield found


def _murmur3_of(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """`_murmur3` of many values with Spark's seed, signed."""
    k = _rotated(values * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    h = _rotated(np.uint32(42) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)
    h = (h ^ h >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    h = (h ^ h >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return (h ^ h >> np.uint32(16)).view(np.int32).astype(np.int64)


def _rotated(x: npt.NDArray[np.uint32], r: int) -> npt.NDArray[np.uint32]:
    return x << np.uint32(r) | x >> np.uint32(32 - r)


def _murmur3(value: int, seed: int) -> int:
    """Spark's hash of an int column: Murmur3 x86 32 of four bytes."""
    k = value * 0xCC9E2D51 & _MASK
    k = _rotl(k, 15) * 0x1B873593 & _MASK
    h = _rotl(seed ^ k, 13) * 5 + 0xE6546B64 & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _rotl(x: int, r: int) -> int:
    return (x << r | x >> 32 - r) & _MASK


def _signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def shard_of(keys: list[pa.Array], rows: int, shards: int) -> npt.NDArray[np.intp]:
    """The shard of each row. Equal keys have the same shard in every process."""
    if shards == 1 or not keys:
        return np.zeros(rows, np.intp)
    high = hash_rows(keys, rows).view(np.uint64) >> np.uint64(33)
    return (high % np.uint64(shards)).astype(np.intp)


def split(batch_rows: npt.NDArray[np.intp], shards: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """An order that puts the rows of each shard next to each other, and where each shard begins and ends."""
    small = batch_rows.astype(np.uint16 if shards > 256 else np.uint8)
    order = np.argsort(small, kind="stable")
    ends = np.cumsum(np.bincount(batch_rows, minlength=shards))
    return order, np.concatenate(([0], ends))
