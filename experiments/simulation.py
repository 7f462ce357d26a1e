"""The real engine on a simulated clock: time passes by the CPU time its steps take, and gaps are skipped.

Rows arrive at given instants, also while an operator runs: what is due is pushed after the step. The engine
is told the time as its runtimes tell it, when rows or a tick of its timer come, and not while it runs. The
clock counts nanoseconds, which are the ticks of the streams. Every row carries the instant at which it
arrived; the latency of an answer is the instant at which the last operator gave it minus that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
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
Gauge = Callable[[Engine], int]
Feed = Callable[[Engine, str, int], None]
SCHEMA = pa.schema([("v", pa.int64()), (ARRIVED, pa.int64())])


class Clock(Protocol):
    """Nanoseconds since the beginning of a run."""

    now: int

    def start(self) -> None:
        """The run begins now, however long ago it was prepared."""
        ...

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
        self.start()

    def start(self) -> None:
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

    def start(self) -> None:
        return None

    def charge(self, step: bool = False) -> None:
        self.now += self._service * step

    def excuse(self) -> None:
        return None

    def skip_to(self, instant: int) -> None:
        self.now = max(self.now, instant)


class WallClock:
    """Real time: gaps are waited for, and measuring costs what it costs."""

    def __init__(self) -> None:
        self.now = 0
        self.start()

    def start(self) -> None:
        self._origin = time.perf_counter_ns()

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
    """How long an operator is blocked: from a run after which it holds rows and cannot go on until it can."""

    node: Node
    blocked: int = 0
    _since: int | None = None

    def before(self, now: int) -> None:
        """The operator is about to run."""
        if self._since is not None and self.node.operator.more:
            self.stop(now)

    def after(self, now: int) -> None:
        """The operator has run."""
        operator = self.node.operator
        if self._since is None and not operator.more and any(r.rows for r in operator.inputs):
            self._since = now

    def stop(self, now: int) -> None:
        """Close a wait that is open."""
        if self._since is not None:
            self.blocked += now - self._since
            self._since = None


@dataclass
class Trace:
    """What a run showed: for each answer its instant and its row's arrival, waiting, queues and work.

    `waited` is the engine's own account of the watched operator (`Engine.metrics`): it holds rows and
    nothing is left to run. `blocked` also counts the work that is done to make it go on.
    """

    given: list[npt.NDArray[np.int64]] = field(default_factory=list)
    released: list[npt.NDArray[np.int64]] = field(default_factory=list)
    values: list[npt.NDArray[np.int64]] = field(default_factory=list)
    arrived: list[npt.NDArray[np.int64]] = field(default_factory=list)
    sinks: list[npt.NDArray[np.int64]] = field(default_factory=list)
    peak: int = 0
    ended: int = 0
    waited: int = 0
    blocked: int = 0
    rows: int = 0
    busy: int = 0

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
    def release_ms(self) -> float:
        """Average time from the arrival that made an answer provable to the answer."""
        return float(np.concatenate(self.released).mean()) / 1e6 if self.released else float("nan")

    @property
    def instants(self) -> npt.NDArray[np.int64]:
        """When each answer was given."""
        return np.concatenate(self.given) if self.given else np.zeros(0, np.int64)

    @property
    def sink(self) -> npt.NDArray[np.int64]:
        """The number of the query of each answer."""
        return np.concatenate(self.sinks) if self.sinks else np.zeros(0, np.int64)

    @property
    def value(self) -> npt.NDArray[np.int64]:
        """The column `v` of each answer."""
        return np.concatenate(self.values) if self.values else np.zeros(0, np.int64)

    @property
    def waiting_share(self) -> float:
        """The share of all time that the watched operator idle-waited."""
        return self.waited / self.ended if self.ended else 0.0

    @property
    def blocked_share(self) -> float:
        """The same, counting the scheduler's and the source's work as waiting."""
        return self.blocked / self.ended if self.ended else 0.0

    @property
    def row_ms(self) -> float:
        """Milliseconds of work per row that came in."""
        return self.busy / self.rows / 1e6


def held_items(engine: Engine) -> int:
    """Rows and punctuations in all buffers but those of the sinks."""
    arcs = [s.arc for s in engine.graph.sources.values()] + [n.operator.output for n in engine.graph.nodes]
    sinks = {id(sink.arc) for sink in engine.graph.sinks.values()}
    return sum(arc.held_items() for arc in arcs if id(arc) not in sinks)


class Simulation:
    """An engine, its streams' arrivals, and a clock.

    The peak of `gauge` is kept; it is read after each step of an operator, each arrival and each tick, or
    only after every `gauge_each` of the arrivals is worked off. `feed` puts a row of a stream into the
    engine, by its number in the stream; without it, rows of `SCHEMA` are pushed. `wrappers`: rows are put
    into the buffers of their sources by another process, as in Stream Mill, at no cost to the engine.
    """

    def __init__(
        self,
        engine: Engine,
        arrivals: Mapping[str, Instants],
        conditions: Conditions,
        *,
        watch: Node | None = None,
        gauge: Gauge | None = None,
        gauge_each: int = 0,
        feed: Feed | None = None,
        wrappers: bool = False,
        seed: int = 7,
    ) -> None:
        self.engine = engine
        self.clock = clock_for(conditions)
        self.trace = Trace()
        self._watch = None if watch is None else Watch(watch)
        self._gauge = gauge
        self._gauge_each = gauge_each
        self._wrappers = wrappers
        self._names = list(arrivals)
        self._instants, self._streams = _timeline(list(arrivals.values()))
        self._feed = feed or _rows(arrivals, np.random.default_rng(seed))
        self._fed = dict.fromkeys(arrivals, 0)
        self._next, self._began = 0, 0
        interval = min((s.policy.interval for s in engine.graph.sources.values()), default=MAX_TIME)
        self._interval, self._next_tick = interval, interval
        self._sinks = [(s.arc, s.arc.reader()) for s in engine.graph.sinks.values()]
        for node in engine.graph.nodes:
            node.operator.execute = self._timed(node)  # type: ignore[method-assign,assignment]

    def run(self) -> Trace:
        """Until the last row has arrived and all that can be answered is."""
        with _no_collection():
            for _ in self.events():
                pass
        return self.end()

    def events(self) -> Iterator[None]:
        """One arrival or tick after the other, with all that it sets off."""
        self.clock.start()
        while self._next < len(self._instants):
            self.clock.skip_to(min(int(self._instants[self._next]), self._next_tick))
            began = self._began = self.clock.now
            self._due()
            if self.engine.scheduling.level == "memory":  # labels follow what was measured, at each advance
                self.engine.advance(self.engine.now)
            self.engine.drain_all()
            self.clock.charge()
            self.trace.busy += self.clock.now - began
            if self._gauge is not None and self._gauge_each and self._next % self._gauge_each == 0:
                self.trace.peak = max(self.trace.peak, self._gauge(self.engine))
            yield

    @property
    def progress(self) -> float:
        """The share of all rows that have arrived."""
        return self._next / max(1, len(self._instants))

    def end(self) -> Trace:
        """What the run showed."""
        trace = self.trace
        trace.ended, trace.rows = self.clock.now, len(self._instants)
        if self._watch is not None:
            self._watch.stop(trace.ended)
            trace.blocked = self._watch.blocked
            trace.waited = self.engine.metrics().nodes[self._watch.node.name].waited
        return trace

    def _timed(self, node: Node) -> Callable[[int], int]:
        execute = node.operator.execute
        last = any(arc is node.operator.output for arc, _ in self._sinks)
        watch = self._watch if self._watch is not None and self._watch.node is node else None

        def timed(limit: int) -> int:
            self.clock.charge()
            if watch is not None:
                watch.before(self.clock.now)
                self.clock.excuse()
            taken = execute(limit)
            self.clock.charge(step=True)
            if watch is not None:
                watch.after(self.clock.now)
            if last:
                self._take_answers()
            self._count()
            self._due()
            return taken

        return timed

    def _count(self) -> None:
        if self._gauge is not None and not self._gauge_each:
            self.trace.peak = max(self.trace.peak, self._gauge(self.engine))

    def _take_answers(self) -> None:
        for number, (_, reader) in enumerate(self._sinks):
            while (item := reader.take(MAX_TIME)) is not None:
                if isinstance(item, Batch):
                    self.trace.given.append(np.full(len(item), self.clock.now))
                    self.trace.released.append(np.full(len(item), self.clock.now - self._began))
                    self.trace.arrived.append(_arrived(item))
                    self.trace.values.append(_values(item))
                    self.trace.sinks.append(np.full(len(item), number))

    def _due(self) -> None:
        """Push what has arrived by now, and let the sources make their periodic ETS."""
        while self._next < len(self._instants) and self._instants[self._next] <= self.clock.now:
            name = self._names[self._streams[self._next]]
            self._next += 1
            self._tell_time()
            self.clock.excuse()
            self._feed(self.engine, name, self._fed[name])
            if not self._wrappers:
                self.clock.charge()
            self._fed[name] += 1
            self._count()
        if self.clock.now >= self._next_tick:
            self._tick()
        self.clock.excuse()

    def _tell_time(self) -> None:
        """Later than ever before, so that no two rows have the same time."""
        self.engine.streams.set_clock(max(self.engine.now + 1, self.clock.now))

    def _tick(self) -> None:
        self._tell_time()
        self.clock.excuse()
        for source in self.engine.graph.sources.values():
            source.tick(self.engine.now)
        self.clock.charge()
        self._next_tick += self._interval
        self._count()


def run_together(simulations: list[Simulation]) -> list[Trace]:
    """Runs that are to be compared, event by event in turn, so that a noisy machine disturbs them alike."""
    return run_in_turns([simulations], 1)[0]


def run_in_turns(groups: list[list[Simulation]], turns: int = 20) -> list[list[Trace]]:
    """Groups that run together, a share of each at a time: what slows the machine for a while slows them all.

    In real time, which is the same for all, one after the other.
    """
    if any(isinstance(s.clock, WallClock) for group in groups for s in group):
        return [[s.run() for s in group] for group in groups]
    running = [zip_longest(*(s.events() for s in group)) for group in groups]
    with _no_collection():
        for turn in range(1, turns + 1):
            for group, steps in zip(groups, running, strict=True):
                while group[0].progress < turn / turns:
                    next(steps)
        for steps in running:
            for _ in steps:
                pass
    return [[s.end() for s in group] for group in groups]


def _timeline(arrivals: list[Instants]) -> tuple[Instants, npt.NDArray[np.int64]]:
    instants = np.concatenate(arrivals)
    streams = np.repeat(np.arange(len(arrivals)), [len(a) for a in arrivals])
    order = np.argsort(instants, kind="stable")
    return instants[order], streams[order]


def _rows(arrivals: Mapping[str, Instants], rng: np.random.Generator) -> Feed:
    """Rows of `SCHEMA` with random values."""
    made = {
        name: pa.RecordBatch.from_arrays(
            [pa.array(rng.integers(0, 100, len(instants))), pa.array(instants)], schema=SCHEMA
        )
        for name, instants in arrivals.items()
    }

    def feed(engine: Engine, stream: str, row: int) -> None:
        engine.push(stream, made[stream].slice(row, 1))

    return feed


def _arrived(batch: Batch) -> Instants:
    """When the newest row behind each answer arrived."""
    names = [name for name in batch.data.schema.names if name.startswith(ARRIVED)]
    newest: Instants = np.maximum.reduce([batch.data.column(name).to_numpy() for name in names])
    return newest


def _values(batch: Batch) -> Instants:
    found: Instants = batch.data.column("v").to_numpy() if "v" in batch.data.schema.names else batch.start
    return found


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the garbage collector, whose pauses belong to nobody."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
