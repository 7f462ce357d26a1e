"""Bounds and promises of the streams of a query as plain data, for an engine here or on a worker."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.engine.engine import Engine
from headrace.engine.timekeeper import Heartbeats
from headrace.errors import TimeError
from headrace.graph.admission import Rules
from headrace.plan.analysis.by_source import answers_by_source
from headrace.plan.nodes.core import Plan, Source, TimeKind
from headrace.plan.nodes.trees import sources_of
from headrace.state.source_cells import check_column
from headrace.time.ets import ClockPromise, LatentPromise, Policy, Promise, TimerPromise
from headrace.time.learned import CombinedHeartbeats
from headrace.time.row_promises import RowPromises
from headrace.time.sources import SourcesPromise

LEARN_NOTHING = (TimerPromise, ClockPromise, LatentPromise)
"""Promises that do not depend on arrivals."""

STRICT = Rules(disordered=True, enforce="strict")
"""Rows may come in any order; rows that break a promise are late."""


@dataclass(frozen=True)
class Inputs:
    """Bounds, promises, ETS policies and rules by stream.

    `heartbeats` covers the streams that it names, `promises` the others; where both cover a stream, the
    larger heartbeat holds. Both are templates: each engine gets its own copies. `row_promises` are rows that
    are punctuations or heartbeats; who reads the rows passes them to the engine (`Streams.promise`).
    """

    heartbeats: Heartbeats | None = None
    promises: Mapping[str, Promise] = field(default_factory=dict)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    rules: Mapping[str, Rules] = field(default_factory=dict)
    row_promises: RowPromises = field(default_factory=RowPromises)

    def rules_of(self, stream: str) -> Rules:
        """The rules for the rows of a stream: order, late data, guard."""
        return self.rules.get(stream, STRICT)

    def install(self, engine: Engine, sources: Iterable[Source]) -> None:
        """Declare `sources` to an engine that has none of them yet."""
        by_name = {source.name: source for source in sources}
        managed = self._managed(by_name)
        if self.heartbeats is not None:
            rules = {source: self.rules_of(name) for name, source in managed.items()}
            engine.streams.manage(copy.deepcopy(self.heartbeats), rules, copy.deepcopy(dict(self.promises)))
        for name, source in by_name.items():
            engine.streams.declare(
                source,
                policy=self.policies.get(name),
                promise=None if name in managed else copy.deepcopy(self.promises.get(name)),
                rules=self.rules_of(name) if source.time is TimeKind.EXTERNAL else None,
            )

    def renew(self, engine: Engine) -> None:
        """Give these bounds to an engine that was given others (`install`); only they may differ."""
        if self.heartbeats is None:
            return
        known = engine.graph.sources
        managed = [known[name] for name in self.heartbeats.streams if name in known]
        rules = {
            Source(node.name, node.schema, node.kind, node.stamp): self.rules_of(node.name)
            for node in managed
        }
        heartbeats = copy.deepcopy(self.heartbeats)
        assert isinstance(heartbeats, CombinedHeartbeats)
        engine.streams.manage_again(heartbeats, rules, copy.deepcopy(dict(self.promises)))

    def _managed(self, sources: Mapping[str, Source]) -> dict[str, Source]:
        """The sources whose heartbeats come from the shared generator."""
        if self.heartbeats is None:
            return {}
        return {name: sources[name] for name in self.heartbeats.streams if name in sources}

    def check(self, sources: Iterable[Source]) -> None:
        """Refuse an external stream without any promise: its rows would wait forever."""
        spoken = set(self.promises) | set(() if self.heartbeats is None else self.heartbeats.streams)
        for source in sources:
            self._check_sources(source)
            if source.time is TimeKind.EXTERNAL and source.name not in spoken:
                raise TimeError(
                    "HR-T050",
                    "nothing says how late the rows of this stream may be",
                    place=source.name,
                    hint=f'declare it: bounds={{"{source.name}": {{"disorder": "10 seconds"}}}}',
                )

    def _check_sources(self, source: Source) -> None:
        """Refuse sources by a column that the stream does not have, or beside bounds between streams."""
        promise = self.promises.get(source.name)
        if not isinstance(promise, SourcesPromise):
            return
        check_column(promise, source.columns, source.name)
        if self.by_source(source.name) is None:
            raise TimeError(
                "HR-T052",
                "a stream with sources by a column cannot have bounds between streams",
                place=source.name,
                hint="remove the stream from those bounds, or remove sources",
            )

    def heard_by(self, streams: Collection[str]) -> frozenset[str]:
        """The streams, in addition to `streams`, whose arrivals can move a heartbeat of one of them."""
        heard = frozenset() if self.heartbeats is None else self.heartbeats.heard_by(streams)
        return heard - frozenset(streams)

    def counts_rows(self, stream: str) -> bool:
        """Whether every time that arrives matters, or only the greatest of an instant."""
        if self.heartbeats is None or stream not in self.heartbeats.streams:
            by_source = self.by_source(stream)
            return by_source is not None and by_source.counts_rows
        return self.heartbeats.counts_rows(stream)

    def by_source(self, stream: str) -> SourcesPromise | None:
        """The promise of a stream that has sources by a column."""
        promise = self.promise_of(stream)
        return promise if isinstance(promise, SourcesPromise) else None

    def answers_early(self, plan: Plan) -> bool:
        """Whether results that need not be in order may come earlier: closed groups, or groups by source."""
        by_source = {
            name: promise.by.column
            for name in self.promises
            if (promise := self.by_source(name)) is not None and self.rules_of(name).enforce == "strict"
        }
        closing = self.row_promises.punctuations
        return answers_by_source(plan, by_source) or any(s.name in closing for s in sources_of(plan))

    def learns(self, stream: str) -> bool:
        """Whether arrivals on a stream prove anything."""
        return not isinstance(self.promise_of(stream), LEARN_NOTHING)

    def promise_of(self, stream: str) -> Promise | None:
        """The promise of a stream; None if `heartbeats` covers it."""
        managed = self.heartbeats is not None and stream in self.heartbeats.streams
        return None if managed else self.promises.get(stream)
