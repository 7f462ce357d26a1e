"""The outputs of queries: results, late rows and rejected rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headrace.connectors.contract import Commit, Sink
from headrace.connectors.late_and_rejected import LATE_SCHEMA, REJECTED_SCHEMA, late_rows, rejected_rows
from headrace.connectors.sinks import NoSink
from headrace.engine import Engine
from headrace.engine.reasons import Reasons
from headrace.expressions.types import INSTANT
from headrace.flow.batch import Batch
from headrace.schema import Schema
from headrace.time.clock import seconds
from headrace.time.punctuation import Late, Rejected

FIRST: Final = 5
"""How many results of a query are kept to be shown at the end of a run."""

Observer = Callable[[Mapping[str, list[Batch]], list[Late], list[Rejected]], None]
"""Gets results by query, late rows and rejected rows."""


@dataclass
class QueryOutputs:
    """The three outputs of a query. With `time`, results get a column of that name with their time."""

    name: str
    schema: Schema
    streams: frozenset[str]
    sink: Sink
    late: Sink
    rejected: Sink
    time: str | None = None
    is_timestamp: bool = True
    rows: int = 0
    first: list[pa.RecordBatch] = field(default_factory=list)
    """The first results of this run, at most `FIRST` rows, to show them."""

    def parts(self) -> dict[str, tuple[Sink, Schema]]:
        """Each output by name, with its columns."""
        return {
            f"{self.name}/sink": (self.sink, self.answer_schema),
            f"{self.name}/late": (self.late, LATE_SCHEMA),
            f"{self.name}/rejected": (self.rejected, REJECTED_SCHEMA),
        }

    @property
    def answer_schema(self) -> Schema:
        if self.time is None:
            return self.schema
        return self.schema.append(pa.field(self.time, INSTANT if self.is_timestamp else pa.int64()))

    def write(self, batches: Iterable[Batch]) -> None:
        """Write results."""
        for batch in batches:
            if len(batch):
                rows = self._answers(batch)
                self.sink.write(rows)
                self.rows += len(batch)
                room = FIRST - sum(each.num_rows for each in self.first)
                if room > 0:
                    self.first.append(rows.slice(0, room))

    def _answers(self, batch: Batch) -> pa.RecordBatch:
        """The rows of a batch, with their time as the last column if the sink asks for it."""
        if self.time is None:
            return batch.data
        column = pa.array(batch.start, self.answer_schema.field(self.time).type)
        return pa.RecordBatch.from_arrays([*batch.data.columns, column], schema=self.answer_schema)

    def write_late(self, rows: Iterable[Late]) -> None:
        """Write the late rows of the streams that the query reads."""
        if not isinstance(self.late, NoSink):
            for late in rows:
                if late.stream in self.streams:
                    self.late.write(late_rows([late]))

    def write_rejected(self, rows: Iterable[Rejected]) -> None:
        """Write the rejected rows of the streams that the query reads."""
        if not isinstance(self.rejected, NoSink):
            for rejected in rows:
                if rejected.stream in self.streams:
                    self.rejected.write(rejected_rows([rejected]))


class Outputs:
    """All outputs of a pipeline: written after each step, committed together."""

    def __init__(self, queries: Iterable[QueryOutputs]) -> None:
        self.queries = {query.name: query for query in queries}
        self.reasons = Reasons()
        self.observe: Observer | None = None
        self._parts = {n: part for q in self.queries.values() for n, part in q.parts().items()}
        self._begun: dict[str, Commit] = {}
        """By name, new outputs that are opened after the next commit."""
        self._spent: dict[str, float] = {}
        self.waiting = False
        """Whether rows were written that nobody can see before the next commit."""

    def spent(self) -> dict[str, float]:
        """The seconds that the sinks of each query took since the last call."""
        spent, self._spent = self._spent, {}
        return spent

    @contextmanager
    def _timed(self, query: str) -> Iterator[None]:
        """Add the time that the sinks of a query take."""
        begun = seconds()
        try:
            yield
        finally:
            self._spent[query] = self._spent.get(query, 0.0) + seconds() - begun

    def begin(self) -> dict[str, Commit]:
        """The commits to start from, before anything is written."""
        return {name: sink.begin() for name, (sink, _) in self._parts.items()}

    def open(self, commits: Mapping[str, Commit]) -> None:
        """Continue from these commits."""
        for name, (sink, schema) in self._parts.items():
            sink.open(schema, commits[name])

    def resume(self, commits: Mapping[str, Commit], continued: Collection[str]) -> None:
        """Continue some outputs from these commits; the others begin with the next commit."""
        old = {name for name in self._parts if name in continued and name in commits}
        self._begun |= {name: sink.begin() for name, (sink, _) in self._parts.items() if name not in old}
        for name, (sink, schema) in self._parts.items():
            if name in old:
                sink.open(schema, commits[name])

    def add(self, query: QueryOutputs) -> None:
        """Begin the outputs of a new query; the next commit opens them, and nothing is written before it."""
        parts = query.parts()
        self._begun |= {name: sink.begin() for name, (sink, _) in parts.items()}
        self._parts |= parts
        self.queries[query.name] = query

    def remove(self, query: str) -> None:
        """Close the outputs of a query, right after a commit: nothing was written since."""
        for name in self.queries.pop(query).parts():
            sink, _ = self._parts.pop(name)
            sink.close()

    def take(self, engine: Engine) -> None:
        """Take all output of the engine, and write it."""
        answers = engine.drain_all()
        for name, batches in answers.items():
            if batches:
                self.waiting = True
                with self._timed(name):
                    self.queries[name].write(batches)
        late, rejected = engine.drain_late(), engine.drain_rejected()
        if late or rejected:
            self.waiting = True
            self.reasons.add(late, rejected)
            for query in self.queries.values():
                with self._timed(query.name):
                    query.write_late(late)
                    query.write_rejected(rejected)
        if self.observe is not None:
            self.observe(answers, late, rejected)

    def prepare(self) -> dict[str, Commit]:
        """Make all output so far durable; returns the commit of each sink."""
        commits = dict(self._begun)
        for name, (sink, _) in self._parts.items():
            if name not in commits:
                with self._timed(_query_of(name)):
                    commits[name] = sink.prepare()
        return {name: commits[name] for name in self._parts}

    def publish(self, commits: Mapping[str, Commit]) -> None:
        """The commit is decided: make its output visible."""
        begun, self._begun = self._begun, {}
        self.waiting = False
        for name, (sink, schema) in self._parts.items():
            if name in begun:
                sink.open(schema, commits[name])
            else:
                with self._timed(_query_of(name)):
                    sink.publish(commits[name])

    def close(self) -> None:
        for sink, _ in self._parts.values():
            sink.close()


def _query_of(output: str) -> str:
    """The query of an output, from its name."""
    return output.rsplit("/", 1)[0]
