"""Explains a heartbeat: the evidence behind it, and what would raise it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.arrays import Ints
from headrace.time.bounds import Bounds
from headrace.time.skew import Pair
from headrace.time.staircases import Staircases
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus


@dataclass(frozen=True)
class Evidence:
    """A pair of `source` on the stream: what it proves now, and what it will prove next without arrivals."""

    source: str
    pair: Pair
    proves: int
    seen: int
    since: int
    next_at: int | None
    next_proves: int | None


@dataclass(frozen=True)
class Holding:
    """The heartbeat of a stream, the evidence behind it, and everything else that could raise it.

    `holder` is None while there is no evidence, or if a timeout or the source's own heartbeat proved more
    than any pair. `unbounded` names the streams whose tuples can never raise this heartbeat.
    """

    stream: str
    now: int
    heartbeat: int
    last_arrival: int
    holder: Evidence | None
    evidence: tuple[Evidence, ...]
    unbounded: tuple[str, ...]
    next_at: int | None
    next_proves: int | None

    def __str__(self) -> str:
        if self.heartbeat == MIN_TIME:
            said = f"stream {self.stream!r} promises nothing yet"
        else:
            said = f"stream {self.stream!r} promises nothing more up to {self.heartbeat}"
        because = f", proved by {self.holder.source!r} with {self.holder.pair}" if self.holder else ""
        silent = (
            f"; it last spoke at {self.last_arrival}" if self.last_arrival != MIN_TIME else "; it never spoke"
        )
        then = f"; at {self.next_at} it rises to {self.next_proves}" if self.next_at is not None else ""
        blind = f"; {', '.join(self.unbounded)} cannot move it along" if self.unbounded else ""
        return said + because + silent + then + blind


def explain(bounds: Bounds, steps: Staircases, stream: int, now: int) -> Holding:
    """What holds `stream` back at `now`; `steps` must be matured to `now`."""
    heartbeat = int(steps.promise[stream])
    evidence = sorted(_evidence(bounds, steps, stream, now), key=lambda e: -e.proves)
    holder = evidence[0] if evidence and evidence[0].proves == heartbeat > MIN_TIME else None
    next_at, next_proves = _next(bounds, steps, evidence, heartbeat)
    tightest = bounds.skew.tightest()[:, stream]
    return Holding(
        bounds.streams[stream],
        now,
        heartbeat,
        int(steps.spoken[stream]),
        holder,
        tuple(evidence),
        tuple(bounds.streams[i] for i in np.flatnonzero(tightest < 0)),
        next_at,
        next_proves,
    )


def _evidence(bounds: Bounds, steps: Staircases, stream: int, now: int) -> list[Evidence]:
    """One item per time-based pair on `stream` whose source has had arrivals."""
    heartbeat, latency = int(steps.promise[stream]), bounds.latency[stream]
    found = []
    for i in np.flatnonzero(steps.top[: len(bounds.streams)] != MIN_TIME):
        clocks, values = _stairs(steps, int(i))
        for pair in bounds.skew.entry(int(i), stream):
            if not pair.n:
                found.append(
                    _weigh(
                        bounds.streams[i],
                        pair,
                        0 if i == stream and stream in bounds.fifo and pair.t == 0 else pair.t + latency,
                        clocks,
                        values,
                        heartbeat,
                        steps,
                        int(i),
                        now,
                    )
                )
    return found


def _weigh(
    name: str,
    pair: Pair,
    delay: int,
    clocks: Ints,
    values: Ints,
    heartbeat: int,
    steps: Staircases,
    i: int,
    now: int,
) -> Evidence:
    """What a pair proves now, and when it will next prove more than the heartbeat."""
    due = int(np.searchsorted(clocks, max(MIN_TIME, now - delay), side="right"))
    proves = plus(int(values[due - 1]), -pair.delta) if due else MIN_TIME
    coming = [
        (plus(int(c), delay), plus(int(v), -pair.delta))
        for c, v in zip(clocks[due:], values[due:], strict=True)
    ]
    at, value = next(((c, v) for c, v in coming if v > heartbeat), (None, None))
    return Evidence(name, pair, proves, int(steps.top[i]), int(steps.spoken[i]), at, value)


def _stairs(steps: Staircases, row: int) -> tuple[Ints, Ints]:
    """The steps of one row: the clocks at which the greatest time rose, and to what."""
    at = np.arange(steps.head[row], steps.tail[row]) & (steps.clock.shape[1] - 1)
    return steps.clock[row, at], steps.value[row, at]


def _next(
    bounds: Bounds, steps: Staircases, evidence: list[Evidence], heartbeat: int
) -> tuple[int | None, int | None]:
    """The next rise, by a pair or by the timeout."""
    coming = [
        (e.next_at, e.next_proves) for e in evidence if e.next_at is not None and e.next_proves is not None
    ]
    timeout = MAX_TIME if bounds.timeout is None else bounds.timeout
    if timeout != MAX_TIME and heartbeat < steps.newest:
        coming.append((plus(steps.last, timeout), steps.newest))
    first = min(coming, key=lambda c: (c[0], -c[1]), default=None)
    return first if first is not None else (None, None)
