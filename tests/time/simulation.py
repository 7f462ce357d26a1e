"""Sources that keep given bounds, a network that keeps its latencies, and Figure 2 written down naively."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from headrace.time.bounds import Bounds
from headrace.time.skew import Pair, SkewMatrix
from headrace.time.timestamp import MIN_TIME


@dataclass(frozen=True)
class Arrivals:
    """Arrivals in order: stream, time, clock."""

    streams: np.ndarray[Any, np.dtype[np.int64]]
    times: np.ndarray[Any, np.dtype[np.int64]]
    clocks: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.streams)

    def rows(self) -> list[tuple[int, int, int]]:
        return list(zip(self.streams.tolist(), self.times.tolist(), self.clocks.tolist(), strict=True))


def emit(bounds: Bounds, rng: np.random.Generator, count: int) -> Arrivals:
    """Random emissions, each as early a time as the (closed) bounds allow or later, then random latency.

    A pair (t, n, δ) of i on j binds a tuple that j emits after c + t (with t = 0: after c, or after the tuple
    of i itself when tuples are counted, or when the channel of i = j keeps their order) once j has emitted n
    tuples since then.
    """
    n = bounds.skew.size
    entries = [[bounds.skew.entry(i, j) for j in range(n)] for i in range(n)]
    emitted: list[tuple[int, int, int]] = []
    clock = 0
    for _ in range(count):
        clock += int(rng.integers(0, 4))
        j = int(rng.integers(0, n))
        floor = _floor(entries, emitted, j, clock, bounds.fifo)
        wish = clock * 2 + int(rng.integers(-30, 10))
        emitted.append((j, max(floor + 1, wish), clock))
    return _deliver(bounds, emitted, rng)


def _floor(
    entries: list[list[tuple[Pair, ...]]],
    emitted: list[tuple[int, int, int]],
    j: int,
    now: int,
    fifo: frozenset[int],
) -> int:
    floor = -(10**6)
    for at, (i, time, c) in enumerate(emitted):
        for pair in entries[i][j]:
            since = emitted[at + 1 :] if pair.t == 0 else [e for e in emitted if e[2] > c + pair.t]
            counted = sum(1 for e in since if e[0] == j)
            follows = pair.n > 0 or (i == j and j in fifo)
            after = now > c + pair.t or (follows and pair.t == 0)
            if after and counted >= pair.n:
                floor = max(floor, time - pair.delta)
    return floor


def _deliver(bounds: Bounds, emitted: list[tuple[int, int, int]], rng: np.random.Generator) -> Arrivals:
    """Order by arrival; what arrives at one instant keeps its order of emission."""
    last = [-(10**6)] * bounds.skew.size
    arrived = []
    for k, (j, _, c) in enumerate(emitted):
        at = c + int(rng.integers(0, bounds.latency[j] + 1))
        last[j] = max(last[j], at) if j in bounds.fifo else at
        arrived.append((last[j], k))
    order = [k for _, k in sorted(arrived)]
    clock = {k: a for a, k in arrived}
    columns = [(emitted[k][0], emitted[k][1], clock[k]) for k in order]
    streams, times, clocks = np.array(columns, dtype=np.int64).reshape(-1, 3).T
    return Arrivals(streams, times, clocks)


class Figure2:
    """Srivastava & Widom, Figure 2, line by line: an array per stream, written into the future.

    Tuple-based pairs by their definition, for a DSMS that sees arrivals: once n tuples of j have arrived of
    which each was surely emitted after the tuple of i (later than t + L_j after its arrival), what j emits
    next is bound; what it had emitted by then has arrived L_j later.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.n = bounds.skew.size
        self.entries = [[bounds.skew.entry(i, j) for j in range(self.n)] for i in range(self.n)]
        self.tau: list[dict[int, int]] = [defaultdict(lambda: MIN_TIME) for _ in range(self.n)]
        self.log: list[tuple[int, int, int]] = []

    def arrive(self, i: int, time: int, c: int) -> None:
        self._timeout(c - 1)
        for j in range(self.n):
            for pair in self.entries[i][j]:
                if not pair.n:
                    at_once = i == j and pair.t == 0 and j in self.bounds.fifo
                    self._set(j, c + (0 if at_once else pair.t + self.bounds.latency[j]), time - pair.delta)
        self.log.append((i, time, c))
        self._count(i, c)

    def _count(self, j: int, now: int) -> None:
        latency = self.bounds.latency[j]
        for at, (i, time, c) in enumerate(self.log):
            for pair in self.entries[i][j]:
                wait = pair.t + latency
                since = self.log[at + 1 :] if wait == 0 else [e for e in self.log if e[2] > c + wait]
                if pair.n and sum(1 for e in since if e[0] == j) >= pair.n:
                    self._set(j, now + latency, time - pair.delta)

    def _set(self, j: int, at: int, value: int) -> None:
        self.tau[j][at] = max(self.tau[j][at], value)

    def _timeout(self, now: int) -> None:
        if self.log and self.bounds.timeout is not None and now >= self.log[-1][2] + self.bounds.timeout:
            newest = max(time for _, time, _ in self.log)
            for j in range(self.n):
                self._set(j, self.log[-1][2] + self.bounds.timeout, newest)

    def heartbeats(self, now: int) -> list[int]:
        self._timeout(now)
        return [max((v for c, v in tau.items() if c <= now), default=MIN_TIME) for tau in self.tau]


pairs = st.builds(Pair, st.integers(0, 6), st.integers(0, 12))
counted_pairs = st.builds(Pair.tuples, st.integers(1, 3), st.integers(0, 8))


@st.composite
def bounds(draw: st.DrawFn, counted: bool = True, size: int = 4, timeout: int = 10**6) -> Bounds:
    """Random bounds over up to `size` streams, some entries empty, some sets, closed or not."""
    n = draw(st.integers(1, size))
    names = [f"s{k}" for k in range(n)]
    kinds = st.one_of(pairs, counted_pairs) if counted else pairs
    entry = st.lists(kinds, max_size=3)
    skew = SkewMatrix.of(names, {(a, b): draw(entry) for a in names for b in names})
    latency = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    fifo = draw(st.frozensets(st.integers(0, n - 1)))
    return replace(Bounds.of(skew, latency, timeout), fifo=fifo)


seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)
