"""Pipelines that change while they run: random rows, random commands, and the plain engine to compare with.

Rows arrive at recorded instants, so a step is the same in every run: a command is given as the number of
steps before it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from headrace.connectors.late_and_rejected import late_rows
from headrace.control import (
    AddQuery,
    Command,
    Entry,
    Heartbeat,
    Punctuate,
    RemoveQuery,
    Resize,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    in_force,
)
from headrace.control.apply import windows_of
from headrace.engine import Engine
from headrace.pipeline import Pipeline, load
from headrace.pipeline.sharing import start_together, with_shared_plans
from headrace.runtimes.embedded.factory import PipelineFactory
from headrace.runtimes.embedded.feeds import Step
from headrace.time.clock import ManualClock
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import FARTHEST

SECOND: Final = 1_000_000
QUERIES: Final = {
    "high": "SELECT id, v FROM a WHERE v > 5",
    "counts": "SELECT k, count(*) AS n, sum(v) AS v FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "adapt": "SELECT k, count(*) AS n FROM a [RANGE MIN 1 SECOND, MAX 5 SECONDS] GROUP BY k",
    "sums": "SELECT k, sum(v) AS v FROM a [RANGE MIN 2 SECONDS, MAX 6 SECONDS] GROUP BY k",
    "pairs": "SELECT x.id, y.id AS o FROM a [RANGE 3 SECONDS] AS x, b [RANGE 2 SECONDS] AS y WHERE x.k = y.k",
    "newest": "SELECT k, id FROM b [PARTITION BY k ROWS 1]",
    "sessions": "SELECT k, count(*) AS n, max(v) AS v FROM b [SESSION 2 SECONDS] GROUP BY k",
}
SIZES: Final = {"adapt": ("1 s", "3 s", "5 s"), "sums": ("2 s", "4 s", "6 s")}
SHARED: Final = {"adapt": ("3 s", "5 s"), "sums": ("2 s", "4 s")}
"""If both start with the run, they share a window, and its size must be within the bounds of both."""
READS: Final = {name: [s for s in "ab" if f" {s} " in f"{sql} "] for name, sql in QUERIES.items()}
HEAD: Final = """
[pipeline]
name = "live"
runtime = "embedded"
checkpoint = "state"
interval = "1 hour"
every_rows = {every}
{record}
"""
STREAM: Final = """
[streams.{name}]
source = {{ path = "{name}.jsonl", block_bytes = 200 }}
schema = "id BIGINT, k BIGINT, v BIGINT, at BIGINT"
time = {{ column = "at", unit = "us" }}
bounds = {{ {bounds} }}
arrival = "came"
"""
QUERY: Final = """
[[queries]]
name = "{name}"
sql = "{sql}"
sink = "{name}-0.jsonl"
late = "{name}-0-late.jsonl"
"""


@dataclass
class Story:
    """A pipeline, its rows, and the commands by the number of steps before them."""

    head: str
    streams: dict[str, str]
    rows: dict[str, list[dict[str, int]]]
    first: list[str]
    commands: list[tuple[int, Command]] = field(default_factory=list)

    def write(self, root: Path) -> Path:
        """The pipeline file and its input."""
        for name, rows in self.rows.items():
            (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        streams = "".join(STREAM.format(name=name, bounds=b) for name, b in self.streams.items())
        queries = "".join(QUERY.format(name=name, sql=QUERIES[name]) for name in self.first)
        (root / "pipeline.toml").write_text(self.head + streams + queries)
        return root / "pipeline.toml"


def stories(record: bool = False) -> st.SearchStrategy[Story]:
    """Stories by seed: hypothesis alone prefers those in which little happens."""
    return st.integers(0, 2**32 - 1).map(lambda seed: story_of(Random(seed), record))


def story_of(rng: Random, record: bool = False) -> Story:
    """Rows of some thirty steps, a few queries, and up to nine commands, each good where it stands."""
    head = HEAD.format(every=rng.choice((1, 3, 7, 1000)), record='record = "record"' if record else "")
    bounds = ('disorder = "1 s"', 'latency = "1 s"', 'disorder = "3 s", latency = "2 s"')
    rows: dict[str, list[dict[str, int]]] = {}
    for name in "ab":
        rows[name], came = [], 0
        for i in range(rng.randint(3, 30)):
            came += rng.choice((0, 0, 1, 1, 2))
            at = (10 + came - rng.choice((0, 0, 1, 2, 3))) * SECOND
            k, v = rng.randint(0, 2), rng.randint(0, 9)
            rows[name].append({"id": i, "k": k, "v": v, "at": at, "came": (10 + came) * SECOND})
    first = rng.sample(sorted(QUERIES), rng.choice((1, 1, 2, 3)))
    story = Story(head, {name: rng.choice(bounds) for name in "ab"}, rows, first)
    running, read = list(first), {s for name in first for s in READS[name]}
    together = set(first)
    for number, moment in enumerate(sorted(rng.randint(0, 20) for _ in range(rng.randint(1, 9))), 1):
        sizes = SHARED if together >= SHARED.keys() else SIZES
        command = rng.choice(_commands(rng, number, running, sorted(read), sizes))
        if isinstance(command, AddQuery):
            running.append(command.name)
            read |= set(READS[command.name])
        if isinstance(command, RemoveQuery):
            running.remove(command.name)
            together.discard(command.name)
        story.commands.append((moment, command))
    return story


def _commands(
    rng: Random,
    number: int,
    running: Sequence[str],
    read: Sequence[str],
    sizes: Mapping[str, Sequence[str]],
) -> list[Command]:
    """Commands that are good while these queries run."""
    instant = rng.randint(8, 40) * SECOND
    length = rng.choice(("0 s", "500 ms", "2 s", "5 s"))
    found: list[Command] = [
        SetStrategy(rng.choice(("bfs", "rr", "dfs(1)", "auto"))),
        SetLevel(rng.choice(("query", "operator", "memory"))),
        SetBudget(rng.choice(("1 GB", None))),
        SetBounds(rng.choice(read), {"disorder": length}),
        SetBounds(rng.choice(read), {"latency": length, "guard": "1 h"}),
        Heartbeat(rng.choice(read), instant),
        Punctuate(rng.choice(read), {"k": {"is": rng.randint(0, 2)}}, rng.choice((None, instant))),
    ]
    new = sorted(set(QUERIES) - set(running))
    if new:
        found += [_added(rng.choice(new), number)] * 4
    if running:
        found += [RemoveQuery(rng.choice(running))] * 2
    for name in sorted(sizes.keys() & set(running)):
        found += [Resize(name, rng.choice(sizes[name]))] * 2
    return found


def _added(name: str, number: int) -> AddQuery:
    """Every time that a query is added, it has outputs of its own."""
    return AddQuery(name, QUERIES[name], f"{name}-{number}.jsonl", late=f"{name}-{number}-late.jsonl")


# --- the engine to compare with ---------------------------------------------------------------------------


class Reference:
    """A plain engine that gets the same rows and commands at the same instants, and its outputs by path."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.file = self.pipeline = pipeline = with_shared_plans(pipeline, start_together(pipeline))
        self.applied: list[Entry] = []
        self.engine = Engine(strategy=pipeline.spec.pipeline.strategy, now=-FARTHEST)
        self.rows: dict[str, Counter[str]] = {}
        self._declare()
        for query in pipeline.queries:
            self.engine.add(query.name, query.query)
            self._open(query.name)

    def _declare(self) -> None:
        heartbeats = self.pipeline.heartbeats()
        assert heartbeats is not None
        rules = {s.definition.source: s.rules for s in self.pipeline.read.values()}
        self.engine.streams.manage_again(heartbeats, rules, self.pipeline.promises())

    def _open(self, name: str) -> None:
        spec = next(query.spec for query in self.pipeline.queries if query.name == name)
        self.rows |= {getattr(each, "path"): Counter() for each in (spec.sink, spec.late)}  # noqa: B009

    def obey(self, entry: Entry) -> None:
        """Do what a command says, with the engine's own methods."""
        self.applied.append(entry)
        self.pipeline = in_force(self.file, self.applied)
        engine, command = self.engine, entry.command
        if isinstance(command, AddQuery):
            query = next(query for query in self.pipeline.queries if query.name == command.name)
            if any(name not in engine.streams for name in query.streams):
                self._declare()
            engine.add(command.name, query.query, since=entry.number)
            self._open(command.name)
        elif isinstance(command, RemoveQuery):
            engine.remove(command.name)
        elif isinstance(command, Resize):
            query = next(query for query in self.pipeline.queries if query.name == command.query)
            (window,) = windows_of(query).values()
            engine.quality.resize(window, int(str(command.size).split()[0]) * SECOND, query=command.query)
        elif isinstance(command, SetBounds):
            self._declare()
        elif isinstance(command, SetStrategy):
            engine.scheduling.use(command.strategy)
        elif isinstance(command, SetLevel):
            engine.scheduling.set_level(command.level)
        elif isinstance(command, SetBudget):
            engine.memory.set_budget(command.budget)
        elif isinstance(command, Heartbeat):
            engine.streams.heartbeat(command.stream, int(command.time))
        elif isinstance(command, Punctuate):
            patterns = tuple((name, Constant(each["is"])) for name, each in command.patterns.items())
            until = Punctuation().until if command.until is None else int(command.until)
            engine.streams.punctuate(command.stream, Punctuation(until, patterns))
        engine.advance(engine.now)
        self._take()

    def step(self, step: Step) -> None:
        """The rows of one instant."""
        for piece in step.pieces:
            if len(piece):
                self.engine.push(piece.stream, piece.data, piece.times, now=step.now)
        for stream in step.ends:
            self.engine.streams.end(stream)
        self.engine.advance(step.now)
        self._take()

    def _take(self) -> None:
        results, late = self.engine.drain_all(), self.engine.drain_late()
        self.engine.drain_rejected()
        for query in self.pipeline.queries:
            sink, side = (getattr(each, "path") for each in (query.spec.sink, query.spec.late))  # noqa: B009
            for batch in results[query.name]:
                self.rows[sink].update(map(str, batch.data.to_pylist()))
            for each in late:
                if each.stream in query.streams:
                    self.rows[side].update(map(str, late_rows([each]).to_pylist()))


def expected(file: Path, commands: Sequence[tuple[int, Entry]]) -> Mapping[str, Counter[str]]:
    """What a plain engine gives for a story."""
    pipeline = load(file)
    factory = PipelineFactory(pipeline, ManualClock(), 0)
    feed, reference, steps = factory.feed(), Reference(pipeline), 0
    left = list(commands)
    while not feed.finished:
        while left and left[0][0] <= steps:
            reference.obey(left.pop(0)[1])
            factory.pipeline = reference.pipeline
            for name in reference.pipeline.read.keys() - feed.names:
                factory.add_to(feed, reference.pipeline.streams[name])
        step = feed.next()
        assert step is not None
        reference.step(step)
        steps += 1
    feed.close()
    return reference.rows


def outputs(root: Path, paths: Iterable[str]) -> dict[str, Counter[str]]:
    """The rows of each output."""
    found: dict[str, Counter[str]] = {}
    for path in paths:
        lines: list[Any] = (root / path).read_text().splitlines() if (root / path).exists() else []
        found[path] = Counter(str(json.loads(line)) for line in lines)
    return found
