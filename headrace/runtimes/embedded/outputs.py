"""Where answers, late rows and rejected rows go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.connectors.columns import row_texts
from headrace.connectors.contract import Commit, Sink, shown
from headrace.connectors.sinks import NoSink
from headrace.engine import Engine
from headrace.engine.reasons import Reasons
from headrace.expressions.types import INSTANT
from headrace.flow.batch import Batch
from headrace.pipeline.pipeline import LATE, REJECTED
from headrace.schema import Schema
from headrace.time.punctuate import Late, Rejected


@dataclass
class QueryOutputs:
    """The three outputs of a query. With `time`, answers get a column of that name: when they hold."""

    name: str
    schema: Schema
    streams: frozenset[str]
    sink: Sink
    late: Sink
    rejected: Sink
    time: str | None = None
    is_timestamp: bool = True
    rows: int = 0

    def parts(self) -> dict[str, tuple[Sink, Schema]]:
        """Each output by name, with its columns."""
        return {
            f"{self.name}/sink": (self.sink, self.answer_schema),
            f"{self.name}/late": (self.late, LATE),
            f"{self.name}/rejected": (self.rejected, REJECTED),
        }

    @property
    def answer_schema(self) -> Schema:
        if self.time is None:
            return self.schema
        return self.schema.append(pa.field(self.time, INSTANT if self.is_timestamp else pa.int64()))

    def write(self, batches: Iterable[Batch]) -> None:
        """Take answers."""
        for batch in batches:
            if len(batch):
                self.sink.write(self._answers(batch))
                self.rows += len(batch)

    def _answers(self, batch: Batch) -> pa.RecordBatch:
        if self.time is None:
            return batch.data
        column = pa.array(batch.start, self.answer_schema.field(self.time).type)
        return pa.RecordBatch.from_arrays([*batch.data.columns, column], schema=self.answer_schema)

    def write_late(self, rows: Iterable[Late]) -> None:
        """Take late rows of the streams that the query reads."""
        if not isinstance(self.late, NoSink):
            for late in rows:
                if late.stream in self.streams:
                    self.late.write(late_rows(late))

    def write_rejected(self, rows: Iterable[Rejected]) -> None:
        """Take rejected rows of the streams that the query reads."""
        if not isinstance(self.rejected, NoSink):
            for rejected in rows:
                if rejected.stream in self.streams:
                    self.rejected.write(rejected_rows(rejected))


def late_rows(late: Late) -> pa.RecordBatch:
    """Late rows with the heartbeat in force and by how much they missed it."""
    n = len(late)
    columns = [
        pa.array([late.stream] * n),
        pa.array(late.times),
        pa.array(np.full(n, late.heartbeat, np.int64)),
        pa.array(late.lateness),
        pa.array(late.missed),
        pa.array(late.admitted),
        pa.array(row_texts(late.rows), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LATE)


def rejected_rows(rejected: Rejected) -> pa.RecordBatch:
    """Rejected rows, or what of them there is, with code and reason."""
    n = len(rejected)
    texts = list(rejected.raw) if rejected.rows is None else [shown(t) for t in row_texts(rejected.rows)]
    columns = [[rejected.stream] * n, [str(rejected.code)] * n, [rejected.reason] * n, texts]
    return pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], schema=REJECTED)


class Outputs:
    """All outputs of a pipeline: written after each step, committed together."""

    def __init__(self, queries: Iterable[QueryOutputs]) -> None:
        self.queries = {query.name: query for query in queries}
        self.reasons = Reasons()
        self._parts = {n: part for q in self.queries.values() for n, part in q.parts().items()}

    def begin(self) -> dict[str, Commit]:
        """The commits to start from; nothing is changed by this."""
        return {name: sink.begin() for name, (sink, _) in self._parts.items()}

    def open(self, commits: Mapping[str, Commit]) -> None:
        """Go on from commits."""
        for name, (sink, schema) in self._parts.items():
            sink.open(schema, commits[name])

    def take(self, engine: Engine) -> None:
        """Take all that the engine has to give, and write it."""
        for name, batches in engine.drain_all().items():
            self.queries[name].write(batches)
        late, rejected = engine.drain_late(), engine.drain_rejected()
        if late or rejected:
            self.reasons.add(late, rejected)
            for query in self.queries.values():
                query.write_late(late)
                query.write_rejected(rejected)

    def prepare(self) -> dict[str, Commit]:
        """Make all that was written safe."""
        return {name: sink.prepare() for name, (sink, _) in self._parts.items()}

    def publish(self, commits: Mapping[str, Commit]) -> None:
        """The commit was decided."""
        for name, (sink, _) in self._parts.items():
            sink.publish(commits[name])

    def close(self) -> None:
        for sink, _ in self._parts.values():
            sink.close()
