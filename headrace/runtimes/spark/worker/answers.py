"""What a host emits: results, late and rejected rows, and metrics, in one table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.connectors.late_and_rejected import late_rows, rejected_rows
from headrace.engine import Engine
from headrace.engine.reasons import Reasons
from headrace.expressions import Expression, compile
from headrace.flow.batch import Batch, concat
from headrace.plan.analysis.partials import ROWS
from headrace.plan.nodes.core import Plan
from headrace.runtimes.spark.worker.packing import (
    PASSING,
    Package,
    Route,
    from_ipc,
    ipc_buffer,
    packed,
    to_ipc,
)
from headrace.runtimes.spark.worker.report import report
from headrace.runtimes.spark.worker.shards import shard_of, split
from headrace.schema import Schema
from headrace.state.promises import to_bytes, to_plain
from headrace.time.punctuation import Late, Rejected
from headrace.time.timestamp import MIN_TIME

# Side outputs of a host: late and rejected rows, and metrics.
#
# Results and side outputs leave a host as rows of one table. A result has no `kind`; a row of a side output
# has only columns whose names begin with `__headrace_`, which no column of a result has.


RESULT, LATE, REJECTED, METRICS, REASONS = "result", "late", "rejected", "metric", "reasons"

KIND: Final = "__headrace_kind"


def named(column: str) -> str:
    """The column of the combined table that holds a field of a side output."""
    return f"__headrace_{column}"


SIDE_OUTPUT: Final = pa.schema(
    [
        (KIND, pa.string()),
        ("__headrace_query", pa.string()),
        ("__headrace_shard", pa.int32()),
        ("__headrace_stream", pa.string()),
        ("__headrace_heartbeat", pa.int64()),
        ("__headrace_waiting", pa.int64()),
        ("__headrace_rows", pa.int64()),
        ("__headrace_state_bytes", pa.int64()),
        ("__headrace_body", pa.binary()),
    ]
)
"""The columns of side outputs. Packed results, late and rejected rows are Arrow bytes in the body."""


def side_output(kind: str, shard: int, columns: Mapping[str, Any], count: int = 1) -> pa.Table:
    """Rows of a side output: fields are arrays, or one value for all rows; missing ones are NULL."""
    given = {KIND: kind, named("shard"): shard, **{named(name): value for name, value in columns.items()}}
    arrays = [_column(given.get(field.name), field.type, count) for field in SIDE_OUTPUT]
    return pa.Table.from_arrays(arrays, schema=SIDE_OUTPUT)


def _column(value: Any, of: pa.DataType, count: int) -> pa.Array:
    """The value as a column of `count` rows; None becomes nulls."""
    if isinstance(value, pa.Array):
        return value.cast(of)
    if isinstance(value, pa.Buffer):  # the results of a micro-batch: not copied
        return pa.Array.from_buffers(of, 1, [None, pa.py_buffer(np.array([0, value.size], np.int32)), value])
    return pa.nulls(count, of) if value is None else pa.repeat(pa.scalar(value, of), count)


def side_output_count(kind: str, shard: int, stream: str, count: int) -> pa.Table:
    """The number of late or rejected rows of a stream, without the rows."""
    return side_output(kind, shard, {"stream": stream, "rows": count})


MOST_ROWS: Final = 262_144
"""The maximum number of rows in one output batch."""

ALONE: Final = 1 << 20
"""The bytes from which a table of results leaves a host on its own."""

AT: Final = "__headrace_at"
"""The time of a result, as the last column of packed results."""


@dataclass(frozen=True)
class Forward:
    """How the results of a lower stage go to the shards of the stage above, by the keys needed there.

    `shard_keys` are those shards. There, stream `first` carries the results of shard 0 of this stage. The
    heartbeat and punctuations go to every shard.
    """

    shard_keys: tuple[int, ...] = ()
    keys: tuple[Expression, ...] = ()
    first: int = 0

    def packages(self, engine: Engine, query: str, shard: int) -> list[Package]:
        """The results of a query since the last micro-batch, one package for each shard above.

        Each package has the punctuations that hold for later results.
        """
        batches, promises = engine.drain_with_promises(query)
        beat, stream = engine.complete_until(query), self.first + shard
        said = to_bytes([False, [*map(to_plain, promises)]]) if promises else None
        if not batches:
            return [Package(stream, engine.now, heartbeat=beat, promises=said) for _ in self.shard_keys]
        batch = concat(batches)
        keys = [compile(key, batch.data.schema)(batch.data) for key in self.keys]
        order, bounds = split(shard_of(keys, len(batch), len(self.shard_keys)), len(self.shard_keys))
        rows = batch.take(order.astype(np.int64))
        parts = [rows.slice(begin, stop) for begin, stop in pairwise(bounds.tolist())]
        return [
            Package(
                *(stream, engine.now, p.data, p.start),
                ends=p.end,
                signs=p.sign,
                heartbeat=beat,
                promises=said,
            )
            for p in parts
        ]


@dataclass(frozen=True)
class Outlet:
    """How results and side outputs leave a host: as one table, or to the host above.

    The table has the columns of the only query, with `time` for the time of each result if given; or, if the
    results are `packed`, any number of queries, each with its results as Arrow bytes, which may be nested.
    `reported_streams` are
    the streams whose late and rejected rows this host reports: two hosts may read a stream. Rows of `kinds`
    are reported in full, of other kinds only their number; `whole`, if given, are the only streams that are
    reported in full.

    `forwards` are the queries that continue in the host above. Everything else goes through its first shard,
    `through`.
    """

    time: str | None = None
    reported_streams: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset((RESULT, LATE, REJECTED))
    packed: bool = False
    whole: frozenset[str] | None = None
    forwards: Mapping[str, Forward] = field(default_factory=dict)
    through: int | None = None

    def schema(self, of: Schema) -> Schema:
        """The columns of the results of a plan."""
        return of if self.time is None else of.append(pa.field(self.time, pa.int64()))

    def leaving(self, of: Schema) -> Schema:
        """The columns of the combined table: those of side outputs, then those of the results of a plan."""
        results = () if self.packed else carried(self.schema(of))
        return pa.schema([*SIDE_OUTPUT, *results])

    def reports(self, kind: str, stream: str) -> bool:
        """Whether the late or rejected rows of a stream are reported in full."""
        return kind in self.kinds and (self.whole is None or stream in self.whole)

    def frames(
        self,
        engine: Engine,
        plans: Mapping[str, Plan],
        shard: int,
        below: list[bytes],
        memory: Mapping[str, Any],
    ) -> Iterator[pd.DataFrame]:
        """The results and side outputs of the engine, and the side outputs of hosts below.

        `memory` is what the shard reports about its windows.
        """
        tables = side_outputs(engine, shard, self, memory)
        for query in plans:
            if query not in self.forwards:
                tables += self._answers(engine, query, shard)
        if self.through is None:
            yield from self._leave(tables, below, plans)
        else:
            yield self._pass(tables, below, engine, plans, shard, self.through)

    def _answers(self, engine: Engine, query: str, shard: int) -> list[pa.Table]:
        """The results of a query, in one table or packed."""
        batches = engine.drain(query)
        if not batches:
            return []
        batch = concat(batches)
        if not self.packed:
            return [_answer(self._timed(batch))]
        rows = _with_time(batch, AT)
        parts = [rows.slice(begin, MOST_ROWS) for begin in range(0, rows.num_rows, MOST_ROWS)]
        return [
            side_output(RESULT, shard, {"query": query, "body": ipc_buffer(part), "rows": part.num_rows})
            for part in parts
        ]

    def _leave(
        self, tables: list[pa.Table], below: list[bytes], plans: Mapping[str, Plan]
    ) -> Iterator[pd.DataFrame]:
        """Everything as rows of the combined table."""
        leaving = self.leaving(next(iter(plans.values())).schema if plans else pa.schema([]))
        filled = [_filled(table, leaving) for table in (*tables, *map(from_ipc, below))]
        # Large tables leave as they are: putting them together would copy their results once more.
        small = [table for table in filled if table.nbytes < ALONE]
        large = [table for table in filled if table.nbytes >= ALONE]
        for table in [*([pa.concat_tables(small).combine_chunks()] if small else []), *large]:
            for batch in table.to_batches(max_chunksize=MOST_ROWS):
                yield in_pandas(batch)

    def _pass(
        self,
        tables: list[pa.Table],
        below: list[bytes],
        engine: Engine,
        plans: Mapping[str, Plan],
        shard: int,
        through: int,
    ) -> pd.DataFrame:
        """Packages for the shards of the host above."""
        packages: list[Package] = []
        shard_keys: list[int] = []
        for query, forward in self.forwards.items():
            if query not in plans:
                continue  # removed while the job runs
            packages += forward.packages(engine, query, shard)
            shard_keys += forward.shard_keys
        passing = [*map(to_ipc, tables), *below]
        packages += [Package(PASSING, engine.now, side_output=np.frombuffer(n, np.uint8)) for n in passing]
        shard_keys += [through] * len(passing)
        return pd.DataFrame(packed(Route(()), shard_keys, shard, 0, packages))

    def _timed(self, batch: Batch) -> pa.RecordBatch:
        """The rows with their time as the last column, if the query asks for it."""
        return batch.data if self.time is None else _with_time(batch, self.time)


def _with_time(batch: Batch, column: str) -> pa.RecordBatch:
    """The rows of a batch, with their time as the last column."""
    schema = batch.data.schema.append(pa.field(column, pa.int64()))
    return pa.RecordBatch.from_arrays([*batch.data.columns, pa.array(batch.start, pa.int64())], schema=schema)


def side_outputs(engine: Engine, shard: int, outlet: Outlet, memory: Mapping[str, Any]) -> list[pa.Table]:
    """Late and rejected rows, or their number, and metrics of the engine."""
    late = [each for each in engine.drain_late() if each.stream in outlet.reported_streams]
    rejected = [each for each in engine.drain_rejected() if each.stream in outlet.reported_streams]
    tables = _metrics(engine, shard, outlet.reported_streams, memory)
    if late:
        tables += _late(late, shard, outlet)
    if rejected:
        tables += _rejected(rejected, shard, outlet)
    if late or rejected:
        tables.append(_reasons(late, rejected, shard))
    return tables


def _reasons(late: list[Late], rejected: list[Rejected], shard: int) -> pa.Table:
    """Why rows are late or were rejected, as one row of a side output, for users who do not see the rows."""
    found = Reasons(stood_for)
    found.add(late, rejected)
    return side_output(REASONS, shard, {"body": json.dumps(found.state()).encode()})


def _late(late: list[Late], shard: int, outlet: Outlet) -> Iterator[pa.Table]:
    """The late rows of each stream as a side output, or only their number where nobody reads them."""
    for stream in dict.fromkeys(each.stream for each in late):
        own = [each for each in late if each.stream == stream]
        if outlet.reports(LATE, stream):
            yield _packed_rows(LATE, shard, stream, late_rows(own))
        else:
            lost = sum(stood_for(each.rows.filter(pa.array(~each.admitted))) for each in own)
            yield side_output_count(LATE, shard, stream, lost)


def _rejected(rejected: list[Rejected], shard: int, outlet: Outlet) -> Iterator[pa.Table]:
    """The rejected rows of each stream as a side output, or only their number where nobody reads them."""
    for stream in dict.fromkeys(each.stream for each in rejected):
        own = [each for each in rejected if each.stream == stream]
        if outlet.reports(REJECTED, stream):
            yield _packed_rows(REJECTED, shard, stream, rejected_rows(own))
        else:
            yield side_output_count(REJECTED, shard, stream, sum(map(len, own)))


def _packed_rows(kind: str, shard: int, stream: str, rows: pa.RecordBatch) -> pa.Table:
    """Late or rejected rows as Arrow bytes."""
    return side_output(kind, shard, {"stream": stream, "rows": rows.num_rows, "body": to_ipc(rows)})


def stood_for(rows: pa.RecordBatch) -> int:
    """How many rows of the stream these rows represent; a partial row represents several."""
    if ROWS not in rows.schema.names:
        return int(rows.num_rows)
    return int(pc.sum(rows.column(ROWS)).as_py() or 0)


def _metrics(
    engine: Engine, shard: int, streams: frozenset[str], memory: Mapping[str, Any]
) -> list[pa.Table]:
    """Side outputs with the metrics of each stream, and with the size of the state."""
    metrics = engine.metrics()
    sources = {name: source for name, source in metrics.sources.items() if name in streams}
    figures = {
        "stream": pa.array(sources, pa.string()),
        "heartbeat": pa.array([_known(engine.streams.known(name)) for name in sources], pa.int64()),
        "waiting": pa.array([s.held_rows for s in sources.values()], pa.int64()),
        "rows": pa.array([s.rows_in for s in sources.values()], pa.int64()),
    }
    held = {
        "state_bytes": metrics.bytes + metrics.spilled_bytes,
        "body": report(engine, metrics, sources.keys(), memory, shard),
    }
    return [side_output(METRICS, shard, figures, len(sources)), side_output(METRICS, shard, held)]


def _known(heartbeat: int) -> int | None:
    return None if heartbeat == MIN_TIME else heartbeat


def is_flat(schema: Schema) -> bool:
    """Whether no column is nested; PySpark would convert nested ones value by value."""
    return not any(pt.is_nested(field.type) for field in schema)


def carried(schema: Schema) -> Schema:
    """The columns of results as they leave: timestamps as numbers, which no time zone changes."""
    fields = [pa.field(f.name, pa.int64() if pt.is_timestamp(f.type) else f.type) for f in schema]
    return pa.schema(fields)


def _answer(rows: pa.RecordBatch) -> pa.Table:
    """Results as rows of the combined table."""
    columns = [_counted(c) if pt.is_timestamp(c.type) else c for c in rows.columns]
    return pa.Table.from_arrays(columns, rows.schema.names).cast(carried(rows.schema))


def _counted(times: pa.Array) -> pa.Array:
    """Timestamps as microseconds."""
    return times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())


def _filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`; those that the table does not have are NULL."""
    known, rows = set(table.column_names), table.num_rows
    columns = [table.column(f.name) if f.name in known else pa.nulls(rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def in_pandas(batch: pa.RecordBatch) -> pd.DataFrame:
    """The same buffers as a pandas DataFrame, which PySpark takes without a copy."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return pd.DataFrame({name: pd.arrays.ArrowExtensionArray(column) for name, column in columns}, copy=False)
