"""A pipeline that has been checked: streams with time and rules, queries with plans and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.graph.admission import Rules
from headrace.pipeline.spec import FileSpec, QuerySpec, StreamSpec, backlog
from headrace.plan.nodes.core import TimeKind
from headrace.schema import Schema
from headrace.sql import Catalog, Query, StreamDef
from headrace.time.bounds import NEVER, Bounds
from headrace.time.ets import Promise, TimerPromise
from headrace.time.grouping import ensure_groups_move, group_named
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import CombinedHeartbeats, Generator, LearnedHeartbeats
from headrace.time.quantile import Confidence, QuantileEstimator
from headrace.time.skew import Pair, SkewMatrix


@dataclass(frozen=True)
class Lateness:
    """What a stream promises about its rows, in ticks; None where nothing is declared."""

    disorder: int | None = None
    latency: int | None = None
    confidence: Confidence | None = None


@dataclass(frozen=True)
class PipelineStream:
    """A stream: its definition, how its time is determined, and the rules for its rows."""

    spec: StreamSpec
    definition: StreamDef
    rules: Rules
    lateness: Lateness
    unit: int | None
    earliest: int | None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def schema(self) -> Schema:
        """The columns of its rows."""
        return self.definition.schema

    @property
    def shed(self) -> dict[str, Any] | None:
        """Load shedding: `keep` a share of the rows beyond `rows` or `bytes`; None: backpressure."""
        policy = self.spec.shed
        return None if policy is None else {**backlog(policy.above), "keep": policy.keep, "seed": policy.seed}

    @property
    def external(self) -> bool:
        """Whether rows carry their own time."""
        return self.definition.time is TimeKind.EXTERNAL


@dataclass(frozen=True)
class PipelineQuery:
    """A query: its plan and where its results go.

    `since` is the number of the command that added it; 0: it was there from the start. `origin` says where
    its text comes from: the pipeline `file`, or the control `log`.
    """

    spec: QuerySpec
    query: Query
    since: int = 0
    origin: str = "file"

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return tuple(source.name for source in self.query.sources)


@dataclass(frozen=True)
class Pipeline:
    """Everything a runtime needs to know. Paths are relative to `root`, the directory of the file.

    `catalog` has the names that queries may use. `also_read`: streams that are read although no query reads
    them any more. `level`: the heartbeat level, which only a command can change.
    """

    spec: FileSpec
    root: Path
    streams: Mapping[str, PipelineStream]
    queries: tuple[PipelineQuery, ...]
    ticks_per_second: int | None
    skew: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = field(default_factory=dict)
    timeout: int | None = None
    warnings: tuple[str, ...] = ()
    catalog: Catalog = field(default_factory=Catalog, compare=False, repr=False)
    file: Path | None = None
    also_read: frozenset[str] = frozenset()
    level: str = "operator"

    @property
    def name(self) -> str:
        return self.spec.pipeline.name

    @property
    def runtime(self) -> str:
        """`spark` or `embedded`: as set in the file, else what can run it here."""
        return self.spec.pipeline.runtime or "spark"

    @property
    def read(self) -> dict[str, PipelineStream]:
        """The streams that a query reads, or that are read in any case."""
        wanted = self.also_read.union(*(query.streams for query in self.queries))
        return {name: stream for name, stream in self.streams.items() if name in wanted}

    def path(self, written: str) -> Path:
        """A path in the file as a path on disk."""
        return self.root / written

    def tables(self) -> dict[str, Any]:
        """The file as plain data, with the text of every query included and absolute paths for tables."""
        tables: dict[str, Any] = self.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        for table, query in zip(tables["queries"], self.queries, strict=True):
            table.pop("sql_file", None)
            table["sql"] = query.query.text
        for each in tables["tables"].values():
            each["path"] = str(self.path(each["path"]).resolve())
        return tables

    def heartbeats(self) -> CombinedHeartbeats | None:
        """The generator of the heartbeats of all external streams; None if no stream is external."""
        streams = [s for s in self.read.values() if s.external]
        if not streams:
            return None
        learned = [s for s in streams if s.lateness.confidence is not None]
        disorder = {s.name: d for s in streams if (d := self._disorder(s)) is not None}
        generators: list[Generator] = [self._learned(stream) for stream in learned]
        named = disorder.keys() | {name for pair in self.skew for name in pair}
        bound = [s.name for s in streams if s.name in named]
        if bound:
            generators.append(self._declared(bound, disorder))
        return CombinedHeartbeats([s.name for s in streams], generators)

    def promises(self) -> dict[str, Promise]:
        """The promises that depend on the clock, by stream."""
        lags = {s.name: s.lateness.latency for s in self.read.values() if s.external}
        return {name: TimerPromise(lag) for name, lag in lags.items() if lag is not None}

    def _learned(self, stream: PipelineStream) -> LearnedHeartbeats:
        """Heartbeats for a stream whose bounds are estimated from arrivals."""
        estimator = QuantileEstimator([stream.name], stream.lateness.confidence)
        return LearnedHeartbeats(estimator, NEVER if self.timeout is None else self.timeout)

    def _disorder(self, stream: PipelineStream) -> int | None:
        """How far a row may be behind the newest row of its stream. By default, rows arrive in order."""
        said = stream.lateness
        bounded = said.latency is not None or said.confidence is not None
        bounded = bounded or any(on == stream.name for _, on in self.skew)
        return 0 if said.disorder is None and not bounded else said.disorder

    def _declared(self, names: list[str], disorder: Mapping[str, int]) -> HeartbeatGenerator:
        """The heartbeat generator over declared bounds (Srivastava and Widom, Figure 2)."""
        entries: dict[tuple[str, str], list[Pair]] = {
            (name, name): [Pair(0, ticks + 1)] for name, ticks in disorder.items()
        }
        for (of, on), pairs in self.skew.items():
            if of in names and on in names:
                entries.setdefault((of, on), []).extend(Pair(t, delta) for t, delta in pairs)
        timeout = NEVER if self.timeout is None else self.timeout
        bounds = Bounds.of(SkewMatrix.of(names, entries), 0, timeout)
        close, groups = self.spec.skew.closure, self.spec.skew.groups
        if not groups:
            return HeartbeatGenerator(bounds, close=close)
        grouped = group_named(bounds.closed() if close else bounds, groups)
        promised = [
            n for n, s in self.streams.items() if s.lateness.latency is not None or s.lateness.confidence
        ]
        ensure_groups_move(grouped, promised)
        return HeartbeatGenerator(grouped, close=close)
