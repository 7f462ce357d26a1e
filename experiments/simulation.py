"""The real engine on a simulated clock: time passes by the CPU time its steps take, and gaps are skipped.

Rows arrive at given instants, also while an operator runs: what is due is pushed after the step. The clock
counts nanoseconds, which are the ticks of the streams. Every row carries the instant at which it arrived, so
the latency of an answer is the instant at which the last operator gave it minus that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from experiments.arrivals import Instants
from experiments.result import Conditions
from headrace.engine import Engine
from headrace.flow.batch import Batch
from headrace.graph.node import Node
from headrace.time.timestamp import MAX_TIME

ARRIVED = "arrived"
SCHEMA = pa.schema([("v", pa.int64()), (ARRIVED, pa.int64())])


class Clock(Protocol):
    """Nanoseconds since the beginning of a run."""

    now: int

    def charge(self, step: bool = False) -> None:
        """Let pass what was worked since the last charge or excuse; `step`: an operator has run."""
        ...

    def excuse(self) -> None:
        """What was done since the last charge was measuring, and costs nothing."""
        ...

    def skip_to(self, instant: int) -> None:
        """Nothing happens until `instant`."""
        ...


class CpuClock:
    """Advances by the CPU time of this thread."""

    def __init__(self) -> None:
        self.now = 0
        self._mark = time.thread_time_ns()

    def charge(self, step: bool = False) -> None:
        used = time.thread_time_ns()
        self.now += used - self._mark
        self._mark = used

    def excuse(self) -> None:
        self._mark = time.thread_time_ns()

    def skip_to(self, instant: int) -> None:
        self.now = max(self.now, instant)
        self._mark = time.thread_time_ns()


class FixedClock:
    """Every step of an operator costs the same, and nothing else costs: the same on every machine."""

    def __init__(self, service: int) -> None:
        self.now = 0
        self._service = service

    def charge(self, step: bool = False) -> None:
        self.now += self._service * step

    def excuse(self) -> None:
        return None

    def skip_to(self, instant: int) -> None:
        self.now = max(self.now, instant)


class WallClock:
    """Real time: gaps are waited for, and measuring costs what it costs."""

    def __init__(self) -> None:
        self._origin = time.perf_counter_ns()
        self.now = 0

    def charge(self, step: bool = False) -> None:
        self.now = time.perf_counter_ns() - self._origin

    def excuse(self) -> None:
        return None

    def skip_to(self, instant: int) -> None:
        while (left := instant - (time.perf_counter_ns() - self._origin)) > 0:
            time.sleep(max(0.0, left / 1e9 - 5e-5))
        self.charge()


def clock_for(conditions: Conditions) -> Clock:
    """The clock that the conditions ask for."""
    if conditions.service is not None:
        return FixedClock(conditions.service)
    return WallClock() if conditions.real else CpuClock()


@dataclass
class Watch:
    """How long an operator idle-waits: holds rows and cannot go on. Ends when it is run and can."""

    node: Node
    waited: int = 0
    _since: int | None = None

    def look(self, now: int) -> None:
        """The state of the operator after a step, or before it runs."""
        waits = not self.node.operator.more and any(r.rows for r in self.node.operator.inputs)
        if waits and self._since is None:
            self._since = now
        elif not waits:
            self.stop(now)

    def stop(self, now: int) -> None:
        """Close a wait that is open."""
        if self._since is not None:
            self.waited += now - self._since
            self._since = None


@dataclass
class Trace:
    """What a run showed: for each answer its instant and its row's arrival, waiting, queues and work."""

    given: list[npt.NDArray[np.int64]] = field(default_factory=list)
    arrived: list[npt.NDArray[np.int64]] = field(default_factory=list)
    peak: int = 0
    ended: int = 0
    waited: int = 0
    steps: int = 0
    step_ns: int = 0
    answers: list[Batch] = field(default_factory=list)

    @property
    def latency_ms(self) -> npt.NDArray[np.float64]:
        """Milliseconds from arrival to answer, of each answer."""
        if not self.given:
            return np.zeros(0)
        return (np.concatenate(self.given) - np.concatenate(self.arrived)) / 1e6

    @property
    def mean_ms(self) -> float:
        """The average output latency."""
        return float(self.latency_ms.mean()) if self.given else float("nan")

    @property
    def instants(self) -> npt.NDArray[np.int64]:
        """When each answer was given."""
        return np.concatenate(self.given) if self.given else np.zeros(0, np.int64)

    @property
    def waiting_share(self) -> float:
        """The share of all time that the watched operator idle-waited."""
        return self.waited / self.ended if self.ended else 0.0

    @property
    def mean_step_ns(self) -> float:
        """The cost of one step of an operator."""
        return self.step_ns / self.steps if self.steps else 0.0


class Simulation:
    """An engine, its streams' arrivals, and a clock. `measure_queues` counts what all buffers hold."""

    def __init__(
        self,
        engine: Engine,
        arrivals: Mapping[str, Instants],
        conditions: Conditions,
        *,
        watch: Node | None = None,
        measure_queues: bool = False,
        keep_answers: bool = False,
        seed: int = 7,
    ) -> None:
        self.engine = engine
        self.clock = clock_for(conditions)
        self.trace = Trace()
        self._watch = None if watch is None else Watch(watch)
        self._measure_queues = measure_queues
        self._keep = keep_answers
        self._names = list(arrivals)
        self._instants, self._streams = _timeline(list(arrivals.values()))
        self._rows = _rows(self._instants, np.random.default_rng(seed))
        self._next = 0
        interval = min((s.policy.interval for s in engine.graph.sources.values()), default=MAX_TIME)
        self._interval, self._next_tick = interval, interval
        self._sinks = [(s.arc, s.arc.reader()) for s in engine.graph.sinks.values()]
        for node in engine.graph.nodes:
            node.operator.execute = self._timed(node)  # type: ignore[method-assign,assignment]

    def run(self) -> Trace:
        """Until the last row has arrived and all that can be answered is."""
        with _no_collection():
            self.clock.skip_to(0)
            while self._next < len(self._instants):
                self.clock.skip_to(min(int(self._instants[self._next]), self._next_tick))
                self._settle()
                self._due()
                self.engine.drain()
                self.clock.charge()
        trace = self.trace
        trace.ended = self.clock.now
        if self._watch is not None:
            self._watch.stop(trace.ended)
            trace.waited = self._watch.waited
        return trace

    def _timed(self, node: Node) -> Callable[[int], int]:
        execute = node.operator.execute
        last = any(arc is node.operator.output for arc, _ in self._sinks)

        def timed(limit: int) -> int:
            self.clock.charge()
            self._before()
            began = self.clock.now
            taken = execute(limit)
            self.clock.charge(step=True)
            self.trace.steps += 1
            self.trace.step_ns += self.clock.now - began
            self._after(last)
            self._due()
            return taken

        return timed

    def _before(self) -> None:
        if self._watch is not None:
            self._watch.look(self.clock.now)
        self._settle()

    def _after(self, last: bool) -> None:
        if last:
            self._take_answers()
        if self._watch is not None:
            self._watch.look(self.clock.now)
        self._count()
        self._settle()

    def _settle(self) -> None:
        self.engine.now = max(self.engine.now, self.clock.now)
        self.clock.excuse()

    def _count(self) -> None:
        if self._measure_queues:
            self.trace.peak = max(self.trace.peak, self.engine.metrics().held_items)

    def _take_answers(self) -> None:
        for _, reader in self._sinks:
            while (item := reader.take(MAX_TIME)) is not None:
                if isinstance(item, Batch):
                    self.trace.given.append(np.full(len(item), self.clock.now))
                    self.trace.arrived.append(item.data.column(ARRIVED).to_numpy())
                    if self._keep:
                        self.trace.answers.append(item)

    def _due(self) -> None:
        """Push what has arrived by now, and let the sources make their periodic ETS."""
        while self._next < len(self._instants) and self._instants[self._next] <= self.clock.now:
            row = self._rows.slice(self._next, 1)
            name = self._names[self._streams[self._next]]
            self._next += 1
            self.engine.now += 1
            self.clock.excuse()
            self.engine.push(name, row)
            self.clock.charge()
            self._count()
            self._settle()
        if self.clock.now >= self._next_tick:
            self._tick()

    def _tick(self) -> None:
        for source in self.engine.graph.sources.values():
            source.tick(self.engine.now)
        self.clock.charge()
        self._next_tick += self._interval
        self._count()
        self._settle()


def _timeline(arrivals: list[Instants]) -> tuple[Instants, npt.NDArray[np.int64]]:
    instants = np.concatenate(arrivals)
    streams = np.repeat(np.arange(len(arrivals)), [len(a) for a in arrivals])
    order = np.argsort(instants, kind="stable")
    return instants[order], streams[order]


def _rows(instants: Instants, rng: np.random.Generator) -> pa.RecordBatch:
    values = rng.integers(0, 100, len(instants))
    return pa.RecordBatch.from_arrays([pa.array(values), pa.array(instants)], schema=SCHEMA)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the garbage collector, whose pauses belong to nobody."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
