"""Shards: which shard a row belongs to, and keys for the shards that Spark distributes evenly."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.state.keys import hash_rows

_MASK = 0xFFFFFFFF


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
