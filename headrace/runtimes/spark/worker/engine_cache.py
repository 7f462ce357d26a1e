"""A cache of engines in a Python worker, from one micro-batch to the next.

Spark does not bind workers to shards. Another worker may have run the shard since, so a cached engine may be
behind the state store: it then reads the changes that it missed, and continues.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from headrace.engine import Engine

if TYPE_CHECKING:
    from headrace.runtimes.spark.worker.controlling import Following

MOST: Final = 64
"""The maximum number of engines in the cache; the least recently used one is dropped first."""


@dataclass
class CachedEngine:
    """An engine and the version of its state; `token` identifies the attempt that wrote that version.

    `following` is how it follows the control log, if there is one.
    """

    engine: Engine
    version: int
    token: str
    following: Following | None = None


_ENGINES: OrderedDict[tuple[str, int], CachedEngine] = OrderedDict()


def take(host: str, shard: int) -> CachedEngine | None:
    """Remove the engine of a shard from the cache: if it fails in this micro-batch, it is not used again."""
    return _ENGINES.pop((host, shard), None)


def keep(host: str, shard: int, cached: CachedEngine) -> None:
    """Put an engine back after its state is written."""
    _ENGINES[host, shard] = cached
    while len(_ENGINES) > MOST:
        _ENGINES.popitem(last=False)


# Garbage collection and freed memory in a long-running Python worker.
#
# Spark's workers collect garbage after each task. With the engine, Arrow and pandas in memory that takes
# about fifty milliseconds for each task of each micro-batch. And half of the time of a partial aggregate was
# page faults for memory that had just been returned to the system (`headrace.memory.budget`).


@cache
def freeze_worker_heap() -> None:
    """Exclude all objects that exist now from garbage collection; once per worker, after all imports."""
    from headrace.memory.budget import keep_freed_memory

    keep_freed_memory()
    gc.collect()
    gc.freeze()
