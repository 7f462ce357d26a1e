"""What a host gives back: answers, late and rejected rows, and how it is, packed as it came."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine import Engine
from headrace.expressions import Expression, compile
from headrace.flow.batch import Batch, concat
from headrace.operators.contract import Waiting
from headrace.plan.partials import ROWS
from headrace.runtimes.spark.jsonrows import as_json
from headrace.runtimes.spark.notes import LATE, METRICS, REJECTED, RESULT, Row, counted, metric, row
from headrace.runtimes.spark.packing import PASSING, Package, packed, to_ipc
from headrace.runtimes.spark.shards import shard_of, split
from headrace.runtimes.spark.store import held_bytes
from headrace.schema import Schema
from headrace.time.punctuate import Late, Rejected
from headrace.time.timestamp import MIN_TIME

LATE_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("time", pa.int64()),
        ("heartbeat", pa.int64()),
        ("lateness", pa.int64()),
        ("missed", pa.int64()),
        ("admitted", pa.bool_()),
        ("row", pa.string()),
    ]
)
REJECTED_SCHEMA = pa.schema(
    [("stream", pa.string()), ("code", pa.string()), ("reason", pa.string()), ("row", pa.string())]
)


@dataclass(frozen=True)
class Outlet:
    """How the answers of a query leave: `time` names a column for the time of each answer, if wanted.

    `tells_of` are the streams whose late and rejected rows this host tells of: a stream may be read by two.
    Of `kinds` the rows are wanted, of others their number.
    """

    time: str | None = None
    tells_of: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset((RESULT, LATE, REJECTED))

    def schema(self, of: Schema) -> Schema:
        """The columns of the answers of a plan."""
        return of if self.time is None else of.append(pa.field(self.time, pa.int64()))

    def columns(self, engine: Engine, shard: int, notes: list[bytes]) -> dict[str, list[Any]]:
        """All that the engine has to give, and what hosts below had, as columns of packed rows."""
        batches = engine.drain()
        rows = [_packed(RESULT, shard, self._timed(concat(batches)))] if batches else []
        rows += [*told(engine, shard, self), *(pickle.loads(note) for note in notes)]
        return {name: [row[name] for row in rows] for name in ("kind", "shard", "body", "metric")}

    def _timed(self, batch: Batch) -> pa.RecordBatch:
        if self.time is None:
            return batch.data
        times = pa.array(batch.start, pa.int64())
        return pa.RecordBatch.from_arrays([*batch.data.columns, times], schema=self.schema(batch.data.schema))


@dataclass(frozen=True)
class Forward(Outlet):
    """How the answers of a part leave for the shards of the host above, `names`, by the keys needed there.

    `first` is the number of the stream that stands there for shard 0 here. The heartbeat goes to every shard.
    """

    names: tuple[int, ...] = ()
    keys: tuple[Expression, ...] = ()
    first: int = 0

    def columns(self, engine: Engine, shard: int, notes: list[bytes]) -> dict[str, list[Any]]:
        batches = engine.drain()
        packages = self._divided(concat(batches), engine, shard) if batches else self._silent(engine, shard)
        passing = [*(pickle.dumps(row) for row in told(engine, shard, self)), *notes]
        packages += [Package(PASSING, engine.now, note=np.frombuffer(n, np.uint8)) for n in passing]
        names = [*self.names, *(self.names[0] for _ in passing)]
        return packed(names, shard, 0, packages)

    def _silent(self, engine: Engine, shard: int) -> list[Package]:
        beat = heartbeat(engine)
        return [Package(self.first + shard, engine.now, heartbeat=beat) for _ in self.names]

    def _divided(self, batch: Batch, engine: Engine, shard: int) -> list[Package]:
        keys = [compile(key, batch.data.schema)(batch.data) for key in self.keys]
        order, bounds = split(shard_of(keys, len(batch), len(self.names)), len(self.names))
        rows = batch.take(order.astype(np.int64))
        beat = heartbeat(engine)
        parts = [rows.slice(begin, stop) for begin, stop in pairwise(bounds.tolist())]
        return [
            Package(self.first + shard, engine.now, p.data, p.start, ends=p.end, signs=p.sign, heartbeat=beat)
            for p in parts
        ]


def heartbeat(engine: Engine) -> int:
    """How far the answers of the engine's one query are complete."""
    sink = next(iter(engine.graph.sinks.values()))
    top = next(node.operator for node in engine.graph.nodes if node.operator.output is sink.arc)
    assert isinstance(top, Waiting)
    return top.reach()


def told(engine: Engine, shard: int, outlet: Outlet) -> list[Row]:
    """Late and rejected rows, as far as the outlet wants them, and how the engine is."""
    late = [each for each in engine.drain_late() if each.stream in outlet.tells_of]
    rejected = [each for each in engine.drain_rejected() if each.stream in outlet.tells_of]
    rows = []
    if late:
        lost = sum(stood_for(each.rows.filter(pa.array(~each.admitted))) for each in late)
        rows.append(
            _packed(LATE, shard, late_rows(late)) if LATE in outlet.kinds else counted(LATE, shard, lost)
        )
    if rejected:
        count = sum(map(len, rejected))
        rows.append(
            _packed(REJECTED, shard, rejected_rows(rejected))
            if REJECTED in outlet.kinds
            else counted(REJECTED, shard, count)
        )
    return rows + [row(METRICS, shard, None, metric) for metric in _metrics(engine, shard, outlet.tells_of)]


def stood_for(rows: pa.RecordBatch) -> int:
    """The rows of the stream that some rows are: partial rows stand for several."""
    if ROWS not in rows.schema.names:
        return int(rows.num_rows)
    return int(pc.sum(rows.column(ROWS)).as_py() or 0)


def _packed(kind: str, shard: int, rows: pa.RecordBatch) -> Row:
    return row(kind, shard, to_ipc(rows), metric(shard, rows=rows.num_rows))


def _metrics(engine: Engine, shard: int, streams: frozenset[str]) -> list[Row]:
    sources = engine.metrics().sources
    rows = [
        metric(shard, stream=name, heartbeat=_known(s.promised), waiting=s.held_rows, rows=s.rows_in)
        for name, s in sources.items()
        if name in streams
    ]
    return [*rows, metric(shard, state_bytes=held_bytes(engine))]


def _known(heartbeat: int) -> int | None:
    return None if heartbeat == MIN_TIME else heartbeat


def late_rows(late: list[Late]) -> pa.RecordBatch:
    """Late rows of any streams in one form: a row as JSON."""
    columns: list[pa.Array] = [
        pa.array([name for each in late for name in [each.stream] * len(each)], pa.string()),
        pa.array(np.concatenate([each.times for each in late]), pa.int64()),
        pa.array(np.concatenate([np.full(len(each), each.heartbeat, np.int64) for each in late])),
        pa.array(np.concatenate([each.lateness for each in late]), pa.int64()),
        pa.array(np.concatenate([each.missed for each in late]), pa.int64()),
        pa.array(np.concatenate([each.admitted for each in late]), pa.bool_()),
        pa.chunked_array([as_json(each.rows) for each in late], pa.string()).combine_chunks(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LATE_SCHEMA)


def rejected_rows(rejected: list[Rejected]) -> pa.RecordBatch:
    """Rejected rows of any streams in one form: a row as JSON, or as the text it came as."""
    rows = []
    for each in rejected:
        texts = list(each.raw) if each.rows is None else as_json(each.rows).to_pylist()
        rows += [
            {"stream": each.stream, "code": each.code, "reason": each.reason, "row": text} for text in texts
        ]
    return pa.RecordBatch.from_pylist(rows, schema=REJECTED_SCHEMA)
