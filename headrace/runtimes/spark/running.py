"""What a host does in a micro-batch: find its engine, feed it, answer, and store what changed."""

from __future__ import annotations

import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.connectors.shelf import DirectoryShelf
from headrace.engine import Engine
from headrace.engine.inputs import Inputs
from headrace.memory.manager import Shortage
from headrace.plan.nodes import Plan, Table
from headrace.plan.show import show
from headrace.plan.trees import walk
from headrace.runtimes.spark import live
from headrace.runtimes.spark.answers import Outlet, stood_for
from headrace.runtimes.spark.fan import StreamSpec
from headrace.runtimes.spark.packing import ENDING, NO_TIME, Package, Times, from_ipc
from headrace.runtimes.spark.reading import ALL, FILES, LIMITED, WITHHELD
from headrace.runtimes.spark.store import Head, Store
from headrace.schema import Schema
from headrace.time.timestamp import MIN_TIME

QUERY = "q"
_LOCAL = "SPARK_LOCAL_DIRS"
"""Spark tells its Python workers where the directories of their executor are, with commas between."""


@dataclass(frozen=True)
class HostSpec:
    """What a host runs: a plan over `streams`, which come by fans, and `inlets`, from the host below.

    Streams are numbered as the packages number them, inlets (one for each shard below) after them. `names`
    are the shards; `id` names the host in the workers' caches. `budget` is what a shard may hold, in bytes,
    `policy` what becomes of what does not fit. `recorded`: rows bring the instants at which they arrived,
    which are the clock; otherwise rows may have waited at their source.
    """

    id: str
    plan: Plan
    streams: tuple[StreamSpec, ...]
    inputs: Inputs
    names: tuple[int, ...]
    inlets: tuple[str, ...] = ()
    outlet: Outlet = field(default_factory=Outlet)
    tables: Mapping[str, bytes] = field(default_factory=dict)
    budget: int | None = None
    reoptimize: int | bool = False
    policy: Shortage = "fail"
    recorded: bool = False

    @cached_property
    def layout(self) -> str:
        """What a checkpoint is bound to."""
        digest = sha256(show(self.plan).encode()).hexdigest()[:12]
        return f"plan {digest} in {len(self.names)} shards"

    @cached_property
    def columns(self) -> dict[str, Schema]:
        """The columns of streams as they are read, and of tables; a checkpoint goes on under wider ones."""
        tables = {node.name: node.schema for node in walk(self.plan) if isinstance(node, Table)}
        return {stream.source.name: stream.read.schema for stream in self.streams} | tables

    @property
    def spills(self) -> bool:
        """Whether state beyond the budget goes to the executor's disk."""
        return self.budget is not None and self.policy == "spill"

    def build(self) -> Engine:
        """An engine that has seen nothing, not even the tables."""
        engine = Engine(shelf=DirectoryShelf(local_directory()) if self.spills else None)
        self.inputs.install(engine, [stream.source for stream in self.streams])
        engine.add(QUERY, self.plan)
        if not self.recorded:
            for stream in self.streams:
                engine.read_until(stream.source.name, MIN_TIME)
        engine.budget(self.budget, policy=self.policy, measure_at_snapshots=True)
        engine.reoptimize_every(self.reoptimize)
        return engine

    def begin(self) -> Engine:
        """An engine that may begin: the tables, which never change, are in it."""
        engine = self.build()
        for name, rows in self.tables.items():
            engine.load(name, from_ipc(rows))
        return engine


def local_directory() -> Path:
    """Where an executor keeps what is its own: the first of Spark's local directories.

    Nothing there is needed by another task: the state store has all of it.
    """
    first = os.environ.get(_LOCAL, "").split(",")[0]
    return Path(first) / "headrace" if first else Path(tempfile.gettempdir())


def run(spec: HostSpec, shard: int, rows: Iterable[Any], chunks: Any) -> list[pd.DataFrame]:
    """One micro-batch of one shard: packed rows in, answers and notes out."""
    store = Store(chunks, spec.layout)
    packages = read(rows)
    known = store.head()
    running = _engine(spec, shard, store, known)
    feed(running.engine, spec, packages)
    notes = [bytes(package.note) for package in packages if package.note is not None]
    out = list(spec.outlet.frames(running.engine, spec.plan.schema, spec.names.index(shard), notes))
    written = store.write(running.engine, known)
    running.version, running.token = written.version, written.token
    live.keep(spec.id, shard, running)
    return out


def _engine(spec: HostSpec, shard: int, store: Store, head: Head | None) -> live.Live:
    """The live engine if it is at what the store holds or can catch up with it, else one rebuilt."""
    known = live.take(spec.id, shard)
    if head is None:
        store.take_up(spec.columns)
        return live.Live(spec.begin(), 0, "")
    if known is not None:
        missed = store.since(head, known.version, known.token)
        if missed is not None:
            if missed:
                known.engine.catch_up(missed)
            return known
    store.take_up(spec.columns)
    engine = spec.build()
    engine.restore(store.all(head))
    return live.Live(engine, head.version, head.token)


def read(rows: Iterable[Any]) -> list[Package]:
    """The packages of a micro-batch in one order, however the shuffle brought them."""
    packed: list[tuple[Any, ...]] = []
    for frame in rows:
        columns = (frame[name].tolist() for name in ("now", "stream", "origin", "number", "body"))
        packed += zip(*columns, strict=True)
    packed.sort(key=lambda row: row[:4])
    return [Package.read(int(stream), int(now), body) for now, stream, _, _, body in packed]


def feed(engine: Engine, spec: HostSpec, packages: list[Package]) -> None:
    """Push what came at each instant, tell the engine what came elsewhere, and let it run."""
    for instant, parts in _by_instant(spec, packages):
        _feed_instant(engine, spec, parts, max(instant, engine.now))
    ends = [package.now for package in packages if package.stream == ENDING]
    if ends:
        _end(engine, spec, max(ends))


def _by_instant(spec: HostSpec, packages: list[Package]) -> Iterator[tuple[int, list[Package]]]:
    """What came at each instant; where none are recorded, a micro-batch is one."""
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
    """All that came is in, nothing more comes: let out all that waits."""
    for stream in spec.streams:
        engine.end(stream.source.name)
    engine.advance(max(now, engine.now))


def _feed_instant(engine: Engine, spec: HostSpec, packages: list[Package], now: int) -> None:
    seen: dict[int, list[Times]] = defaultdict(list)
    streams = len(spec.streams)
    for package in packages:
        if package.stream >= streams:
            _take_over(engine, spec.inlets[package.stream - streams], package)
        elif package.stream >= 0:
            _push(engine, spec.streams[package.stream].source.name, package, now)
            if package.seen is not None:
                seen[package.stream].append(package.seen)
    engine.now = now
    for stream, times in seen.items():
        engine.observe(spec.streams[stream].source.name, np.concatenate(times))
    if not spec.recorded:
        _read_until(engine, spec, packages)
    engine.advance(now)


def _read_until(engine: Engine, spec: HostSpec, packages: list[Package]) -> None:
    """Tell the engine how far what reached each source is in, as far as this micro-batch says."""
    clock = max((p.clock for p in packages if p.clock is not None), default=None)
    for stream in spec.streams:
        tasks = [p.reached for p in packages if p.stream == stream.number and p.reached is not None]
        known = _KNOWN[stream.takes](clock, tasks)
        if known is not None:
            engine.read_until(stream.source.name, min(known, engine.now))


def _all(clock: int | None, tasks: list[int]) -> int | None:
    return clock


def _limited(clock: int | None, tasks: list[int]) -> int | None:
    """A source that gave nothing had nothing; of one that gave something the oldest rows come first."""
    return _withheld(clock, tasks) if tasks else clock


def _files(clock: int | None, tasks: list[int]) -> int | None:
    """Like `_limited`, but what is older than the newest file is in, whichever task has read that."""
    newest = max(tasks, default=NO_TIME)
    return _withheld(clock, [newest]) if tasks else clock


def _withheld(clock: int | None, tasks: list[int]) -> int | None:
    oldest = min(tasks, default=NO_TIME)
    return None if oldest == NO_TIME else oldest - 1


_KNOWN: Final[dict[str, Callable[[int | None, list[int]], int | None]]] = {
    ALL: _all,
    LIMITED: _limited,
    FILES: _files,
    WITHHELD: _withheld,
}
"""Until when what reached a source has been read, by how much of it a micro-batch takes."""


def _instants(package: Package) -> Iterator[tuple[int, Package]]:
    """A package by the instants at which its rows and times arrived."""
    if package.clocks is None and package.seen_at is None:
        yield package.now, package
        return
    clocks = [c for c in (package.clocks, package.seen_at) if c is not None]
    for now in np.unique(np.concatenate(clocks)):
        yield int(now), _at(package, now)


def _at(package: Package, now: np.int64) -> Package:
    rows, times, seen = package.rows, package.times, package.seen
    if package.clocks is not None and rows is not None:
        mask = package.clocks == now
        rows = rows.filter(pa.array(mask))
        times = None if times is None else times[mask]
    else:
        rows = times = None
    if seen is not None and package.seen_at is not None:
        seen = seen[package.seen_at == now]
    return Package(package.stream, int(now), rows, times, seen=seen)


def _push(engine: Engine, stream: str, package: Package, now: int) -> None:
    if package.bad is not None:
        for code, reason, raw in json.loads(bytes(package.bad)):
            engine.reject(stream, [raw], code, reason)
    rows = package.rows
    if rows is None or not rows.num_rows:
        return
    engine.graph.sources[stream].admission.rows_in += stood_for(rows) - rows.num_rows
    times = package.times
    if times is not None and bool((times == NO_TIME).any()):
        engine.push(stream, rows, pa.array(times, mask=times == NO_TIME), now=now, learn=False)
        return
    engine.push(stream, rows, times, now=now, learn=False)


def _take_over(engine: Engine, stream: str, package: Package) -> None:
    """What a shard below answered, and how far it vouches for."""
    if package.rows is not None and package.rows.num_rows:
        engine.feed(stream, package.batch())
    if package.heartbeat is not None and package.heartbeat > MIN_TIME:
        engine.heartbeat(stream, package.heartbeat)
