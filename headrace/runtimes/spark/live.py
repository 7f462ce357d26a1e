"""Engines that stay alive in a Python worker from one micro-batch to the next.

Spark's workers are not bound to shards, so an engine that comes back here may have been overtaken by its
twin in another worker: it then reads what was written since, and goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from headrace.engine import Engine

MOST: Final = 64
"""Engines a worker keeps; the one that was used longest ago leaves first."""


@dataclass
class Live:
    """An engine and the state that it is at: `token` names the very attempt that wrote version `version`."""

    engine: Engine
    version: int
    token: str


_LIVE: OrderedDict[tuple[str, int], Live] = OrderedDict()


def take(host: str, shard: int) -> Live | None:
    """The engine of a shard, which leaves the cache: one that fails in mid-batch must not be found again."""
    return _LIVE.pop((host, shard), None)


def keep(host: str, shard: int, live: Live) -> None:
    """Put an engine back when its state is written."""
    _LIVE[host, shard] = live
    while len(_LIVE) > MOST:
        _LIVE.popitem(last=False)
