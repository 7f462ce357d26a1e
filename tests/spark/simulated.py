"""Partitioners, hosts and their state without Spark: tasks, retries and the state store in plain Python.

What Spark does to a query is made here on purpose and at random: rows of a micro-batch in several tasks,
shards on any worker, packages in any order; tasks that fail in the middle or after they wrote their state,
run twice at once or come back long after they were given up (`MISHAPS`); workers that are lost; drivers that
die before they noted that a micro-batch was done, so that it is run again. When sources are asked, and by
which clock, is `tests.spark.schedule`.
"""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.connectors.late_and_rejected import late_rows, rejected_rows
from headrace.engine import Engine
from headrace.engine.execution import Execution
from headrace.engine.inputs import Inputs
from headrace.flow.batch import concat
from headrace.plan.nodes.core import Plan, Source
from headrace.plan.nodes.trees import sources_of
from headrace.runtimes.spark.driver.budget import JobBudget
from headrace.runtimes.spark.driver.reading import LIMITED, WITHHELD
from headrace.runtimes.spark.driver.topology import (
    Level,
    World,
    clock_routes,
    end_routes,
    levels,
    speech,
    targets,
)
from headrace.runtimes.spark.driver.unpack import in_order
from headrace.runtimes.spark.worker import budgeting, engine_cache
from headrace.runtimes.spark.worker.answers import (
    KIND,
    LATE,
    METRICS,
    REASONS,
    REJECTED,
    RESULT,
    Outlet,
    is_flat,
    named,
)
from headrace.runtimes.spark.worker.budgeting import Choice
from headrace.runtimes.spark.worker.host import Host
from headrace.runtimes.spark.worker.packing import CHOICES, COMMANDS, from_ipc, to_ipc
from headrace.runtimes.spark.worker.partitioner import (
    NOW,
    REACHED,
    SAID,
    TIME,
    ClockBroadcast,
    CommandBroadcast,
    EndBroadcast,
    Partitioner,
    PromiseBroadcast,
    StreamSpec,
    Target,
)
from headrace.runtimes.spark.worker.promising import Speech
from headrace.runtimes.spark.worker.running import QUERY
from headrace.runtimes.spark.worker.task_files import TaskFiles, draft_of
from headrace.time.timestamp import MIN_TIME

Arrived = dict[str, tuple[pa.RecordBatch, np.ndarray]]
"""What came in one micro-batch: rows and times (None among them as masked) by stream."""

MicroBatch = tuple[int, Arrived]
"""The instant of a micro-batch, and what it read. Its sources were asked after the one before it."""


def clocks(batches: list[MicroBatch]) -> list[int | None]:
    """What the timer says with each micro-batch: the instant of its tick before."""
    return [None, *(now for now, _ in batches[:-1])]


class Died(Exception):
    """The worker of a task has gone."""


@dataclass
class Cells:
    """One shard's state, as Spark's handle gives it; a task works on a copy, which counts if it succeeds.

    `left`: after so many calls the worker dies.
    """

    chunks: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    left: int | None = None

    def _call(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Died

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        self._call()
        return self.chunks.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self._call()
        self.chunks[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self._call()
        del self.chunks[key]

    def clear(self) -> None:
        self._call()
        self.chunks.clear()

    def getMapState(self, name: str, key: object, value: object) -> Cells:
        return self

    def copy(self) -> Cells:
        return Cells(dict(self.chunks))


@dataclass(frozen=True)
class Task:
    """One shard of one level in one micro-batch, with the state that it begins with."""

    level: int
    hosts: Level
    shard: int
    frames: list[pd.DataFrame]
    state: Cells


@dataclass
class Cluster:
    """Workers with their caches, the state of every shard of every host, and a source of mishaps."""

    rng: random.Random
    workers: list[OrderedDict[Any, Any]] = field(default_factory=lambda: [OrderedDict() for _ in range(3)])
    states: dict[tuple[int, int], Cells] = field(default_factory=lambda: defaultdict(Cells))
    mishaps: float = 0.2
    """How likely one is to befall a task; a whole micro-batch, half as likely."""
    given_up: list[Task] = field(default_factory=list)
    """Tasks that Spark counts as lost, but whose worker is only slow."""

    def run_task(self, level: int, hosts: Level, shard: int, frames: list[pd.DataFrame]) -> pd.DataFrame:
        """One shard's task, in as many attempts as it takes; the state of one of them counts."""
        task = Task(level, hosts, shard, frames, self.states[level, shard])
        while self.happens(self.mishaps):
            done = MISHAPS[self.rng.choice(sorted(MISHAPS))](self, task)
            if done is not None:
                return self.commit(task, *done)
        return self.commit(task, *self.attempt(task))

    def attempt(self, task: Task, left: int | None = None) -> tuple[pd.DataFrame, Cells]:
        """Run a task on any worker: what it gives, and the state that it leaves."""
        engine_cache._ENGINES = self.rng.choice(self.workers)
        state = replace(task.state.copy(), left=left)
        processor = Host(*task.hosts)
        processor.init(state)  # type: ignore[arg-type]
        given = list(processor.handleInputRows((task.shard,), iter(task.frames), None))
        return (pd.concat(given) if given else pd.DataFrame()), state

    def commit(self, task: Task, out: pd.DataFrame, state: Cells) -> pd.DataFrame:
        self.states[task.level, task.shard] = state
        return out

    def restart(self) -> None:
        """All workers are new."""
        for worker in self.workers:
            worker.clear()

    def happens(self, chance: float) -> bool:
        return self.rng.random() < chance

    def go_back_to(self, states: dict[tuple[int, int], Cells]) -> None:
        """The driver died before it noted that the micro-batch was done; executors may have lived on."""
        self.states.clear()
        self.states.update(states)
        if self.happens(0.5):
            self.restart()

    def hear_from_stragglers(self) -> None:
        """Attempts that were given up end: what they wrote does not count, what they remember is old."""
        while self.given_up and self.happens(0.5):
            self.attempt(self.given_up.pop(self.rng.randrange(len(self.given_up))))


Done = tuple[pd.DataFrame, Cells]


def _fails_in_the_middle(cluster: Cluster, task: Task) -> Done | None:
    with suppress(Died):
        cluster.attempt(task, left=cluster.rng.randint(0, 6))
    return None


def _fails_at_its_end(cluster: Cluster, task: Task) -> Done | None:
    cluster.attempt(task)
    return None


def _runs_twice(cluster: Cluster, task: Task) -> Done | None:
    """Speculation: either may be the first to end."""
    return cluster.rng.choice([cluster.attempt(task), cluster.attempt(task)])


def _is_given_up(cluster: Cluster, task: Task) -> Done | None:
    cluster.given_up.append(task)
    return None


def _loses_a_worker(cluster: Cluster, task: Task) -> Done | None:
    cluster.rng.choice(cluster.workers).clear()
    return None


MISHAPS: dict[str, Callable[[Cluster, Task], Done | None]] = {
    "fails in the middle": _fails_in_the_middle,
    "fails at its end": _fails_at_its_end,
    "runs twice": _runs_twice,
    "is given up": _is_given_up,
    "loses a worker": _loses_a_worker,
}
"""What may befall a task; None: Spark starts another attempt."""


@dataclass
class Outcome:
    """What came out: answers with their times, late and rejected rows, all as plain rows."""

    answers: list[tuple[Any, ...]] = field(default_factory=list)
    late: list[tuple[Any, ...]] = field(default_factory=list)
    rejected: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)
    by_batch: list[list[tuple[Any, ...]]] = field(default_factory=list)
    """The answers of each micro-batch, on Spark."""
    by_query: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))
    """The answers of each query of a job, with their times."""
    by_query_and_batch: dict[str, list[list[tuple[Any, ...]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    reports: list[bytes] = field(default_factory=list)
    """What each shard says about itself, of one micro-batch."""
    reasons: list[bytes] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.answers += other.answers
        self.late += other.late
        self.rejected += other.rejected
        self.numbers += other.numbers
        for query, rows in other.by_query.items():
            self.by_query[query] += rows

    def sorted(self) -> tuple[list[tuple[Any, ...]], ...]:
        return tuple(sorted(rows, key=repr) for rows in (self.answers, self.late, self.rejected))


Tables = dict[str, pa.Table]


@dataclass
class Manager:
    """The memory manager of a driver, which may be lost with it, and the reports that it has seen."""

    budget: int
    rng: random.Random
    policy: Literal["fail", "spill"] = "fail"
    importance: Mapping[str, float] = field(default_factory=dict)
    job: JobBudget = field(init=False)
    held: list[int] = field(default_factory=list)
    histories: list[dict[tuple[int, str], set[Any]]] = field(default_factory=list)
    """After each micro-batch: by host and window, the histories that its shards report."""
    choices: dict[int, Choice] = field(default_factory=dict)
    """By the number of micro-batches before it."""
    text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.job = JobBudget(self.budget, self.policy, "", lambda query: self.importance.get(query, 1.0))

    def heard(self, batch: int, reports: list[bytes]) -> list[str]:
        """The choice after a micro-batch, as the text of a file; none if there is nothing to change."""
        if self.rng.random() < 0.1:
            self.__post_init__()
        plain = [json.loads(each) for each in reports]
        choice = self.job.choose(batch, plain)
        self.held.append(sum(each["memory"]["held"] for each in plain if "held" in each["memory"]))
        self.histories.append(reported_histories(plain))
        self.choices[batch] = choice
        self.text = [choice.text()] if choice.values else []
        return self.text


def reported_histories(reports: list[Any]) -> dict[tuple[int, str], set[Any]]:
    found: dict[tuple[int, str], set[Any]] = defaultdict(set)
    for each in reports:
        for setting in each["memory"]["settings"].values():
            found[each["memory"]["host"], str(setting["uses"])].add(tuple(map(tuple, setting["history"])))
    return found


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
    outlet = outlet or Outlet("__t")
    outlet = replace(outlet, packed=outlet.packed or not is_flat(plan.schema))
    world = World(inputs, partitions, None, False, _packed(tables), witnesses, takes or {})
    made = levels({QUERY: plan}, world, outlet)
    return run_levels(made, batches, cluster, outlet.schema(plan.schema), ends, said, reached, **more)


def job_on_spark(
    plans: Mapping[str, Plan],
    inputs: Inputs,
    batches: list[MicroBatch],
    tables: Tables,
    partitions: int,
    cluster: Cluster,
    ends: bool = False,
    **more: Any,
) -> Outcome:
    """Several plans as a job would lay them out."""
    world = World(inputs, partitions, None, False, _packed(tables))
    made = levels(plans, world, Outlet(packed=True))
    return run_levels(made, batches, cluster, pa.schema([]), ends, **more)


def _packed(tables: Tables) -> dict[str, bytes]:
    return {name: to_ipc(rows) for name, rows in tables.items()}


def run_levels(
    made: list[Level],
    batches: list[MicroBatch],
    cluster: Cluster,
    answer: pa.Schema,
    ends: bool = False,
    said: list[int | None] | None = None,
    reached: list[dict[str, np.ndarray]] | None = None,
    commands: Mapping[int, list[str]] = MappingProxyType({}),
    manager: Manager | None = None,
    first: int = 0,
    files: TaskFiles | None = None,
    **more: Any,
) -> Outcome:
    """The micro-batches through these hosts, with everything that may happen to them.

    `commands` are files of the control log, by the number of the micro-batch that reads them. `manager` is
    the memory manager of the driver, which `first` micro-batches have been reported to before. `files` are
    those that tasks write themselves.
    """
    outcome = Outcome()
    chosen: list[str] = [] if manager is None else manager.text
    made = [tuple(replace(host, **more) for host in level) for level in made]
    said = said or clocks(batches)
    for number, (now, arrived) in enumerate(batches, start=1):
        since = {} if reached is None else reached[number - 1]
        if cluster.happens(0.1):
            cluster.restart()
        cluster.hear_from_stragglers()
        before, last = dict(cluster.states), ends and number == len(batches)
        told = commands.get(number - 1, [])
        batch = Batch(now, arrived, said[number - 1], since, last, told, chosen, first + number, files)
        given = batch.run(made, cluster, answer)
        while cluster.happens(cluster.mishaps / 2):
            cluster.go_back_to(before)
            again = batch.run(made, cluster, answer)
            assert again.sorted() == given.sorted(), "a micro-batch that runs again gives what it gave"
            given = again
        if manager is not None:
            chosen = manager.heard(first + number, given.reports)
        outcome.reports = given.reports
        outcome.add(given)
        outcome.by_batch.append(given.answers)
        for query, rows in given.by_query.items():
            outcome.by_query_and_batch[query].append(rows)
    return outcome


@dataclass(frozen=True)
class Batch:
    """A micro-batch as Spark has noted it down: it can be run again."""

    now: int
    arrived: Arrived
    said: int | None
    since: Mapping[str, np.ndarray]
    last: bool
    commands: list[str] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    number: int = 0
    files: TaskFiles | None = None

    def run(self, made: list[Level], cluster: Cluster, answer: pa.Schema) -> Outcome:
        packages: list[pa.RecordBatch | pd.DataFrame] = []
        read = targets(made)
        for name, to in read.items():
            said = _speech(made, self.arrived, name)
            packages += _fanned(to, self.arrived, self.now, cluster.rng, self.since, said, self.files)
        for name in self.arrived.keys() - read:
            packages += _broadcast(made, self.arrived, name, self.now, cluster.rng)
        ticks = ClockBroadcast(clock_routes(made))(iter([_clock(self.said)]))
        packages += [_clocked(batch, self.now) for batch in ticks]
        for texts, stream in ((self.commands, COMMANDS), (self.chosen, CHOICES)):
            read_texts = pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.string())})
            sent = CommandBroadcast(end_routes(made), stream)(iter([read_texts]))
            packages += [_clocked(each, self.now) for each in sent]
        # Tasks of Spark Connect do not know the number.
        budgeting.batch_number = lambda: self.number if self.now % 2 else None
        if self.last:
            packages += list(EndBroadcast(end_routes(made))(iter([_clock(self.now)])))
        for number, level in enumerate(made):
            packages = list(_level(number, level, packages, cluster))
        outcome = Outcome()
        for frame in packages:
            collect(pa.Table.from_pandas(frame, preserve_index=False), answer, outcome, self.files)
        return outcome


def _fanned(
    to: list[Target],
    arrived: Arrived,
    now: int,
    rng: random.Random,
    since: Mapping[str, np.ndarray] = MappingProxyType({}),
    said: Speech | None = None,
    files: TaskFiles | None = None,
) -> list[pa.RecordBatch]:
    stream = min((target.stream for target in to), key=lambda stream: stream.witness)
    if stream.source.name not in arrived:
        return []
    rows, times = arrived[stream.source.name]
    if stream.takes in (LIMITED, WITHHELD):  # a task is a partition of a broker, whoever runs it
        rng = random.Random(f"{now} {rows.num_rows}")
    cuts = sorted({0, rows.num_rows, *(rng.randint(0, rows.num_rows) for _ in range(rng.randint(0, 2)))})
    made = []
    for task, (begin, stop) in enumerate(pairwise(cuts)):
        reached = since[stream.source.name][begin:stop] if stream.source.name in since else None
        batch = as_read(stream, rows.slice(begin, stop - begin), times[begin:stop], now, reached)
        made += [_renumbered(b, task) for b in Partitioner(to, said, files)(_pieces(batch, rng))]
    return [_clocked(b, now) for b in made]


def _speech(made: list[Level], arrived: Arrived, name: str) -> Speech | None:
    """What the rows of a stream promise."""
    rows = arrived[name][0] if name in arrived else None
    return None if rows is None else speech(made, made[0][0].inputs, name, rows.schema)


def _broadcast(
    made: list[Level], arrived: Arrived, name: str, now: int, rng: random.Random
) -> list[pa.RecordBatch]:
    """Rows that no host reads, but that promise something, in one or two tasks."""
    said, (rows, _) = _speech(made, arrived, name), arrived[name]
    if said is None:
        return []
    cut = rng.randint(0, rows.num_rows)
    columns = [f"{SAID}{i}" for i in range(rows.num_columns)]
    tasks = (part.rename_columns(columns) for part in (rows.slice(0, cut), rows.slice(cut)))
    found = [
        _renumbered(b, i) for i, task in enumerate(tasks) for b in PromiseBroadcast(said)(_pieces(task, rng))
    ]
    return [_clocked(batch, now) for batch in found]


def as_read(
    stream: StreamSpec, rows: pa.RecordBatch, times: np.ndarray, now: int, reached: np.ndarray | None = None
) -> pa.RecordBatch:
    """Rows with the columns that Spark adds for the partitioner."""
    columns, names = [*rows.columns], [*rows.schema.names]
    if stream.external:
        columns.append(pa.array(times, pa.int64(), from_pandas=True))
        names.append(TIME)
    if not stream.clockless:
        columns.append(pa.array(np.full(rows.num_rows, now), pa.int64()))
        names.append(NOW)
    if reached is not None:
        columns.append(pa.array(reached, pa.int64()))
        names.append(REACHED)
    return pa.RecordBatch.from_arrays(columns, names)


def _pieces(batch: pa.RecordBatch, rng: random.Random) -> Iterator[pa.RecordBatch]:
    """Spark hands a task its rows in Arrow batches of any size."""
    cut = rng.randint(0, batch.num_rows)
    yield from (batch.slice(0, cut), batch.slice(cut))


def _clocked(batch: pa.RecordBatch, now: int) -> pa.RecordBatch:
    return batch.set_column(5, "now", pa.array([now] * batch.num_rows, pa.int64()))


def _renumbered(batch: pa.RecordBatch, task: int) -> pa.RecordBatch:
    return batch.set_column(3, "origin", pa.array([task] * batch.num_rows, pa.int32()))


def _clock(now: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({NOW: pa.array([now], pa.int64())})


def _level(number: int, hosts: Level, packages: list[Any], cluster: Cluster) -> Iterator[pd.DataFrame]:
    frames = [p if isinstance(p, pd.DataFrame) else p.to_pandas() for p in packages]
    if not frames:
        return
    together = pd.concat(frames)
    for shard in sorted(set(together["shard"])):
        mine = together[together["shard"] == shard]
        mine = mine.sample(frac=1, random_state=cluster.rng.randint(0, 2**31))
        out = cluster.run_task(number, hosts, int(shard), [mine])
        if len(out):
            yield out


def collect(table: pa.Table, answer: pa.Schema, outcome: Outcome, files: TaskFiles | None = None) -> None:
    """Add what the last host gave: answers, which have the columns `answer`, and side outputs."""
    kind = table.column(KIND)
    for batch in answers_of(table.filter(pc.is_null(kind)), answer):
        outcome.answers += [tuple(row.values()) for row in batch.to_pylist()]
        outcome.numbers[RESULT] += batch.num_rows
    packed = table.filter(pc.equal(kind, RESULT)).select([named("query"), named("body"), named("stream")])
    for query, body, file in zip(*packed.to_pydict().values(), strict=True):
        if file is not None:
            assert files is not None
            written = pq.read_table(draft_of(Path(files.folder), 0) / file)
            outcome.answers += [tuple(row.values()) for row in written.to_pylist()]
            continue
        rows = from_ipc(body)
        assert rows.equals(in_order(rows)), "a shard gives its answers in the order of their times"
        found = [tuple(row.values()) for row in rows.to_pylist()]
        outcome.answers += found
        outcome.by_query[query] += found
        outcome.numbers[RESULT] += rows.num_rows
    for name, texts in ((METRICS, outcome.reports), (REASONS, outcome.reasons)):
        texts += [
            each.as_py() for each in table.filter(pc.equal(kind, name)).column(named("body")).drop_null()
        ]
    for name, rows in ((LATE, outcome.late), (REJECTED, outcome.rejected)):
        told = table.filter(pc.equal(kind, name))
        outcome.numbers[name] += pc.sum(told.column(named("rows"))).as_py() or 0
        for body in told.column(named("body")).drop_null():
            rows += [tuple(row.values()) for row in from_ipc(body.as_py()).to_pylist()]


def answers_of(table: pa.Table, answer: pa.Schema) -> list[pa.RecordBatch]:
    """Answers in the types of the plan, as Spark restores them."""
    if not is_flat(answer) or not table.num_rows:
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
    execution: Execution | None = None,
    ordered: bool = True,
) -> Iterator[Outcome]:
    """What one engine in this process gives at each instant."""
    engine = (execution or Execution()).engine()
    inputs.install(engine, dict.fromkeys([*sources_of(plan), *witnesses]))
    engine.streams.recognise(inputs.row_promises)
    engine.add("q", plan, ordered=ordered)
    for name, data in tables.items():
        engine.load(name, data)
    all_read = [*sources_of(plan), *witnesses]
    names = list(dict.fromkeys(source.name for source in all_read)) if waited else []
    for name in names:
        engine.streams.read_until(name, MIN_TIME)
    said = clocks(batches)
    for number, (now, arrived) in enumerate(batches, start=1):
        for name, (rows, times) in arrived.items():
            ticks = pa.array(times, pa.int64(), from_pandas=True)
            external = engine.graph.sources[name].kind.value == "external"
            engine.push(name, rows, ticks if external else None, now=now)
        for name in names if said[number - 1] is not None else ():
            engine.streams.read_until(name, said[number - 1])
        engine.advance(now)
        if ends and number == len(batches):
            for source in dict.fromkeys(sources_of(plan)):
                engine.streams.end(source.name)
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
