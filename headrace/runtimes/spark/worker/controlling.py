"""Commands of the control log in a host: every shard applies a command in the same micro-batch.

Commands are a source of the job, so a micro-batch that runs again has the same ones. Those that change which
queries run or how (`headrace.control.in_force.CHANGES`) are part of the job from its next start on; a host
skips them if it started with them. The others change only the state: the state says which were applied.

A query that is added while the job runs goes to the first host that already gets all the rows that it needs,
by a key that it can use. If there is none, no host takes it, and the driver starts the job again. So it does
where other bounds or another budget concern more than the engines of the shards (`in_band`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headrace.control import (
    AddQuery,
    Command,
    Entry,
    Heartbeat,
    Punctuate,
    Reload,
    RemoveQuery,
    Resize,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    apply,
)
from headrace.control.apply import query_named, resize_from, resized
from headrace.control.in_force import CHANGES, changed
from headrace.control.log import read_entry
from headrace.engine import Engine
from headrace.errors import HeadraceError
from headrace.memory.budget import budget_bytes
from headrace.pipeline import Pipeline, PipelineQuery
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import adaptable
from headrace.runtimes.spark.worker.state_store import key_text
from headrace.time.ets import TimerPromise

Windows = Mapping[str, tuple[Plan | None, ...]]
"""By query, the nodes of a host for the windows that may change, in the order of the whole plan."""


@dataclass(frozen=True)
class Home:
    """A host that can take queries: its keys as text (None: one shard), and what its shards have.

    `reported` are the streams whose late and rejected rows are reported in full, by kind.
    """

    shard_keys: tuple[int, ...]
    keys: Mapping[str, tuple[str, ...]] | None
    streams: frozenset[str]
    tables: frozenset[str] = frozenset()
    reported: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def takes(self, query: PipelineQuery, choices: Iterable[Mapping[str, Any] | None]) -> bool:
        """Whether a query can run here, partitioned in one of these ways."""
        read = frozenset(query.streams)
        tables = {table.name for table in query.query.tables}
        wanted = {kind: getattr(query.spec, kind) for kind in ("late", "rejected")}
        if not read <= self.streams or not tables <= self.tables:
            return False
        if any(sink and not read <= self.reported.get(kind, frozenset()) for kind, sink in wanted.items()):
            return False
        return any(self._has(keys) for keys in choices)

    def _has(self, keys: Mapping[str, Any] | None) -> bool:
        if keys is None or self.keys is None:
            return keys is None and self.keys is None
        have = self.keys
        return all(not key or have.get(name) == key_text(key) for name, key in keys.items())


@dataclass(frozen=True)
class ControlSpec:
    """What a host needs to follow the log: the pipeline in force after command `position`, and the homes.

    `home_of` is the place of a query in `homes`, or None. `all_shards` is how many shards the job has.
    """

    pipeline: Pipeline
    position: int
    homes: tuple[Home, ...]
    home_of: Callable[[PipelineQuery, tuple[Home, ...]], int | None]
    all_shards: int = 1

    def following(
        self,
        shard_keys: tuple[int, ...],
        queries: Mapping[str, Plan],
        windows: Windows,
        followed: Mapping[str, Any] | None,
    ) -> Following:
        """How a shard of a host follows the log, from where it was."""
        known = Followed() if followed is None else Followed.of(followed).since(self.position)
        return Following(self, shard_keys, dict(queries), windows, self.pipeline, known)


@dataclass(frozen=True)
class Followed:
    """How far a shard has followed the log: the last command, and the changes since the job started."""

    applied: int = 0
    changes: tuple[Entry, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return {"applied": self.applied, "changes": [entry.to_json() for entry in self.changes]}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Followed:
        """What `plain` wrote."""
        return Followed(plain["applied"], tuple(map(Entry.from_json, plain["changes"])))

    def since(self, position: int) -> Followed:
        """Without the changes that a job contains which started after command `position`."""
        return replace(self, changes=tuple(each for each in self.changes if each.number > position))


IN_BAND: Final = (AddQuery, RemoveQuery, Resize, Punctuate, Heartbeat, Reload, SetStrategy, SetLevel)
"""Commands that hosts always apply while the job runs."""


def in_band(command: Command, before: Pipeline, after: Pipeline) -> bool:
    """Whether hosts apply a command while the job runs; for others the driver starts the job again."""
    concerns = _ONLY_ENGINES.get(type(command))
    return isinstance(command, IN_BAND) or (concerns is not None and concerns(before, after))


def _sent_alike(before: Pipeline, after: Pipeline) -> bool:
    """Whether rows are sent to shards in the same way under other bounds, and are checked alike on the way.

    Then only the watermarks differ, which each shard computes by itself.
    """
    return all(_sent(before, name) == _sent(after, name) for name in before.read)


def _sent(pipeline: Pipeline, stream: str) -> tuple[object, ...]:
    """What decides how the rows of a stream are sent to shards."""
    inputs, promise = pipeline.inputs(), pipeline.inputs().promise_of(stream)
    by_source = inputs.by_source(stream) is not None
    return (
        inputs.learns(stream),
        inputs.counts_rows(stream),
        inputs.rules_of(stream),
        inputs.heard_by([stream]),
        promise.offset if isinstance(promise, TimerPromise) else None,
        pipeline.streams[stream].lateness if by_source else None,
    )


def _another_size(before: Pipeline, after: Pipeline) -> bool:
    """Whether only the size of the budget differs, in bytes: a share of the executors is known to the driver.

    With a first budget, the sizes of windows become a source of the job; to spill, engines need a place.
    """
    one, other = before.spec.memory, after.spec.memory
    sizes = (one.budget, other.budget)
    return one.policy == other.policy and not any(each is None or "%" in str(each) for each in sizes)


_ONLY_ENGINES: Final[dict[type[Command], Callable[[Pipeline, Pipeline], bool]]] = {
    SetBounds: _sent_alike,
    SetBudget: _another_size,
}
"""Whether a command concerns only the engines of the shards; `before` and `after` are the pipelines."""


@dataclass
class Following:
    """A host's engine as it follows the log: the queries that run in it now, and the pipeline in force."""

    control: ControlSpec
    shard_keys: tuple[int, ...]
    queries: dict[str, Plan]
    windows: Windows
    pipeline: Pipeline
    followed: Followed
    had: set[str] = field(init=False)
    """The names of all queries since the job started."""

    def __post_init__(self) -> None:
        self.had = {query.name for query in self.control.pipeline.queries}

    def rebuild(self, engine: Engine) -> None:
        """Make the changes that the state contains, in an engine that has just been built."""
        for entry in self.followed.changes:
            self._change(engine, entry)

    def follow(self, engine: Engine, texts: Iterable[str]) -> None:
        """Apply the commands of a micro-batch that are new, in order; `texts` are files of the log."""
        for entry in sorted(_entries(texts), key=lambda entry: entry.number):
            if type(entry.command) in CHANGES:
                known = max([self.control.position, *(each.number for each in self.followed.changes)])
                if entry.number > known:
                    self._change(engine, entry)
                    self.followed = replace(self.followed, changes=(*self.followed.changes, entry))
            elif isinstance(entry.command, IN_BAND) and entry.number > self.followed.applied:
                self._tell(engine, entry)
                self.followed = replace(self.followed, applied=entry.number)

    def _change(self, engine: Engine, entry: Entry) -> None:
        """Change the queries or how they run. A command that cannot be applied is reported by the driver."""
        command = entry.command
        with suppress(HeadraceError):
            after = changed(self.pipeline, entry)
            if not in_band(command, self.pipeline, after):
                return
            engine.set_apart()
            if isinstance(command, AddQuery):
                self._add(engine, after, entry)
            elif isinstance(command, SetBounds):
                after.inputs().renew(engine)
            elif isinstance(command, SetBudget):
                self._limit(engine, after)
            elif not isinstance(command, RemoveQuery):
                apply(entry, engine, after)
            elif command.name in self.queries:
                engine.remove(command.name)
                del self.queries[command.name]
            self.pipeline = after

    def _add(self, engine: Engine, after: Pipeline, entry: Entry) -> None:
        """Add a query if it belongs here. With a name that the job has had, it waits for another start."""
        assert isinstance(entry.command, AddQuery)
        name = entry.command.name
        if name in self.had:
            return
        self.had.add(name)
        query = next(each for each in after.queries if each.name == name)
        home = self.control.home_of(query, self.control.homes)
        if home is not None and self.control.homes[home].shard_keys == self.shard_keys:
            asked = query.query
            engine.add(
                query.name, asked.plan, since=entry.number, ordered=asked.ordered, service=asked.service
            )
            self.queries[query.name] = query.query.plan

    def _limit(self, engine: Engine, after: Pipeline) -> None:
        """Hold this shard's share of another budget."""
        assert after.spec.memory.budget is not None
        budget = budget_bytes(after.spec.memory.budget)
        engine.memory.set_share(budget // self.control.all_shards, budget, policy=after.spec.memory.policy)

    def _tell(self, engine: Engine, entry: Entry) -> None:
        """Apply a command that changes only the state, if it is about something here."""
        command = entry.command
        with suppress(HeadraceError):
            if isinstance(command, Resize):
                self._resize(engine, command)
            elif _is_about(command, engine):
                apply(entry, engine, self.pipeline)

    def _resize(self, engine: Engine, command: Resize) -> None:
        """Resize a window, if it is here: of a query in two stages, it may be in another host."""
        node, size, at = resized(self.pipeline, command)
        if command.query not in self.queries:
            return
        if command.query in self.windows:
            written = adaptable(query_named(self.pipeline, command.query).query.plan)
            here = dict(zip(written, self.windows[command.query], strict=True))[node]
        else:
            here = node  # added while the job runs: in one stage, with the plan that it has alone
        if here is not None:
            resize_from(engine, here, size, at, command.query)


def _entries(texts: Iterable[str]) -> Iterator[Entry]:
    """The commands in files of the log, without those that are damaged; the driver reports these."""
    for text in texts:
        with suppress(HeadraceError):
            entry = read_entry(text)
            if entry is not None:
                yield entry


def _is_about(command: Command, engine: Engine) -> bool:
    """Whether a command is about a stream or a table that is read here."""
    if isinstance(command, Reload):
        return engine.has_table(command.table)
    assert isinstance(command, Punctuate | Heartbeat)
    return command.stream in engine.streams
