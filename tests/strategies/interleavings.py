"""In which order the rows of several streams may be pushed: a stream's own order kept, all else free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.schema import Schema
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Push = tuple[Literal["push"], str, Batch]
Advance = tuple[Literal["advance"], int]
End = tuple[Literal["end"], str]
Step = Push | Advance | End

Choose = Callable[[int], int]
"""Chooses one of n possibilities, as a number in 0 … n − 1; 0 is the simplest."""

AFTERWARDS = 30
"""How far the clock may run on when all rows are pushed and a stream has not ended yet."""


def at_random(rng: np.random.Generator) -> Choose:
    """Every possibility alike."""
    return lambda n: int(rng.integers(n))


def batch_of(rows: Sequence[tuple[int, Mapping[str, Any]]], schema: Schema) -> Batch:
    """Rows with times, in order of time, as a batch of a stream."""
    data = pa.RecordBatch.from_pylist([dict(row) for _, row in rows], schema=schema)
    return Batch(data, np.array([time for time, _ in rows], np.int64))


def interleavings(streams: Mapping[str, Batch], choose: Choose, *, lag: int = 0) -> list[Step]:
    """Cut each stream into batches, push these in some order, advance the clock now and then, end streams.

    The first step sets the clock. After `("advance", now)` only rows with a time > now − `lag` follow, so
    that a clock may vouch for streams that are `lag` ticks late. A stream ends some time after its last row.
    """
    rest = dict(streams)
    last = max((batch.last for batch in rest.values() if len(batch)), default=0)
    now = min(_first(rest), last) - 1
    steps: list[Step] = [("advance", now)]
    while rest:
        vouched = min(_first(rest) - 1, last + AFTERWARDS) + lag
        choice = choose(len(rest) + (vouched > now))
        if choice == len(rest):
            now = vouched
            steps.append(("advance", now))
        else:
            steps.append(_next_of(list(rest)[choice], rest, choose))
    return steps


def _next_of(name: str, rest: dict[str, Batch], choose: Choose) -> Step:
    """Push the next rows of a stream, all that are left if 0 is chosen, or end it."""
    batch = rest[name]
    if not len(batch):
        del rest[name]
        return ("end", name)
    cut = len(batch) - choose(len(batch))
    rest[name] = batch.slice(cut, len(batch))
    return ("push", name, batch.slice(0, cut))


def _first(streams: Mapping[str, Batch]) -> int:
    return min((batch.first for batch in streams.values() if len(batch)), default=MAX_TIME)


def skew_needed(steps: Sequence[Step]) -> int:
    """The least δ for which t + (now − arrival of t) − δ, t the latest time, is always a heartbeat."""
    now, needed = MIN_TIME, 0
    seen: dict[str, int] = {}
    best: dict[str, int] = {}
    for step in steps:
        if step[0] == "advance":
            now = step[1]
            best = {name: max(best[name], now - offset) for name, offset in seen.items()}
        elif step[0] == "push":
            _, name, batch = step
            needed = max(needed, best.get(name, MIN_TIME) - batch.first + 1)
            seen[name] = now - batch.last
            best[name] = max(best.get(name, MIN_TIME), batch.last)
    return needed
