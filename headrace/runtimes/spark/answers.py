"""What a host gives back: answers, late and rejected rows, and how it is, packed as it came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.connectors.contract import shown
from headrace.connectors.encode import json_objects
from headrace.engine import Engine
from headrace.engine.reasons import Reasons
from headrace.expressions import Expression, compile
from headrace.flow.batch import Batch, concat
from headrace.operators.contract import Waiting
from headrace.plan.partials import ROWS
from headrace.runtimes.spark.notes import (
    LATE,
    LATE_SCHEMA,
    METRICS,
    REASONS,
    REJECTED,
    REJECTED_SCHEMA,
    RESULT,
    counted,
    notes,
    schema_for,
)
from headrace.runtimes.spark.packing import PASSING, Package, from_ipc, packed, to_ipc
from headrace.runtimes.spark.shards import shard_of, split
from headrace.runtimes.spark.store import held_bytes
from headrace.schema import Schema
from headrace.time.punctuate import Late, Rejected
from headrace.time.timestamp import MIN_TIME

MOST_ROWS: Final = 262_144
"""Rows that leave together."""


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

    def leaving(self, of: Schema) -> Schema:
        """The columns of the table in which the answers of a plan leave, and the notes with them."""
        return pa.schema([*schema_for(self.kinds), *carried(self.schema(of))])

    def frames(self, engine: Engine, of: Schema, shard: int, below: list[bytes]) -> Iterator[pd.DataFrame]:
        """All that the engine has to give, and what hosts below had."""
        batches, leaving = engine.drain(), self.leaving(of)
        tables = [*told(engine, shard, self), *map(from_ipc, below)]
        if batches:
            tables.append(_answer(shard, self._timed(concat(batches))))
        filled = pa.concat_tables([_filled(table, leaving) for table in tables]).combine_chunks()
        for batch in filled.to_batches(max_chunksize=MOST_ROWS):
            yield in_pandas(batch)

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

    def frames(self, engine: Engine, of: Schema, shard: int, below: list[bytes]) -> Iterator[pd.DataFrame]:
        batches = engine.drain()
        packages = self._divided(concat(batches), engine, shard) if batches else self._silent(engine, shard)
        passing = [*map(to_ipc, told(engine, shard, self)), *below]
        packages += [Package(PASSING, engine.now, note=np.frombuffer(n, np.uint8)) for n in passing]
        names = [*self.names, *(self.names[0] for _ in passing)]
        yield pd.DataFrame(packed(names, shard, 0, packages))

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


def told(engine: Engine, shard: int, outlet: Outlet) -> list[pa.Table]:
    """Late and rejected rows, as far as the outlet wants them, and how the engine is."""
    late = [each for each in engine.drain_late() if each.stream in outlet.tells_of]
    rejected = [each for each in engine.drain_rejected() if each.stream in outlet.tells_of]
    tables = _metrics(engine, shard, outlet.tells_of)
    if late:
        tables.append(_late(late, shard, LATE in outlet.kinds))
    if rejected:
        tables.append(_rejected(rejected, shard, REJECTED in outlet.kinds))
    if late or rejected:
        tables.append(_reasons(late, rejected, shard))
    return tables


def _reasons(late: list[Late], rejected: list[Rejected], shard: int) -> pa.Table:
    """Why rows were set apart, in one note: for people, who may not have asked for the rows."""
    found = Reasons(stood_for)
    found.add(late, rejected)
    return notes(REASONS, shard, {"body": json.dumps(found.state()).encode()})


def _late(late: list[Late], shard: int, wanted: bool) -> pa.Table:
    if not wanted:
        lost = sum(stood_for(each.rows.filter(pa.array(~each.admitted))) for each in late)
        return counted(LATE, shard, lost)
    rows = late_rows(late)
    return notes(
        LATE, shard, {**dict(zip(rows.schema.names, rows.columns, strict=True)), "rows": 1}, len(rows)
    )


def _rejected(rejected: list[Rejected], shard: int, wanted: bool) -> pa.Table:
    if not wanted:
        return counted(REJECTED, shard, sum(map(len, rejected)))
    rows = rejected_rows(rejected)
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    return notes(REJECTED, shard, {**columns, "rows": 1}, len(rows))


def stood_for(rows: pa.RecordBatch) -> int:
    """The rows of the stream that some rows are: partial rows stand for several."""
    if ROWS not in rows.schema.names:
        return int(rows.num_rows)
    return int(pc.sum(rows.column(ROWS)).as_py() or 0)


def _metrics(engine: Engine, shard: int, streams: frozenset[str]) -> list[pa.Table]:
    sources = {name: s for name, s in engine.graph.sources.items() if name in streams}
    figures = {
        "stream": pa.array(sources, pa.string()),
        "heartbeat": pa.array([_known(s.known(engine.now)) for s in sources.values()], pa.int64()),
        "waiting": pa.array([s.arc.held_rows() for s in sources.values()], pa.int64()),
        "rows": pa.array([s.admission.rows_in for s in sources.values()], pa.int64()),
    }
    held = {"state_bytes": held_bytes(engine)}
    return [notes(METRICS, shard, figures, len(sources)), notes(METRICS, shard, held)]


def _known(heartbeat: int) -> int | None:
    return None if heartbeat == MIN_TIME else heartbeat


def is_flat(schema: Schema) -> bool:
    """Whether each column can leave as it is; Python would take nested ones apart value by value."""
    return not any(pt.is_nested(field.type) for field in schema)


def carried(schema: Schema) -> Schema:
    """The columns of answers as they leave: instants as numbers, which no time zone touches."""
    if not is_flat(schema):
        return pa.schema([])
    fields = [pa.field(f.name, pa.int64() if pt.is_timestamp(f.type) else f.type) for f in schema]
    return pa.schema(fields)


def _answer(shard: int, rows: pa.RecordBatch) -> pa.Table:
    if not is_flat(rows.schema):
        return notes(RESULT, shard, {"body": to_ipc(rows), "rows": len(rows)})
    columns = [_counted(c) if pt.is_timestamp(c.type) else c for c in rows.columns]
    return pa.Table.from_arrays(columns, rows.schema.names).cast(carried(rows.schema))


def _counted(times: pa.Array) -> pa.Array:
    """Timestamps as microseconds."""
    return times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())


def _filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`; those that the table has not are nothing."""
    known, rows = set(table.column_names), table.num_rows
    columns = [table.column(f.name) if f.name in known else pa.nulls(rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def in_pandas(batch: pa.RecordBatch) -> pd.DataFrame:
    """The same buffers as pandas has them: PySpark takes them back as they are."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return pd.DataFrame({name: pd.arrays.ArrowExtensionArray(column) for name, column in columns}, copy=False)


def late_rows(late: list[Late]) -> pa.RecordBatch:
    """Late rows of any streams in one form: a row as JSON."""
    columns: list[pa.Array] = [
        pa.array([name for each in late for name in [each.stream] * len(each)], pa.string()),
        pa.array(np.concatenate([each.times for each in late]), pa.int64()),
        pa.array(np.concatenate([np.full(len(each), each.heartbeat, np.int64) for each in late])),
        pa.array(np.concatenate([each.lateness for each in late]), pa.int64()),
        pa.array(np.concatenate([each.missed for each in late]), pa.int64()),
        pa.array(np.concatenate([each.admitted for each in late]), pa.bool_()),
        pa.chunked_array([json_objects(each.rows).cast(pa.string()) for each in late]).combine_chunks(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LATE_SCHEMA)


def rejected_rows(rejected: list[Rejected]) -> pa.RecordBatch:
    """Rejected rows of any streams in one form: a row as JSON, or as the text it came as."""
    rows = []
    for each in rejected:
        texts = each.raw if each.rows is None else map(shown, json_objects(each.rows).to_pylist())
        rows += [
            {"stream": each.stream, "code": each.code, "reason": each.reason, "row": text} for text in texts
        ]
    return pa.RecordBatch.from_pylist(rows, schema=REJECTED_SCHEMA)
