"""A pipeline that has been checked: streams with time and rules, queries with plans and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.drawing.svg import escape
from headrace.engine.execution import Execution
from headrace.engine.inputs import Inputs
from headrace.graph.admission import Rules
from headrace.pipeline.functions import Functions
from headrace.pipeline.spec import FileSpec, QuerySpec, StreamSpec, backlog
from headrace.plan.nodes.core import TimeKind
from headrace.schema import Schema
from headrace.sql import Catalog, Query, StreamDef
from headrace.time.declared import Declared, Lateness, Skew
from headrace.time.ets import Policy, Promise
from headrace.time.learned import CombinedHeartbeats
from headrace.time.row_promises import HeartbeatRows, RowPromises


@dataclass(frozen=True)
class PipelineStream:
    """A stream: its definition, how its time is determined, and the rules for its rows."""

    spec: StreamSpec
    definition: StreamDef
    rules: Rules
    lateness: Lateness
    unit: int | None
    earliest: int | None
    idle: Policy | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def of(self) -> str | None:
        """The stream whose rows it has, in another order; None: it is read itself."""
        return self.spec.of

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
    its text comes from: the pipeline `file`, or the control `log`. The answers of a `paused` query are held.
    """

    spec: QuerySpec
    query: Query
    since: int = 0
    origin: str = "file"
    paused: bool = False

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
    them any more.
    """

    spec: FileSpec
    root: Path
    streams: Mapping[str, PipelineStream]
    queries: tuple[PipelineQuery, ...]
    ticks_per_second: int | None
    skew: Skew = field(default_factory=Skew)
    warnings: tuple[str, ...] = ()
    catalog: Catalog = field(default_factory=Catalog, compare=False, repr=False)
    file: Path | None = None
    functions: Functions = field(
        default_factory=lambda: Functions(Path(), imports=False), compare=False, repr=False
    )
    also_read: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.spec.pipeline.name

    @property
    def runtime(self) -> str:
        """`spark` or `embedded`: as set in the file, else what can run it here."""
        return self.spec.pipeline.runtime or "spark"

    @property
    def read(self) -> dict[str, PipelineStream]:
        """The streams that a query reads or that have its rows, that promise something about one, or that are
        read in any case.
        """
        wanted = self.also_read.union(*(query.streams for query in self.queries))
        wanted |= self.row_promises.speakers(wanted)
        wanted |= {each.of for name, each in self.streams.items() if name in wanted and each.of is not None}
        return {name: stream for name, stream in self.streams.items() if name in wanted}

    @property
    def row_promises(self) -> RowPromises:
        """The rows that are punctuations and heartbeats of the streams."""
        punctuations = {
            name: tuple(each.rows_of(name) for each in stream.spec.punctuations)
            for name, stream in self.streams.items()
            if stream.spec.punctuations
        }
        heartbeats = {
            name: HeartbeatRows(said.column, stream.unit, said.data)
            for name, stream in self.streams.items()
            if (said := stream.spec.heartbeats) is not None
        }
        return RowPromises(punctuations, heartbeats)

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
            for key in ("path", "database"):
                if key in each:
                    each[key] = str(self.path(each[key]).resolve())
        return tables

    @property
    def declared(self) -> Declared:
        """The bounds of the external streams that are read; without any, rows come in order."""
        said = Declared({s.name: s.lateness for s in self.read.values() if s.external}, self.skew)
        streams = {
            name: each if said.is_bounded(name) else replace(each, disorder=0)
            for name, each in said.streams.items()
        }
        return Declared(streams, self.skew)

    def heartbeats(self) -> CombinedHeartbeats | None:
        """The generator of the heartbeats of external streams without sources by a column; None: no such."""
        found = self.declared.heartbeats()
        return found if found.streams else None

    def promises(self) -> dict[str, Promise]:
        """The promises that depend on the clock, by stream."""
        return self.declared.promises()

    def policies(self) -> dict[str, Policy]:
        """When idle streams make watermarks, by stream; those that are not listed do so on demand."""
        return {s.name: s.idle for s in self.read.values() if s.idle is not None}

    def inputs(self) -> Inputs:
        """What the file says about the streams that are read, as engines take it on both runtimes."""
        rules = {name: stream.rules for name, stream in self.read.items()}
        return Inputs(self.heartbeats(), self.promises(), self.policies(), rules, self.row_promises)

    @property
    def execution(self) -> Execution:
        """How engines run the queries, on both runtimes."""
        table = self.spec.pipeline
        return Execution(table.strategy, table.level, table.propagation)

    def _repr_html_(self) -> str:
        """Its queries, drawn one after the other."""
        drawn = (f"<h4>{escape(each.name)}</h4>{each.query._repr_html_()}" for each in self.queries)
        return f"<div>{''.join(drawn)}</div>"
