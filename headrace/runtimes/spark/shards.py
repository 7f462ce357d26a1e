"""Shards: which rows go together, and which numbers Spark spreads evenly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.keys import hash_rows

_MASK = 0xFFFFFFFF


def names_for(shards: int) -> list[int]:
    """One number per shard such that Spark's hash partitioning puts shard i into partition i of `shards`.

    Otherwise two shards may meet in one partition while a core idles.
    """
    names: dict[int, int] = {}
    candidate = 0
    while len(names) < shards:
        names.setdefault(_signed(_murmur3(candidate, 42)) % shards, candidate)
        candidate += 1
    return [names[i] for i in range(shards)]


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
    """The shard of each row: equal keys, equal shards, in every process."""
    if shards == 1 or not keys:
        return np.zeros(rows, np.intp)
    high = hash_rows(keys, rows).view(np.uint64) >> np.uint64(33)
    return (high % np.uint64(shards)).astype(np.intp)


def split(batch_rows: npt.NDArray[np.intp], shards: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The order that brings the rows of each shard together, and where each shard begins and ends."""
    small = batch_rows.astype(np.uint16 if shards > 256 else np.uint8)
    order = np.argsort(small, kind="stable")
    ends = np.cumsum(np.bincount(batch_rows, minlength=shards))
    return order, np.concatenate(([0], ends))
