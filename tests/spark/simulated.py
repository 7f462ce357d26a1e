"""Fans, hosts and their state without Spark: tasks, workers, retries and the state store in plain Python.

What Spark does to a query is made here on purpose and at random: rows of a micro-batch in several tasks,
shards on any worker, tasks that fail after they ran, packages in any order.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine import Engine
from headrace.engine.inputs import Inputs
from headrace.flow.batch import concat
from headrace.plan.nodes import Plan, Source
from headrace.plan.trees import sources_of
from headrace.runtimes.spark import live
from headrace.runtimes.spark.answers import Outlet, is_flat, late_rows, rejected_rows
from headrace.runtimes.spark.fan import NOW, REACHED, TIME, Clock, End, Fan, StreamSpec
from headrace.runtimes.spark.host import Host
from headrace.runtimes.spark.notes import (
    KIND,
    LATE,
    LATE_SCHEMA,
    REJECTED,
    REJECTED_SCHEMA,
    RESULT,
    named,
)
from headrace.runtimes.spark.packing import from_ipc, to_ipc
from headrace.runtimes.spark.running import HostSpec
from headrace.runtimes.spark.topology import hosts
from headrace.time.timestamp import MIN_TIME

Arrived = dict[str, tuple[pa.RecordBatch, np.ndarray]]
"""What came in one micro-batch: rows and times (None among them as masked) by stream."""

MicroBatch = tuple[int, Arrived]
"""The instant of a micro-batch, and what it read. Its sources were asked after the one before it."""


def clocks(batches: list[MicroBatch]) -> list[int | None]:
    """What the timer says with each micro-batch: the instant of its tick before."""
    return [None, *(now for now, _ in batches[:-1])]


@dataclass
class Cells:
    """One shard's state, as Spark's handle gives it; `commit` or `roll_back` ends a task."""

    chunks: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self.chunks.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.chunks[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        del self.chunks[key]

    def getMapState(self, name: str, key: object, value: object) -> Cells:
        return self

    def copy(self) -> Cells:
        return Cells(dict(self.chunks))


@dataclass
class Cluster:
    """Workers with their caches, the state of every shard of every host, and a source of mishaps."""

    rng: random.Random
    workers: list[OrderedDict[Any, Any]] = field(default_factory=lambda: [OrderedDict() for _ in range(3)])
    states: dict[tuple[int, int], Cells] = field(default_factory=lambda: defaultdict(Cells))
    mishaps: float = 0.2

    def run_task(self, level: int, host: HostSpec, shard: int, frames: list[pd.DataFrame]) -> pd.DataFrame:
        """One shard's task; it may fail at its end, and is then tried again on any worker."""
        while True:
            live._LIVE = self.rng.choice(self.workers)
            state = self.states[level, shard].copy()
            processor = Host(host)
            processor.init(state)  # type: ignore[arg-type]
            out = pd.concat(processor.handleInputRows((shard,), iter(frames), None))
            if self.rng.random() >= self.mishaps:
                self.states[level, shard] = state
                return out

    def restart(self) -> None:
        """All workers are new."""
        for worker in self.workers:
            worker.clear()


@dataclass
class Outcome:
    """What came out: answers with their times, late and rejected rows, all as plain rows."""

    answers: list[tuple[Any, ...]] = field(default_factory=list)
    late: list[tuple[Any, ...]] = field(default_factory=list)
    rejected: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)
    by_batch: list[list[tuple[Any, ...]]] = field(default_factory=list)
    """The answers of each micro-batch, on Spark."""

    def add(self, other: Outcome) -> None:
        self.answers += other.answers
        self.late += other.late
        self.rejected += other.rejected
        self.numbers += other.numbers

    def sorted(self) -> tuple[list[tuple[Any, ...]], ...]:
        return tuple(sorted(rows, key=repr) for rows in (self.answers, self.late, self.rejected))


Tables = dict[str, pa.Table]


def on_spark(
    plan: Plan,
    inputs: Inputs,
    batches: list[MicroBatch],
    tables: Tables,
    partitions: int,
    cluster: Cluster,
    outlet: Outlet | None = None,
    ends: bool = False,
    witnesses: tuple[str, ...] = (),
    said: list[int | None] | None = None,
    takes: Mapping[str, str] | None = None,
    reached: list[dict[str, np.ndarray]] | None = None,
    **more: Any,
) -> Outcome:
    """The plan as `apply` would lay it out, micro-batch by micro-batch; `more` is said to every host.

    `said` is what the timer says with each micro-batch, `takes` how much of a stream one takes, and `reached`
    when the rows of each micro-batch reached their source, if they say.
    """
    outcome = Outcome()
    outlet = outlet or Outlet("__t")
    answer = outlet.schema(plan.schema)
    chain = hosts(
        plan,
        inputs,
        partitions,
        outlet,
        tables={name: to_ipc(rows) for name, rows in tables.items()},
        witnesses=witnesses,
        takes=takes,
    )
    chain = [replace(host, **more) for host in chain]
    said = said or clocks(batches)
    for number, (now, arrived) in enumerate(batches, start=1):
        since = {} if reached is None else reached[number - 1]
        if cluster.rng.random() < 0.1:
            cluster.restart()
        below: list[pa.RecordBatch | pd.DataFrame] = []
        for level, host in enumerate(chain):
            fanned = (_fanned(s, host, arrived, now, cluster.rng, since) for s in host.streams)
            packages = below + [package for each in fanned for package in each]
            packages += [_clocked(b, now) for b in Clock(list(host.names))(iter([_clock(said[number - 1])]))]
            if ends and number == len(batches):
                packages += list(End(list(host.names))(iter([_clock(now)])))
            below = _level(level, host, packages, cluster)
        before = len(outcome.answers)
        for frame in below:
            collect(pa.Table.from_pandas(frame, preserve_index=False), answer, outcome)
        outcome.by_batch.append(outcome.answers[before:])
    return outcome


def _fanned(
    stream: StreamSpec,
    host: HostSpec,
    arrived: Arrived,
    now: int,
    rng: random.Random,
    since: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> list[pa.RecordBatch]:
    if stream.source.name not in arrived:
        return []
    rows, times = arrived[stream.source.name]
    cuts = sorted({0, rows.num_rows, *(rng.randint(0, rows.num_rows) for _ in range(rng.randint(0, 2)))})
    made = []
    for task, (begin, stop) in enumerate(pairwise(cuts)):
        columns = [*rows.slice(begin, stop - begin).columns]
        names = [*rows.schema.names]
        if stream.external:
            columns.append(pa.array(times[begin:stop], pa.int64(), from_pandas=True))
            names.append(TIME)
        if not stream.clockless:
            columns.append(pa.array(np.full(stop - begin, now), pa.int64()))
            names.append(NOW)
        if stream.source.name in since:
            columns.append(pa.array(since[stream.source.name][begin:stop], pa.int64()))
            names.append(REACHED)
        batch = pa.RecordBatch.from_arrays(columns, names)
        made += [_renumbered(b, task) for b in Fan(stream, list(host.names))(iter([batch]))]
    return [_clocked(b, now) for b in made]


def _clocked(batch: pa.RecordBatch, now: int) -> pa.RecordBatch:
    return batch.set_column(4, "now", pa.array([now] * batch.num_rows, pa.int64()))


def _renumbered(batch: pa.RecordBatch, task: int) -> pa.RecordBatch:
    return batch.set_column(2, "origin", pa.array([task] * batch.num_rows, pa.int32()))


def _clock(now: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({NOW: pa.array([now], pa.int64())})


def _level(level: int, host: HostSpec, packages: list[Any], cluster: Cluster) -> list[pd.DataFrame]:
    frames = [p if isinstance(p, pd.DataFrame) else p.to_pandas() for p in packages]
    if not frames:
        return []
    together = pd.concat(frames)
    out = []
    for shard in sorted(set(together["shard"])):
        mine = together[together["shard"] == shard]
        mine = mine.sample(frac=1, random_state=cluster.rng.randint(0, 2**31))
        out.append(cluster.run_task(level, host, int(shard), [mine]))
    return out


def collect(table: pa.Table, answer: pa.Schema, outcome: Outcome) -> None:
    """Add what the last host gave: answers, which have the columns `answer`, and notes."""
    kind = table.column(KIND)
    for batch in answers_of(table.filter(pc.is_null(kind)), answer):
        outcome.answers += [tuple(row.values()) for row in batch.to_pylist()]
        outcome.numbers[RESULT] += batch.num_rows
    for body in table.filter(pc.equal(kind, RESULT)).column(named("body")):
        outcome.answers += [tuple(row.values()) for row in from_ipc(body.as_py()).to_pylist()]
    for name, schema, rows in (
        (LATE, LATE_SCHEMA, outcome.late),
        (REJECTED, REJECTED_SCHEMA, outcome.rejected),
    ):
        told = table.filter(pc.equal(kind, name))
        outcome.numbers[name] += pc.sum(told.column(named("rows"))).as_py() or 0
        if named("row") in told.column_names:
            chosen = told.select([named(field) for field in schema.names])
            rows += [tuple(row.values()) for row in chosen.to_pylist()]


def answers_of(table: pa.Table, answer: pa.Schema) -> list[pa.RecordBatch]:
    """Answers in the types of the plan, as Spark restores them."""
    if not is_flat(answer):
        return []
    chosen: list[pa.RecordBatch] = table.select(answer.names).cast(answer).to_batches()
    return chosen


def embedded(
    plan: Plan,
    inputs: Inputs,
    batches: list[MicroBatch],
    tables: Tables,
    ends: bool = False,
    witnesses: tuple[Source, ...] = (),
) -> Outcome:
    """The same arrivals in one engine in this process, which `witnesses` come to too.

    Its rows may have waited at their source, as on Spark.
    """
    outcome = Outcome()
    for each in embedded_instants(plan, inputs, batches, tables, ends, witnesses, waited=True):
        outcome.add(each)
    return outcome


def embedded_instants(
    plan: Plan,
    inputs: Inputs,
    batches: list[MicroBatch],
    tables: Tables,
    ends: bool = False,
    witnesses: tuple[Source, ...] = (),
    waited: bool = False,
) -> Iterator[Outcome]:
    """What one engine in this process gives at each instant."""
    engine = Engine()
    inputs.install(engine, dict.fromkeys([*sources_of(plan), *witnesses]))
    engine.add("q", plan)
    for name, data in tables.items():
        engine.load(name, data)
    all_read = [*sources_of(plan), *witnesses]
    names = list(dict.fromkeys(source.name for source in all_read)) if waited else []
    for name in names:
        engine.read_until(name, MIN_TIME)
    said = clocks(batches)
    for number, (now, arrived) in enumerate(batches, start=1):
        for name, (rows, times) in arrived.items():
            ticks = pa.array(times, pa.int64(), from_pandas=True)
            external = engine.graph.sources[name].kind.value == "external"
            engine.push(name, rows, ticks if external else None, now=now)
        for name in names if said[number - 1] is not None else ():
            engine.read_until(name, said[number - 1])
        engine.advance(now)
        if ends and number == len(batches):
            for source in dict.fromkeys(sources_of(plan)):
                engine.end(source.name)
            engine.advance(now)
        yield _drained(engine)


def _drained(engine: Engine) -> Outcome:
    outcome = Outcome()
    if found := engine.drain("q"):
        answer = concat(found)
        rows = answer.data.to_pylist()
        outcome.answers += [(*row.values(), int(t)) for row, t in zip(rows, answer.start, strict=True)]
    if late := engine.drain_late():
        outcome.late += [tuple(row.values()) for row in late_rows(late).to_pylist()]
    if rejected := engine.drain_rejected():
        outcome.rejected += [tuple(row.values()) for row in rejected_rows(rejected).to_pylist()]
    return outcome
