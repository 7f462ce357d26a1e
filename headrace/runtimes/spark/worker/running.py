"""What a host does in a micro-batch: find its engine, feed it, emit results, and store the changes."""

from __future__ import annotations

import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.engine import Engine, Service, Shortage
from headrace.engine.execution import Execution
from headrace.engine.inputs import Inputs
from headrace.plan.nodes.core import Plan, Table
from headrace.plan.nodes.trees import walk
from headrace.runtimes.spark.driver.reading import ALL, FILES, LIMITED, WITHHELD
from headrace.runtimes.spark.worker import budgeting, engine_cache
from headrace.runtimes.spark.worker.answers import Outlet, stood_for
from headrace.runtimes.spark.worker.packing import (
    CHOICES,
    COMMANDS,
    ENDING,
    HERE,
    NO_TIME,
    PACKED,
    Package,
    from_ipc,
)
from headrace.runtimes.spark.worker.partitioner import StreamSpec
from headrace.runtimes.spark.worker.promising import heard
from headrace.runtimes.spark.worker.state_store import Head, Layout, Store
from headrace.schema import Schema
from headrace.spill.directory import DirectorySpillStore
from headrace.time.timestamp import MIN_TIME

if TYPE_CHECKING:
    # With it come the pipeline file and the query language, which a worker without commands never needs.
    from headrace.runtimes.spark.worker.controlling import ControlSpec, Following
    from headrace.runtimes.spark.worker.pickled_control import PickledControl

QUERY = "q"
"""The name of the query in the engine if there is only one."""
_LOCAL = "SPARK_LOCAL_DIRS"
"""The environment variable with the local directories of the executor, separated by commas."""


@dataclass(frozen=True)
class TimedPlan:
    """A plan with its unit of time, so that messages say seconds instead of ticks."""

    plan: Plan
    ticks_per_second: int | None


@dataclass(frozen=True)
class HostSpec:
    """What a host runs: queries over `streams`, which partitioners send, and `inlets`, from the host below.

    Streams are numbered as the packages number them, inlets (one for each shard below) after them.
    `shard_keys` are the keys of the shards; `id` is the key of the host in the workers' caches. `budget` is
    how many bytes all shards of the job may hold, `all_shards` how many of them there are, and `policy` what
    happens with state that does not fit. `recorded`: rows
    carry the instants at which they arrived, which replace the clock; otherwise rows may have waited at their
    source.

    `layout` is how rows are divided among shards. `since` is the generation in which each query was added.
    At the first micro-batch of a `generation` the queries in `reset` begin empty, and the tables in `reload`
    get their rows again. A host without queries frees the state of its shards.
    `execution` is how the engine of a shard runs. The queries in `early` answer closed groups at once, out of
    order. `services` are what queries expect of the scheduler. `windows` has, for each query, the node here
    for each window or granularity that may change, in the order of the whole plan; None if it is not here,
    because the query has two stages.
    """

    id: str
    queries: Mapping[str, Plan]
    streams: tuple[StreamSpec, ...]
    inputs: Inputs
    shard_keys: tuple[int, ...]
    inlets: tuple[str, ...] = ()
    outlet: Outlet = field(default_factory=Outlet)
    tables: Mapping[str, bytes] = field(default_factory=dict)
    budget: int | None = None
    all_shards: int = 1
    reoptimize: int | bool = False
    policy: Shortage = "fail"
    recorded: bool = False
    layout: Layout = field(default_factory=Layout)
    since: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    reset: frozenset[str] = frozenset()
    reload: frozenset[str] = frozenset()
    control: ControlSpec | PickledControl | None = None
    ticks_per_second: int | None = None
    execution: Execution = field(default_factory=Execution)
    early: frozenset[str] = frozenset()
    services: Mapping[str, Service] = field(default_factory=dict)
    windows: Mapping[str, tuple[Plan | None, ...]] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, Schema]:
        """The columns of streams as they are read, and of tables; a checkpoint accepts wider types later."""
        plans = (node for plan in self.queries.values() for node in walk(plan))
        tables = {node.name: node.schema for node in plans if isinstance(node, Table)}
        return {stream.source.name: stream.read.schema for stream in self.streams} | tables

    @property
    def spills(self) -> bool:
        """Whether state beyond the budget goes to the executor's disk."""
        return self.budget is not None and self.policy == "spill"

    def build(self) -> Engine:
        """A new engine, without the rows of tables."""
        store = DirectorySpillStore(local_directory()) if self.spills else None
        engine = self.execution.engine(spill_to=store)
        self.inputs.install(engine, [stream.source for stream in self.streams])
        for query, plan in self.queries.items():
            timed, since = TimedPlan(plan, self.ticks_per_second), self.since.get(query, 0)
            service = self.services.get(query)
            engine.add(query, timed, since=since, ordered=query not in self.early, service=service)
        if not self.recorded:
            for stream in self.streams:
                engine.streams.read_until(stream.source.name, MIN_TIME)
        if self.budget is not None:
            engine.memory.set_share(self.budget // self.all_shards, self.budget, policy=self.policy)
        engine.optimizer.reoptimize_every(self.reoptimize)
        return engine

    def begin(self) -> Engine:
        """A new engine with the rows of tables, which never change."""
        engine = self.build()
        for name, rows in self.tables.items():
            engine.load(name, from_ipc(rows))
        return engine

    def following(self, followed: Mapping[str, Any] | None, texts: Iterable[str]) -> Following | None:
        """How a shard follows the control log, from where it was; None as long as there are no commands."""
        if self.control is None or (followed is None and not texts):
            return None
        return self.control.following(self.shard_keys, self.queries, self.windows, followed)


def _texts(packages: list[Package], stream: int) -> list[str]:
    """The files of the control log, or with choices of sizes, that came in a micro-batch."""
    found = (package.commands for package in packages if package.stream == stream)
    return [text for each in found if each is not None for text in json.loads(bytes(each))]


def local_directory() -> Path:
    """Where an executor spills: the first of Spark's local directories.

    No other task needs these files: the state store has all of their content.
    """
    first = os.environ.get(_LOCAL, "").split(",")[0]
    return Path(first) / "headrace" if first else Path(tempfile.gettempdir())


def run(spec: HostSpec, shard: int, rows: Iterable[Any], chunks: Any) -> list[pd.DataFrame]:
    """One micro-batch of one shard: packed rows in, results and side outputs out."""
    if not spec.queries:
        chunks.clear()
        return []
    store = Store(chunks, spec.layout, spec.generation)
    packages, passing_up = read(rows)
    known = store.head()
    running, texts = _engine(spec, shard, store, known), _texts(packages, COMMANDS)
    followed = None if running.following is None else running.following.followed
    if running.following is None and texts:
        running.following = _following(spec, store, running.engine, texts)
    if running.following is not None:
        running.following.follow(running.engine, texts)
    queries = spec.queries if running.following is None else running.following.queries
    nodes = budgeting.nodes_here(queries, spec.windows)
    host, place = spec.shard_keys[0], spec.shard_keys.index(shard)
    name, number = budgeting.shard_name(host, place), budgeting.batch_number()
    budgeting.follow(running.engine, nodes, _texts(packages, CHOICES), number, name)
    feed(running.engine, spec, packages)
    passing = [bytes(each.side_output) for each in packages if each.side_output is not None]
    memory = budgeting.reported(running.engine, nodes, host, len(spec.shard_keys))
    out = list(spec.outlet.frames(running.engine, queries, place, passing, memory))
    out += passing_up
    written = store.write(running.engine, known)
    if running.following is not None and running.following.followed != followed:
        store.follow(running.following.followed.plain())
    running.version, running.token = written.version, written.token
    engine_cache.keep(spec.id, shard, running)
    return out


def _engine(spec: HostSpec, shard: int, store: Store, head: Head | None) -> engine_cache.CachedEngine:
    """The cached engine if it has the state in the store or can catch up with it, else a restored one."""
    known = engine_cache.take(spec.id, shard)
    if head is None:
        store.take_up(spec.columns)
        return engine_cache.CachedEngine(spec.begin(), 0, "")
    if known is not None:
        missed = store.since(head, known.version, known.token)
        if missed is not None:
            if missed:
                known.engine.catch_up(missed)
            return known
    store.take_up(spec.columns)
    engine, is_new = spec.begin(), head.generation < spec.generation
    following = _following(spec, store, engine)
    engine.adopt(store.all(head), reset=spec.reset if is_new else ())
    for table in sorted(spec.reload) if is_new else ():
        engine.reload(table, from_ipc(spec.tables[table]))
    return engine_cache.CachedEngine(engine, head.version, head.token, following)


def _following(spec: HostSpec, store: Store, engine: Engine, texts: Iterable[str] = ()) -> Following | None:
    """How a shard follows the control log, with an engine that has the changes that the state contains."""
    following = spec.following(store.followed(), texts)
    if following is not None:
        following.rebuild(engine)
    return following


def read(rows: Iterable[Any]) -> tuple[list[Package], list[pd.DataFrame]]:
    """The packages of a micro-batch in a fixed order, and those for the host above."""
    packed: list[tuple[Any, ...]] = []
    passing_up: list[pd.DataFrame] = []
    for frame in rows:
        up = frame["above"] != HERE
        if up.any():
            above = frame[up]
            passing_up.append(above.assign(shard=above["above"], above=HERE)[PACKED.names])
            frame = frame[~up]
        columns = (frame[name].tolist() for name in ("now", "stream", "origin", "number", "body"))
        packed += zip(*columns, strict=True)
    packed.sort(key=lambda row: row[:4])
    return [Package.read(int(stream), int(now), body) for now, stream, _, _, body in packed], passing_up


def feed(engine: Engine, spec: HostSpec, packages: list[Package]) -> None:
    """For each instant, push the rows, report the times that arrived in other shards, and run the engine."""
    for instant, parts in _by_instant(spec, packages):
        _feed_instant(engine, spec, parts, max(instant, engine.now))
    ends = [package.now for package in packages if package.stream == ENDING]
    if ends:
        _end(engine, spec, max(ends))


def _by_instant(spec: HostSpec, packages: list[Package]) -> Iterator[tuple[int, list[Package]]]:
    """The packages of each instant; without recorded arrivals, a micro-batch is one instant."""
    came = [package for package in packages if package.stream != ENDING]
    if not spec.recorded:
        if came:
            yield max(package.now for package in came), came
        return
    by_instant: dict[int, list[Package]] = defaultdict(list)
    for package in came:
        for instant, part in _instants(package):
            by_instant[instant].append(part)
    yield from sorted(by_instant.items())


def _end(engine: Engine, spec: HostSpec, now: int) -> None:
    """End all streams, so that everything that waits comes out."""
    for stream in spec.streams:
        engine.streams.end(stream.source.name)
    engine.advance(max(now, engine.now))


def _feed_instant(engine: Engine, spec: HostSpec, packages: list[Package], now: int) -> None:
    """Feed the packages of one instant to the engine, then advance it to that instant."""
    seen: dict[int, list[Package]] = defaultdict(list)
    streams = len(spec.streams)
    for package in packages:
        if package.stream >= streams:
            _take_over(engine, spec.inlets[package.stream - streams], package)
        elif package.stream >= 0:
            _push(engine, spec.streams[package.stream].source.name, package, now)
            if package.promises is not None:
                _promise(engine, spec.streams[package.stream].source.name, package, now)
            if package.seen is not None:
                seen[package.stream].append(package)
    engine.streams.set_clock(now)
    for stream, told in seen.items():
        times = np.concatenate([p.seen for p in told if p.seen is not None])
        cells = [p.seen_cells for p in told if p.seen_cells is not None]
        source = spec.streams[stream].source.name
        engine.streams.observe(source, times, np.concatenate(cells) if cells else None)
    if not spec.recorded:
        _read_until(engine, spec, packages)
    engine.advance(now)


def _read_until(engine: Engine, spec: HostSpec, packages: list[Package]) -> None:
    """Tell the engine until when each source has been read, as far as this micro-batch shows."""
    clock = max((p.clock for p in packages if p.clock is not None), default=None)
    for stream in spec.streams:
        tasks = [p.reached for p in packages if p.stream == stream.number and p.reached is not None]
        known = _KNOWN[stream.takes](clock, tasks)
        if known is not None:
            engine.streams.read_until(stream.source.name, min(known - stream.polled, engine.now))


def _all(clock: int | None, tasks: list[int]) -> int | None:
    """The source leaves no backlog: everything up to the clock has been read."""
    return clock


def _limited(clock: int | None, tasks: list[int]) -> int | None:
    """A source that returned no rows had none; otherwise it returned its oldest rows first."""
    return _withheld(clock, tasks) if tasks else clock


def _files(clock: int | None, tasks: list[int]) -> int | None:
    """Like `_limited`, but all files older than the newest one have been read, by whichever task."""
    newest = max(tasks, default=NO_TIME)
    return _withheld(clock, [newest]) if tasks else clock


def _withheld(clock: int | None, tasks: list[int]) -> int | None:
    """The source withholds rows: only what is older than the oldest row of all tasks has been read."""
    oldest = min(tasks, default=NO_TIME)
    return None if oldest == NO_TIME else oldest - 1


_KNOWN: Final[dict[str, Callable[[int | None, list[int]], int | None]]] = {
    ALL: _all,
    LIMITED: _limited,
    FILES: _files,
    WITHHELD: _withheld,
}
"""By how much of a source a micro-batch reads: until when the source has been read."""


def _instants(package: Package) -> Iterator[tuple[int, Package]]:
    """Split a package by the instants at which its rows and times arrived."""
    if package.clocks is None and package.seen_at is None:
        yield package.now, package
        return
    clocks = [c for c in (package.clocks, package.seen_at) if c is not None]
    for now in np.unique(np.concatenate(clocks)):
        yield int(now), _at(package, now)


def _at(package: Package, now: np.int64) -> Package:
    """The part of a package that arrived at `now`."""
    rows, times, seen = package.rows, package.times, package.seen
    cells, seen_cells = package.cells, package.seen_cells
    if package.clocks is not None and rows is not None:
        mask = package.clocks == now
        rows = rows.filter(pa.array(mask))
        times = None if times is None else times[mask]
        cells = None if cells is None else cells[mask]
    else:
        rows = times = cells = None
    if seen is not None and package.seen_at is not None:
        came = package.seen_at == now
        seen, seen_cells = seen[came], None if seen_cells is None else seen_cells[came]
    return Package(package.stream, int(now), rows, times, seen=seen, cells=cells, seen_cells=seen_cells)


def _push(engine: Engine, stream: str, package: Package, now: int) -> None:
    """Push the rows of a package, and reject its bad input."""
    if package.bad is not None:
        for code, reason, raw in json.loads(bytes(package.bad)):
            engine.streams.reject(stream, [raw], code, reason)
    if package.written is not None:
        engine.streams.merged(stream, package.written)
    rows = package.rows
    if rows is None or not rows.num_rows:
        return
    engine.streams.merged(stream, stood_for(rows) - rows.num_rows)
    times = package.times
    if times is not None and bool((times == NO_TIME).any()):
        masked = pa.array(times, mask=times == NO_TIME)
        engine.push(stream, rows, masked, now=now, learn=False, cells=package.cells)
        return
    engine.push(stream, rows, times, now=now, learn=False, cells=package.cells)


def _promise(engine: Engine, stream: str, package: Package, now: int) -> None:
    """Promises that came as rows: they are made after the rows of this micro-batch, or wait."""
    waits, punctuations = heard(package)
    engine.streams.promise(stream, punctuations, read_at=now if waits else None)


def _take_over(engine: Engine, stream: str, package: Package) -> None:
    """Feed the results of a shard below, its heartbeat, and what it promises about later results."""
    if package.rows is not None and package.rows.num_rows:
        engine.streams.feed(stream, package.batch())
    if package.heartbeat is not None and package.heartbeat > MIN_TIME:
        engine.streams.heartbeat(stream, package.heartbeat)
    if package.promises is not None:
        _, punctuations = heard(package)
        engine.streams.feed_promises(stream, punctuations)
